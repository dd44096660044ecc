"""Tags that keep what branches of the lake need of main: set before expiry, removed when unused."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from pyiceberg.table import Table

from floe_core.identifiers import TableIdentifier
from floe_iceberg.snapshots import PIN_PREFIX, LakeBranch, ancestors_of

__all__ = ["keep_pinned"]


class Tables(Protocol):
    """The part of a manager that moves tags."""

    def load_table(self, identifier: TableIdentifier) -> Table: ...

    def move_tag(self, identifier: TableIdentifier, tag: str, snapshot_id: int) -> None: ...

    def remove_tag(self, identifier: TableIdentifier, tag: str) -> int: ...


def keep_pinned(tables: Tables, identifier: TableIdentifier, branches: Iterable[LakeBranch] | None) -> None:
    """Let the tags of a table be at what the branches of the lake read of it; expiry keeps what a tag is at.

    In a table that a branch has written to, the tag is where it begins: all that follows on main and on the branch is
    kept (`held_by_cursor`), because a publication on top of main compares it.

    Args:
        tables: The manager of the table.
        identifier: The table.
        branches: The branches that there are; None if that is unknown, so that all tags stay.
    """
    if branches is None:
        return
    table = tables.load_table(identifier)
    refs, head = table.metadata.refs, table.current_snapshot()
    wanted: dict[str, int] = {}
    starts: set[str] = set()
    for branch in branches:
        tag = f"{PIN_PREFIX}{branch.name}"
        needed = _start(table, branch) if branch.has(table) else _read(table, identifier, branch)
        if needed is not None:
            wanted[tag] = needed
            starts |= {tag} if branch.has(table) else set()
    for tag in [name for name in refs if name.startswith(PIN_PREFIX) and name not in wanted]:
        tables.remove_tag(identifier, tag)
    for tag, snapshot_id in wanted.items():
        is_head = head is not None and head.snapshot_id == snapshot_id and tag not in starts
        if not (is_head and tag not in refs) and (tag not in refs or refs[tag].snapshot_id != snapshot_id):
            tables.move_tag(identifier, tag, snapshot_id)


def _start(table: Table, branch: LakeBranch) -> int | None:
    """The snapshot of main at which the branch begins; None if main was rolled back to before it."""
    mains = {one.snapshot_id for one in ancestors_of(table.current_snapshot(), table.metadata)}
    history = ancestors_of(table.snapshot_by_name(branch.name), table.metadata)
    return next((one.snapshot_id for one in history if one.snapshot_id in mains), None)


def _read(table: Table, identifier: TableIdentifier, branch: LakeBranch) -> int | None:
    """The snapshot of main that the branch reads; None if it has expired all the same."""
    pin = branch.pin_of(table, identifier)
    pinned = None if pin is None or pin.snapshot_id is None else table.snapshot_by_id(pin.snapshot_id)
    return None if pinned is None else pinned.snapshot_id
