"""Tags that keep the snapshots of main which branches of the lake read: set before expiry, removed when unused."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from pyiceberg.table import Table

from floe_core.identifiers import TableIdentifier
from floe_iceberg.snapshots import PIN_PREFIX, LakeBranch

__all__ = ["keep_pinned"]


class Tables(Protocol):
    """The part of a manager that moves tags."""

    def load_table(self, identifier: TableIdentifier) -> Table: ...

    def move_tag(self, identifier: TableIdentifier, tag: str, snapshot_id: int) -> None: ...

    def remove_tag(self, identifier: TableIdentifier, tag: str) -> int: ...


def keep_pinned(tables: Tables, identifier: TableIdentifier, branches: Iterable[LakeBranch]) -> None:
    """Let the tags of a table be at what the branches of the lake read of it; expiry keeps what a tag is at.

    Args:
        tables: The manager of the table.
        identifier: The table.
        branches: The branches that there are.
    """
    table = tables.load_table(identifier)
    refs, head = table.metadata.refs, table.current_snapshot()
    wanted: dict[str, int] = {}
    for branch in branches:
        pin = branch.pin_of(table, identifier)
        if pin is not None and not branch.has(table) and table.snapshot_by_id(pin.snapshot_id or -1) is not None:
            wanted[f"{PIN_PREFIX}{branch.name}"] = pin.snapshot_id or -1
    for tag in [name for name in refs if name.startswith(PIN_PREFIX) and name not in wanted]:
        tables.remove_tag(identifier, tag)
    for tag, snapshot_id in wanted.items():
        is_head = head is not None and head.snapshot_id == snapshot_id
        if not (is_head and tag not in refs) and (tag not in refs or refs[tag].snapshot_id != snapshot_id):
            tables.move_tag(identifier, tag, snapshot_id)
