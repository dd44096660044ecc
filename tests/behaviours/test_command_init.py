"""floe init as its users run it: in a script, in a terminal, and the commands that it prints."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from tests.commands import FLOE, floe
from tests.terminals import in_a_terminal

from floe_core.compiler import compile_project
from floe_iceberg import IcebergTableManager

CLEAN_PATH = "/usr/local/bin:/usr/bin:/bin"


def rows(root: Path, name: str) -> int:
    tables = IcebergTableManager.open(compile_project(root).artifacts)
    return len(tables.scan(name).to_arrow())


def test_a_polars_project_runs_by_the_commands_that_are_printed(tmp_path: Path) -> None:
    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=tmp_path,
            env={"PATH": CLEAN_PATH, "HOME": str(tmp_path), "JAVA_HOME": str(tmp_path), "LANG": "C.UTF-8"},
            capture_output=True,
            text=True,
            check=False,
        )

    created = run(FLOE, "init", "a/shop", "--template", "polars")
    assert created.returncode == 0, created.stderr
    commands = [line.strip() for line in created.stdout.splitlines() if line.startswith("  ")]
    assert commands == ["cd a/shop", f"{FLOE} run"]  # floe is not on the PATH
    ran = run("bash", "-ec", "\n".join(commands))
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    assert rows(tmp_path / "a" / "shop", "bronze.measurements") == 14_400
    assert rows(tmp_path / "a" / "shop", "gold.daily_averages") == 10


@pytest.mark.full  # starts Spark
def test_a_medallion_project_runs_as_it_was_generated(tmp_path: Path) -> None:
    assert floe("init", "shop", "--template", "medallion", cwd=tmp_path).returncode == 0
    ran = floe("run", "--missing", "--json", cwd=tmp_path / "shop")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    written = {one["table"]: one["rows"] for one in json.loads(ran.stdout)["materialized"]}
    assert written == {
        "bronze.orders": 11_088,
        "bronze.customers": 50,
        "silver.orders": 10_080,
        "silver.customers": 50,
        "gold.daily_revenue": 21,
    }


def test_the_commands_name_floe_as_it_can_be_typed(tmp_path: Path) -> None:
    other = tmp_path / "bin" / "floe"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    printed = {}
    for name, first in (("same", Path(FLOE).parent), ("another", other.parent)):
        environment = {**os.environ, "PATH": f"{first}:{CLEAN_PATH}"}
        created = subprocess.run(
            [FLOE, "init", name], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
        printed[name] = created.stdout.splitlines()[-1].strip()
    assert printed == {"same": "floe run", "another": f"{FLOE} run"}


@pytest.mark.parametrize("character", ["#", "%", "?"])
def test_a_folder_in_which_nothing_would_run_is_refused(tmp_path: Path, character: str) -> None:
    place = tmp_path / f"a{character}b"
    place.mkdir()
    for folder in ("shop", "."):
        refused = floe("init", folder, "--template", "polars", cwd=place)
        assert refused.returncode == 1
        assert "contains one of # % ?, which Iceberg does not support; choose another" in refused.stderr
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("character", ["#", "%", "?"])
def test_a_project_that_was_moved_to_such_a_folder_says_so(tmp_path: Path, character: str) -> None:
    assert floe("init", "shop", "--template", "polars", cwd=tmp_path).returncode == 0
    place = tmp_path / f"a{character}b"
    (tmp_path / "shop").rename(place)
    for command in (("run", "--missing"), ("plan",), ("tables", "list")):
        refused = floe(*command, cwd=place)
        assert refused.returncode == 1
        assert (
            "contains one of # % ?, which Iceberg does not support; choose another" in refused.stdout + refused.stderr
        )
        assert "Traceback" not in refused.stdout + refused.stderr


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "definitions.py").write_text("# mine\n")
    refused = floe("init", "shop", cwd=tmp_path)
    assert refused.returncode == 3
    assert refused.stderr == "error: shop is not empty (it holds definitions.py); choose a new or empty folder\n"
    assert [path.name for path in (tmp_path / "shop").iterdir()] == ["definitions.py"]
    assert (tmp_path / "shop" / "definitions.py").read_text() == "# mine\n"
    inside = floe("init", "shop/definitions.py/deeper", cwd=tmp_path)
    assert inside.returncode == 3
    assert "definitions.py is not a folder" in inside.stderr
    (tmp_path / "to-nowhere").symlink_to(tmp_path / "missing")
    dangling = floe("init", "to-nowhere", cwd=tmp_path)
    assert (dangling.returncode, "Traceback" in dangling.stderr) == (3, False)


def test_a_folder_with_a_repository_and_an_environment_is_as_good_as_empty(tmp_path: Path) -> None:
    for held in (".git", ".venv"):
        (tmp_path / "shop" / held).mkdir(parents=True)
    created = floe("init", ".", cwd=tmp_path / "shop")
    assert created.returncode == 0, created.stderr
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / ".gitignore").write_text("mine\n")
    assert floe("init", "other", cwd=tmp_path).returncode == 3
    assert (tmp_path / "other" / ".gitignore").read_text() == "mine\n"


def test_the_current_folder_can_become_the_project(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    created = floe("init", ".", cwd=tmp_path / "shop")
    assert created.returncode == 0, created.stderr
    assert "cd " not in created.stdout
    assert compile_project(tmp_path / "shop").artifacts.name == "shop"


def test_a_misspelt_template_is_a_usage_error_with_a_suggestion(tmp_path: Path) -> None:
    refused = floe("init", "shop", "--template", "medalion", cwd=tmp_path)
    assert refused.returncode == 2
    assert "Did you mean 'medallion'?" in refused.stderr
    named = floe("init", "my shop", cwd=tmp_path)
    assert named.returncode == 1
    assert "'my shop' is not a valid name" in named.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_script_is_asked_nothing(tmp_path: Path) -> None:
    created = floe("init", cwd=tmp_path)
    assert created.returncode == 0, created.stderr
    assert "created the project lakehouse: README.md, definitions.py, floe.yaml" in created.stdout
    assert "pyspark" in (tmp_path / "lakehouse" / "definitions.py").read_text()
    assert compile_project(tmp_path / "lakehouse").artifacts.catalog.type == "sql"


def test_a_terminal_is_asked_for_what_is_not_given(tmp_path: Path) -> None:
    answers = {"Folder of the project [lakehouse]: ": "shop\n", "Catalog [sql]: ": "polaris\n"}
    code, shown = in_a_terminal("init", "--template", "polars", cwd=tmp_path, answers=answers)
    assert code == 0, shown
    assert "Template [" not in shown
    assert re.search(r"export POLARIS_CLIENT_ID=.*\s+\S+ compile --check", shown)
    assert compile_project(tmp_path / "shop").artifacts.catalog.type == "polaris"
    assert "polars" in (tmp_path / "shop" / "definitions.py").read_text()


def test_ctrl_c_at_a_question_creates_nothing(tmp_path: Path) -> None:
    code, shown = in_a_terminal("init", "shop", cwd=tmp_path, answers={"Template [spark]: ": "\x03"}, forked=False)
    assert code == 130
    assert "interrupted; nothing was created" in shown
    assert list(tmp_path.iterdir()) == []
