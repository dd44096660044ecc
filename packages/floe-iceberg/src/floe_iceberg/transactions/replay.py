"""Replay a branch on top of what other writers have committed to main since it began."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol, TypeVar

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, BooleanExpression, Or
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot

from floe_core.errors import ConcurrencyConflictError, FloeError
from floe_core.identifiers import TableIdentifier, TableSlice
from floe_core.models import WriteMode
from floe_core.observability import operation
from floe_iceberg import backoff
from floe_iceberg._pyiceberg.snapshot_producers import overwrite
from floe_iceberg._pyiceberg.tables import SingleAttemptTransaction, stage_updates
from floe_iceberg.errors import translated
from floe_iceberg.expressions import slice_filter
from floe_iceberg.schema import fits_schema
from floe_iceberg.snapshots import (
    ASSET,
    FOLLOWED,
    MODE,
    PARTITION,
    SLICE,
    ancestors_of,
    inputs_of,
    now_ms,
    refs,
    summary_of,
)
from floe_iceberg.transactions.file_changes import FileChanges, changes_of
from floe_iceberg.transactions.moves import head_of

__all__ = ["REPLAYED", "Replay", "branch_start", "plan_replay", "replay"]

# In the summary of a repeated commit: the snapshot that it repeats. Its checks did not see what is below it now.
REPLAYED = "floe.replayed"

# A branch on which the commits are repeated lives so long, if this process ends.
_STAGED_FOR = timedelta(days=1)

_Result = TypeVar("_Result")
Commits = tuple[tuple[Snapshot, FileChanges], ...]


class Tables(Protocol):
    """The part of an IcebergTableManager that stages branches."""

    def load_table(self, identifier: TableIdentifier) -> Table: ...

    def create_branch(
        self, identifier: TableIdentifier, branch: str, *, snapshot_id: int, max_ref_age: timedelta
    ) -> None: ...

    def remove_branch(self, identifier: TableIdentifier, branch: str) -> int: ...


def replay(
    tables: Tables,
    identifier: TableIdentifier,
    branch: str,
    *,
    mode: WriteMode | None = None,
    within: TableSlice | None = None,
) -> Table:
    """Repeat the commits of a branch on top of main, and let the branch be there; returns the table.

    The rows are not computed again: the data files of the branch are used as they are. It is a conflict if other
    writers have changed rows that the branch replaces, columns or partitions.

    Args:
        tables: The manager of the table.
        identifier: The table.
        branch: The branch.
        mode: How its rows were written. By default as its snapshots say.
        within: With `mode`: the rows that they replace. None is the whole table.
    """
    with operation("iceberg.replay", table=str(identifier), branch=branch), translated("replay", identifier):
        table = tables.load_table(identifier)
        planned = plan_replay(table, branch, mode=mode, within=within)
        if planned.conflict is not None:
            raise ConcurrencyConflictError(
                f"'{identifier}' cannot be published on top of the commits of others: {planned.conflict}; nothing was "
                f"published: run it again"
            )
        head = head_of(table.metadata)
        if head is None or not planned.is_needed:
            return table
        staged = f"floe-replay-{uuid.uuid4().hex[:12]}"
        snapshot = table.snapshot_by_id(head)
        age = timedelta(milliseconds=max(0, now_ms() - snapshot.timestamp_ms) if snapshot is not None else 0)
        tables.create_branch(identifier, staged, snapshot_id=head, max_ref_age=age + _STAGED_FOR)
        try:
            for one, change in planned.commits:
                _retried(lambda one=one, change=change: _repeat(tables.load_table(identifier), staged, one, change))  # type: ignore[misc]
            last = planned.commits[-1][0].snapshot_id
            return _retried(lambda: _move(tables.load_table(identifier), branch, staged, last))
        except BaseException:
            with suppress(FloeError):  # it was moved, or stays until it expires
                tables.remove_branch(identifier, staged)
            raise


@dataclass(frozen=True)
class Replay:
    """What a replay repeats: the commits of the branch, oldest first.

    Attributes:
        commits: Each snapshot that only the branch has, and the files that it changed.
        is_needed: Whether main has moved since the branch began.
        conflict: Why they cannot be repeated; None if they can.
    """

    commits: tuple[tuple[Snapshot, FileChanges], ...]
    is_needed: bool
    conflict: str | None


def plan_replay(
    table: Table, branch: str, *, mode: WriteMode | None = None, within: TableSlice | None = None
) -> Replay:
    """What replaying a branch would repeat, and what stands against it; nothing is changed.

    Args:
        table: The table, just loaded.
        branch: The branch.
        mode: How its rows were written. By default as its snapshots say.
        within: With `mode`: the rows that they replace. None is the whole table.
    """
    written, start = _written(table, branch)
    if start is None:
        return Replay((), True, f"branch {branch!r} was removed, or main was rolled back to before it began")
    head = head_of(table.metadata)
    if head is None or not written:
        return Replay((), False, None)
    if head == start:  # what a publication asks for, too
        return Replay((), False, None if _has_columns_of(table, written[-1]) else "another writer changed the columns")
    commits = tuple((snapshot, changes_of(snapshot, table.io)) for snapshot in written)
    conflict = _other_layout(table, commits)
    if conflict is None and mode is None:
        conflict = _twice(table, start, commits)
    if conflict is None:
        replaced = _replaced(table, commits) if mode is None else _as_told(table, commits, mode, within)
        if replaced != AlwaysFalse() and _has_changed(table, start, head, replaced):
            conflict = "another writer changed the same rows"
    return Replay(commits, True, conflict)


def branch_start(table: Table, branch: str) -> int | None:
    """The snapshot of main at which a branch begins; None if main was rolled back to before it."""
    return _written(table, branch)[1]


def _written(table: Table, branch: str) -> tuple[list[Snapshot], int | None]:
    """The snapshots that only the branch has, oldest first, and the one of main at which it began."""
    mains = {snapshot.snapshot_id for snapshot in ancestors_of(table.current_snapshot(), table.metadata)}
    once = {entry.snapshot_id for entry in table.metadata.snapshot_log}  # main was there, and may have been rolled back
    written: list[Snapshot] = []
    for snapshot in ancestors_of(table.snapshot_by_name(branch), table.metadata):
        if snapshot.snapshot_id in mains:
            return written[::-1], snapshot.snapshot_id
        if snapshot.snapshot_id in once:
            break
        written.append(snapshot)
    return [], None


def _other_layout(table: Table, commits: Commits) -> str | None:
    """Files whose columns or partitions are not those of the table any more, and delete files, cannot be repeated."""
    if any(change.deletes for _, change in commits):
        return "the branch deleted rows by delete files, which belong to the files of their time"
    for snapshot, change in commits:
        if not _has_columns_of(table, snapshot):
            return "another writer changed the columns"
        if {file.spec_id for file in change.added.values()} - {table.spec().spec_id}:
            return "another writer changed the partitioning"
    return None


def _has_columns_of(table: Table, snapshot: Snapshot) -> bool:
    """Does the table still have the columns that the snapshot was written with?"""
    written = next((one for one in table.metadata.schemas if one.schema_id == snapshot.schema_id), None)
    return written is None or fits_schema(written, table.schema())


def _twice(table: Table, start: int, commits: Commits) -> str | None:
    """Why main would have rows twice with these commits: what they were made from, or wrote, is in it by now."""
    since = itertools.takewhile(
        lambda snapshot: snapshot.snapshot_id != start, ancestors_of(table.current_snapshot(), table.metadata)
    )
    there = [summary_of(snapshot) for snapshot in since]
    own = ".".join(table.name())
    for snapshot, change in commits:
        summary = summary_of(snapshot)
        if FOLLOWED in summary:
            return f"{summary.get(ASSET, 'a write')} has read new rows of {summary[FOLLOWED]}, as main may have"
        if own in inputs_of(summary):
            return f"{summary.get(ASSET, 'a write')} was made from the table itself"
        labels = [one.get(PARTITION, "") for one in there if ASSET in summary and one.get(ASSET) == summary[ASSET]]
        adds = _slice_of(snapshot, change) is None
        for label in labels:
            if label == summary.get(PARTITION, "") or (adds and _is_range(label, summary.get(PARTITION, ""))):
                return f"{summary[ASSET]} was written to main too{f' for {label}' if label else ''}"
    return None


def _is_range(*labels: str) -> bool:
    """Does one of these stand for several partitions? Which ones, only the definition of the asset tells."""
    return any("..." in label for label in labels)


def _as_told(table: Table, commits: Commits, mode: WriteMode, within: TableSlice | None) -> BooleanExpression:
    """The rows that the branch replaces, as the caller knows."""
    if mode is WriteMode.APPEND and not any(change.removed for _, change in commits):
        return AlwaysFalse()
    return AlwaysTrue() if within is None else slice_filter(within, table.schema())


def _replaced(table: Table, commits: Commits) -> BooleanExpression:
    """The rows that the branch replaces, as the summaries of its snapshots say; of an unknown write, all."""
    replaced: BooleanExpression = AlwaysFalse()
    for text in dict.fromkeys(_slice_of(snapshot, change) for snapshot, change in commits):
        if text is not None:
            condition = slice_filter(TableSlice.model_validate_json(text), table.schema()) if text else AlwaysTrue()
            replaced = Or(replaced, condition)
    return replaced


def _slice_of(snapshot: Snapshot, change: FileChanges) -> str | None:
    """The slice that a snapshot replaces, in its summary's format; empty for all rows, None for no rows."""
    summary = summary_of(snapshot)
    is_append = snapshot.summary is not None and snapshot.summary.operation is Operation.APPEND
    if not change.removed and summary.get(MODE, "append" if is_append else "") == WriteMode.APPEND.value:
        return None
    return summary.get(SLICE, "") if summary.get(MODE) == WriteMode.OVERWRITE.value else ""


