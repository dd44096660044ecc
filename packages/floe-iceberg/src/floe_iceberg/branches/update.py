"""Pin what a branch of the lake reads of main, and put its commits on top of what main has by now."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Protocol

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from floe_core.errors import ConcurrencyConflictError, ConfigurationError, FloeError
from floe_core.identifiers import TableIdentifier
from floe_core.observability import operation, warn
from floe_iceberg.branches.removal import Tables as Removing
from floe_iceberg.branches.removal import leave_unchanged, remove_from
from floe_iceberg.branches.status import BranchStatus, TableState, status_of, tables_of
from floe_iceberg.catalogs import BranchRecords
from floe_iceberg.snapshots import LakeBranch, Pin, now_ms, unpublished_by

__all__ = ["pins_of_main", "update_branch"]

_KEPT = timedelta()
# How many tables an error names.
_NAMED = 20


class Tables(Removing, Protocol):
    """The part of a manager that updates a branch."""

    def load_at_once(
        self, identifiers: Collection[TableIdentifier], *, skip_missing: bool
    ) -> Mapping[TableIdentifier, Table]: ...

    def replay_branch(self, identifier: TableIdentifier, branch: str) -> Table: ...


def pins_of_main(tables: Tables, name: str) -> dict[TableIdentifier, Pin]:
    """The head of main of every published table at one moment; refused if one has a tag or branch of this name.

    A table that cannot be read has no pin: a run that reads it on the branch is refused.

    Args:
        tables: The manager of the tables.
        name: The name of the branch.
    """
    published = _published(tables, tables.find_tables())
    taken = [(one, table.metadata.refs[name]) for one, table in published.items() if name in table.metadata.refs]
    if taken:
        listed = ", ".join(f"'{one}' ({ref.snapshot_ref_type.value})" for one, ref in taken[:_NAMED])
        raise ConfigurationError(
            f"there is a tag or branch {name!r} already in {listed}; remove it, or choose another name for the branch "
            f"of the lake. Nothing was changed"
        )
    return {one: _pin(table) for one, table in published.items()}


def update_branch(
    tables: Tables, catalog: Catalog, records: BranchRecords, branch: LakeBranch, *, restart: bool
) -> BranchStatus:
    """Let a branch read main as it is now, with its own commits on top.

    Args:
        tables: The manager of the tables.
        catalog: Its catalog.
        records: The branches.
        branch: The branch.
        restart: Begin tables again that cannot be put on top: what the branch wrote to them is removed.

    Returns:
        The state of the branch before.
    """
    with operation("iceberg.update_branch", branch=branch.name, restart=restart):
        status = status_of(branch, tables_of(catalog, branch), _KEPT)
        if status.problems and not restart:
            raise ConcurrencyConflictError(
                f"branch {branch.name!r} cannot be put on top of main: {'; '.join(status.problems)}. Nothing was "
                f"changed: with --restart these tables begin again from main, and what the branch wrote to them is "
                f"removed; then run their assets on the branch once more"
            )
        for one in status.tables:
            if one.state is TableState.BEHIND:
                tables.replay_branch(TableIdentifier.from_string(one.table), branch.name)
        again = [TableIdentifier.from_string(one.table) for one in status.tables if one.state.is_problem]
        for name in again:
            remove_from(tables, name, branch)
        records.remove_tables(branch.name, again)
        leave_unchanged(tables, records, branch, status)
        kept = (TableState.READY, TableState.BEHIND)
        own = [TableIdentifier.from_string(one.table) for one in status.tables if one.state in kept]
        records.pin(branch.name, _repinned(tables, branch, own), now_ms())
        return status


def _repinned(tables: Tables, branch: LakeBranch, own: Sequence[TableIdentifier]) -> dict[TableIdentifier, Pin]:
    """The pins of now. A table of the branch needs none, and keeps the one that it has."""
    names = [name for name in tables.find_tables() if name not in own]
    published = _published(tables, names)
    kept = {name: pin for name, pin in branch.pins.items() if name in own}
    return kept | {name: _pin(table) for name, table in published.items()}


def _published(tables: Tables, names: Sequence[TableIdentifier]) -> dict[TableIdentifier, Table]:
    """The tables that readers of main see, all at one moment; without those that cannot be read."""
    try:
        loaded = dict(tables.load_at_once(names, skip_missing=True))
    except FloeError as exc:
        warn("tables are read one after the other, because one of them cannot be read", reason=str(exc))
        loaded = {}
        for name in names:
            try:
                table = tables.find_table(name)
            except FloeError as reason:
                warn("the branch does not have a table that cannot be read", table=str(name), reason=str(reason))
                continue
            loaded |= {} if table is None else {name: table}
    return {name: table for name, table in loaded.items() if unpublished_by(table.properties) is None}


def _pin(table: Table) -> Pin:
    head = table.current_snapshot()
    return Pin(table.metadata.table_uuid, None if head is None else head.snapshot_id)
