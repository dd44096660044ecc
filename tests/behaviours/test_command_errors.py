"""How the floe command reports errors: once, one line each, with the prefix `error:`. No Spark is started here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.commands import floe


def test_a_clone_gets_the_schema_that_its_floe_yaml_names(tmp_path: Path) -> None:
    assert floe("init", "shop", cwd=tmp_path).returncode == 0
    schema = tmp_path / "shop" / ".floe" / "floe.schema.json"
    schema.unlink()  # .floe is not under version control
    assert floe("namespaces", "list", cwd=tmp_path / "shop").returncode == 0
    assert schema.is_file()


def test_an_error_is_printed_once_and_not_as_a_log_line_too(new_project: Any) -> None:
    root: Path = new_project("name: shop\n")
    ran = floe("namespaces", "show", "nowhere", cwd=root)
    assert ran.returncode == 1
    assert len(ran.stderr.splitlines()) == 1, ran.stderr
    assert ran.stderr.startswith("error: namespace 'nowhere' not found")


ORDERS = """
import os

import pyarrow as pa
from dagster import asset
from floe_dagster import create_definitions


@asset(key_prefix="bronze", metadata={"write_mode": "overwrite"})
def orders():
    return pa.table({"id": [1], "city": ["Oslo"]}).select(os.environ["COLUMNS_OF_DAY"].split())


defs = create_definitions([orders])
"""


def test_a_warning_of_a_write_is_printed_like_those_of_the_command(new_project: Any) -> None:
    root = new_project("name: shop\n")
    (root / "definitions.py").write_text(ORDERS)
    assert floe("run", cwd=root, COLUMNS_OF_DAY="id city").stderr == ""
    message = "the data lacks columns of the table, which are NULL"
    assert floe("run", cwd=root, COLUMNS_OF_DAY="id").stderr == f"warning: {message} (bronze.orders: city)\n"
    logged = json.loads(floe("run", "--log-format", "json", cwd=root, COLUMNS_OF_DAY="id").stderr)
    assert (logged["event"], logged["level"], logged["columns"]) == (message, "warning", ["city"])


def test_every_problem_of_the_file_has_the_prefix(new_project: Any) -> None:
    ran = floe("compile", cwd=new_project("name: shop\nspark: {mster: x}\nmaintenance: {expire: {keep_last: 0}}\n"))
    assert ran.returncode == 1
    assert ran.stderr.splitlines() == [
        "error: floe.yaml:2: spark.mster: unknown key 'mster'; did you mean 'master'?",
        "error: floe.yaml:3: maintenance.expire.keep_last: this must be 1 or more",
    ]


def test_wrong_usage_has_the_prefix_too(new_project: Any) -> None:
    ran = floe("run", "--frobnicate", cwd=new_project("name: shop\n"))
    assert ran.returncode == 2
    assert ran.stderr.splitlines() == ["error: No such option '--frobnicate'.", "see: floe run --help"]