def _has_changed(table: Table, start: int, head: int, replaced: BooleanExpression) -> bool:
    """Are the files that may hold these rows others than when the branch began?"""

    def state(at: int) -> set[tuple[str, ...]]:
        tasks = table.scan(row_filter=replaced, snapshot_id=at).plan_files()
        return {(task.file.file_path, *sorted(file.file_path for file in task.delete_files)) for task in tasks}

    return state(start) != state(head)


def _repeat(table: Table, staged: str, snapshot: Snapshot, change: FileChanges) -> None:
    """Commit the changes of one snapshot again, as the same write."""
    known = {key: value for key, value in summary_of(snapshot).items() if key.startswith("floe.")}
    summary = {**known, REPLAYED: str(snapshot.snapshot_id)}
    transaction = SingleAttemptTransaction(table)
    update = transaction.update_snapshot(snapshot_properties=summary, branch=staged)
    with overwrite(update) if change.removed else update.fast_append() as producer:
        for file in change.removed.values():
            producer.delete_data_file(file)
        for file in change.added.values():
            producer.append_data_file(file)
    transaction.commit_transaction()


def _move(table: Table, branch: str, staged: str, expected: int) -> Table:
    """Move the branch to the repeated commits; only if it is still where it was."""
    ref = table.metadata.refs.get(branch)
    if ref is None or ref.snapshot_id != expected:
        raise ConcurrencyConflictError(f"branch {branch!r} was moved or removed while it was replayed: run it again")
    transaction = SingleAttemptTransaction(table)
    stage_updates(transaction, *refs.publication(table, staged, to=branch, expected=expected))
    return transaction.commit_transaction()


def _retried(commit: Callable[[], _Result]) -> _Result:
    """Other writers commit to other branches of the table meanwhile."""
    return backoff.retrying(backoff.ATTEMPTS, lambda exc: isinstance(exc, CommitFailedException))(commit)
