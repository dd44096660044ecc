"""Several catalogs in one database: each keeps its tables, whatever Floe does in its own; and any can be Floe's."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from tests import commands
from tests.catalogs import SideLake, side_lake

from floe_core.compiler import compile_project
from floe_core.errors import FloeStorageError
from floe_core.identifiers import TableIdentifier
from floe_core.maintenance.reports import Step
from floe_core.models import PartitionTransform
from floe_iceberg import Lake
from floe_iceberg.maintenance.plan import TablePlan
from floe_iceberg.maintenance.run import Maintenance

OLD_SOON = "retry_window: 1s, floor: {enterprise: 1s}, expire: {older_than: 1s, keep_last: 1}"
MADE_BY = ("arrow", "spark", "empty", "sql")


def named(name: str, namespace: str = "bronze") -> TableIdentifier:
    return TableIdentifier(namespace=(namespace,), name=name)


def rows(*ids: int, city: str = "Oslo") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "city": pa.array([city] * len(ids), pa.string())})


def bare(root: Path, name: str) -> SqlCatalog:
    """A catalog of PyIceberg alone, in the database and the warehouse of the project in this folder."""
    (root / ".floe").mkdir(parents=True, exist_ok=True)
    return SqlCatalog(name, uri=f"sqlite:///{root}/.floe/catalog.db", warehouse=f"file://{root}/.floe/warehouse")


def fill(root: Path, name: str, table: str, *ids: int) -> None:
    """A table as PyIceberg makes it, with a snapshot for each row."""
    catalog = bare(root, name)
    catalog.create_namespace_if_not_exists(table.partition(".")[0])
    made = catalog.create_table(table, rows().schema)
    for one in ids:
        made.append(rows(one))


def ids_in(root: Path, name: str, table: str) -> list[int]:
    found: list[int] = bare(root, name).load_table(table).scan().to_arrow()["id"].to_pylist()
    return sorted(found)


def age(root: Path) -> None:
    """Let every file of the warehouse be old enough to be an orphan."""
    moment = time.time() - 30 * 86400
    for path in (root / ".floe" / "warehouse").rglob("*"):
        if path.is_file():
            os.utime(path, (moment, moment))


@pytest.fixture(scope="module")
def filled(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> SideLake:
    """A project with the default settings, on a database and a warehouse that two other catalogs filled before."""
    root = tmp_path_factory.mktemp("shared")
    for name in MADE_BY:
        fill(root, "default", f"bronze.{name}", 1, 2, 3)
        fill(root, "my_catalog", f"silver.{name}", 10, 20)
    return side_lake(lake, root, "")


@pytest.fixture
def shared(filled: SideLake) -> Iterator[SideLake]:
    yield filled
    filled.step_aside()


@pytest.mark.parametrize("how", MADE_BY)
def test_the_tables_of_other_catalogs_survive_whatever_is_done_to_those_of_the_same_names(
    shared: SideLake, how: str
) -> None:
    root, tables, orders = shared.artifacts.root, shared.tables, named(how)
    assert not tables.table_exists(orders)
    if how == "arrow":
        tables.write_data(orders, rows(7), mode="append")
    elif how == "spark":
        shared.write(shared.spark.createDataFrame(rows(7).to_pandas()), orders, mode="append")
    elif how == "empty":
        tables.create_table(orders, rows().schema)
    else:
        shared.spark.sql("CREATE NAMESPACE IF NOT EXISTS bronze")
        shared.spark.sql("CREATE TABLE bronze.sql (id BIGINT, city STRING) USING iceberg")
    for one in (8, 9):
        tables.write_data(orders, rows(one), mode="overwrite")
    age(root)

    orphans = tables.remove_orphans(orders, dry_run=False)
    tables.require_compute().expire_snapshots(orders, older_than=datetime.now(timezone.utc), keep_last=1)
    assert tables.scan(orders).to_arrow()["id"].to_pylist() == [9]
    tables.drop_table(orders, purge=True)

    assert ids_in(root, "default", f"bronze.{how}") == [1, 2, 3]
    assert ids_in(root, "my_catalog", f"silver.{how}") == [10, 20]
    assert orphans.found == ()


@pytest.mark.full
def test_expiry_and_removal_of_orphans_keep_what_a_table_of_another_catalog_uses(shared: SideLake) -> None:
    root, tables, orders = shared.artifacts.root, shared.tables, named("lent")
    tables.write_data(orders, rows(1), mode="append")
    (file,) = [task.file.file_path for task in tables.load_table(orders).scan().plan_files()]
    tables.write_data(orders, rows(2), mode="overwrite")
    fill(root, "default", "lent.borrowed")
    bare(root, "default").load_table("lent.borrowed").add_files([file])
    with pytest.raises(FloeStorageError, match=r"belongs to 'lent.borrowed \(catalog default\)' too"):
        tables.require_compute().expire_snapshots(orders, older_than=datetime.now(timezone.utc), keep_last=1)
    # PyIceberg expires the snapshot without a look at its files, which are orphans then.
    table = tables.load_table(orders)
    table.maintenance.expire_snapshots().by_id(table.snapshots()[0].snapshot_id).commit()
    age(root)
    report = tables.remove_orphans(orders, dry_run=False)
    kept = {one.path: one.reason for one in report.not_removed}
    assert kept[file.removeprefix("file://")] == "'lent.borrowed (catalog default)' uses it"
    assert ids_in(root, "default", "lent.borrowed") == [1]


def test_nothing_is_expired_while_a_table_of_another_catalog_cannot_be_loaded(lake: Lake, tmp_path: Path) -> None:
    fill(tmp_path, "default", "other.orders", 1)
    for path in (tmp_path / ".floe" / "warehouse" / "other").rglob("*.metadata.json"):
        path.write_text("not metadata", encoding="utf-8")
    mine, orders = side_lake(lake, tmp_path, f"maintenance: {{{OLD_SOON}}}\n"), named("orders")
    for one in (1, 2):
        mine.tables.write_data(orders, rows(one), mode="overwrite")
    time.sleep(1.1)
    told = r"'other.orders \(catalog default\)' in the same database cannot be loaded"
    with pytest.raises(FloeStorageError, match=told):
        mine.tables.require_compute().expire_snapshots(orders, older_than=datetime.now(timezone.utc), keep_last=1)
    (plan,) = Maintenance(mine).plan([orders], [Step.EXPIRE])
    assert isinstance(plan, TablePlan)
    ((step, why),) = plan.skipped
    assert (step, plan.steps) == (Step.EXPIRE, ())
    assert re.search(told, why)
    assert len(mine.tables.list_snapshots(orders)) == 2


@pytest.mark.parametrize("name", ["default", pytest.param("my-catalog", marks=pytest.mark.full)])
def test_a_catalog_of_another_tool_becomes_that_of_both_engines_by_its_name(
    lake: Lake, tmp_path: Path, name: str
) -> None:
    # The namespace has the catalog's own name, as in the first steps of PyIceberg's documentation.
    full = f"{name}.orders"
    fill(tmp_path, name, full, 1, 2)
    mine = side_lake(lake, tmp_path, f"catalog: {{type: sql, name: {name}}}\n")
    orders, spark = named("orders", name), mine.spark
    try:
        mine.tables.write_data(orders, rows(3), mode="append")
        mine.write(spark.createDataFrame(rows(4).to_pandas()), orders, mode="append")
        mine.write(spark.createDataFrame(rows(1, 5, city="Rome").to_pandas()), orders, mode="upsert", keys=["id"])
        assert sorted(row.id for row in mine.read(orders).collect()) == [1, 2, 3, 4, 5]
        assert spark.sql(f"SELECT * FROM `{name}`.`{name}`.orders WHERE city = 'Rome'").count() == 2
        assert ids_in(tmp_path, name, full) == [1, 2, 3, 4, 5]

        created = named("days", name)
        by_bucket = [PartitionTransform(source_column="id", transform_type="bucket", num_buckets=4)]
        mine.write(spark.createDataFrame(rows(1, 2).to_pandas()), created, mode="append", partition_by=by_bucket)
        mine.tables.evolve_partitions(
            created, [PartitionTransform(source_column="id", transform_type="bucket", num_buckets=2)]
        )
        mine.write(spark.createDataFrame(rows(2).to_pandas()), created, mode="overwrite", dynamic_partitions=True)
        assert 2 in ids_in(tmp_path, name, f"{name}.days")

        age(tmp_path)
        assert mine.tables.compact_table(orders, min_files=2).files_rewritten > 1
        mine.tables.require_compute().expire_snapshots(orders, older_than=datetime.now(timezone.utc), keep_last=1)
        mine.tables.remove_orphans(orders, dry_run=False)
        assert ids_in(tmp_path, name, full) == [1, 2, 3, 4, 5]
    finally:
        mine.step_aside()


@pytest.mark.full  # starts Spark
def test_the_command_leaves_other_catalogs_alone_and_names_them(tmp_path: Path) -> None:
    fill(tmp_path, "default", "bronze.orders", 1, 2)
    (tmp_path / "floe.yaml").write_text(f"name: shop\nmaintenance: {{{OLD_SOON}}}\n", encoding="utf-8")

    def floe(*arguments: str) -> str:
        ran = commands.floe(*arguments, cwd=tmp_path)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout + ran.stderr

    assert "write in floe.yaml: catalog: {type: sql, name: default}" in floe("compile", "--check")
    mine = Lake(compile_project(tmp_path).artifacts)
    for one in (3, 4, 5):
        mine.tables.write_data(named("orders"), rows(one), mode="overwrite")
    age(tmp_path)
    time.sleep(1.1)
    floe("maintain", "run")
    assert ids_in(tmp_path, "lake", "bronze.orders") == [5]
    assert ids_in(tmp_path, "default", "bronze.orders") == [1, 2]
