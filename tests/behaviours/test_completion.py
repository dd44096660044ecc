"""Shell completion: the printed script, in a real shell where there is one."""

from __future__ import annotations

import os
import pty
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from tests.commands import FLOE
from tests.lakes import open_manager


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("floe ini", "floe init "),
        ("floe init --cat", "floe init --catalog "),
        ("floe init --template po", "floe init --template polars "),
        ("floe completion f", "floe completion fish "),
        (f"{FLOE} namespaces li", f"{FLOE} namespaces list "),
    ],
)
def test_bash_completes(tmp_path: Path, typed: str, completed: str) -> None:
    child, terminal = pty.fork()
    if child == 0:
        path = f"{Path(FLOE).parent}:/usr/bin:/bin"
        os.execve("/bin/bash", ["bash", "--norc", "--noprofile", "-i"], {"PATH": path, "HOME": str(tmp_path)})
    os.write(terminal, b'eval "$(floe completion bash)"\n')
    # After the Tab key: to the start of the line, to its end, and Enter; the shell prints what the line has become.
    os.write(terminal, f"{typed}\t\x01echo '[\x05]'\nexit\n".encode())
    shown = b""
    while True:
        try:
            read = os.read(terminal, 4096)
        except OSError:  # the shell has ended
            break
        if not read:
            break
        shown += read
    os.close(terminal)
    os.waitpid(child, 0)
    assert f"\n[{completed}]" in shown.decode().replace("\x1b[?2004l\r", "").replace("\r", ""), shown.decode()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_in_its_language(tmp_path: Path, shell: str) -> None:
    printed = subprocess.run([FLOE, "completion", shell], capture_output=True, text=True, check=True)
    assert printed.stderr == ""
    assert f"_FLOE_COMPLETE={shell}_complete" in printed.stdout
    program = shutil.which(shell)
    if program:
        (tmp_path / "script").write_text(printed.stdout)
        subprocess.run([program, "-n", tmp_path / "script"], check=True)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A project with two tables, and a third whose name a shell would run."""
    root = tmp_path / "my shop"
    root.mkdir()
    overlay = "environments: {other: {catalog: {uri: 'sqlite:///none.db'}}, server: {catalog: {type: sql, uri: "
    overlay += "'postgresql://floe@db.example.com/lake?sslmode=require'}}}"
    (root / "floe.yaml").write_text(f"name: shop\n{overlay}\n", encoding="utf-8")
    manager = open_manager(root)
    for name in ("bronze.orders", "bronze.raw.orders", "gold.totals"):
        manager.write_data(name, pa.table({"n": [1]}), mode="append")
    manager.close()
    with closing(sqlite3.connect(root / ".floe" / "catalog.db")) as database:
        database.execute("UPDATE iceberg_tables SET table_name = '$(touch owned)' WHERE table_name = 'totals'")
        database.commit()
    return root


def completed(folder: Path, *words: str) -> list[str]:
    """What bash is offered for the last word; no engine may be imported for it."""
    program = (
        "import sys; sys.argv = ['floe']; from floe_runtime.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "assert not {'pyspark', 'pyiceberg', 'pyarrow', 'dagster', 'sqlalchemy'} & set(sys.modules)"
    )
    environment = {
        "PATH": os.environ["PATH"],
        "_FLOE_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(["floe", *words]),
        "COMP_CWORD": str(len(words)),
    }
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    assert ran.stderr == ""
    return [line.removeprefix("plain,") for line in ran.stdout.split()]


@pytest.mark.parametrize(
    ("typed", "names"),
    [
        ("read bro", ["bronze.orders", "bronze.raw.orders"]),
        ("tables show bronze.r", ["bronze.raw.orders"]),
        ("snapshots rollback bro", ["bronze.orders", "bronze.raw.orders"]),
        ("maintain plan --table bronze.o", ["bronze.orders"]),
        ("read gold", []),  # not a name that a shell would run
        ("read --env other bro", []),  # an environment without a lake
        ("read --env server bro", []),  # a database elsewhere is not asked
        ("read --env none bro", []),  # an environment that does not exist
    ],
)
def test_names_of_tables_are_completed_without_an_engine(shop: Path, typed: str, names: list[str]) -> None:
    before = sorted(path.name for path in (shop / ".floe").iterdir())
    assert completed(shop, *typed.split()) == names
    assert sorted(path.name for path in (shop / ".floe").iterdir()) == before


def test_a_table_of_a_writer_that_is_still_open_is_completed(shop: Path) -> None:
    with closing(open_manager(shop)) as manager:
        manager.write_data("silver.orders", pa.table({"n": [1]}), mode="append")
        assert completed(shop, "read", "sil") == ["silver.orders"]


def test_outside_of_a_project_nothing_is_completed_and_nothing_is_created(tmp_path: Path) -> None:
    assert completed(tmp_path, "read", "bro") == []
    (tmp_path / "floe.yaml").write_text("name: shop\n", encoding="utf-8")
    assert completed(tmp_path, "read", "bro") == []
    assert [path.name for path in tmp_path.iterdir()] == ["floe.yaml"]
    (tmp_path / "floe.yaml").write_text("name: [\n", encoding="utf-8")
    assert completed(tmp_path, "read", "bro") == []
