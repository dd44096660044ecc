"""docs/reference/json.md shows the documents of --json: its examples have the keys and types of real ones."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.commands import floe
from tests.faults.damage import damage
from tests.lakes import open_manager

from floe_core.models import PartitionTransform, SortField
from floe_iceberg import AddColumn
from floe_runtime.templates import create_project

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "json.md"
EXAMPLES = {
    title: json.loads(text)
    for title, text in re.findall(r"^## (.+?)\n.*?^```json\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)
}
SNAPSHOT = EXAMPLES.pop("A snapshot")
# Their keys are names of the user.
FREE = ("partition", "properties", "failed", "elsewhere", "others", "added[]", "removed[]", "key", "values")
T = "bronze.orders"


def differences(example: Any, real: Any, path: str = "") -> Iterator[str]:
    """Where a real document has other keys or types than the example; null is of any type."""
    example = SNAPSHOT if example == "a snapshot" else example
    if example is None or real is None:
        return
    kinds = {
        type(one) if not isinstance(one, int | float) or isinstance(one, bool) else float for one in (example, real)
    }
    if len(kinds) > 1:
        yield f"{path}: {example!r} is not {real!r}"
    elif isinstance(example, dict) and path.rpartition(".")[2] not in FREE:
        if example.keys() != real.keys():
            yield f"{path}: only one has {sorted(example.keys() ^ real.keys())}"
        for key in example.keys() & real.keys():
            yield from differences(example[key], real[key], f"{path}.{key}")
    elif isinstance(example, list) and example and real:
        yield from differences(example[0], real[0], f"{path}[]")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("lake")
    (root / "floe.yaml").write_text("name: shop\n", encoding="utf-8")
    tables = open_manager(root)
    rows = pa.table({"city": ["Oslo", "Rome"], "n": [1, 2]})
    tables.create_table(
        T,
        rows.schema,
        partition_by=[PartitionTransform(source_column="city", transform_type="identity")],
        sort_by=[SortField(column="n")],
    )
    tables.write_data(T, rows, mode="append")
    tables.create_tag(T, "v0")
    tables.evolve_schema(T, AddColumn("note", pa.string()))
    tables.write_data(T, rows.slice(0, 1), mode="append", snapshot_properties={"floe.asset": "orders"})
    tables.create_table("silver.orders", rows.schema)
    damage(tables.load_table("silver.orders"), "metadata", "half")
    return root


# Each verb finds the lake as the ones before it left it.
VERBS: dict[str, list[str]] = {
    "floe tables list": ["tables", "list"],
    "floe tables list --names": ["tables", "list", "--names"],
    "floe tables show": ["tables", "show", T],
    "floe tables history": ["tables", "history", T],
    "floe tables files": ["tables", "files", T],
    "floe tables partitions": ["tables", "partitions", T],
    "floe tables diff": ["tables", "diff", T, "--from", "v0"],
    "floe snapshots tag": ["snapshots", "tag", T, "v1", "--keep", "30"],
    "floe snapshots list": ["snapshots", "list", T],
    "floe snapshots rollback": ["snapshots", "rollback", T, "--to", "v0", "--yes"],
    "floe snapshots restore": ["snapshots", "restore", T, "v1"],
    "floe snapshots untag": ["snapshots", "untag", T, "v1"],
    "floe tables rename": ["tables", "rename", T, "bronze.old"],
    "floe tables drop": ["tables", "drop", "bronze.old", "--yes"],
}


def documented(title: str, root: Path, *arguments: str) -> dict[str, Any]:
    ran = floe(*arguments, "--json", cwd=root)
    document: dict[str, Any] = json.loads(ran.stdout)
    assert list(differences(EXAMPLES[title], document)) == []
    return document


def test_documents_of_tables_and_snapshots_are_as_documented(lake: Path) -> None:
    last: dict[str, Any] = {}
    for title, arguments in VERBS.items():
        last = documented(title, lake, *arguments)
    documented("floe tables register", lake, "tables", "register", T, last["metadata_location"])
    documented("An error", lake, "tables", "show", "bronze.ordres")
    documented("An error", lake, "tables", "shwo")


def test_the_document_of_compared_rows_is_as_documented(tmp_path: Path) -> None:
    (tmp_path / "floe.yaml").write_text("name: shop\n", encoding="utf-8")
    tables = open_manager(tmp_path)
    rows = pa.table({"id": [1, 2, 3], "amount": ["10", "20", "30"]})
    by_id = [PartitionTransform(source_column="id", transform_type="identity")]
    tables.write_data(T, rows, mode="append", partition_by=by_id)
    tables.create_tag(T, "v0")
    tables.evolve_schema(T, AddColumn("note", pa.string()))
    tables.write_data(T, pa.table({"id": [2, 3, 4], "amount": ["20", "31", "40"]}), mode="overwrite")
    tables.close()
    title = "floe tables diff --rows"
    shown = documented(title, tmp_path, "tables", "diff", T, "--from", "v0", "--rows", "--key", "id")
    assert [len(rows) for rows in shown["examples"].values()] == [1, 1, 1]
    changed, example = shown["examples"]["changed"][0], EXAMPLES[title]["examples"]["changed"][0]
    assert changed["values"]["amount"].keys() == example["values"]["amount"].keys()
    assert (len(shown["columns"]), len(shown["partitions"]), shown["key_problems"]["null_after"]) == (1, 3, 0)


def test_documents_of_a_move_are_as_documented(tmp_path: Path) -> None:
    before, place = tmp_path / "before", tmp_path / "now"
    before.mkdir()
    (before / "floe.yaml").write_text("name: shop\n", encoding="utf-8")
    tables = open_manager(before)
    for name in (T, "silver.lost"):
        tables.write_data(name, pa.table({"n": [1]}), mode="append")
    tables.update_namespace("bronze", set={"location": f"file://{before}/.floe/warehouse/raw"})
    tables.close()
    before.rename(place)
    next((place / ".floe/warehouse/silver/lost").rglob("*.parquet")).unlink()
    planned = documented("floe move", place, "move")
    assert (planned["ok"], planned["executed"], planned["moved"]) == (False, False, [])
    assert len(planned["refused"]) == len(planned["namespaces"]) == 1
    done = documented("floe move", place, "move", "--yes")
    assert (done["ok"], done["executed"], done["moved"]) == (False, True, [T])


BROKEN = """\
def daily_averages(measurements: pl.LazyFrame) -> pl.LazyFrame:
    raise ValueError("no readings")


