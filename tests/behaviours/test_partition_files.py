"""Partitions of assets as files: a run is one snapshot, and what a partition replaces is its own."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dagster import DagsterInstance, DailyPartitionsDefinition, HourlyPartitionsDefinition
from tests.engines import rows_of, transform

from floe_core.identifiers import TableIdentifier
from floe_core.models import PartitionTransform
from floe_dagster import IcebergIOManager
from floe_dagster.testing import (
    ODD_PARTITIONS,
    PARTITIONS,
    VALUES,
    Dimension,
    Partitions,
    Values,
    Workbench,
    by_one,
    spark_values,
    windows,
)
from floe_iceberg import Lake

pytestmark = pytest.mark.filterwarnings("ignore:.*is currently in (beta|preview)")

ARROW = VALUES["arrow"]()
# On the days when clocks are put back, one hour comes twice; in Lord Howe half of one.
HOURS = {
    name: by_one(name, windows(HourlyPartitionsDefinition(start, end_date=end, timezone=zone)))
    for name, zone, start, end in (
        ("berlin-hours", "Europe/Berlin", "2026-10-25-01:00", "2026-10-25-05:00"),
        ("lord-howe-hours", "Australia/Lord_Howe", "2026-04-05-00:00", "2026-04-05-04:30"),
    )
}
KINDS = {**PARTITIONS, **ODD_PARTITIONS, **HOURS}
# Those that begin in the middle of an hour of UTC; there are no partitions of half hours.
BETWEEN_HOURS = ("kolkata", "lord-howe-hours")
ON_SPARK = ("daily", "berlin", "monthly-date", "integers", "odd-static", "time-dynamic")
ZONED, LOCAL, DATE = pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.date32()

# How the table of each kind is partitioned, by columns.
LAYOUTS = {
    "hourly": {"at": "hour"},
    "daily": {"at": "day"},
    "daily-local": {"at": "day"},
    "daily-date": {"at": "day"},
    "weekly": {"at": "day"},
    "monthly": {"at": "month"},
    "monthly-local": {"at": "month"},
    "monthly-date": {"at": "month"},
    "six-hours": {"at": "hour"},
    "three-days": {"at": "day"},
    "berlin": {"at": "hour"},
    "kolkata": {"at": "hour"},
    "static": {"city": "identity"},
    "integers": {"number": "identity"},
    "dates": {"day": "identity"},
    "dynamic": {"city": "identity"},
    "time-static": {"city": "identity", "at": "day"},
    "static-static": {"city": "identity", "shop": "identity"},
    "time-dynamic": {"city": "identity", "at": "day"},
    "odd-static": {"label": "identity"},
    "odd-dynamic": {"label": "identity"},
    "berlin-hours": {"at": "hour"},
    "lord-howe-hours": {"at": "hour"},
}


@pytest.fixture
def bench(lake: Lake, namespace: str) -> Iterator[Workbench]:
    with DagsterInstance.ephemeral() as instance:
        for kind in KINDS.values():
            for name, keys in kind.dynamic.items():
                instance.add_dynamic_partitions(name, list(keys))
        yield Workbench(IcebergIOManager(lake=lake), instance, namespace, {})


@pytest.fixture
def engines(lake: Lake) -> dict[str, Values]:
    return {"arrow": ARROW, "spark": spark_values(lambda: lake.spark)}


class Story:
    """One asset, written with a note of which writing it was, and the files and rows of its table."""

    def __init__(self, lake: Lake, bench: Workbench, values: Values, by: Partitions) -> None:
        self.lake, self.bench, self.by = lake, bench, by
        self.identifier = TableIdentifier(namespace=(bench.prefix,), name="events")
        self.note = "first"
        self._inside: dict[str, set[str]] = {}
        self.asset = bench.writer("events", values, lambda keys: by.table(keys, self.note), by)

    def write(self, *keys: str) -> None:
        self.bench.run([self.asset], span=(keys[0], keys[-1]))

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        return rows_of(self.lake.tables.scan(self.identifier).to_arrow())

    @property
    def count(self) -> int:
        snapshot = self.lake.tables.current_snapshot(self.identifier)
        assert snapshot is not None
        return snapshot.count("total-records")

    @property
    def snapshots(self) -> int:
        return len(self.lake.tables.list_snapshots(self.identifier))

    @property
    def layout(self) -> dict[str, str]:
        table = self.lake.tables.load_table(self.identifier)
        schema = table.schema()
        return {schema.find_column_name(one.source_id) or "": str(one.transform) for one in table.spec().fields}

    def files(self) -> dict[str, set[str]]:
        """The keys whose rows are in each file."""
        table = self.lake.tables.load_table(self.identifier)
        paths = [task.file.file_path for task in table.scan().plan_files()]
        for path in paths:
            if path not in self._inside:  # a file never changes
                with table.io.new_input(path).open() as stream:
                    ids = pq.read_table(stream, columns=["id"]).column("id").to_pylist()
                self._inside[path] = {self.by.keys[one // 100] for one in ids}
        return {path: self._inside[path] for path in paths}

    def others(self, key: str) -> set[str]:
        """The files in which there is no row of this key."""
        return {path for path, keys in self.files().items() if key not in keys}


def written(by: Partitions, notes: dict[str, str]) -> list[tuple[Any, ...]]:
    return rows_of(pa.concat_tables([by.table([key], note) for key, note in notes.items()]))


@pytest.mark.parametrize(
    ("engine", "kind"), [*(("arrow", kind) for kind in KINDS), *(("spark", kind) for kind in ON_SPARK)]
)
def test_all_partitions_at_once_are_one_snapshot_and_one_again_keeps_the_files_of_the_others(
    lake: Lake, bench: Workbench, engines: dict[str, Values], engine: str, kind: str
) -> None:
    by = KINDS[kind]
    story = Story(lake, bench, engines[engine], by)
    story.write(by.keys[0], by.keys[-1])
    assert story.snapshots == 1
    assert story.layout == LAYOUTS[kind]
    assert kind in BETWEEN_HOURS or all(len(keys) == 1 for keys in story.files().values())

    one, notes = by.keys[1], dict.fromkeys(by.keys, "first")
    for story.note in ("second", "second"):
        others = story.others(one)
        story.write(one)
        assert others <= story.files().keys()
        assert story.rows == written(by, {**notes, one: "second"})
    assert story.snapshots == 3


def test_days_that_begin_within_an_hour_and_were_written_one_by_one_keep_their_files(
    lake: Lake, bench: Workbench
) -> None:
    by = KINDS["kolkata"]
    story = Story(lake, bench, ARROW, by)
    for key in by.keys:
        story.write(key)
    before = story.files()
    assert all(len(keys) == 1 for keys in before.values())
    story.write(by.keys[1])
    after = story.files()
    assert {path for path, keys in before.items() if keys != {by.keys[1]}} == before.keys() & after.keys()


@pytest.mark.parametrize("engine", ["arrow", "spark"])
def test_thirty_days_in_one_run_are_one_snapshot(
    lake: Lake, bench: Workbench, engines: dict[str, Values], engine: str
) -> None:
    by = by_one("thirty", windows(DailyPartitionsDefinition("2026-01-15", end_date="2026-02-14")))
    story = Story(lake, bench, engines[engine], by)
    story.write(by.keys[0], by.keys[-1])
    assert (len(by.keys), story.snapshots, len(story.files())) == (30, 1, 30)
    story.write(by.keys[0], by.keys[-1])
    assert story.snapshots == 2
    assert story.rows == written(by, dict.fromkeys(by.keys, "first"))


# Days of other zones

# The month in which clocks are changed, the day on which it happens, and how many half hours that day has.
CHANGES = {
    "berlin-spring": ("Europe/Berlin", "2026-03-15", "2026-04-14", "2026-03-29", 46),
    "berlin-autumn": ("Europe/Berlin", "2026-10-10", "2026-11-09", "2026-10-25", 50),
    "lord-howe-autumn": ("Australia/Lord_Howe", "2026-03-20", "2026-04-19", "2026-04-05", 49),
    "lord-howe-spring": ("Australia/Lord_Howe", "2026-09-20", "2026-10-20", "2026-10-04", 47),
}


def half_hours(zone: str, start: str, end: str, kind: pa.DataType) -> Partitions:
    """Days of a zone with a row for each half hour."""
    definition = DailyPartitionsDefinition(start, end_date=end, timezone=zone)

    def values_of(key: str) -> Sequence[Any]:
        window = definition.time_window_for_partition_key(key)
        first, last = (int(one.timestamp()) for one in (window.start, window.end))
        moments = [datetime.fromtimestamp(second, timezone.utc) for second in range(first, last, 1800)]
        if kind == ZONED:
            return moments
        clock = [one.astimezone(window.start.tzinfo).replace(tzinfo=None) for one in moments]
        return [one.date() for one in clock] if kind == DATE else clock

    return by_one(zone, Dimension(definition, "at", kind, definition.get_partition_keys(), values_of))


def _around(by: Partitions, changed: str) -> list[str]:
    place = by.keys.index(changed)
    return [by.keys[0], *by.keys[place - 1 : place + 2], by.keys[-1]]


@pytest.mark.full  # a month of days each
@pytest.mark.parametrize(
    ("change", "kind"),
    [
        *(pytest.param(change, ZONED, id=f"{change}-timestamptz") for change in CHANGES),
        pytest.param("berlin-autumn", LOCAL, id="berlin-autumn-timestamp"),
        pytest.param("berlin-autumn", DATE, id="berlin-autumn-date"),
    ],
)
def test_a_month_of_days_is_exact_when_clocks_change(
    lake: Lake, bench: Workbench, change: str, kind: pa.DataType
) -> None:
    _write_days_again(lake, bench, change, kind, _around)


@pytest.mark.wide
def test_each_day_of_a_month_is_exact_when_clocks_change_by_half_an_hour(lake: Lake, bench: Workbench) -> None:
    _write_days_again(lake, bench, "lord-howe-autumn", ZONED, lambda by, _: list(by.keys))


def _write_days_again(
    lake: Lake, bench: Workbench, change: str, kind: pa.DataType, which: Callable[[Partitions, str], list[str]]
) -> None:
    zone, start, end, changed, count = CHANGES[change]
    by = half_hours(zone, start, end, kind)
    story = Story(lake, bench, ARROW, by)
    story.write(by.keys[0], by.keys[-1])
    assert story.snapshots == 1
    assert story.layout == {"at": "hour" if kind == ZONED else "day"}
    ids = [row[0] // 100 for row in story.rows]
    assert {key: ids.count(place) for place, key in enumerate(by.keys)} == {
        key: count if key == changed else 48 for key in by.keys
    }

    notes = dict.fromkeys(by.keys, "first")
    story.note = "second"
    for key in which(by, changed):
        others = story.others(key)
        story.write(key)
        assert others <= story.files().keys()
        notes[key] = "second"
        assert story.count == len(by.table(by.keys))
    assert story.rows == written(by, notes)


@pytest.mark.full
def test_days_are_exact_on_spark_when_clocks_change(lake: Lake, bench: Workbench, engines: dict[str, Values]) -> None:
    zone, _, _, changed, count = CHANGES["lord-howe-autumn"]
    by = half_hours(zone, "2026-03-28", "2026-04-13", ZONED)
    story = Story(lake, bench, engines["spark"], by)
    for _ in range(2):  # some hours are of two days, so the second time there are hundreds of files with neighbours
        story.write(by.keys[0], by.keys[-1])
    story.write(changed)
    assert story.rows == written(by, dict.fromkeys(by.keys, "first"))
    assert len([row for row in story.rows if by.keys[row[0] // 100] == changed]) == count


# Tables that were there before

BEFORE: dict[str, tuple[PartitionTransform, ...]] = {
    "none": (),
    "bucket": (transform("bucket", "id", num_buckets=4),),
    "month": (transform("month"),),
    "hour": (transform("hour"),),
    "note": (transform("identity", "note"), transform("day")),
}


@pytest.mark.parametrize("engine", ["arrow", "spark"])
@pytest.mark.parametrize("spec", BEFORE)
def test_a_table_that_is_partitioned_otherwise_stays_so_and_holds_the_right_rows(
    lake: Lake, bench: Workbench, engines: dict[str, Values], engine: str, spec: str
) -> None:
    by = KINDS["berlin"]
    story = Story(lake, bench, engines[engine], by)
    made = lake.tables.create_table(story.identifier, by.table([]).schema, partition_by=BEFORE[spec])
    story.write(by.keys[0], by.keys[-1])
    story.note = "second"
    for _ in range(2):
        story.write(by.keys[1])
    assert story.rows == written(by, {**dict.fromkeys(by.keys, "first"), by.keys[1]: "second"})
    assert lake.tables.load_table(story.identifier).spec() == made.spec()
