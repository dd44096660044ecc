"""Writes over many partitions: one file per partition, and one partition open at a time."""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta, timezone

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from floe_core.identifiers import TableIdentifier, TableSlice
from floe_core.models import PartitionTransform, PartitionTransformType, WriteMode
from floe_iceberg import Lake
from floe_spark.writing.partitioning import is_one_partition

FIRST = datetime(2026, 1, 1, tzinfo=timezone.utc)
HOURS = 60
ROWS = 10 * HOURS
BY_HOUR = [PartitionTransform(source_column="at", transform_type=PartitionTransformType.HOUR)]
FANOUT = "write.spark.fanout.enabled"


def scattered(lake: Lake, *, tasks: int = 4) -> DataFrame:
    """Rows of all hours in each task, in no order."""
    hour = F.pmod(F.hash("id"), F.lit(HOURS))
    at = F.lit(FIRST) + F.make_dt_interval(F.lit(0), hour)
    return lake.spark.range(0, ROWS, 1, tasks).select("id", at.alias("at"))


def opened(lake: Lake, table: TableIdentifier) -> list[list[int]]:
    """The partitions of each task of the last write in the order in which it opened their files.

    Iceberg numbers the files of a task as it opens them: a task that sorts its rows opens partitions in their order,
    one that keeps all files open in the order in which the rows happen to come.
    """
    loaded = lake.tables.load_table(table)
    head = loaded.current_snapshot()
    assert head is not None
    entries = [
        entry
        for manifest in head.manifests(loaded.io)
        for entry in manifest.fetch_manifest_entry(loaded.io)
        if entry.snapshot_id == head.snapshot_id
    ]
    numbered = sorted(
        (name.split("-")[:2], int(name.rsplit("-", 1)[1].partition(".")[0]), int(entry.data_file.partition[0]))
        for entry in entries
        for name in [entry.data_file.file_path.rsplit("/", 1)[1]]
    )
    groups = itertools.groupby(numbered, key=lambda one: one[0])
    return [[partition for _, _, partition in group] for _, group in groups]


def one_at_a_time(tasks: list[list[int]]) -> bool:
    files = [partition for task in tasks for partition in task]
    assert len(files) == len(set(files)) > HOURS * 0.9  # a file for each partition, whatever the number of tasks
    return all(task == sorted(task) for task in tasks)


@pytest.fixture
def silent(lake: Lake, table: TableIdentifier) -> TableIdentifier:
    """A table that says nothing about how it is written, as others create them."""
    lake.write(scattered(lake), table, mode=WriteMode.APPEND, partition_by=BY_HOUR)
    lake.spark.sql(f"ALTER TABLE {table} UNSET TBLPROPERTIES ('{FANOUT}')")
    return table


def test_a_new_table_is_filled_one_partition_at_a_time(lake: Lake, table: TableIdentifier) -> None:
    lake.write(scattered(lake), table, mode=WriteMode.APPEND, partition_by=BY_HOUR)
    assert one_at_a_time(opened(lake, table))
    lake.write(scattered(lake), table, mode=WriteMode.UPSERT, keys=["id"])
    assert one_at_a_time(opened(lake, table))
    assert lake.read(table).count() == ROWS


@pytest.mark.full
def test_a_table_that_says_nothing_is_written_one_partition_at_a_time(lake: Lake, silent: TableIdentifier) -> None:
    lake.write(scattered(lake), silent, mode=WriteMode.APPEND)
    assert one_at_a_time(opened(lake, silent))
    window = TableSlice.of_windows("at", [(FIRST, FIRST + timedelta(hours=HOURS))])
    lake.write(scattered(lake), silent, mode=WriteMode.OVERWRITE, slice=window)
    assert one_at_a_time(opened(lake, silent))
    lake.write(scattered(lake), silent, mode=WriteMode.OVERWRITE)
    assert one_at_a_time(opened(lake, silent))
    assert lake.read(silent).count() == ROWS


@pytest.mark.full
def test_a_table_may_ask_for_all_partitions_at_once(lake: Lake, table: TableIdentifier) -> None:
    properties = {FANOUT: "true"}
    lake.write(scattered(lake), table, mode=WriteMode.APPEND, partition_by=BY_HOUR, properties=properties)
    assert not one_at_a_time(opened(lake, table))
    lake.write(scattered(lake), table, mode=WriteMode.APPEND)
    assert not one_at_a_time(opened(lake, table))


def test_a_stream_whose_batches_hold_all_partitions_has_one_file_for_each(lake: Lake, table: TableIdentifier) -> None:
    hours = [FIRST + timedelta(hours=number) for number in range(HOURS)]
    batch = pa.record_batch({"at": pa.array(hours, pa.timestamp("us", "UTC"))})
    stream = pa.RecordBatchReader.from_batches(batch.schema, itertools.repeat(batch, 20))
    lake.tables.write_data(table, stream, mode=WriteMode.APPEND, partition_by=BY_HOUR)
    files = [task.file for task in lake.tables.scan(table).plan_files()]
    assert len(files) == HOURS
    assert {file.record_count for file in files} == {20}


@pytest.mark.parametrize(
    ("unit", "hours", "is_one"),
    [("hour", 1, True), ("hour", 2, False), ("day", 24, True), ("day", 25, False), ("month", 31 * 24, True)],
)
def test_a_slice_of_one_partition_is_known(
    lake: Lake, table: TableIdentifier, unit: str, hours: int, is_one: bool
) -> None:
    transform = [PartitionTransform(source_column="at", transform_type=unit)]
    made = lake.tables.create_table(table, scattered(lake).limit(0).toArrow().schema, partition_by=transform)
    window = TableSlice.of_windows("at", [(FIRST, FIRST + timedelta(hours=hours))])
    assert is_one_partition(made, window) is is_one