@asset_check(asset=measurements)
def not_empty() -> AssetCheckResult:
    return AssetCheckResult(passed=True)


defs = create_definitions([measurements, daily_averages], asset_checks=[not_empty])
"""


def test_documents_of_runs_are_as_documented(tmp_path: Path) -> None:
    create_project("polars", tmp_path, name="shop", catalog="sql")
    definitions = tmp_path / "definitions.py"
    text = definitions.read_text(encoding="utf-8").replace(
        "import AssetExec", "import AssetCheckResult, asset_check, AssetExec"
    )
    definitions.write_text(text[: text.index("def daily_averages")] + BROKEN, encoding="utf-8")
    assert floe("run", cwd=tmp_path).returncode == 1
    listed = documented("floe runs list", tmp_path, "runs", "list")
    shown = documented("floe runs show", tmp_path, "runs", "show")
    assert shown["run_id"] == listed["runs"][0]["run_id"]
    assert [one["table"] for one in shown["materialized"]] == ["bronze.measurements"]
    assert (len(shown["checks"]), shown["failed"][0]["place"]["function"]) == (1, "daily_averages")
    assert (tmp_path / shown["log"]).is_file()


def test_documents_of_branches_are_as_documented(tmp_path: Path) -> None:
    create_project("polars", tmp_path, name="shop", catalog="sql")
    for branch in ((), ("--branch", "trial")):
        assert floe("run", *branch, cwd=tmp_path).returncode == 0
    listed = documented("floe branches list", tmp_path, "branches", "list")
    shown = json.loads(floe("branches", "show", "trial", "--json", cwd=tmp_path).stdout)
    assert shown == {"ok": True, **listed["branches"][0]}
    assert len(documented("floe branches diff", tmp_path, "branches", "diff", "trial")["tables"]) == 2
    documented("floe branches publish", tmp_path, "branches", "publish", "trial")
    assert floe("branches", "create", "trial", "--json", cwd=tmp_path).returncode == 0
    documented("floe branches discard", tmp_path, "branches", "discard", "trial", "--yes")


def test_every_example_of_these_verbs_is_compared() -> None:
    ours = {title for title in EXAMPLES if title.startswith(("floe tables", "floe snapshots", "floe runs"))}
    elsewhere = {
        "floe tables register",
        "floe tables diff --rows",
        "floe runs list",
        "floe runs show",
        "floe runs discard",
    }
    assert ours - elsewhere == VERBS.keys()
