"""What a branch of the lake has in each of its tables, and what stands against its publication."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from enum import Enum

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from floe_core.identifiers import TableIdentifier
from floe_iceberg.snapshots import (
    ASSET,
    FOLLOWED,
    BranchedTable,
    LakeBranch,
    StagingBranch,
    ancestors_of,
    inputs_of,
    summary_of,
    unpublished_by,
)
from floe_iceberg.transactions import load_each, plan_replay

__all__ = ["BranchStatus", "BranchTable", "TableState", "status_of", "tables_of"]


class TableState(str, Enum):
    """How a table of a branch relates to main."""

    UNCHANGED = "unchanged"  # the branch has no commit in it
    READY = "ready"  # main is where the branch began
    BEHIND = "behind"  # main has moved in other rows: the branch can be put on top
    CONFLICT = "conflict"  # main has moved in the same rows, or its columns or partitions have changed
    LOST = "lost"  # the branch was removed from the table
    GONE = "gone"  # the table was dropped, renamed or created again

    @property
    def is_problem(self) -> bool:
        """Does it stand against the publication?"""
        return self in (TableState.CONFLICT, TableState.LOST, TableState.GONE)


@dataclass(frozen=True)
class BranchTable:
    """A table of a branch.

    Attributes:
        table: Its name.
        state: How it relates to main.
        created: Whether the branch created it; readers of main do not see it yet.
        commits: The commits of the branch.
        start: The snapshot of main at which the branch begins; None if that is unknown.
        head: The head of the branch; None if it was removed.
        main: The head of main.
        assets: The assets that wrote to it.
        problem: What stands against its publication.
    """

    table: str
    state: TableState
    created: bool = False
    commits: int = 0
    start: int | None = None
    head: int | None = None
    main: int | None = None
    assets: tuple[str, ...] = ()
    problem: str | None = None


@dataclass(frozen=True)
class BranchStatus:
    """A branch of the lake.

    Attributes:
        name: Its name.
        created_at: When it was created.
        pinned_at: The moment of main that it reads.
        used_at: When a run last used it.
        expires_at: When maintenance discards it, unless it is used again.
        tables: The tables that it has written to.
    """

    name: str
    created_at: datetime
    pinned_at: datetime
    used_at: datetime
    expires_at: datetime
    tables: tuple[BranchTable, ...]

    @property
    def problems(self) -> tuple[str, ...]:
        """What stands against its publication, by table."""
        return tuple(f"'{one.table}': {one.problem}" for one in self.tables if one.state.is_problem)


def tables_of(catalog: Catalog, branch: LakeBranch) -> dict[TableIdentifier, Table | None]:
    """The tables of a branch as they are now; None for one that does not exist."""
    return load_each(catalog, list(branch.tables))


def status_of(branch: LakeBranch, tables: Mapping[TableIdentifier, Table | None], keep: timedelta) -> BranchStatus:
    """The state of a branch.

    Args:
        branch: The branch.
        tables: Its tables, just loaded.
        keep: How long it is kept after its last use.
    """
    used = _time(branch.used_ms)
    return BranchStatus(
        name=branch.name,
        created_at=_time(branch.created_ms),
        pinned_at=_time(branch.pinned_ms),
        used_at=used,
        expires_at=used + keep,
        tables=tuple(_with_lost_cursors(list(_states(branch, tables)), tables)),
    )


def _with_lost_cursors(
    states: Sequence[BranchTable], tables: Mapping[TableIdentifier, Table | None]
) -> Iterator[BranchTable]:
    """Tables whose asset has consumed rows that only the branch had, of a table that main does not get as it is.

    What the asset consumed could not be told from what it did not: rows of main are below those of the branch.
    """
    moving = {
        one.table: _mains(tables.get(TableIdentifier.from_string(one.table)))
        for one in states
        if one.state not in (TableState.READY, TableState.UNCHANGED)
    }
    for one in states:
        table = tables.get(TableIdentifier.from_string(one.table))
        consumed = {} if table is None or one.state.is_problem else _consumed(table, one)
        lost = [name for name, found in consumed.items() if name in moving and not found <= moving[name]]
        if lost:
            problem = f"an asset has consumed new rows of {', '.join(lost)}, which main has changed meanwhile"
            yield replace(one, state=TableState.CONFLICT, problem=problem)
        else:
            yield one


def _consumed(table: Table, state: BranchTable) -> dict[str, set[int]]:
    """The snapshots up to which the commits of the branch have consumed other tables."""
    consumed: dict[str, set[int]] = {}
    for snapshot in _own(table, state.head, _mains(table)):
        summary = summary_of(snapshot)
        inputs = inputs_of(summary)
        for name in summary.get(FOLLOWED, "").split(","):
            if name in inputs:
                consumed.setdefault(name, set()).add(inputs[name])
    return consumed


def _mains(table: Table | None) -> set[int]:
    if table is None:
        return set()
    return {one.snapshot_id for one in ancestors_of(table.current_snapshot(), table.metadata)}


def _own(table: Table, head: int | None, mains: set[int]) -> list[Snapshot]:
    """The snapshots up to `head` that are not main's, newest first."""
    history = () if head is None else ancestors_of(table.snapshot_by_id(head), table.metadata)
    return [one for one in history if one.snapshot_id not in mains]


def _states(branch: LakeBranch, tables: Mapping[TableIdentifier, Table | None]) -> Iterator[BranchTable]:
    for name, entry in branch.tables.items():
        table = tables.get(name)
        if table is not None and branch.has(table) and entry.table_uuid in (None, table.metadata.table_uuid):
            yield _state(branch, name, table)
        elif entry.opened:  # otherwise a process ended before it wrote anything
            yield _missing(branch, name, table, entry)


def _missing(branch: LakeBranch, name: TableIdentifier, table: Table | None, entry: BranchedTable) -> BranchTable:
    """A table in which the branch is not any more."""
    if table is None or table.metadata.table_uuid != entry.table_uuid:
        problem = "the table was dropped, renamed or created again"
        return BranchTable(str(name), TableState.GONE, problem=problem)
    problem = f"branch {branch.name!r} was removed from it by another program"
    return BranchTable(str(name), TableState.LOST, main=_head(table), problem=problem)


def _state(branch: LakeBranch, name: TableIdentifier, table: Table) -> BranchTable:
    head, main = table.metadata.refs[branch.name].snapshot_id, _head(table)
    planned = plan_replay(table, branch.name)
    created = unpublished_by(table.properties) == StagingBranch.of_lake(branch.name).mark
    mains = _mains(table)
    history = ancestors_of(table.snapshot_by_id(head), table.metadata)
    start = next((one.snapshot_id for one in history if one.snapshot_id in mains), None)
    own = _own(table, head, mains)
    state = (
        TableState.CONFLICT
        if planned.conflict is not None
        else TableState.UNCHANGED
        if not own
        else TableState.BEHIND
        if planned.is_needed
        else TableState.READY
    )
    return BranchTable(
        table=str(name),
        state=state,
        created=created,
        commits=len(own),
        start=start,
        head=head,
        main=main,
        assets=tuple(sorted({summary_of(one)[ASSET] for one in own if ASSET in summary_of(one)})),
        problem=planned.conflict,
    )


def _head(table: Table) -> int | None:
    head = table.current_snapshot()
    return None if head is None else head.snapshot_id


def _time(moment_ms: int) -> datetime:
    return datetime.fromtimestamp(moment_ms / 1000, timezone.utc)
