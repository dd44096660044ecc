"""When nobody knows whether a commit happened: right rows once, readable by both engines, and no file deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
import requests
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, ServiceUnavailableError
from pyiceberg.table import CommitTableResponse
from sqlalchemy.exc import OperationalError
from tests.engines import BY_DAY, ArrowEngine, SparkEngine, days, events, rows_of
from tests.faults.catalog import Fault, Held, Outage, after, answer_lost, faulty, not_applied
from tests.faults.files import KeptFiles, files_reached

from floe_core.errors import CommitStateUnknownError, ConcurrencyConflictError
from floe_core.identifiers import TableIdentifier
from floe_core.models import SnapshotInfo
from floe_spark import Lake


@dataclass(frozen=True)
class Write:
    """A write, the rows before it and the rows after it."""

    data: pa.Table
    after: pa.Table
    before: pa.Table | None = field(default_factory=lambda: events(0, 1))
    options: dict[str, Any] = field(default_factory=lambda: {"mode": "append"})


NEW = events(1, rows=4, note="v2")
WRITES = {
    "append": Write(events(2), events(0, 1, 2)),
    "overwrite a slice": Write(
        NEW, pa.concat_tables([events(0), NEW]), options={"mode": "overwrite", "slice": days(1)}
    ),
    "upsert": Write(
        NEW, pa.concat_tables([events(0), NEW, events(1).slice(4)]), options={"mode": "upsert", "keys": ["id"]}
    ),
    "first write": Write(events(0, 1), events(0, 1), before=None, options={"mode": "append", "partition_by": BY_DAY}),
}

ERRORS: dict[str, Callable[[], Exception]] = {
    "connection reset": lambda: requests.ConnectionError("Connection aborted."),
    "time-out": lambda: requests.ReadTimeout("Read timed out."),
    "500": lambda: CommitStateUnknownException("500"),
    "503": lambda: ServiceUnavailableError("503"),
    "database": lambda: OperationalError("UPDATE", {}, Exception("disk I/O error")),
}
EACH_ONCE = [*(("append", error) for error in ERRORS), *((how, "time-out") for how in WRITES if how != "append")]
ON_A_TABLE = [how for how in WRITES if how != "first write"]


class Doubt:
    """One write to one table while things go wrong, and what must be true afterwards."""

    def __init__(
        self, lake: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch, how: str, **properties: str
    ) -> None:
        self.lake = lake
        self.table = table
        self.case = WRITES[how]
        self._monkeypatch = monkeypatch
        if self.case.before is not None:
            lake.tables.write_data(
                table, self.case.before, mode="append", partition_by=BY_DAY, properties=properties, write_id="before"
            )
        self.files = KeptFiles(lake.tables, table)

    @contextmanager
    def faults(self, *script: Fault, outage: Outage | None = None) -> Iterator[None]:
        looking = [self._remembering(fault) for fault in script]
        with faulty(self.lake.tables.catalog_plugin.connect(), self._monkeypatch, *looking, outage=outage):
            yield

    def _remembering(self, fault: Fault) -> Fault:
        """Remember the files that are there when a commit is sent and when its answer is due."""

        def remembered(send: Callable[[], CommitTableResponse]) -> CommitTableResponse:
            self.files.look()
            try:
                return fault(send)
            finally:
                self.files.look()

        return remembered

    def write(self) -> SnapshotInfo:
        return self.lake.tables.write_data(self.table, self.case.data, **self.case.options, write_id="doubtful")

    def assert_written_once(self, made: SnapshotInfo, *, others: int = 0, rows: pa.Table | None = None) -> None:
        """`others` are the snapshots that somebody else made, `rows` what is there with theirs."""
        expected = rows_of(self.case.after if rows is None else rows)
        tables = self.lake.tables
        assert rows_of(ArrowEngine(self.lake).read(self.table)) == expected
        assert rows_of(SparkEngine(self.lake).read(self.table)) == expected
        snapshots = tables.list_snapshots(self.table)
        assert [one.snapshot_id for one in snapshots if one.summary["floe.write-id"] == "doubtful"] == [
            made.snapshot_id
        ]
        assert len(snapshots) == 1 + others + (self.case.before is not None)
        assert {path for path in files_reached(tables.load_table(self.table)) if not path.is_file()} == set()
        assert self.files.gone == set()


# The answer is lost ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("how", "error"), EACH_ONCE)
def test_a_commit_whose_answer_is_lost_is_found(
    lake: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch, how: str, error: str
) -> None:
    doubt = Doubt(lake, table, monkeypatch, how)
    with doubt.faults(answer_lost(ERRORS[error]())):
        made = doubt.write()
    doubt.assert_written_once(made)


@pytest.mark.parametrize("how", WRITES)
def test_a_commit_whose_answer_is_lost_is_found_under_the_commits_of_others(
    lake: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    doubt = Doubt(lake, table, monkeypatch, how)

    def lost_then_followed(send: Callable[[], CommitTableResponse]) -> CommitTableResponse:
        send()
        lake.tables.write_data(table, events(5), mode="append", write_id="neighbour")
        raise ERRORS["time-out"]()

    with doubt.faults(lost_then_followed):
        made = doubt.write()
    doubt.assert_written_once(made, others=1, rows=pa.concat_tables([doubt.case.after, events(5)]))


@pytest.mark.parametrize(("how", "error"), EACH_ONCE)
def test_a_commit_that_never_arrived_is_sent_again(
    lake: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch, how: str, error: str
) -> None:
    doubt = Doubt(lake, table, monkeypatch, how)
    with doubt.faults(not_applied(ERRORS[error]()), not_applied(ERRORS[error]())):
        made = doubt.write()
    doubt.assert_written_once(made)


# A conflict that is none -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", WRITES)
def test_a_conflict_reported_after_the_commit_was_applied_is_a_success_though_the_budget_is_spent(
    lake: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    doubt = Doubt(lake, table, monkeypatch, how, **{"commit.retry.num-retries": "0"})
    with doubt.faults(answer_lost(CommitFailedException("409"))):
        made = doubt.write()
    doubt.assert_written_once(made)


@pytest.mark.parametrize("how", ON_A_TABLE)
def test_a_conflict_reported_after_the_commit_was_applied_is_a_success_on_a_table_of_others(
    lake: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    doubt = Doubt(lake, table, monkeypatch, how)
    forget_the_budget(doubt)
    with doubt.faults(not_applied(CommitFailedException("409")), answer_lost(CommitFailedException("409"))):
        made = doubt.write()
    doubt.assert_written_once(made)


@pytest.mark.parametrize("how", ON_A_TABLE)
def test_a_conflict_when_the_budget_is_spent_is_told_and_leaves_the_table_as_it_was(
    lake: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    doubt = Doubt(lake, table, monkeypatch, how, **{"commit.retry.num-retries": "1"})
    conflict = not_applied(CommitFailedException("409"))
    with doubt.faults(conflict, conflict), pytest.raises(ConcurrencyConflictError, match="nothing was written"):
        doubt.write()
    assert rows_of(SparkEngine(lake).read(table)) == rows_of(doubt.case.before)
    assert len(lake.tables.list_snapshots(table)) == 1


@pytest.mark.parametrize("how", ON_A_TABLE)
def test_six_conflicts_in_a_row_do_not_stop_a_write_to_a_table_of_others(
    lake: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    doubt = Doubt(lake, table, monkeypatch, how)
    forget_the_budget(doubt)
    neighbours = [events(10 + number, rows=1) for number in range(6)]

    def neighbour(number: int) -> Fault:
        return after(lambda: lake.tables.write_data(table, neighbours[number], mode="append"))

    # Each neighbour's own commit passes by the script, so the script holds every second place.
    script: list[Fault] = []
    for number in range(6):
        script += [neighbour(number), lambda send: send()]
    with doubt.faults(*script):
        made = doubt.write()
    assert rows_of(SparkEngine(lake).read(table)) == rows_of(pa.concat_tables([doubt.case.after, *neighbours]))
    assert rows_of(ArrowEngine(lake).read(table)) == rows_of(pa.concat_tables([doubt.case.after, *neighbours]))
    assert lake.tables.current_snapshot(table) == made
    assert len(lake.tables.list_snapshots(table)) == 8
    assert {path for path in files_reached(lake.tables.load_table(table)) if not path.is_file()} == set()


def forget_the_budget(doubt: Doubt) -> None:
    """Make the table one that Floe did not create."""
    properties = doubt.lake.tables.load_table(doubt.table).properties
    with doubt.lake.tables.load_table(doubt.table).transaction() as transaction:
        transaction.remove_properties(*(name for name in properties if name.startswith("commit.retry.")))
    doubt.files.look()


# The first commit is still on its way ----------------------------------------------------------------------------


@pytest.mark.parametrize(("how", "error"), EACH_ONCE)
def test_a_commit_that_arrives_before_its_repetition_is_the_one(
    lake: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch, how: str, error: str
) -> None:
    doubt = Doubt(lake, table, monkeypatch, how)
    first = Held(ERRORS[error]())
    with doubt.faults(first.hold, first.arrives_first):
        made = doubt.write()
    assert not first.refused
    doubt.assert_written_once(made)


@pytest.mark.parametrize(("how", "error"), EACH_ONCE)
def test_a_commit_that_arrives_after_its_repetition_is_refused(
    lake: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch, how: str, error: str
) -> None:
    doubt = Doubt(lake, table, monkeypatch, how)
    first = Held(ERRORS[error]())
    with doubt.faults(first.hold, first.arrives_last):
        made = doubt.write()
    assert first.refused
    doubt.assert_written_once(made)


# The table cannot be looked at -----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", WRITES)
def test_a_catalog_that_is_silent_for_a_while_is_asked_again(
    lake: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    doubt = Doubt(lake, table, monkeypatch, how)
    outage = Outage(ERRORS["connection reset"](), times=2)
    with doubt.faults(outage.begins_after, outage=outage):
        made = doubt.write()
    assert outage.looks > 2
    doubt.assert_written_once(made)


@pytest.mark.parametrize("how", WRITES)
def test_a_catalog_that_stays_silent_leaves_a_doubt_that_the_same_write_settles_later(
    lake: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    doubt = Doubt(lake, table, monkeypatch, how)
    outage = Outage(ERRORS["connection reset"]())
    with doubt.faults(outage.begins_after, outage=outage):
        with pytest.raises(CommitStateUnknownError) as told:
            doubt.write()
        outage.end()
        made = doubt.write()
    words = str(told.value)
    assert "may have succeeded" in words
    assert "Nothing was deleted" in words
    assert "run the same write again" in words
    assert "doubtful" in words
    assert str(table) in words
    doubt.assert_written_once(made)


@pytest.mark.parametrize("how", WRITES)
def test_a_write_in_doubt_that_never_arrived_is_done_by_the_same_write_later(
    lake: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Every attempt is lost on its way: it may still arrive, and the error says so."""
    doubt = Doubt(lake, table, monkeypatch, how)
    lost = [not_applied(ERRORS["time-out"]()) for _ in range(5)]
    with doubt.faults(*lost):
        with pytest.raises(CommitStateUnknownError, match=r"it may still arrive.*run the same write again"):
            doubt.write()
        made = doubt.write()
    doubt.assert_written_once(made)
