"""A manager at a branch of the lake: reads show the branch, and writes go to it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Protocol

from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from typing_extensions import Self

from floe_core.errors import ConcurrencyConflictError, ConfigurationError, PermissionDeniedError
from floe_core.identifiers import TableIdentifier
from floe_core.observability import warn
from floe_iceberg.arguments import TableName, identifier_of
from floe_iceberg.catalogs import BranchRecords
from floe_iceberg.schema import refuse_early_columns
from floe_iceberg.snapshots import BranchedTable, LakeBranch, StagingBranch, refuse_on_branch, unpublished_by
from floe_iceberg.transactions import NewTable, branch_start
from floe_iceberg.writing import Target, WriteRequest

__all__ = ["BranchedTables"]

# Expiry removes no branch of the lake from a single table: its other tables would be published without it.
_NEVER = timedelta(days=36_500)


class BranchedTables(Protocol):
    """The part of a manager that knows the branch of the lake it works on."""

    at_branch: LakeBranch | None = None

    @property
    def _catalog(self) -> Catalog: ...

    def find_table(self, identifier: TableName) -> Table | None: ...

    def load_table(self, identifier: TableName) -> Table: ...

    def open_branch(
        self, identifier: TableName, staging: StagingBranch, new: NewTable, *, max_age: timedelta | None
    ) -> Table: ...

    def abandon_branch(self, identifier: TableName, staging: StagingBranch, *, at: int | None = None) -> bool: ...

    def on_main(self) -> Self:
        """The same manager, without a branch of the lake."""
        tables = copy.copy(self)
        tables.at_branch = None
        return tables

    @property
    def branch_records(self) -> BranchRecords:
        """The branches of the lake, as the catalog records them."""
        return BranchRecords(self._catalog)

    def lake_branches(self) -> list[LakeBranch] | None:
        """The branches of the lake; None, with a warning, if this user may not list namespaces."""
        try:
            return list(self.branch_records.every())
        except PermissionDeniedError as exc:
            warn("this user may not list namespaces, so that branches of the lake are not known", reason=str(exc))
            return None

    def as_shown(self, table: Table, identifier: TableName) -> Table:
        """The table as the branch of the lake shows it, for reading; on main the table itself.

        Args:
            table: The table as loaded.
            identifier: Its name.
        """
        return table if self.at_branch is None else self.at_branch.view(table, identifier_of(identifier))

    def refuse_on_branch(self, action: str) -> None:
        """Refuse what would change main for all readers, or the table as a whole, if this is a branch of the lake."""
        refuse_on_branch(self.at_branch, action)

    def on_branch(
        self, request: WriteRequest, schema_for: Callable[[Schema | None], Schema], target: Target | None
    ) -> tuple[WriteRequest, Target | None]:
        """The write, to the branch of the lake; on main the write itself.

        Args:
            request: The write.
            schema_for: The columns of the rows, given those of the table if it exists.
            target: The table as the caller has just loaded it.
        """
        branch = self.at_branch
        if branch is None or (request.branch == branch.name and target is not None):
            return request, target  # the branch has begun in the table
        if request.branch not in (MAIN_BRANCH, branch.name):
            raise ConfigurationError(
                f"'{request.identifier}' is written to its branch {request.branch!r}, and this lake is open at branch "
                f"{branch.name!r}; leave one of them out. Nothing was written"
            )
        table = self._opened(branch, request, schema_for, target)
        # The properties of a table are main's too: the owner of a published table changes on main only.
        marks = request.marks if unpublished_by(table.properties) is not None else {}
        return replace(request, branch=branch.name, marks=marks), Target(table)

    def _opened(
        self,
        branch: LakeBranch,
        request: WriteRequest,
        schema_for: Callable[[Schema | None], Schema],
        target: Target | None,
    ) -> Table:
        identifier = request.identifier
        table = self.find_table(identifier) if target is None else target.table
        schema = schema_for(None if table is None else table.schema())
        if table is not None:
            if request.check is not None:
                request.check(branch.view(table, identifier))
            refuse_early_columns(
                table,
                identifier,
                schema,
                evolve=request.evolve,
                allowed=request.early_columns,
                how='metadata={"floe/early_columns": True} of the asset',
            )
        new = NewTable(schema, request.partition_by, request.new_table_properties)
        return self.begin_branch(branch, identifier, table, new)

    def begin_branch(
        self, branch: LakeBranch, identifier: TableIdentifier, table: Table | None, new: NewTable
    ) -> Table:
        """The table with the branch, which begins at the snapshot of main that the branch reads.

        Args:
            branch: The branch of the lake.
            identifier: The table.
            table: The table as loaded; None if it does not exist.
            new: What it is created with then.
        """
        records = self.branch_records
        recorded = records.find(branch.name)
        if recorded is None or recorded.created_ms != branch.created_ms:
            raise ConcurrencyConflictError(
                f"branch {branch.name!r} was discarded or published by another process in the meantime; nothing was "
                f"written"
            )
        _refuse_closed(recorded)
        entry = recorded.tables.get(identifier)
        if table is not None and not branch.has(table) and entry is not None and entry.opened:
            table = self.find_table(identifier)  # another step may have begun it since the table was loaded
        found = None if table is None else table.metadata.table_uuid
        if table is not None and branch.has(table) and entry is not None and entry.opened and entry.table_uuid == found:
            return table
        start = None
        if table is not None and not branch.has(table):
            _refuse_taken(table, identifier, branch.name)
            if entry is not None and entry.opened:
                raise ConcurrencyConflictError(
                    f"branch {branch.name!r} of '{identifier}' was removed with what was written to it, or the table "
                    f"is another one by now; nothing was written. To begin again from main as it is now: "
                    f"floe branches update {branch.name} --restart"
                )
            start = branch.start_of(table, identifier)
            _refuse_no_start(table, identifier, branch, start)
        elif table is not None and entry is None:
            _refuse_taken(table, identifier, branch.name)
        records.add_table(branch.name, BranchedTable(identifier, found, opened=False))
        # A publication that began in between may not know this table; one that begins later does.
        _refuse_closed(records.find(branch.name) or recorded)
        staging = StagingBranch.of_lake(branch.name, start)
        opened = self.open_branch(identifier, staging, new, max_age=_NEVER)
        try:
            records.add_table(branch.name, BranchedTable(identifier, opened.metadata.table_uuid, opened=True))
        except ConfigurationError:
            self.abandon_branch(identifier, staging)  # the branch of the lake is gone
            raise
        now = records.find(branch.name)
        if now is None or now.closed:  # by a publication that did not find the branch in this table yet
            head = opened.metadata.refs[branch.name].snapshot_id
            if branch_start(opened, branch.name) == head:  # otherwise another step has written to it
                self.abandon_branch(identifier, staging, at=head)
                records.remove_tables(branch.name, [identifier])
            _refuse_closed(now or replace(recorded, closed=True))
        return opened


def _refuse_closed(branch: LakeBranch) -> None:
    """Refuse to begin in a table, or to go on, when what is written would not be published."""
    if branch.closed:
        raise ConcurrencyConflictError(
            f"branch {branch.name!r} is being published by another process, or a publication of it did not end; "
            f"nothing was written. What was not finished is by: floe branches publish {branch.name}"
        )


def _refuse_taken(table: Table, identifier: TableIdentifier, name: str) -> None:
    """Refuse a table that has a tag or branch of this name, which is not of the branch of the lake."""
    ref = table.metadata.refs.get(name)
    if ref is not None:
        raise ConfigurationError(
            f"'{identifier}' has a {ref.snapshot_ref_type.value} {name!r} of its own, which the branch of the lake did "
            f"not create; remove it, or use a branch of another name. Nothing was written"
        )


def _refuse_no_start(table: Table, identifier: TableIdentifier, branch: LakeBranch, start: int | None) -> None:
    """Refuse a table whose snapshot the branch would begin at has expired, or that was empty then and is not now."""
    if start is None and table.current_snapshot() is None:
        return
    if start is None or table.snapshot_by_id(start) is None:
        reason = "has expired" if start is not None else "was empty"
        raise ConcurrencyConflictError(
            f"main of '{identifier}' as branch {branch.name!r} reads it ({branch.pinned_at:%Y-%m-%d %H:%M:%S} UTC) "
            f"{reason}, so that the branch cannot begin there; nothing was written. To read main as it is now: "
            f"floe branches update {branch.name}"
        )
