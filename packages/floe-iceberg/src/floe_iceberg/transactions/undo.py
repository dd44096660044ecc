"""Undo a run: every table is staged on a branch as it was before, and all are published in one commit."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Protocol

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType

from floe_core.errors import CommitStateUnknownError, ConcurrencyConflictError, ConfigurationError, FloeError
from floe_core.identifiers import TableIdentifier
from floe_core.observability import operation
from floe_iceberg._pyiceberg.snapshot_producers import overwrite
from floe_iceberg._pyiceberg.tables import SingleAttemptTransaction
from floe_iceberg.errors import translated
from floe_iceberg.snapshots import (
    RUN_ID,
    UNDOES,
    ancestors_of,
    now_ms,
    summary_of,
    undone_in,
    undone_mark,
    unpublished_by,
)
from floe_iceberg.transactions.moves import HeadMove, head_of
from floe_iceberg.transactions.publication import publish
from floe_iceberg.transactions.undo_plan import UNDONE_RUN, Undo, UndoPlan, restored_table, undone_tag

__all__ = ["plan_restore", "restore", "undo"]


class Tables(Protocol):
    """The part of an IcebergTableManager that stages branches."""

    def load_table(self, identifier: TableIdentifier) -> Table: ...

    def create_branch(
        self, identifier: TableIdentifier, branch: str, *, snapshot_id: int, max_ref_age: timedelta
    ) -> None: ...

    def remove_branch(self, identifier: TableIdentifier, branch: str) -> int: ...


def undo(tables: Tables, catalog: Catalog, undos: Sequence[Undo], run_id: str, *, one_by_one: bool) -> None:
    """Restore all tables in one commit, and keep their heads by a tag."""
    branch = f"floe-undo-{run_id}-{uuid.uuid4().hex[:8]}"
    with operation("iceberg.undo", run=run_id, tables=len(undos)):
        try:
            moves = [_staged(tables, one, branch, run_id) for one in undos]
            publish(catalog, moves, one_by_one=one_by_one)
        except CommitStateUnknownError:
            raise  # another process may finish it
        except FloeError:
            _remove(tables, [one.identifier for one in undos], branch)
            raise


def _staged(tables: Tables, undo: Undo, branch: str, run_id: str) -> HeadMove:
    """Stage the restored table on a branch; returns the move of main to it."""
    name, restored = undo.identifier, undo.restored
    _branch(tables, name, branch, undo.table, restored.head if restored.to is None else restored.to)
    table = tables.load_table(name)
    if undo.net is not None:
        table = _rewritten(undo, table, branch, run_id)
    return HeadMove(
        identifier=name,
        table_uuid=table.metadata.table_uuid,
        branch=branch,
        start=restored.head,
        head=table.metadata.refs[branch].snapshot_id,
        unpublished=unpublished_by(table.properties),
        unpublishes=undone_mark(run_id) if undo.created else None,
        keeps=undone_tag(run_id),
    )


def _rewritten(undo: Undo, table: Table, branch: str, run_id: str) -> Table:
    """Commit to the branch: without the files that the run added, and with those that it removed."""
    net = undo.net
    if net is None:
        raise AssertionError("a table that main moves back in is not rewritten")
    summary = {UNDOES: ",".join(map(str, undo.restored.undone)), UNDONE_RUN: run_id}
    with translated("undo", undo.identifier):
        transaction = SingleAttemptTransaction(table)
        with overwrite(transaction.update_snapshot(snapshot_properties=summary, branch=branch)) as producer:
            for file in net.added.values():
                producer.delete_data_file(file)
            for file in net.removed.values():
                producer.append_data_file(file)
        return transaction.commit_transaction()


def restore(
    tables: Tables, catalog: Catalog, found: Mapping[TableIdentifier, Table], run_id: str, *, one_by_one: bool
) -> list[TableIdentifier]:
    """Undo the undoing of a run: main of every table moves to the tag that kept its head, in one commit."""
    kept, tag = _restorable(found, run_id), undone_tag(run_id)
    branch = f"floe-restore-{run_id}-{uuid.uuid4().hex[:8]}"
    with operation("iceberg.restore_undone", run=run_id, tables=len(kept)):
        try:
            moves = [_back(tables, name, tag, branch) for name in kept]
            publish(catalog, moves, one_by_one=one_by_one)
        except CommitStateUnknownError:
            raise
        except FloeError:
            _remove(tables, list(kept), branch)
            raise
    return list(kept)


def plan_restore(found: Mapping[TableIdentifier, Table], run_id: str) -> UndoPlan:
    """What undoing the undoing of a run would do; refused as that is."""
    kept, tag = _restorable(found, run_id), undone_tag(run_id)
    plans = [
        restored_table(name, table, table.metadata.refs[tag].snapshot_id)
        for name, table in sorted(kept.items(), key=lambda one: str(one[0]))
    ]
    return UndoPlan(run_id, tuple(plans))


def _restorable(found: Mapping[TableIdentifier, Table], run_id: str) -> dict[TableIdentifier, Table]:
    """The tables whose head was kept when the run was undone; an error if they cannot all be restored."""
    tag = undone_tag(run_id)
    kept = {name: table for name, table in found.items() if _is_tag(table, tag)}
    lost = [f"'{name}'" for name, table in found.items() if name not in kept and _lost_its_tag(table, run_id)]
    if kept and lost:
        raise ConfigurationError(
            f"{', '.join(lost)} has no tag {tag!r} any more, so that run {run_id} cannot be restored as a whole; "
            f"nothing was restored"
        )
    if not kept:
        raise ConfigurationError(
            f"no table has the tag {tag!r}: run {run_id} was not undone, was restored already, or the tag has expired"
        )
    moved = [f"'{name}'" for name, table in kept.items() if not _is_as_undone(table, tag, run_id)]
    if moved:
        raise ConcurrencyConflictError(
            f"{', '.join(moved)} has commits since run {run_id} was undone, which restoring it would lose; nothing was "
            f"restored"
        )
    return kept


def _back(tables: Tables, name: TableIdentifier, tag: str, branch: str) -> HeadMove:
    table = tables.load_table(name)
    head = table.metadata.refs[tag].snapshot_id
    _branch(tables, name, branch, table, head)
    return HeadMove(
        identifier=name,
        table_uuid=table.metadata.table_uuid,
        branch=branch,
        start=head_of(table.metadata),
        head=head,
        unpublished=unpublished_by(table.properties),
        drops=tag,
    )


def _is_tag(table: Table, name: str) -> bool:
    ref = table.metadata.refs.get(name)
    return ref is not None and ref.snapshot_ref_type is SnapshotRefType.TAG


def _lost_its_tag(table: Table, run_id: str) -> bool:
    """Was the run taken back in this table, without its tag being there?"""
    history = list(ancestors_of(table.current_snapshot(), table.metadata))
    seen, undone = {one.snapshot_id for one in history}, undone_in(history)
    ours = [one.snapshot_id for one in table.metadata.snapshots if summary_of(one).get(RUN_ID) == run_id]
    return any(snapshot_id not in seen or snapshot_id in undone for snapshot_id in ours)


def _is_as_undone(table: Table, tag: str, run_id: str) -> bool:
    """Is main where undoing the run left it, by its summary or by the log of its heads?"""
    head, kept = table.current_snapshot(), table.metadata.refs[tag].snapshot_id
    if head is None:
        return False
    if summary_of(head).get(UNDONE_RUN) == run_id:
        return head.parent_snapshot_id == kept
    log = [entry.snapshot_id for entry in table.metadata.snapshot_log]
    before = {one.snapshot_id for one in ancestors_of(table.snapshot_by_id(kept), table.metadata)}
    since = log[len(log) - log[::-1].index(kept) :] if kept in log else []
    return head.snapshot_id in before and since[:1] == since[-1:] == [head.snapshot_id]


def _branch(tables: Tables, name: TableIdentifier, branch: str, table: Table, snapshot_id: int) -> None:
    """A branch that expiry removes after a day, if this attempt does not end."""
    snapshot = table.snapshot_by_id(snapshot_id)
    before = 0 if snapshot is None else max(0, now_ms() - snapshot.timestamp_ms)
    age = timedelta(milliseconds=before) + timedelta(days=1)
    tables.create_branch(name, branch, snapshot_id=snapshot_id, max_ref_age=age)


def _remove(tables: Tables, names: Sequence[TableIdentifier], branch: str) -> None:
    for name in names:
        with suppress(FloeError):  # there is none; or it stays, and the next attempt removes it
            if branch in tables.load_table(name).metadata.refs:
                tables.remove_branch(name, branch)
