"""Branches as targets of Spark writes, and writes made from the table they replace."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from floe_core.errors import ConcurrencyConflictError, FloeStorageError
from floe_core.identifiers import TableIdentifier, TableSlice
from floe_core.models import PartitionTransform
from floe_iceberg import Lake
from floe_spark.reading.lineage import snapshots_read

FIRST = datetime(2026, 1, 1, tzinfo=timezone.utc)
BY_DAY = [PartitionTransform.model_validate({"source_column": "at", "transform_type": "day"})]


def day(number: int) -> TableSlice:
    return TableSlice.of_windows("at", [(FIRST + timedelta(days=number), FIRST + timedelta(days=number + 1))])


def hourly(lake: Lake, start: int, end: int, note: str = "old") -> DataFrame:
    at = F.lit(FIRST) + F.expr("make_dt_interval(0, id, 0, 0)")
    return lake.spark.range(start, end).select("id", at.alias("at"), F.lit(note).alias("note"))


def notes(lake: Lake, table: TableIdentifier, **options: object) -> dict[int, str]:
    rows = lake.read(table, **options).collect()
    assert len({row.id for row in rows}) == len(rows)
    return {row.id: row.note for row in rows}


def append_row(lake: Lake, table: TableIdentifier, number: int) -> None:
    at = pa.array([FIRST + timedelta(hours=number, minutes=30)], pa.timestamp("us", "UTC"))
    lake.tables.load_table(table).append(pa.table({"id": [1000 + number], "at": at, "note": ["theirs"]}))


OLD = dict.fromkeys(range(48), "old")
NEW = dict.fromkeys(range(24, 48), "new")
WRITES: list[tuple[dict[str, object], dict[int, str]]] = [
    ({"mode": "append"}, OLD | {99: "new"}),
    ({"mode": "overwrite", "slice": day(1)}, OLD | NEW),
    ({"mode": "overwrite", "overwrite_filter": "id >= 24"}, OLD | NEW),
    ({"mode": "overwrite", "dynamic_partitions": True}, OLD | NEW),
    ({"mode": "overwrite"}, NEW),
    ({"mode": "upsert", "keys": ["id"]}, OLD | NEW),
]


@pytest.mark.parametrize(("options", "expected"), WRITES, ids=lambda one: "+".join(one) if "mode" in one else "")
def test_every_write_goes_to_a_branch_and_is_looked_for_there(
    lake: Lake, table: TableIdentifier, options: dict[str, object], expected: dict[int, str]
) -> None:
    lake.write(hourly(lake, 0, 48), table, mode="append", partition_by=BY_DAY)
    lake.tables.create_branch(table, "trial")
    append_row(lake, table, 5)  # main goes on
    new = hourly(lake, 24, 48, "new")
    if options["mode"] == "append":
        new = new.limit(1).withColumn("id", F.lit(99).cast("long"))
    first = lake.write(new, table, branch="trial", write_id="w", **options)
    again = lake.write(new, table, branch="trial", write_id="w", **options)

    assert notes(lake, table, ref="trial") == expected
    assert notes(lake, table) == OLD | {1005: "theirs"}
    assert again.deduplicated
    assert again.snapshot == first.snapshot
    assert sorted(lake.tables.load_table(table).refs()) == ["main", "trial"]
    on_main = lake.write(new, table, write_id="w", **options)
    assert not on_main.deduplicated


def test_an_empty_frame_does_not_replace_a_branch(lake: Lake, table: TableIdentifier) -> None:
    lake.write(hourly(lake, 0, 48), table, mode="append")
    lake.tables.create_branch(table, "trial")
    with pytest.raises(FloeStorageError, match="by nothing"):
        lake.write(hourly(lake, 0, 0), table, mode="overwrite", branch="trial")
    assert notes(lake, table, ref="trial") == OLD


OVERWRITES = [options for options, _ in WRITES if options["mode"] == "overwrite"]


@pytest.mark.parametrize("options", OVERWRITES, ids=lambda one: "+".join(one))
def test_rows_that_came_after_the_table_was_read_are_not_lost_by_writing_it_back(
    lake: Lake, table: TableIdentifier, options: dict[str, object]
) -> None:
    lake.write(hourly(lake, 0, 48), table, mode="append", partition_by=BY_DAY)
    cached = lake.read(table, slice=day(1)).withColumn("note", F.lit("new")).cache()
    cached.count()
    append_row(lake, table, 30)
    with pytest.raises(ConcurrencyConflictError, match="another writer changed"):
        lake.write(cached, table, **options)
    assert notes(lake, table) == OLD | {1030: "theirs"}
    cached.unpersist()


@pytest.mark.parametrize("options", OVERWRITES, ids=lambda one: "+".join(one))
def test_a_step_can_say_which_snapshot_it_read(lake: Lake, table: TableIdentifier, options: dict[str, object]) -> None:
    read = lake.write(hourly(lake, 0, 48), table, mode="append", partition_by=BY_DAY).snapshot.snapshot_id
    append_row(lake, table, 30)
    with pytest.raises(ConcurrencyConflictError, match="another writer changed"):
        lake.write(hourly(lake, 24, 48, "new"), table, validate_from=read, **options)
    assert notes(lake, table) == OLD | {1030: "theirs"}
    lake.write(hourly(lake, 24, 48, "new"), table, **options)
    assert 1030 not in notes(lake, table)


def test_rows_of_another_day_that_came_after_the_read_are_no_conflict(lake: Lake, table: TableIdentifier) -> None:
    lake.write(hourly(lake, 0, 48), table, mode="append", partition_by=BY_DAY)
    again = lake.read(table, slice=day(1)).withColumn("note", F.lit("new"))
    append_row(lake, table, 5)
    lake.write(again, table, mode="overwrite", slice=day(1))
    assert notes(lake, table) == OLD | NEW | {1005: "theirs"}


def test_the_past_can_be_written_back(lake: Lake, table: TableIdentifier) -> None:
    good = lake.write(hourly(lake, 0, 48), table, mode="append", partition_by=BY_DAY).snapshot.snapshot_id
    lake.write(hourly(lake, 24, 48, "bad"), table, mode="overwrite", slice=day(1))
    lake.write(lake.read(table, snapshot_id=good, slice=day(1)), table, mode="overwrite", slice=day(1))
    assert notes(lake, table) == OLD


def test_what_was_read_from_a_history_that_was_rolled_back_is_not_written(lake: Lake, table: TableIdentifier) -> None:
    first = lake.write(hourly(lake, 0, 48), table, mode="append", partition_by=BY_DAY).snapshot.snapshot_id
    lake.write(hourly(lake, 24, 48, "bad"), table, mode="overwrite", slice=day(1))
    read = lake.read(table, slice=day(1))
    lake.tables.rollback_to_snapshot(table, first)
    with pytest.raises(ConcurrencyConflictError, match="no longer in the history"):
        lake.write(read, table, mode="overwrite", slice=day(1))
    assert notes(lake, table) == OLD


def test_a_frame_remembers_what_it_was_read_from_through_joins_and_views(lake: Lake, table: TableIdentifier) -> None:
    head = lake.write(hourly(lake, 0, 48), table, mode="append").snapshot.snapshot_id
    read = lake.read(table)
    assert snapshots_read(read.join(lake.spark.range(5), "id").groupBy("note").count(), table) == [head]
    read.createOrReplaceTempView("floe_test_view")
    assert snapshots_read(lake.spark.sql("SELECT id FROM floe_test_view"), table) == [head]
    assert snapshots_read(lake.spark.range(5), table) == []
    assert snapshots_read(read, table.model_copy(update={"name": "another"})) == []


def test_an_upsert_made_from_rows_that_changed_meanwhile_is_refused(lake: Lake, table: TableIdentifier) -> None:
    lake.write(hourly(lake, 0, 48), table, mode="append")
    counted = lake.read(table).where("id < 5").withColumn("note", F.concat("note", F.lit("+1")))
    lake.write(hourly(lake, 0, 1, "theirs"), table, mode="upsert", keys=["id"])
    with pytest.raises(ConcurrencyConflictError, match="after it was read"):
        lake.write(counted, table, mode="upsert", keys=["id"])
    again = lake.read(table).where("id < 5").withColumn("note", F.concat("note", F.lit("+1")))
    lake.write(again, table, mode="upsert", keys=["id"])
    assert [notes(lake, table)[number] for number in (0, 1, 5)] == ["theirs+1", "old+1", "old"]
    assert list(lake.tables.load_table(table).refs()) == ["main"]


@pytest.mark.parametrize(("options", "expected"), WRITES, ids=lambda one: "+".join(one) if "mode" in one else "")
def test_required_columns_stay_required(
    lake: Lake, table: TableIdentifier, options: dict[str, object], expected: dict[int, str]
) -> None:
    time = pa.timestamp("us", "UTC")
    required = [pa.field("id", pa.int64(), nullable=False), pa.field("at", time, nullable=False)]
    lake.tables.create_table(table, pa.schema([*required, pa.field("note", pa.string())]), partition_by=BY_DAY)
    lake.write(never_null(hourly(lake, 0, 48)), table, mode="append")
    new = hourly(lake, 24, 48, "new")
    if options["mode"] == "append":
        new = new.limit(1).withColumn("id", F.lit(99).cast("long"))
    lake.write(never_null(new), table, **options)
    assert notes(lake, table) == expected
    assert [field.required for field in lake.tables.load_table(table).schema().fields] == [True, True, False]


def never_null(frame: DataFrame) -> DataFrame:
    return frame.withColumn("at", F.coalesce("at", F.lit(FIRST)))
