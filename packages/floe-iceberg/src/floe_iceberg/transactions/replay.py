"""Replay a branch on top of what other writers have committed to main since it began."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Protocol, TypeVar

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

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
from floe_iceberg.snapshots import ancestors_of, now_ms, refs, summary_of
from floe_iceberg.transactions.file_changes import FileChanges, changes_of
from floe_iceberg.transactions.moves import head_of

__all__ = ["REPLAYED", "replay"]

# In the summary of a repeated commit: the snapshot that it repeats. Its checks did not see what is below it now.
REPLAYED = "floe.replayed"

# A branch on which the commits are repeated lives so long, if this process ends.
_STAGED_FOR = timedelta(days=1)

_Result = TypeVar("_Result")


class Tables(Protocol):
    """The part of an IcebergTableManager that stages branches."""

    def load_table(self, identifier: TableIdentifier) -> Table: ...

    def create_branch(
        self, identifier: TableIdentifier, branch: str, *, snapshot_id: int, max_ref_age: timedelta
    ) -> None: ...

    def remove_branch(self, identifier: TableIdentifier, branch: str) -> int: ...


def replay(
    tables: Tables, identifier: TableIdentifier, branch: str, *, mode: WriteMode, within: TableSlice | None
) -> Table:
    """Repeat the commits of a branch on top of main, and let the branch be there; returns the table.

    The rows are not computed again: the data files of the branch are used as they are. It is a conflict if other
    writers have changed rows that the branch replaces, columns or partitions.

    Args:
        tables: The manager of the table.
        identifier: The table.
        branch: The branch.
        mode: How its rows were written.
        within: The rows that they replace. None is the whole table.
    """
    with operation("iceberg.replay", table=str(identifier), branch=branch), translated("replay", identifier):
        table = tables.load_table(identifier)
        written, start = _written(table, identifier, branch)
        head = head_of(table.metadata)
        if head is None or not written or head == start:
            return table
        changes = [changes_of(snapshot, table.io) for snapshot in written]
        _refuse_other_layout(table, identifier, written, changes)
        if mode is not WriteMode.APPEND or any(change.removed for change in changes):
            _refuse_changed_rows(table, identifier, (start, head), within)
        staged = f"floe-replay-{uuid.uuid4().hex[:12]}"
        snapshot = table.snapshot_by_id(head)
        age = timedelta(milliseconds=max(0, now_ms() - snapshot.timestamp_ms) if snapshot is not None else 0)
        tables.create_branch(identifier, staged, snapshot_id=head, max_ref_age=age + _STAGED_FOR)
        try:
            for one, change in zip(written, changes, strict=True):
                _retried(lambda one=one, change=change: _repeat(tables.load_table(identifier), staged, one, change))  # type: ignore[misc]
            return _retried(lambda: _move(tables.load_table(identifier), branch, staged, written[-1].snapshot_id))
        except BaseException:
            with suppress(FloeError):  # it was moved, or stays until it expires
                tables.remove_branch(identifier, staged)
            raise


def _written(table: Table, identifier: TableIdentifier, branch: str) -> tuple[list[Snapshot], int]:
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
    raise _conflict(identifier, f"branch {branch!r} was removed, or main was rolled back to before it began")


def _refuse_other_layout(
    table: Table, identifier: TableIdentifier, written: Sequence[Snapshot], changes: Sequence[FileChanges]
) -> None:
    """Refuse files whose columns or partitions are not those of the table any more, and delete files."""
    if any(change.deletes for change in changes):
        raise _conflict(identifier, "the branch deleted rows by delete files, which belong to the files of their time")
    schemas = {schema.schema_id: schema for schema in table.metadata.schemas}
    for snapshot, change in zip(written, changes, strict=True):
        staged = schemas.get(snapshot.schema_id) if snapshot.schema_id is not None else None
        if staged is not None and not fits_schema(staged, table.schema()):
            raise _conflict(identifier, "another writer changed the columns")
        if {file.spec_id for file in change.added.values()} - {table.spec().spec_id}:
            raise _conflict(identifier, "another writer changed the partitioning")


def _refuse_changed_rows(
    table: Table, identifier: TableIdentifier, between: tuple[int, int], within: TableSlice | None
) -> None:
    """Refuse if the files that may hold the rows are others than when the branch began."""
    condition = AlwaysTrue() if within is None else slice_filter(within, table.schema())

    def state(at: int) -> set[tuple[str, ...]]:
        tasks = table.scan(row_filter=condition, snapshot_id=at).plan_files()
        return {(task.file.file_path, *sorted(file.file_path for file in task.delete_files)) for task in tasks}

    start, head = between
    if state(start) != state(head):
        raise _conflict(identifier, "another writer changed the same rows")


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


def _conflict(identifier: TableIdentifier, reason: str) -> ConcurrencyConflictError:
    return ConcurrencyConflictError(
        f"'{identifier}' cannot be published on top of the commits of others: {reason}; nothing was published: run it "
        f"again"
    )
