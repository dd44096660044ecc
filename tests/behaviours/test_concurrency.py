"""Writers at the same time: every acknowledged row is there once, and a slice holds the rows of one writer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

import pyarrow as pa
import pytest
from pyiceberg.table.snapshots import ancestors_of
from tests.engines import BY_DAY, SparkEngine, days, events, rows_of
from tests.faults.files import files_reached
from tests.faults.processes import Project, Writer

from floe_core.config.artifacts import CompiledArtifacts
from floe_core.errors import ConcurrencyConflictError
from floe_core.identifiers import TableIdentifier
from floe_core.models import SnapshotInfo
from floe_iceberg import Lake


class Writes(Protocol):
    def write(self, table: TableIdentifier, data: pa.Table, **options: Any) -> SnapshotInfo: ...


@pytest.fixture(scope="module")
def processes(project: CompiledArtifacts) -> Iterator[list[Writer]]:
    """Four processes that write with Arrow."""
    with writers(project, arrow=4) as made:
        yield made


class writers:  # noqa: N801 - used like a function
    """So many processes, all ready."""

    def __init__(self, project: CompiledArtifacts, *, arrow: int, spark: int = 0) -> None:
        kinds = ["arrow"] * arrow + ["spark"] * spark
        self._made = [Writer(Project(project), kind) for kind in kinds]

    def __enter__(self) -> list[Writer]:
        for one in self._made:
            one.wait_until_ready()
        return self._made

    def __exit__(self, *_: object) -> None:
        for one in self._made:
            one.close()


def at_once(*actions: Callable[[], SnapshotInfo]) -> list[SnapshotInfo | ConcurrencyConflictError]:
    """Do all of it at the same time; a conflict is an outcome like another, any other error is raised."""
    start = threading.Barrier(len(actions))

    def act(action: Callable[[], SnapshotInfo]) -> SnapshotInfo | ConcurrencyConflictError:
        start.wait()
        try:
            return action()
        except ConcurrencyConflictError as conflict:
            return conflict

    with ThreadPoolExecutor(len(actions)) as pool:
        outcomes: list[Future[SnapshotInfo | ConcurrencyConflictError]] = [pool.submit(act, one) for one in actions]
        return [one.result() for one in outcomes]


def rows_of_all(*parts: pa.Table) -> list[tuple[Any, ...]]:
    return sorted((row for part in parts for row in rows_of(part)), key=str)


def history(lake: Lake, table: TableIdentifier) -> list[int]:
    """The snapshots of the table's main line, the oldest first."""
    loaded = lake.tables.load_table(table)
    return [one.snapshot_id for one in ancestors_of(loaded.current_snapshot(), loaded.metadata)][::-1]


def assert_whole(lake: Lake, table: TableIdentifier) -> None:
    """Every file that the table needs is there, and no write has two snapshots."""
    loaded = lake.tables.load_table(table)
    assert {path for path in files_reached(loaded) if not path.is_file()} == set()
    ids = [one.summary["floe.write-id"] for one in loaded.snapshots() if one.summary]
    assert len(ids) == len(set(ids))


# Appends ---------------------------------------------------------------------------------------------------------


def lines(writer: int, number: int) -> pa.Table:
    """Three rows that say who wrote them, and in which write."""
    return pa.table({"writer": [writer] * 3, "number": [number] * 3, "row": [0, 1, 2]})


def append_all(lake: Lake, table: TableIdentifier, who: list[tuple[Writes, int]]) -> None:
    """Let each writer append so many times, all of them at once, and see that nothing is lost or there twice."""
    lake.tables.write_data(table, lines(-1, 0), mode="append")

    def append(place: int, writer: Writes, times: int) -> list[int]:
        return [writer.write(table, lines(place, number), mode="append").snapshot_id for number in range(times)]

    with ThreadPoolExecutor(len(who)) as pool:
        done = [pool.submit(append, place, writer, times) for place, (writer, times) in enumerate(who)]
        acknowledged = [snapshot for one in done for snapshot in one.result()]
    total = sum(times for _, times in who)
    assert len(set(acknowledged)) == total
    assert sorted(history(lake, table)[1:]) == sorted(acknowledged)
    expected = [lines(-1, 0), *(lines(place, n) for place, (_, times) in enumerate(who) for n in range(times))]
    assert rows_of(lake.tables.scan(table).to_arrow()) == rows_of_all(*expected)
    assert rows_of(lake.read(table).toArrow()) == rows_of_all(*expected)
    assert_whole(lake, table)


