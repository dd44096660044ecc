"""Writers that are killed and disks that are full: every row once or not at all, and never a part of a write."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table.snapshots import ancestors_of
from tests.engines import BY_DAY, ArrowEngine, Engine, SparkEngine, days, events, rows_of
from tests.faults.disk import broken_disk
from tests.faults.files import KeptFiles, files_reached
from tests.faults.processes import MOMENTS, Project, Writer

from floe_core.config.artifacts import CompiledArtifacts
from floe_core.errors import FloeStorageError
from floe_core.identifiers import TableIdentifier
from floe_iceberg import Lake
from floe_iceberg.snapshots.snapshots import WRITE_ID

SEED = 20261
DAYS = 20
CHANGES: dict[str, dict[str, Any]] = {
    "append": {"mode": "append"},
    "overwrite": {"mode": "overwrite", "slice": days(1, 2, 3)},
    "upsert": {"mode": "upsert", "keys": ["id"]},
}


# Kills -----------------------------------------------------------------------------------------------------------


@cache
def rows_of_many_days(rows: int) -> pa.Table:
    return events(*range(DAYS), rows=rows)


def batch(number: int, rows: int) -> pa.Table:
    """Rows that say in which write they came, of many days, so that a write is many files."""
    return rows_of_many_days(rows).set_column(2, "note", pa.repeat(write_id(number), DAYS * rows))


def write_id(number: int) -> str:
    return f"write-{number}"


def options(number: int) -> dict[str, Any]:
    """Every fifth write replaces the table, the others add to it."""
    return {"mode": "append" if number % 5 else "overwrite", "partition_by": BY_DAY, "write_id": write_id(number)}


def writes_there(number: int) -> list[int]:
    """The writes whose rows are in the table after this one."""
    return list(range(number - number % 5, number + 1))


@dataclass
class Reader:
    """Reads the table all the while, and remembers how many rows it saw in which snapshot."""

    lake: Lake
    table: TableIdentifier
    seen: dict[int, set[int]] = field(default_factory=dict)
    failures: list[Exception] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._read)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _read(self) -> None:
        while not self._over.is_set():
            try:
                loaded = self.lake.tables.find_table(self.table)
                snapshot = loaded.current_snapshot() if loaded else None
                if loaded and snapshot:
                    rows = len(loaded.scan(selected_fields=("id",)).to_arrow())
                    self.seen.setdefault(snapshot.snapshot_id, set()).add(rows)
            except Exception as exc:  # noqa: BLE001 - told at the end
                self.failures.append(exc)
            time.sleep(0.05)


def kill_and_retry(engine: Engine, project: Project, table: TableIdentifier, *, times: int, rows: int) -> None:
    """Kill a writer at a random moment of its write of so many rows a day, then write the same again."""
    chance = random.Random(SEED)
    lake = project.open()
    reader = Reader(project.open(), table)
    duration = 0.0
    left, unfinished = [], 0
    waiting = Writer(project, engine.name)
    with reader.running():
        for number in range(times + 1):
            writer, data = waiting, batch(number, rows)
            writer.wait_until_ready()
            started = time.monotonic()
            writer.ask(table, data, **options(number))
            if number == 0:  # the first one may finish, to see how long a write takes
                writer.answer()
                duration = time.monotonic() - started
                writer.kill()
            else:
                time.sleep(chance.uniform(0, duration))
                was_killed = writer.kill()
                unfinished += was_killed
                # On a machine that is less busy by now writes take less time than the first one.
                duration *= 1 if was_killed else 0.8
            if number < times:
                waiting = Writer(project, engine.name)  # starts while this write is repeated
            if number:
                left.append(lake.tables.find_write(table, write_id(number)) is not None)
                engine.write(table, data, **options(number))
            assert_rows(lake, table, writes_there(number), DAYS * rows)
    print(  # noqa: T201 - how the kills fell
        f"\nseed {SEED}: a write of {duration:.2f} s; {unfinished} of {times} killed before they answered, "
        f"{sum(left)} of all had committed; {len(reader.seen)} snapshots seen by the reader"
    )
    assert unfinished >= times // 2
    assert not all(left)
    assert reader.failures == []
    assert_nothing_in_parts(lake, table, reader, times + 1, DAYS * rows)


def assert_rows(lake: Lake, table: TableIdentifier, writes: list[int], count: int) -> None:
    """The rows of exactly these writes are there, so many of each, each of them once."""
    rows = lake.tables.scan(table, columns=["id", "note"]).to_arrow()
    found = rows.group_by("note").aggregate([("id", "count"), ("id", "count_distinct")]).to_pylist()
    counted = {row["note"]: (row["id_count"], row["id_count_distinct"]) for row in found}
    assert counted == {write_id(number): (count, count) for number in writes}


def assert_nothing_in_parts(lake: Lake, table: TableIdentifier, reader: Reader, times: int, count: int) -> None:
    """One snapshot for each write, whose every reader saw all of its rows."""
    loaded = lake.tables.load_table(table)
    made = {
        one.snapshot_id: str(one.summary[WRITE_ID])
        for one in ancestors_of(loaded.current_snapshot(), loaded.metadata)
        if one.summary
    }
    assert sorted(made.values()) == sorted(write_id(number) for number in range(times))
    totals = {write_id(number): count * len(writes_there(number)) for number in range(times)}
    assert len(reader.seen) > times // 2
    assert {snapshot: {totals[made[snapshot]]} for snapshot in reader.seen} == reader.seen
    assert {path for path in files_reached(loaded) if not path.is_file()} == set()


@pytest.mark.full
def test_twenty_five_arrow_writers_killed_at_random_and_retried_leave_every_row_once(
    lake: Lake, project: CompiledArtifacts, table: TableIdentifier
) -> None:
    kill_and_retry(ArrowEngine(lake), Project(project), table, times=25, rows=10_000)


@pytest.mark.full
def test_three_spark_writers_killed_at_random_and_retried_leave_every_row_once(
    lake: Lake, project: CompiledArtifacts, table: TableIdentifier
) -> None:
    kill_and_retry(SparkEngine(lake), Project(project), table, times=3, rows=500)


@pytest.mark.parametrize(
    ("how", "moment"),
    [
        *(("append", moment) for moment in MOMENTS),
        *((how, MOMENTS[-1]) for how in ("overwrite", "upsert", "first write")),
    ],
)
def test_a_writer_that_dies_at_a_moment_of_its_commit_and_is_retried_leaves_every_row_once(
    lake: Lake, project: CompiledArtifacts, table: TableIdentifier, how: str, moment: str
) -> None:
    data = events(2) if how == "append" else events(1, note="v2")
    kept = {"append": [0, 1], "first write": []}.get(how, [0])
    expected = sorted(rows_of(data) + (rows_of(events(*kept)) if kept else []), key=str)
    asked: dict[str, Any] = {**CHANGES.get(how, {"mode": "append", "partition_by": BY_DAY}), "write_id": "once"}
    if how != "first write":
        lake.tables.write_data(table, events(0, 1), mode="append", partition_by=BY_DAY)
    writer = Writer(Project(project), "arrow", dies=moment)
    writer.wait_until_ready()
    writer.ask(table, data, **asked)
    writer.wait_until_dead()
    assert (lake.tables.table_exists(table) and lake.tables.find_write(table, "once") is not None) == (
        moment == "after the commit"
    )
    lake.tables.write_data(table, data, **asked)
    assert rows_of(lake.tables.scan(table).to_arrow()) == expected
    assert len(lake.tables.list_snapshots(table)) == (1 if how == "first write" else 2)
    assert {path for path in files_reached(lake.tables.load_table(table)) if not path.is_file()} == set()


# Disks -----------------------------------------------------------------------------------------------------------

# The first data file, a later one, and what the commit writes of its own.
PLACES = {
    "the first data file": (r"\.parquet$", 0),
    "the third data file": (r"\.parquet$", 2),
    "the manifest": (r"-m\d+\.avro$", 0),
    "the manifest list": (r"/snap-[^/]+\.avro$", 0),
}


@pytest.mark.parametrize(("read_only", "words"), [(False, "no space left"), (True, "read-only file system")])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("how", CHANGES)
def test_a_disk_that_takes_no_more_is_told_and_leaves_nothing_behind(
    lake: Lake,
    table: TableIdentifier,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
    place: str,
    read_only: bool,
    words: str,
) -> None:
    before = lake.tables.write_data(table, events(0, 1), mode="append", partition_by=BY_DAY)
    files = KeptFiles(lake.tables, table)
    data = set(files.look())
    pattern, after = PLACES[place]
    with (
        broken_disk(monkeypatch, files=pattern, after=after, read_only=read_only),
        pytest.raises(FloeStorageError, match=words),
    ):
        lake.tables.write_data(table, events(1, 2, 3), **CHANGES[how])
    assert lake.tables.list_snapshots(table) == (before,)
    assert rows_of(lake.tables.scan(table).to_arrow()) == rows_of(events(0, 1))
    assert {path.name for path in files.look() - data if path.suffix == ".parquet"} == set()
    assert files.gone & data == set()
    lake.tables.write_data(table, events(1, 2, 3), **CHANGES[how])


@pytest.mark.parametrize("place", PLACES)
def test_a_disk_that_takes_no_more_leaves_no_table_behind(
    lake: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    pattern, after = PLACES[place]
    with (
        broken_disk(monkeypatch, files=pattern, after=after),
        pytest.raises(FloeStorageError, match="no space left"),
    ):
        lake.tables.write_data(table, events(1, 2, 3), mode="append", partition_by=BY_DAY)
    assert not lake.tables.table_exists(table)
    assert {path for path in KeptFiles(lake.tables, table).look() if path.suffix == ".parquet"} == set()


def test_a_disk_without_space_for_the_metadata_is_told_and_the_table_stays_as_it_was(
    lake: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = lake.tables.write_data(table, events(0), mode="append", write_id="first")
    with (
        broken_disk(monkeypatch, files=r"\.metadata\.json$"),
        pytest.raises(FloeStorageError, match="no space left"),
    ):
        lake.tables.write_data(table, events(1), mode="append", write_id="second")
    assert lake.tables.list_snapshots(table) == (before,)
    lake.tables.write_data(table, events(1), mode="append", write_id="second")
    assert rows_of(SparkEngine(lake).read(table)) == rows_of(events(0, 1))
