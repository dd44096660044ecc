"""What the command imports, and what it can do with few packages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ENGINES = "{'pyspark', 'pyiceberg', 'pyarrow', 'dagster', 'pandas'}"


@pytest.mark.parametrize(
    "arguments", [["--help"], ["compile"], ["compile", "--json"], ["init", "y"], ["namespaces", "--help"]]
)
def test_no_engine_is_imported_for(arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / "floe.yaml").write_text("name: shop\n")
    program = (
        "import sys; from floe_runtime.cli import main\n"
        "try: main()\n"
        "except SystemExit as done: code = done.code\n"
        f"assert not code and not {ENGINES} & set(sys.modules), (code, {ENGINES} & set(sys.modules))"
    )
    subprocess.run([sys.executable, "-c", program, *arguments], cwd=tmp_path, check=True, capture_output=True)


def test_a_command_that_needs_an_engine_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "floe.yaml").write_text("name: shop\n")
    program = (
        "import sys; sys.modules['dagster'] = None; sys.argv = ['floe', 'run']\n"
        "from floe_runtime.cli import main; main()"
    )
    ran = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "pip install 'floe-runtime[all]'" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_reading_rows_imports_neither_spark_nor_dagster_nor_pandas(tmp_path: Path) -> None:
    (tmp_path / "floe.yaml").write_text("name: shop\n")
    program = (
        "import pyarrow as pa, sys\n"
        "from floe_runtime.cli import main\n"
        "from floe_runtime.cli.rows.start import skip_pandas\n"
        "def run(*arguments):\n"
        "    sys.argv = ['floe', *arguments]\n"
        "    try: main()\n"
        "    except SystemExit as done: return done.code\n"
        "skip_pandas()\n"
        "from floe_runtime import connect\n"
        "with connect() as lake: lake.tables.write_data('a.b', pa.table({'id': [1]}), mode='append')\n"
        "codes = [run('read', 'a.b'), run('sql', 'SELECT * FROM a.b')]\n"
        "found = {'pyspark', 'dagster', 'pandas', 'polars'} & set(sys.modules)\n"
        "assert codes == [0, 0] and not found, (codes, found)\n"
        "import pandas; assert pa.table({'id': [1]}).to_pandas().shape == (1, 1)"
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)


def test_reading_rows_imports_no_catalog_server_and_no_log_renderer(tmp_path: Path) -> None:
    (tmp_path / "floe.yaml").write_text("name: shop\n")
    write = (
        "import pyarrow as pa; from floe_runtime import connect\n"
        "with connect() as lake: lake.tables.write_data('a.b', pa.table({'id': [1]}), mode='append')"
    )
    subprocess.run([sys.executable, "-c", write], cwd=tmp_path, check=True)
    program = (
        "import sys; from floe_runtime.cli import main\n"
        "def run(*arguments):\n"
        "    sys.argv = ['floe', *arguments, '--json']\n"
        "    try: main()\n"
        "    except SystemExit as done: return done.code\n"
        "codes = [run('read', 'a.b'), run('sql', 'SELECT * FROM a.b')]\n"
        "found = {'requests', 'structlog', 'rich', 'floe_polaris', 'floe_iceberg.checks'} & set(sys.modules)\n"
        "assert codes == [0, 0] and not found, (codes, found)"
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["sql", "SELECT 1 AS n", "--output", "csv"], (0, '"n"\n1\n', "")),
        (["sql", "SELECT nothing", "--json"], (1, "there is no column", "")),
        (["sql", "DROP TABLE a.b"], (3, "", "DROP writes")),
        (["sql"], (2, "", "give one query")),
        (["compile"], (0, "", "at the end")),
    ],
)
def test_a_command_that_reads_rows_leaves_without_exit_handlers(
    arguments: list[str], expected: tuple[int, str, str], tmp_path: Path
) -> None:
    (tmp_path / "floe.yaml").write_text("name: shop\n")
    program = (
        "import atexit, sys; from floe_runtime.cli import program\n"
        "atexit.register(lambda: print('at the end', file=sys.stderr)); program()"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    code, out, error = expected
    assert ran.returncode == code
    assert out in ran.stdout
    assert error in ran.stderr
    assert ("at the end" in ran.stderr) == (arguments == ["compile"])
