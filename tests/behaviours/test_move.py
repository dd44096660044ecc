"""`floe move`: a lake whose folder moved is read, written and maintained by both engines as before."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from tests import commands
from tests.catalogs import SideLake, side_lake
from tests.engines import BY_DAY, SparkEngine, events, rows_of
from tests.lakes import began_earlier

from floe_core.identifiers import TableIdentifier
from floe_iceberg import Lake
from floe_iceberg.relocation import move_table, plan_moves
from floe_spark.names import table_name

DEFINITIONS = """
import pandas as pd
from dagster import AssetIn, DailyPartitionsDefinition, asset
from floe_dagster import create_definitions


@asset(
    key_prefix="bronze",
    partitions_def=DailyPartitionsDefinition("2026-01-01", end_date="2026-01-03"),
    metadata={"partition_expr": "day"},
)
def orders(context) -> pd.DataFrame:
    return pd.DataFrame({"day": [pd.Timestamp(context.partition_key).date()], "amount": [1]})


@asset(key_prefix="gold", ins={"orders": AssetIn(["bronze", "orders"])}, metadata={"write_mode": "overwrite"})
def total(orders: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"amount": [orders["amount"].sum()]})


defs = create_definitions([orders, total])
"""
TABLE = "bronze.events"
ON_READ = {f"write.{verb}.mode": "merge-on-read" for verb in ("delete", "update", "merge")}


def floe(*arguments: str, cwd: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    ran = commands.floe(*arguments, cwd=cwd)
    assert ran.returncode == code, ran.stdout + ran.stderr
    return ran


def test_a_project_that_moved_goes_on_after_floe_move(new_project: Any) -> None:
    root: Path = new_project("name: shop\nenvironments: {test: {}}\n")
    (root / "definitions.py").write_text(DEFINITIONS)
    floe("run", "--missing", cwd=root)
    copy = root.with_name("a copy")
    shutil.copytree(root, copy)
    refused = floe("move", "--yes", cwd=copy, code=3)
    assert "not rewritten: bronze.orders, gold.total: this is a copy: the original at" in refused.stderr
    moved = root.with_name("moved")
    root.rename(moved)
    assert "floe move" in floe("tables", "show", "gold.total", cwd=moved, code=1).stderr
    shown = floe("move", cwd=moved)
    assert f"moved from {root}/.floe/warehouse" in shown.stdout
    assert "nothing was changed: to rewrite the paths of 2 tables, run: floe move --yes" in shown.stdout
    planned = json.loads(floe("move", "--json", cwd=moved).stdout)
    assert (planned["executed"], planned["moved"], [one["table"] for one in planned["moves"]]) == (
        False,
        [],
        ["bronze.orders", "gold.total"],
    )
    done = json.loads(floe("move", "--yes", "--json", cwd=moved).stdout)
    assert (done["ok"], done["moved"], done["failed"]) == (True, ["bronze.orders", "gold.total"], {})
    assert "nothing to rewrite: 2 tables are where the catalog says" in floe("move", cwd=moved).stdout
    missing = json.loads(floe("run", "--missing", "--json", cwd=moved).stdout)
    assert (missing["materialized"], missing["differences"]) == ([], [])
    again = json.loads(floe("run", "--partition", "2026-01-02", "--with-unpartitioned", "--json", cwd=moved).stdout)
    assert [(one["asset"], one["rows"]) for one in again["materialized"]] == [("bronze/orders", 1), ("gold/total", 1)]
    elsewhere = ("move", "--copy", "--project", str(copy), "--env", "test")
    again = f"run: floe move --copy --yes --project {shlex.quote(str(copy))} --env test"
    assert again in floe(*elsewhere, cwd=root.parent).stdout
    ran = floe(*elsewhere, "--yes", cwd=root.parent).stdout
    assert f"check the lake with: floe doctor --project {shlex.quote(str(copy))} --env test" in ran
    assert json.loads(floe("tables", "list", "--json", cwd=copy).stdout)["ok"]


def test_a_lake_on_a_server_is_refused(new_project: Any) -> None:
    server = "catalog: {type: rest, uri: 'http://127.0.0.1:9/', warehouse: w, token: '${env:NO_TOKEN}'}"
    root: Path = new_project(f"name: shop\n{server}\n")
    refused = commands.floe("move", "--json", cwd=root, NO_TOKEN="a-token-of-no-one")
    assert refused.returncode == 3
    assert "rewrite_table_path" in json.loads(refused.stdout)["error"]


def seen(lake: SideLake) -> list[Any]:
    """The rows of refs in both engines, of a snapshot in Spark, and of all snapshots in Arrow."""
    refs: list[dict[str, Any]] = [{"ref": ref} for ref in sorted(lake.tables.load_table(TABLE).metadata.refs)]
    versions: list[dict[str, Any]] = [{"snapshot_id": one.snapshot_id} for one in lake.tables.list_snapshots(TABLE)]
    spark = [rows_of(lake.read(TABLE, **version).toArrow()) for version in (*refs, versions[1])]  # with its deletes
    arrow = [rows_of(lake.tables.scan(TABLE, **version).to_arrow()) for version in (*refs, *versions)]
    assert [len(rows) for rows in spark[: len(refs)]] == [len(rows) for rows in arrow[: len(refs)]]
    return [versions, spark, arrow]


@pytest.mark.parametrize(
    ("format_version", "maintained"),
    [("2", False), pytest.param("2", True, marks=pytest.mark.full), pytest.param("3", False, marks=pytest.mark.full)],
)
def test_spark_goes_on_with_its_deletes_tags_and_branches(
    lake: Lake, tmp_path: Path, format_version: str, maintained: bool
) -> None:
    old, new = tmp_path / "old", tmp_path / "new place"
    shop = side_lake(lake, old, "")
    table = TableIdentifier.from_string(TABLE)
    name = table_name("lake", table)
    properties = {**ON_READ, "format-version": format_version}
    SparkEngine(shop).write(table, events(0, 1, 2), mode="append", partition_by=BY_DAY, properties=properties)
    for statement in (
        "ALTER TABLE {} WRITE ORDERED BY id",
        "ALTER TABLE {} CREATE TAG all_days",
        "DELETE FROM {} WHERE id % 2 = 0",
        "ALTER TABLE {} CREATE BRANCH audit",
        "DELETE FROM {}.branch_audit WHERE id % 5 = 0",
        "INSERT INTO {} SELECT id + 500, at, 'v2' FROM {}",
        "DELETE FROM {} WHERE id % 3 = 0",
    ):
        shop.spark.sql(statement.replace("{}", name))
    before = seen(shop)
    shutil.move(old, new)
    there = side_lake(lake, new, "")
    (planned,) = plan_moves(there.tables).moves
    move_table(there.tables, planned)
    assert seen(there) == before
    deletes = there.spark.sql(f"SELECT DISTINCT file_path, delete_file_path FROM {name}.position_deletes").collect()
    assert deletes
    assert [path for row in deletes for path in row if str(new) not in path or not on_disk(path).is_file()] == []

    there.spark.sql(f"DELETE FROM {name} WHERE id % 7 = 0")
    there.spark.sql(f"INSERT INTO {name} SELECT id + 900, at, 'v3' FROM {name}")
    head = ids(there)
    assert head == sorted(there.tables.scan(table).to_arrow()["id"].to_pylist())
    if maintained:
        maintain(there, new)
    assert ids(there) == head == sorted(there.tables.scan(table).to_arrow()["id"].to_pylist())
    assert len(there.tables.scan(table, ref="all_days").to_arrow()) == len(events(0, 1, 2))


def ids(lake: Lake) -> list[int]:
    return sorted(row["id"] for row in lake.read(TABLE).select("id").collect())


def on_disk(address: str) -> Path:
    return Path(address.removeprefix("file:").replace("//", "/"))


def maintain(lake: Lake, root: Path) -> None:
    """Every step; files that nothing references any more are old enough to be orphans."""
    weeks = time.time() - 14 * 86_400
    for path in (root / ".floe" / "warehouse").rglob("*"):
        os.utime(path, (weeks, weeks))
    began_earlier(lake.tables.load_table(TABLE).location())
    lake.tables.compact_table(TABLE, min_files=2)
    lake.tables.rewrite_manifests(TABLE)
    lake.tables.expire_snapshots(TABLE, 1e-6, keep_last=1)
    assert len(lake.tables.remove_orphans(TABLE, dry_run=False).files_removed) > 10  # the metadata of the old place
