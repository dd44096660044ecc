"""A write stores the rows that the DataFrame holds, whatever became of the names that it was made from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from dagster import AssetOut, DagsterInstance, Output, multi_asset
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812
from tests.engines import transform
from tests.runs import rows_of, run

from floe_core.config.artifacts import CompiledArtifacts
from floe_core.errors import FloeStorageError, PartitionMismatchError, TableNotFoundError
from floe_core.identifiers import TableIdentifier, TableSlice
from floe_dagster import LakeResource
from floe_iceberg import IcebergTableManager, Lake

CITY = [transform("identity", "city")]
BY_LETTERS = [transform("truncate", "city", width=2)]
OSLO = TableSlice.of_values("city", ["Oslo"])

WRITES: dict[str, dict[str, Any]] = {
    "append": {"mode": "append"},
    "overwrite": {"mode": "overwrite"},
    "slice": {"mode": "overwrite", "slice": OSLO},
    "filter": {"mode": "overwrite", "overwrite_filter": "id < 5"},
    "partitions": {"mode": "overwrite", "dynamic_partitions": True},
    "upsert": {"mode": "upsert", "keys": ["id"]},
    "branch": {"mode": "append", "branch": "audit"},
}


@pytest.fixture
def show(lake: Lake, namespace: str) -> Iterator[Callable[..., str]]:
    """Create or replace a view with a row for each id, and return its name."""
    name = f"raw_{namespace}"

    def replace(*ids: int, note: str) -> str:
        rows = [(one, "Oslo", note) for one in ids]
        lake.spark.createDataFrame(rows, "id long, city string, note string").createOrReplaceTempView(name)
        return name

    yield replace
    lake.spark.catalog.dropTempView(name)


def written(lake: Lake, table: TableIdentifier, options: dict[str, Any]) -> list[Row]:
    """The rows that the write left, without the one of another city that was there before."""
    return sorted(lake.read(table, ref=options.get("branch")).where("city = 'Oslo'").collect())


@pytest.mark.parametrize("options", WRITES.values(), ids=WRITES)
def test_a_write_stores_the_rows_of_the_frame_after_its_view_was_replaced(
    lake: Lake, table: TableIdentifier, show: Callable[..., str], options: dict[str, Any]
) -> None:
    before = lake.spark.sql("SELECT 9L AS id, 'Rome' AS city, 'old' AS note")
    lake.write(before, table, mode="append", partition_by=CITY)
    lake.tables.create_branch(table, "audit")
    frame = lake.spark.sql(f"SELECT * FROM {show(1, 2, note='first')}")
    show(2, 3, 4, note="second")
    lake.write(frame, table, **options)
    assert written(lake, table, options) == sorted(frame.collect())
    assert {row.note for row in written(lake, table, options)} == {"first"}


@pytest.mark.parametrize(
    ("mode", "partitions"),
    [("append", CITY), ("overwrite", CITY), ("upsert", CITY), ("append", BY_LETTERS)],
    ids=["append", "overwrite", "upsert", "append to a table that is created empty"],
)
def test_a_first_write_stores_the_rows_of_the_frame_after_its_view_was_replaced(
    lake: Lake, table: TableIdentifier, show: Callable[..., str], mode: str, partitions: list[Any]
) -> None:
    frame = lake.spark.sql(f"SELECT * FROM {show(1, 2, note='first')}")
    show(2, 3, 4, note="second")
    lake.write(frame, table, mode=mode, keys=["id"] if mode == "upsert" else [], partition_by=partitions)
    assert written(lake, table, {}) == sorted(frame.collect())


FRAMES: dict[str, Callable[[Lake, str], DataFrame]] = {
    "with a frame in its text": lambda lake, view: lake.spark.sql("SELECT * FROM {f}", f=lake.spark.table(view)),
    "with a view in a condition": lambda lake, view: lake.spark.table(view).where(f"id IN (SELECT id FROM {view})"),
    "with a view in a column": lambda lake, view: lake.spark.table(view).withColumn(
        "note", F.expr(f"(SELECT max(note) FROM {view})")
    ),
    "with arguments": lambda lake, view: lake.spark.sql(f"SELECT * FROM {view} WHERE id > :least", {"least": 0}),
    "cached": lambda lake, view: lake.spark.sql(f"SELECT id, city, uuid() AS note FROM {view}").cache(),
}


@pytest.mark.parametrize("made", FRAMES.values(), ids=FRAMES)
def test_a_write_stores_the_rows_of_every_kind_of_frame_after_its_view_is_gone(
    lake: Lake, table: TableIdentifier, show: Callable[..., str], made: Callable[[Lake, str], DataFrame]
) -> None:
    view = show(1, 2, note="first")
    frame = made(lake, view)
    rows = sorted(frame.collect())
    lake.spark.catalog.dropTempView(view)
    lake.write(frame, table, mode="append")
    assert written(lake, table, {}) == rows
    assert len(rows) == 2


def test_a_refusal_counts_the_rows_of_the_frame_and_not_those_of_a_newer_view(
    lake: Lake, table: TableIdentifier, show: Callable[..., str]
) -> None:
    lake.write(lake.spark.sql("SELECT 9L AS id, 'Rome' AS city, 'old' AS note"), table, mode="append")
    frame = lake.spark.sql(f"SELECT * FROM {show(1, 2, note='first')}")
    show(1, 2, 3, 4, note="second")
    with pytest.raises(PartitionMismatchError, match="2 rows lie outside"):
        lake.write(frame, table, mode="overwrite", slice=TableSlice.of_values("city", ["Rome"]))


def test_a_source_that_was_dropped_is_not_taken_for_the_table_being_written(
    lake: Lake, table: TableIdentifier, namespace: str
) -> None:
    source = TableIdentifier(namespace=(namespace,), name="source")
    lake.write(lake.spark.range(3), table, mode="append")
    lake.write(lake.spark.range(3), source, mode="append")
    frame = lake.spark.table(f"lake.{source}")
    lake.tables.drop_table(source)
    with pytest.raises(FloeStorageError, match=rf"{source}.*Nothing was written to '{table}'") as refused:
        lake.write(frame, table, mode="append")
    assert not isinstance(refused.value, TableNotFoundError)


@pytest.mark.parametrize("how", ["returned", "yielded"])
def test_the_outputs_of_a_multi_asset_may_share_the_name_of_a_view(
    project: CompiledArtifacts,
    tables: IcebergTableManager,
    instance: DagsterInstance,
    namespace: str,
    how: str,
) -> None:
    names = ("one", "two")

    def frames(lake: LakeResource) -> Iterator[DataFrame]:
        for count in (1, 2):
            lake.spark.range(count).createOrReplaceTempView(f"raw_{namespace}")
            yield lake.spark.sql(f"SELECT * FROM raw_{namespace}")

    @multi_asset(outs={name: AssetOut(key_prefix=namespace) for name in names})
    def returned(lake: LakeResource) -> tuple[DataFrame, DataFrame]:
        one, two = frames(lake)
        return one, two

    @multi_asset(outs={name: AssetOut(key_prefix=namespace) for name in names})
    def yielded(lake: LakeResource) -> Iterator[Output[DataFrame]]:
        for name, frame in zip(names, list(frames(lake)), strict=True):
            yield Output(frame, name)

    assert run([returned if how == "returned" else yielded], project, instance).success
    assert [len(rows_of(tables, f"{namespace}.{name}")) for name in names] == [1, 2]
