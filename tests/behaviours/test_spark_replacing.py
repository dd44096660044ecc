"""Replacing rows with Spark: exactly those asked for, whatever files they lie in, and nobody else's."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from floe_core.errors import ConcurrencyConflictError, ConfigurationError, PartitionMismatchError
from floe_core.identifiers import TableIdentifier, TableSlice
from floe_core.models import PartitionTransform, WriteMode
from floe_iceberg import Lake

FIRST = datetime(2026, 1, 1, tzinfo=timezone.utc)
OVERWRITE = WriteMode.OVERWRITE


def by(column: str, transform: str, **arguments: int) -> PartitionTransform:
    return PartitionTransform.model_validate({"source_column": column, "transform_type": transform, **arguments})


def window(start: timedelta, length: timedelta = timedelta(days=1)) -> TableSlice:
    return TableSlice.of_windows("at", [(FIRST + start, FIRST + start + length)])


def hourly(lake: Lake, start: int, end: int, note: str = "old") -> DataFrame:
    """A row an hour, from one hour after the beginning of 2026 to another; every third is of the city Ulm."""
    at = F.lit(FIRST) + F.expr("make_dt_interval(0, id, 0, 0)")
    city = F.when(F.col("id") % 3 == 0, "Ulm").otherwise("Bonn")
    return lake.spark.range(start, end).select("id", at.alias("at"), city.alias("city"), F.lit(note).alias("note"))


def notes(lake: Lake, table: TableIdentifier, **options: object) -> dict[int, str]:
    rows = lake.read(table, **options).select("id", "note").collect()
    assert len({row.id for row in rows}) == len(rows)
    return {row.id: row.note for row in rows}


def data_files(lake: Lake, table: TableIdentifier) -> set[str]:
    return {task.file.file_path for task in lake.tables.load_table(table).scan().plan_files()}


@pytest.mark.parametrize(
    ("partition_by", "start"),
    [
        ([by("at", "day")], timedelta(hours=5)),
        ([by("at", "day")], timedelta(hours=5, minutes=30)),
        ([by("at", "hour")], timedelta(hours=5, minutes=30)),
        ([by("at", "month")], timedelta(days=1)),
        ([by("city", "identity")], timedelta(days=1)),
        ([by("id", "bucket", num_buckets=2)], timedelta(days=1)),
        ([], timedelta(days=1)),
    ],
    ids=["local-day", "half-hour", "half-hour-of-hours", "month", "foreign", "bucket", "unpartitioned"],
)
def test_a_slice_that_does_not_follow_the_partitions_is_replaced_exactly(
    lake: Lake, table: TableIdentifier, partition_by: list[PartitionTransform], start: timedelta
) -> None:
    lake.write(hourly(lake, 0, 96), table, mode=WriteMode.APPEND, partition_by=partition_by)
    local = window(start)
    inside = {row.id for row in lake.read(table, slice=local).collect()}
    new = (
        lake.read(table, slice=local, columns=["id", "at", "city"]).where("id % 2 = 0").withColumn("note", F.lit("new"))
    )
    result = lake.write(new, table, mode=OVERWRITE, slice=local)

    assert len(inside) == 24
    expected = {number: "old" for number in range(96) if number not in inside}
    assert notes(lake, table) == expected | {number: "new" for number in inside if number % 2 == 0}
    assert len(lake.tables.list_snapshots(table)) == 2
    assert result.snapshot.operation == "overwrite"


def test_days_that_a_shifted_slice_does_not_touch_keep_their_files(lake: Lake, table: TableIdentifier) -> None:
    lake.write(hourly(lake, 0, 96), table, mode=WriteMode.APPEND, partition_by=[by("at", "day")])
    before = data_files(lake, table)
    lake.write(hourly(lake, 29, 53, "new"), table, mode=OVERWRITE, slice=window(timedelta(hours=29)))
    assert len(before & data_files(lake, table)) == 2
    assert sorted(notes(lake, table).values()) == ["new"] * 24 + ["old"] * 72


def test_files_beside_the_slice_stay_in_an_unpartitioned_table_too(lake: Lake, table: TableIdentifier) -> None:
    for day in range(3):
        lake.write(hourly(lake, 24 * day, 24 * day + 24).coalesce(1), table, mode=WriteMode.APPEND)
    before = data_files(lake, table)
    lake.write(
        hourly(lake, 30, 40, "new"), table, mode=OVERWRITE, slice=window(timedelta(hours=30), timedelta(hours=10))
    )
    assert len(before & data_files(lake, table)) == 2
    assert sorted(notes(lake, table).values()) == ["new"] * 10 + ["old"] * 62


def test_a_slice_is_exact_in_files_of_an_older_partitioning(lake: Lake, table: TableIdentifier) -> None:
    lake.write(hourly(lake, 0, 48).coalesce(1), table, mode=WriteMode.APPEND)
    with lake.tables.load_table(table).update_spec() as update:
        update.add_field("at", DayTransform(), "at_day")
    lake.write(hourly(lake, 48, 96), table, mode=WriteMode.APPEND)
    before = data_files(lake, table)
    lake.write(hourly(lake, 24, 48, "new"), table, mode=OVERWRITE, slice=window(timedelta(days=1)))
    assert notes(lake, table) == {number: "new" if 24 <= number < 48 else "old" for number in range(96)}
    assert len(before & data_files(lake, table)) == 2
    lake.write(hourly(lake, 0, 24, "newer"), table, mode=OVERWRITE, slice=window(timedelta(days=0)))
    assert sorted(set(notes(lake, table).values())) == ["new", "newer", "old"]


def test_a_new_table_may_be_filled_by_slices_that_cut_its_partitions(lake: Lake, table: TableIdentifier) -> None:
    for start in (5, 29):
        local = window(timedelta(hours=start))
        lake.write(hourly(lake, start, start + 24), table, mode=OVERWRITE, slice=local, partition_by=[by("at", "day")])
    lake.write(hourly(lake, 5, 6, "new"), table, mode=OVERWRITE, slice=window(timedelta(hours=5)))
    assert notes(lake, table) == {5: "new"} | dict.fromkeys(range(29, 53), "old")


def test_rows_outside_a_slice_that_cuts_partitions_are_refused(lake: Lake, table: TableIdentifier) -> None:
    lake.write(hourly(lake, 0, 48), table, mode=WriteMode.APPEND, partition_by=[by("at", "day")])
    with pytest.raises(PartitionMismatchError, match=r"5 rows lie outside.*with at = 2026-01-02 0"):
        lake.write(hourly(lake, 5, 34, "new"), table, mode=OVERWRITE, slice=window(timedelta(hours=5)))
    assert set(notes(lake, table).values()) == {"old"}
    assert len(lake.tables.list_snapshots(table)) == 1


def test_a_source_that_answers_differently_each_time_is_written_once(lake: Lake, table: TableIdentifier) -> None:
    lake.write(hourly(lake, 0, 48), table, mode=WriteMode.APPEND, partition_by=[by("at", "day")])
    random = hourly(lake, 5, 29, "new").withColumn("note", F.expr("uuid()"))
    lake.write(random, table, mode=OVERWRITE, slice=window(timedelta(hours=5)))
    assert len(notes(lake, table)) == 48


def test_a_table_without_the_column_of_the_slice_gains_it_and_keeps_its_rows(
    lake: Lake, table: TableIdentifier
) -> None:
    lake.write(lake.spark.range(100, 102), table, mode=WriteMode.APPEND)
    lake.write(hourly(lake, 0, 24), table, mode=OVERWRITE, slice=window(timedelta(0)))
    lake.write(hourly(lake, 0, 3, "new"), table, mode=OVERWRITE, slice=window(timedelta(0)))
    assert notes(lake, table) == {100: None, 101: None, 0: "new", 1: "new", 2: "new"}


def computing(lake: Lake, frame: DataFrame, table: TableIdentifier, meanwhile: Callable[[], object]) -> DataFrame:
    """The frame, during whose computation something else happens."""
    folder = lake.artifacts.root / f"computing-{table.namespace[0]}"
    folder.mkdir()
    begun, done = str(folder / "begun"), str(folder / "done")

    def compute(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        Path(begun).touch()
        while not Path(done).exists():
            time.sleep(0.05)
        yield from batches

    def intrude() -> None:
        while not Path(begun).exists():
            time.sleep(0.05)
        try:
            meanwhile()
        finally:
            Path(done).touch()

    threading.Thread(target=intrude, daemon=True).start()
    return frame.coalesce(1).mapInArrow(compute, frame.schema)


def append_row(lake: Lake, table: TableIdentifier, number: int, city: str = "Bonn") -> None:
    at = pa.array([FIRST + timedelta(hours=number, minutes=30)], pa.timestamp("us", "UTC"))
    row = pa.table({"id": [1000 + number], "at": at, "city": [city], "note": ["theirs"]})
    lake.tables.load_table(table).append(row)


@pytest.mark.parametrize("number", [6, 25, 2], ids=["in the slice", "where no row was", "beside it in the same day"])
def test_an_append_beside_a_slice_that_cuts_partitions_is_never_lost(
    lake: Lake, table: TableIdentifier, number: int
) -> None:
    lake.write(hourly(lake, 0, 20), table, mode=WriteMode.APPEND, partition_by=[by("at", "day")])
    frame = computing(lake, hourly(lake, 5, 29, "new"), table, lambda: append_row(lake, table, number))
    with pytest.raises(ConcurrencyConflictError, match="another writer changed"):
        lake.write(frame, table, mode=OVERWRITE, slice=window(timedelta(hours=5)))
    assert notes(lake, table)[1000 + number] == "theirs"


def test_an_append_to_a_day_that_the_slice_does_not_touch_is_no_conflict(lake: Lake, table: TableIdentifier) -> None:
    lake.write(hourly(lake, 0, 96), table, mode=WriteMode.APPEND, partition_by=[by("at", "day")])
    frame = computing(lake, hourly(lake, 5, 29, "new"), table, lambda: append_row(lake, table, 80))
    lake.write(frame, table, mode=OVERWRITE, slice=window(timedelta(hours=5)))
    found = notes(lake, table)
    assert (found[1080], found[6], found[4], len(found)) == ("theirs", "new", "old", 97)


def test_an_append_between_the_look_and_the_write_is_never_lost(
    lake: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.write(hourly(lake, 0, 96), table, mode=WriteMode.APPEND, partition_by=[by("at", "day")])

    def intrude(act: Callable[[str | None], object], branch: str | None) -> None:
        append_row(lake, table, 6)
        act(branch)

    monkeypatch.setattr("floe_spark.writing.commits._send", intrude)
    with pytest.raises(ConcurrencyConflictError, match="another writer changed"):
        lake.write(hourly(lake, 5, 29, "new"), table, mode=OVERWRITE, slice=window(timedelta(hours=5)))
    assert notes(lake, table)[1006] == "theirs"


@pytest.mark.parametrize(
    "partition_by",
    [[by("city", "identity")], [by("at", "day")], [], [by("city", "truncate", width=1)]],
    ids=["whole partitions", "days", "unpartitioned", "truncate"],
)
@pytest.mark.parametrize(
    ("row_filter", "matches"),
    [
        ("city = 'Ulm'", "city = 'Ulm'"),
        ("city != 'Bonn'", "city = 'Ulm' and id != 95"),
        ("city not in ('Bonn') and id < 50", "city = 'Ulm' and id < 50"),
    ],
)
def test_a_filter_says_which_rows_are_replaced(
    lake: Lake, table: TableIdentifier, partition_by: list[PartitionTransform], row_filter: str, matches: str
) -> None:
    old = hourly(lake, 0, 96).withColumn("city", F.when(F.col("id") != 95, F.col("city")))  # one has no city
    lake.write(old, table, mode=WriteMode.APPEND, partition_by=partition_by)
    inside = {row.id for row in hourly(lake, 0, 96).where(matches).collect()}
    new = hourly(lake, 0, 10, "new").where(matches)
    lake.write(new, table, mode=OVERWRITE, overwrite_filter=row_filter)

    kept = {number: "old" for number in range(96) if number not in inside}
    assert notes(lake, table) == kept | {row.id: "new" for row in new.collect()}
    assert len(lake.tables.list_snapshots(table)) <= 3


def test_rows_that_do_not_match_the_filter_are_refused(lake: Lake, table: TableIdentifier) -> None:
    lake.write(hourly(lake, 0, 96), table, mode=WriteMode.APPEND, partition_by=[by("city", "identity")])
    with pytest.raises(PartitionMismatchError, match=r"4 rows lie outside.*city = 'Ulm'.*with city = Bonn"):
        lake.write(hourly(lake, 0, 6, "new"), table, mode=OVERWRITE, overwrite_filter="city = 'Ulm'")
    assert set(notes(lake, table).values()) == {"old"}


def test_an_empty_frame_clears_what_the_filter_matches(lake: Lake, table: TableIdentifier) -> None:
    lake.write(hourly(lake, 0, 96), table, mode=WriteMode.APPEND)
    lake.write(hourly(lake, 0, 0), table, mode=OVERWRITE, overwrite_filter="id >= 10")
    assert sorted(notes(lake, table)) == list(range(10))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"overwrite_filter": "nte = 'x'"}, "did you mean 'note'"),
        ({"overwrite_filter": "note = "}, "cannot be read"),
        ({"overwrite_filter": "id = 1", "slice": window(timedelta(0))}, "are mutually exclusive"),
        ({"overwrite_filter": "id = 1", "mode": "append"}, "mode is append"),
        ({"dynamic_partitions": True}, "is not partitioned"),
        ({"dynamic_partitions": True, "slice": window(timedelta(0))}, "are mutually exclusive"),
        ({"branch": "nowhere"}, "create it first with create_branch"),
        ({"branch": "closed"}, "is a tag"),
        ({"validate_from": 42}, "no snapshot 42"),
        ({"mode": "upsert"}, "set keys"),
        ({"mode": "upsert", "keys": ["id"], "overwrite_filter": "id = 1"}, "mode is upsert"),
        ({"keys": ["id"]}, "keys are for upserts"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_happens(
    lake: Lake, table: TableIdentifier, options: dict[str, object], reason: str
) -> None:
    lake.write(hourly(lake, 0, 5), table, mode=WriteMode.APPEND)
    lake.tables.create_tag(table, "closed")
    with pytest.raises(ConfigurationError, match=reason):
        lake.write(hourly(lake, 5, 9), table, **{"mode": "overwrite", **options})
    assert len(lake.tables.list_snapshots(table)) == 1


@pytest.mark.parametrize(
    "partition_by",
    [
        [by("city", "identity")],
        [by("at", "day")],
        [by("at", "month"), by("id", "bucket", num_buckets=4)],
        [by("id", "truncate", width=24)],
    ],
    ids=["identity", "day", "month+bucket", "truncate"],
)
@pytest.mark.parametrize("older", [False, True], ids=["one spec", "an older spec too"])
def test_the_partitions_of_the_data_are_replaced_and_no_others(
    lake: Lake, table: TableIdentifier, partition_by: list[PartitionTransform], older: bool
) -> None:
    if older:
        lake.write(hourly(lake, 0, 48), table, mode=WriteMode.APPEND, partition_by=[by("note", "identity")])
        lake.tables.evolve_partitions(table, partition_by)
    lake.write(hourly(lake, 48 if older else 0, 96), table, mode=WriteMode.APPEND, partition_by=partition_by)
    place = place_of(partition_by)
    new = hourly(lake, 24, 30, "new")
    replaced = {row[0] for row in new.select(place).distinct().collect()}
    expected = {row.id: "old" for row in hourly(lake, 0, 96).select("id", place).collect() if row[1] not in replaced}
    lake.write(new, table, mode=OVERWRITE, dynamic_partitions=True, write_id="dynamic")

    assert len(expected) < 96
    assert notes(lake, table) == expected | dict.fromkeys(range(24, 30), "new")
    assert len([one for one in lake.tables.list_snapshots(table) if one.summary["floe.write-id"] == "dynamic"]) == 1


def place_of(partition_by: list[PartitionTransform]) -> Column:
    words = {
        "identity": "{0}",
        "day": "lake.system.days({0})",
        "month": "lake.system.months({0})",
        "bucket": "lake.system.bucket({1}, {0})",
        "truncate": "lake.system.truncate({1}, {0})",
    }
    parts = [
        words[one.transform_type.value].format(one.source_column, one.num_buckets or one.width) for one in partition_by
    ]
    return F.expr(f"concat_ws('/', {', '.join(f'cast({part} as string)' for part in parts)})").alias("place")


@pytest.mark.parametrize("older", [False, True], ids=["one spec", "an older spec too"])
def test_an_empty_frame_replaces_no_partition_and_is_still_found_by_its_id(
    lake: Lake, table: TableIdentifier, older: bool
) -> None:
    lake.write(hourly(lake, 0, 24), table, mode=WriteMode.APPEND, partition_by=[by("city", "identity")])
    if older:
        with lake.tables.load_table(table).update_spec() as update:
            update.add_field("note", IdentityTransform(), "note")
    before = data_files(lake, table)
    empty = hourly(lake, 0, 0)
    lake.write(empty, table, mode=OVERWRITE, dynamic_partitions=True, write_id="empty")
    again = lake.write(empty, table, mode=OVERWRITE, dynamic_partitions=True, write_id="empty")
    assert again.deduplicated
    assert data_files(lake, table) == before


def test_an_append_to_a_partition_being_replaced_is_a_conflict(lake: Lake, table: TableIdentifier) -> None:
    lake.write(hourly(lake, 0, 96), table, mode=WriteMode.APPEND, partition_by=[by("at", "day")])
    frame = computing(lake, hourly(lake, 24, 30, "new"), table, lambda: append_row(lake, table, 40))
    with pytest.raises(ConcurrencyConflictError, match="another writer changed"):
        lake.write(frame, table, mode=OVERWRITE, dynamic_partitions=True)
    assert notes(lake, table)[1040] == "theirs"