@pytest.mark.full
def test_appends_of_processes_and_of_spark_all_land_once(
    lake: Lake, table: TableIdentifier, processes: list[Writer]
) -> None:
    spark = SparkEngine(lake)
    append_all(lake, table, [*((one, 10) for one in processes), (spark, 2), (spark, 2)])


@pytest.mark.full
def test_eighty_appends_of_eight_processes_of_both_engines_all_land_once(
    lake: Lake, project: CompiledArtifacts, table: TableIdentifier
) -> None:
    with writers(project, arrow=6, spark=2) as made:
        append_all(lake, table, [(one, 10) for one in made])


# Overwrites ------------------------------------------------------------------------------------------------------

PAIRS = [("arrow", "arrow"), ("arrow", "spark"), ("spark", "spark")]
ROUNDS = 10


def rounds(kinds: tuple[str, str]) -> range:
    return range(ROUNDS // (1 + kinds.count("spark")))


def pair(lake: Lake, processes: list[Writer], kinds: tuple[str, str]) -> tuple[Writes, Writes]:
    """Arrow writes from processes, Spark from threads of this one."""
    spark = SparkEngine(lake)
    first, second = (spark if kind == "spark" else processes[place] for place, kind in enumerate(kinds))
    return first, second


@pytest.mark.parametrize("kinds", PAIRS, ids="-".join)
def test_of_two_overwrites_of_one_slice_the_later_one_is_there_and_nothing_else(
    lake: Lake, table: TableIdentifier, processes: list[Writer], kinds: tuple[str, str]
) -> None:
    pair_of = pair(lake, processes, kinds)
    lake.tables.write_data(table, events(0, 1), mode="append", partition_by=BY_DAY)
    for number in rounds(kinds):
        data = [events(1, rows=3 + place, note=f"{number}-{place}") for place in range(2)]

        def overwrite(place: int, data: list[pa.Table] = data) -> SnapshotInfo:
            return pair_of[place].write(table, data[place], mode="overwrite", slice=days(1))

        outcomes = at_once(lambda: overwrite(0), lambda: overwrite(1))
        there = history(lake, table)
        landed = {one.snapshot_id: place for place, one in enumerate(outcomes) if isinstance(one, SnapshotInfo)}
        assert landed, outcomes
        assert landed.keys() <= set(there)
        winner = data[landed[max(landed, key=there.index)]]
        assert rows_of(lake.tables.scan(table).to_arrow()) == rows_of_all(events(0), winner)
    assert_whole(lake, table)
    assert rows_of(lake.read(table).toArrow()) == rows_of(lake.tables.scan(table).to_arrow())


@pytest.mark.parametrize(
    ("kinds", "validated"),
    [
        pytest.param(("arrow", "arrow"), True, id="arrow-arrow, since it was read"),
        pytest.param(("arrow", "arrow"), False, id="arrow-arrow, since it began"),
        pytest.param(("arrow", "spark"), True, id="arrow-spark, since it was read"),
        pytest.param(("spark", "arrow"), True, id="spark-arrow, since it was read"),
        pytest.param(("arrow", "spark"), False, id="arrow-spark, since it began", marks=pytest.mark.full),
        pytest.param(("spark", "arrow"), False, id="spark-arrow, since it began", marks=pytest.mark.full),
    ],
)
def test_an_append_that_races_an_overwrite_of_its_slice_is_not_lost(
    lake: Lake, table: TableIdentifier, processes: list[Writer], kinds: tuple[str, str], validated: bool
) -> None:
    appender, overwriter = pair(lake, processes, kinds)
    lake.tables.write_data(table, events(0, 1), mode="append", partition_by=BY_DAY)
    for number in rounds(kinds):
        base = history(lake, table)[-1]
        before = lake.tables.scan(table, row_filter="at >= '2026-01-02T00:00:00+00:00'").to_arrow()
        added, new = events(1, rows=2, note=f"append-{number}"), events(1, rows=3, note=f"overwrite-{number}")

        def append(added: pa.Table = added) -> SnapshotInfo:
            return appender.write(table, added, mode="append")

        def overwrite(new: pa.Table = new, base: int = base) -> SnapshotInfo:
            since = {"validate_from": base} if validated else {}
            return overwriter.write(table, new, mode="overwrite", slice=days(1), **since)

        appended, overwritten = at_once(append, overwrite)
        assert isinstance(appended, SnapshotInfo)
        there = history(lake, table)
        if not isinstance(overwritten, SnapshotInfo):
            expected = [before, added]
        elif there.index(appended.snapshot_id) > there.index(overwritten.snapshot_id):
            expected = [new, added]
        else:
            # Only an overwrite that began after the append had landed may take its rows away.
            assert not validated
            expected = [new]
        assert rows_of(lake.tables.scan(table).to_arrow()) == rows_of_all(events(0), *expected)
    assert_whole(lake, table)


# Tables and columns that begin -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kinds", PAIRS[:2], ids="-".join)
def test_writers_that_create_the_same_table_at_once_all_land(
    lake: Lake, namespace: str, processes: list[Writer], kinds: tuple[str, str]
) -> None:
    pair_of = pair(lake, processes, kinds)
    for number in range(5):
        table = TableIdentifier(namespace=(namespace,), name=f"events_{number}")

        def create(place: int, table: TableIdentifier = table) -> SnapshotInfo:
            return pair_of[place].write(table, events(place), mode="append", partition_by=BY_DAY)

        outcomes = at_once(lambda: create(0), lambda: create(1))
        assert all(isinstance(one, SnapshotInfo) for one in outcomes), outcomes
        assert rows_of(lake.tables.scan(table).to_arrow()) == rows_of(events(0, 1))
        assert len(history(lake, table)) == 2
        assert_whole(lake, table)


def test_writers_that_add_different_columns_at_once_all_land_with_their_values(
    lake: Lake, table: TableIdentifier, processes: list[Writer]
) -> None:
    lake.tables.write_data(table, pa.table({"id": [0]}), mode="append")
    expected: list[dict[str, object]] = [{"id": 0}]
    for number in range(5):
        rows = [
            {"id": 10 * number + place + 1, f"c{number}_{place}": value} for place, value in enumerate(("text", 7, 0.5))
        ]

        def add(place: int, rows: list[dict[str, object]] = rows) -> SnapshotInfo:
            return processes[place].write(table, pa.Table.from_pylist([rows[place]]), mode="append")

        outcomes = at_once(lambda: add(0), lambda: add(1), lambda: add(2))
        assert all(isinstance(one, SnapshotInfo) for one in outcomes), outcomes
        expected += rows
    names = lake.tables.load_table(table).schema().column_names
    assert len(names) == 16
    wanted = sorted(({name: row.get(name) for name in names} for row in expected), key=lambda row: str(row["id"]))
    for found in (lake.tables.scan(table).to_arrow(), lake.read(table).toArrow()):
        assert sorted(found.to_pylist(), key=lambda row: str(row["id"])) == wanted
    assert_whole(lake, table)


def test_one_write_id_in_several_processes_at_once_is_one_write(
    lake: Lake, table: TableIdentifier, processes: list[Writer]
) -> None:
    for number in range(ROUNDS):

        def append(writer: Writer, number: int = number) -> SnapshotInfo:
            data = pa.table({"number": [number]})
            return writer.write(table, data, mode="append", write_id=f"write-{number}")

        outcomes = at_once(*(lambda one=one: append(one) for one in processes))
        assert all(isinstance(one, SnapshotInfo) for one in outcomes), outcomes
        assert len({one.snapshot_id for one in outcomes if isinstance(one, SnapshotInfo)}) == 1
    assert rows_of(lake.tables.scan(table).to_arrow()) == [(number,) for number in range(ROUNDS)]
    assert len(history(lake, table)) == ROUNDS
    assert_whole(lake, table)
