"""Remove a branch from tables, with the snapshots and the files that only it references."""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import Protocol

from pyiceberg.table import Table

from floe_core.errors import FloeError
from floe_core.identifiers import TableIdentifier
from floe_core.observability import operation
from floe_iceberg import backoff
from floe_iceberg.branches.status import BranchStatus, TableState
from floe_iceberg.catalogs import BranchRecords
from floe_iceberg.errors import translated
from floe_iceberg.files import Neighbours
from floe_iceberg.files.ownership import Homes
from floe_iceberg.files.purge import is_shared
from floe_iceberg.maintenance import delete_own, foreign_files
from floe_iceberg.snapshots import LakeBranch, StagingBranch, refs
from floe_iceberg.transactions import branch_start, is_only_of

__all__ = ["Leaving", "Tables", "leave_unchanged", "remove_from"]


class Leaving(Protocol):
    """The part of a manager that removes a branch without commits."""

    def abandon_branch(self, identifier: TableIdentifier, staging: StagingBranch, *, at: int | None = None) -> bool: ...


class Tables(Leaving, Protocol):
    """The part of a manager that removes branches."""

    def find_table(self, identifier: TableIdentifier) -> Table | None: ...

    def find_tables(self) -> list[TableIdentifier]: ...

    def neighbours(self) -> Neighbours: ...

    def homes(self) -> Homes: ...


def leave_unchanged(tables: Leaving, records: BranchRecords, branch: LakeBranch, status: BranchStatus) -> None:
    """Remove a branch from the tables in which it has no commit; a conflict if a run has written to one since.

    A run that has begun in one of them, and did not commit yet, fails: its rows would be lost with the branch.
    """
    unchanged = [one for one in status.tables if one.state is TableState.UNCHANGED]
    names = [TableIdentifier.from_string(one.table) for one in unchanged]
    for name, one in zip(names, unchanged, strict=True):
        tables.abandon_branch(name, StagingBranch.of_lake(branch.name), at=one.head)
    records.remove_tables(branch.name, names)


def remove_from(tables: Tables, identifier: TableIdentifier, branch: LakeBranch) -> int:
    """Remove a branch from a table; returns how many files were deleted.

    A table that the branch created, and that has nothing else, is dropped. A file is deleted only if it belongs to the
    table, and if no snapshot that stays and no other table references it.
    """
    recorded = branch.tables.get(identifier)
    table = tables.find_table(identifier)
    if recorded is None:
        return 0
    if recorded.table_uuid is not None and (table is None or table.metadata.table_uuid != recorded.table_uuid):
        identifier, table = _renamed(tables, recorded.table_uuid) or (identifier, None)
    if table is None or not branch.has(table):
        return 0
    with (
        operation("iceberg.remove_branch_files", table=str(identifier), branch=branch.name) as op,
        translated("discard_branch", identifier),
    ):
        foreign = (
            None
            if is_shared(table.properties)
            else foreign_files(table, identifier, tables.homes(), tables.neighbours(), {})
        )
        before = backoff.retrying(backoff.ATTEMPTS, backoff.is_conflict)(lambda: _removed(tables, identifier, branch))
        if before is None or is_shared(before.properties):
            return 0  # dropped with its files, or gone
        after = tables.find_table(identifier)
        if after is None:
            return 0
        deleted, _ = delete_own(before, after, foreign or (), {})
        op.set(files=len(deleted))
        return len(deleted)


def _renamed(tables: Tables, table_uuid: uuid.UUID) -> tuple[TableIdentifier, Table] | None:
    """The table under its name of today; None if it was dropped."""
    for name in tables.find_tables():
        with suppress(FloeError):  # the metadata of a table that nobody asked for may be damaged
            table = tables.find_table(name)
            if table is not None and table.metadata.table_uuid == table_uuid:
                return name, table
    return None


def _removed(tables: Tables, identifier: TableIdentifier, branch: LakeBranch) -> Table | None:
    """Remove the branch in one commit; returns the table as it was before, or None if there is no file to look for."""
    table = tables.find_table(identifier)
    if table is None or not branch.has(table):
        return None
    staging, start = StagingBranch.of_lake(branch.name), branch_start(table, branch.name)
    if is_only_of(table, staging):
        tables.abandon_branch(identifier, staging)
        return None
    if start is None:  # main was rolled back: the snapshots of the branch may be those of main
        tables.abandon_branch(identifier, staging)
    else:
        refs.discard(table, branch.name, since=start)
    return table
