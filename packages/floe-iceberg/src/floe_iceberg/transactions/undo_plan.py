"""What undoing a run would do: the tables it restores, and the later writes that stop it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from floe_core.errors import ConfigurationError
from floe_core.identifiers import TableIdentifier
from floe_iceberg.snapshots import ASSET, CREATES, PARTITION, RUN_ID, UNDOES, summary_of
from floe_iceberg.transactions.dependents import History, dependents
from floe_iceberg.transactions.file_changes import NetChange, is_rewrite
from floe_iceberg.transactions.run_branches import CREATED_FOR

__all__ = [
    "UNDONE_RUN",
    "LaterWrite",
    "RestoredTable",
    "Undo",
    "UndoPlan",
    "plan_undo",
    "restored_table",
    "undone_tag",
]


@dataclass(frozen=True)
class LaterWrite:
    """A write after the run, which would be lost or would be wrong if the run alone were undone.

    Attributes:
        table: Its table.
        snapshot_id: Its snapshot.
        committed_at: When it was committed.
        run_id: Its run; empty if another program wrote it.
        asset: Its asset; empty if another program wrote it.
        partitions: Its partitions; empty if it has none.
        reason: How it depends on the run.
    """

    table: str
    snapshot_id: int
    committed_at: datetime
    run_id: str
    asset: str
    partitions: str
    reason: str


@dataclass(frozen=True)
class RestoredTable:
    """What undoing does to a table.

    Attributes:
        table: The table.
        how: `moved back` to the snapshot before the run; `rewritten`, so that later writes to other slices stay;
            `emptied`, because the run created it: it counts as absent then; or `restored`, if the undoing is undone.
        head: The snapshot that main is at.
        to: The snapshot that main moves back to; None for a table that is rewritten or emptied.
        undone: The snapshots that are taken back, the oldest first.
        rows_removed: The rows that are taken out; None if that is unknown.
        rows_restored: The rows that come back; None if that is unknown.
        columns_left: The columns that were added since; they stay, with NULL in the restored rows.
    """

    table: str
    how: str
    head: int
    to: int | None
    undone: tuple[int, ...]
    rows_removed: int | None
    rows_restored: int | None
    columns_left: tuple[str, ...] = ()


@dataclass(frozen=True)
class UndoPlan:
    """What undoing a run would do.

    Attributes:
        run_id: The run.
        tables: The tables, by name.
        later: The later writes that stop it; with `with_later` those that are taken back too.
        with_later: Whether later writes are taken back too.
    """

    run_id: str
    tables: tuple[RestoredTable, ...]
    later: tuple[LaterWrite, ...] = ()
    with_later: bool = False

    @property
    def refusal(self) -> str | None:
        """Why the run is not undone; None if nothing stops it."""
        if not self.later or self.with_later:
            return None
        names = [f"{write.asset or write.table} (snapshot {write.snapshot_id})" for write in self.later[:_NAMED]]
        more = f" and {len(self.later) - _NAMED} more" if len(self.later) > _NAMED else ""
        return f"later writes depend on run {self.run_id}: {', '.join(names)}{more}"


@dataclass(frozen=True)
class Undo:
    """How one table is restored; `net` is None for a table that main moves back in."""

    identifier: TableIdentifier
    table: Table
    restored: RestoredTable
    net: NetChange | None
    created: bool


_NAMED = 10
# In the summary of a snapshot that takes writes back: their run.
UNDONE_RUN = "floe.undone-run"
MOVED_BACK, REWRITTEN, EMPTIED, RESTORED = "moved back", "rewritten", "emptied", "restored"


def undone_tag(run_id: str) -> str:
    """The tag that keeps the head of a table from before a run was undone."""
    return f"floe-undone-{run_id}"


def restored_table(identifier: TableIdentifier, table: Table, to: int) -> RestoredTable:
    """What it does to a table to move main to the head that was kept."""
    head, kept = table.current_snapshot(), table.snapshot_by_id(to)
    if head is None or kept is None:
        raise AssertionError("a table that was undone has both heads")
    return RestoredTable(
        table=str(identifier),
        how=RESTORED,
        head=head.snapshot_id,
        to=to,
        undone=(),
        rows_removed=_total(head),
        rows_restored=_total(kept),
    )


def plan_undo(
    tables: Mapping[TableIdentifier, Table],
    run_id: str,
    *,
    with_later: bool,
    written: Mapping[TableIdentifier, int] | None = None,
) -> tuple[UndoPlan, list[Undo]]:
    """Plan to undo a run.

    Args:
        tables: All tables of the catalog, because any of them may have been computed from what the run wrote.
        run_id: The run.
        with_later: Take back the writes that depend on it too.
        written: The snapshots that the run is known to have written; one that has expired is an error.
    """
    histories = {name: History(name, table) for name, table in tables.items()}
    for history in histories.values():
        written_by_run = {one.snapshot_id for one in history.chain if summary_of(one).get(RUN_ID) == run_id}
        history.reverted = written_by_run - history.undone
    if not any(history.reverted for history in histories.values()):
        raise ConfigurationError(_nothing(tables, run_id))
    _refuse_expired(tables, run_id, written or {})
    found: dict[tuple[str, int], LaterWrite] = {}
    while True:
        more = [write for write in _later(histories) if (write.table, write.snapshot_id) not in found]
        found |= {(write.table, write.snapshot_id): write for write in more}
        if not more or not with_later:
            break
        for write in more:
            histories[TableIdentifier.from_string(write.table)].reverted.add(write.snapshot_id)
    stopped = bool(found) and not with_later
    affected = [one for one in histories.values() if one.reverted]
    for history in affected:
        _refuse_tag(history, run_id)
    undos = [_undo(one, run_id, stopped=stopped) for one in affected]
    undos.sort(key=lambda undo: str(undo.identifier))
    later = sorted(found.values(), key=lambda write: (write.committed_at, write.table))
    plan = UndoPlan(run_id, tuple(undo.restored for undo in undos), tuple(later), with_later)
    return plan, undos


def _nothing(tables: Mapping[TableIdentifier, Table], run_id: str) -> str:
    tag = undone_tag(run_id)
    if any(tag in table.metadata.refs for table in tables.values()):
        return f"run {run_id} was undone already; to restore what it wrote: floe undo {run_id} --restore"
    return (
        f"no table has a snapshot of run {run_id} in the history of main: it wrote nothing, was not published, was "
        f"rolled back, or its snapshots have expired"
    )


def _refuse_expired(
    tables: Mapping[TableIdentifier, Table], run_id: str, written: Mapping[TableIdentifier, int]
) -> None:
    """Refuse to undo a part of a run: rows whose snapshot has expired cannot be told from others."""
    expired = [
        f"'{name}'"
        for name, snapshot_id in written.items()
        if name in tables and tables[name].snapshot_by_id(snapshot_id) is None
    ]
    if expired:
        raise ConfigurationError(
            f"run {run_id} also wrote {', '.join(expired)}, and its snapshots there have expired, so that it cannot be "
            f"undone as a whole. Nothing was undone"
        )


def _refuse_tag(history: History, run_id: str) -> None:
    if undone_tag(run_id) in history.table.metadata.refs:
        raise ConfigurationError(
            f"'{history.identifier}' has the tag {undone_tag(run_id)!r} from an earlier undoing of this run; remove it "
            f"first with: floe snapshots untag {history.identifier} {undone_tag(run_id)}"
        )


def _later(histories: Mapping[TableIdentifier, History]) -> Iterator[LaterWrite]:
    """The writes that conflict with taking these back, or were computed from them."""
    for history in histories.values():
        if history.reverted and not history.goes_back:
            for conflict in history.net().conflicts:
                yield from _conflicting(history, conflict.snapshot, conflict.reason)
    for one in dependents(histories):
        yield _later_write(one.history, one.snapshot, one.reason)


def _conflicting(history: History, snapshot: Snapshot, reason: str) -> Iterator[LaterWrite]:
    if UNDOES in summary_of(snapshot):
        raise ConfigurationError(
            f"another run was undone in '{history.identifier}' since then (snapshot {snapshot.snapshot_id}), over the "
            f"same rows, so that this one cannot be taken back beside it: restore the other one first with "
            f"floe undo {summary_of(snapshot).get(UNDONE_RUN, 'RUN')} --restore"
        )
    if not is_rewrite(snapshot):
        yield _later_write(history, snapshot, reason)
        return
    # A compaction cannot be taken back alone: all writes since then go with it.
    for one in history.since:
        if one.snapshot_id not in history.reverted and not is_rewrite(one) and UNDOES not in summary_of(one):
            reason = f"snapshot {snapshot.snapshot_id} compacted its rows together with these"
            yield _later_write(history, one, reason)


def _later_write(history: History, snapshot: Snapshot, reason: str) -> LaterWrite:
    summary = summary_of(snapshot)
    return LaterWrite(
        table=str(history.identifier),
        snapshot_id=snapshot.snapshot_id,
        committed_at=datetime.fromtimestamp(snapshot.timestamp_ms / 1000, timezone.utc),
        run_id=summary.get(RUN_ID, ""),
        asset=summary.get(ASSET, ""),
        partitions=summary.get(PARTITION, ""),
        reason=reason,
    )


def _undo(history: History, run_id: str, *, stopped: bool) -> Undo:
    """How a table is restored; raises if it cannot be."""
    oldest = history.chain[history.first]
    before = history.chain[history.first - 1] if history.first else None
    if before is None and oldest.parent_snapshot_id is not None:
        raise ConfigurationError(
            f"the snapshot of '{history.identifier}' before run {run_id} has expired, so the run cannot be undone"
        )
    summary = summary_of(oldest if before is None else before)
    created = CREATES in summary if before is None else summary.get(CREATED_FOR) == run_id
    undone = tuple(one.snapshot_id for one in history.chain if one.snapshot_id in history.reverted)
    head = history.chain[-1]
    if history.goes_back and before is not None:
        restored = RestoredTable(
            table=str(history.identifier),
            how=EMPTIED if created else MOVED_BACK,
            head=head.snapshot_id,
            to=before.snapshot_id,
            undone=undone,
            rows_removed=_total(head),
            rows_restored=_total(before),
            columns_left=_columns_left(history.table, before),
        )
        return Undo(history.identifier, history.table, restored, None, created)
    net = history.net()
    if not stopped:
        _refuse_impossible(history, net, before)
    restored = RestoredTable(
        table=str(history.identifier),
        how=EMPTIED if created and history.goes_back else REWRITTEN,
        head=head.snapshot_id,
        to=None,
        undone=undone,
        rows_removed=sum(file.record_count for file in net.added.values()),
        rows_restored=sum(file.record_count for file in net.removed.values()),
        columns_left=() if before is None else _columns_left(history.table, before),
    )
    return Undo(history.identifier, history.table, restored, net, created and history.goes_back)


def _refuse_impossible(history: History, net: NetChange, before: Snapshot | None) -> None:
    """Refuse to take back files that cannot be put back as they were."""
    reason = None
    spec_id = history.table.metadata.default_spec_id
    if net.has_deletes:
        reason = "the run wrote delete files"
    elif any(file.spec_id != spec_id for file in net.removed.values()):
        reason = "its partitioning has changed since"
    elif before is not None and net.removed:
        tasks = history.table.scan(snapshot_id=before.snapshot_id).plan_files()
        if any(task.delete_files and task.file.file_path in net.removed for task in tasks):
            reason = "the rows that would come back had delete files"
    if reason is not None:
        raise ConfigurationError(
            f"'{history.identifier}' cannot be restored beside later writes to other slices, because {reason}; "
            f"--with-later takes these back too if they depend on the run, or roll the table back with "
            f"floe snapshots rollback"
        )


def _total(snapshot: Snapshot) -> int | None:
    text = summary_of(snapshot).get("total-records", "")
    return int(text) if text.isdecimal() else None


def _columns_left(table: Table, before: Snapshot) -> tuple[str, ...]:
    """The columns that the table has by now, and did not have then."""
    schema = next((one for one in table.metadata.schemas if one.schema_id == before.schema_id), None)
    known: Collection[int] = {field.field_id for field in schema.fields} if schema is not None else ()
    return tuple(field.name for field in table.schema().fields if known and field.field_id not in known)
