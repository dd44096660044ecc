"""A publication as plain data: the branches that move main, the heads that must stay, and what a table shows."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import (
    AssertCurrentSchemaId,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemovePropertiesUpdate,
    RemoveSnapshotRefUpdate,
    SetPropertiesUpdate,
    TableUpdate,
)

from floe_core.identifiers import TableIdentifier
from floe_iceberg.catalogs import TableChange
from floe_iceberg.schema import fits_schema
from floe_iceberg.snapshots import UNPUBLISHED, ancestors_of, refs

__all__ = ["HeadAssertion", "HeadMove", "State", "head_of"]


class State(Enum):
    """What a table shows of a move."""

    APPLIED = "applied"  # main is, or was, at the snapshot, and the branch is gone
    PENDING = "pending"  # main and the branch are as the move expects them
    REFUSED = "refused"  # main or the branch moved, or the table is another one by now


@dataclass(frozen=True)
class HeadMove:
    """Main of a table moves from one snapshot to the head of a branch, which is removed.

    Args:
        identifier: The table.
        table_uuid: The identity of the table; another table by the same name is refused.
        branch: The branch that is published.
        start: The snapshot that main must be at; None for a table without one.
        head: The snapshot that the branch must be at, and that main moves to.
        unpublished: The mark of a table that is not published; it is removed in the same commit.
        unpublishes: The mark that the same commit sets.
        keeps: A tag that the same commit creates at `start`.
        drops: A tag at `head` that the same commit removes.
    """

    identifier: TableIdentifier
    table_uuid: uuid.UUID
    branch: str
    start: int | None
    head: int
    unpublished: str | None = None
    unpublishes: str | None = None
    keeps: str | None = None
    drops: str | None = None

    def change(self, table: Table, guard: str | None = None) -> TableChange:
        """The commit of this move.

        Args:
            table: The table as loaded; its columns must not change before the commit.
            guard: The tag that `reversal` creates.
        """
        updates, requirements = refs.publication(table, self.branch, to=MAIN_BRANCH, expected=self.start)
        updates = (*updates, *self._marked(table, self.unpublishes))
        if self.keeps is not None and self.start is not None:
            updates = (*updates, refs.tagged(table, self.keeps, self.start))
            requirements = (*requirements, AssertRefSnapshotId(ref=self.keeps, snapshot_id=None))
        if self.drops is not None:
            updates = (*updates, RemoveSnapshotRefUpdate(ref_name=self.drops))
            requirements = (*requirements, AssertRefSnapshotId(ref=self.drops, snapshot_id=self.head))
        columns = AssertCurrentSchemaId(current_schema_id=table.metadata.current_schema_id)
        guarded = () if guard is None else (AssertRefSnapshotId(ref=guard, snapshot_id=None),)
        return TableChange(table, (AssertTableUUID(uuid=self.table_uuid), *requirements, columns, *guarded), updates)

    def reversal(self, table: Table, guard: str) -> TableChange:
        """The commit that takes this move back: main returns, and the branch is there again."""
        updates, requirements = refs.withdrawal(table, self.branch, head=self.head, start=self.start, guard=guard)
        updates = (*updates, *self._marked(table, self.unpublished))
        if self.keeps is not None:
            updates = (*updates, RemoveSnapshotRefUpdate(ref_name=self.keeps))
        if self.drops is not None:
            updates = (*updates, refs.tagged(table, self.drops, self.head))
        return TableChange(table, (AssertTableUUID(uuid=self.table_uuid), *requirements), updates)

    def _marked(self, table: Table, mark: str | None) -> tuple[TableUpdate, ...]:
        """The change of the table's properties that gives it this mark, or none."""
        if mark is not None:
            return (SetPropertiesUpdate(updates={UNPUBLISHED: mark}),)
        return (RemovePropertiesUpdate(removals=[UNPUBLISHED]),) if UNPUBLISHED in table.properties else ()

    def state(self, table: Table | None) -> State:
        """What the table shows of this move."""
        if table is None or table.metadata.table_uuid != self.table_uuid:
            return State.REFUSED
        metadata = table.metadata
        branch = metadata.refs.get(self.branch)
        if branch is not None and branch.snapshot_id == self.head and head_of(metadata) == self.start:
            return State.PENDING if self._fits(metadata) else State.REFUSED
        if self.start == self.head and branch is not None and branch.snapshot_id == self.head:
            return State.APPLIED  # a branch without commits of its own
        if branch is not None or not self._has_its_tags(metadata):
            return State.REFUSED
        if self.drops is not None or self._goes_back(table):  # main was at the snapshot before
            return State.APPLIED if self._has_moved(metadata) else State.REFUSED
        if any(snapshot.snapshot_id == self.head for snapshot in ancestors_of(table.current_snapshot(), metadata)):
            return State.APPLIED
        # Rolled back since: the log shows that main was there.
        was_head = any(entry.snapshot_id == self.head for entry in metadata.snapshot_log)
        return State.APPLIED if was_head else State.REFUSED

    def _has_its_tags(self, metadata: TableMetadata) -> bool:
        """Are the tags as the commit of this move leaves them?"""
        kept = metadata.refs.get(self.keeps) if self.keeps is not None else None
        is_kept = self.keeps is None or (kept is not None and kept.snapshot_id == self.start)
        return is_kept and (self.drops is None or self.drops not in metadata.refs)

    def _goes_back(self, table: Table) -> bool:
        """Does main move to one of its ancestors? It has always been in its history then."""
        if self.start is None or self.start == self.head:
            return False
        history = ancestors_of(table.snapshot_by_id(self.start), table.metadata)
        return any(snapshot.snapshot_id == self.head for snapshot in history)

    def _has_moved(self, metadata: TableMetadata) -> bool:
        """By the log of main's heads: was it at `head` after it was at `start` for the last time?"""
        heads = [entry.snapshot_id for entry in metadata.snapshot_log]
        if self.start not in heads:
            return self.head in heads
        return self.head in heads[len(heads) - heads[::-1].index(self.start) :]

    def problem(self, table: Table | None) -> str:
        """Why the move is refused."""
        if table is None:
            return "the table was dropped or renamed"
        metadata = table.metadata
        if metadata.table_uuid != self.table_uuid:
            return "the table was dropped and created again"
        branch = metadata.refs.get(self.branch)
        if branch is None:
            return f"branch {self.branch!r} was removed"
        if branch.snapshot_id != self.head:
            return f"branch {self.branch!r} moved from snapshot {self.head} to {branch.snapshot_id}"
        if not self._fits(metadata):
            return f"another writer changed the columns since branch {self.branch!r} was written"
        return f"another writer moved main from snapshot {self.start} to {head_of(metadata)}"

    def _fits(self, metadata: TableMetadata) -> bool:
        """Do the rows of the branch fit the columns of today? A column that was replaced would be NULL in them."""
        staged = _schema_of(metadata, self.head)
        return staged is None or fits_schema(staged, metadata.schema())

    def to_json(self) -> dict[str, object]:
        """The move as JSON, for the journal."""
        return {
            "table": str(self.identifier),
            "uuid": str(self.table_uuid),
            "branch": self.branch,
            "start": self.start,
            "head": self.head,
            "unpublished": self.unpublished,
            "unpublishes": self.unpublishes,
            "keeps": self.keeps,
            "drops": self.drops,
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, object]) -> HeadMove:
        """The move that `to_json` described."""
        start = stored["start"]
        texts = {key: stored.get(key) for key in ("unpublished", "unpublishes", "keeps", "drops")}
        return cls(
            identifier=TableIdentifier.from_string(str(stored["table"])),
            table_uuid=uuid.UUID(str(stored["uuid"])),
            branch=str(stored["branch"]),
            start=None if start is None else int(str(start)),
            head=int(str(stored["head"])),
            **{key: None if value is None else str(value) for key, value in texts.items()},
        )


@dataclass(frozen=True)
class HeadAssertion:
    """A table that was read: its main must still be at the snapshot that was read when the publication commits.

    Args:
        identifier: The table.
        snapshot_id: The snapshot that was read; None if the table had none.
        table_uuid: The identity of the table, if known.
    """

    identifier: TableIdentifier
    snapshot_id: int | None
    table_uuid: uuid.UUID | None = None

    def change(self, table: Table) -> TableChange:
        """The requirements of this assertion, without a change."""
        same = AssertTableUUID(uuid=self.table_uuid or table.metadata.table_uuid)
        return TableChange(table, (same, AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=self.snapshot_id)))

    def problem(self, table: Table | None) -> str | None:
        """Why the assertion does not hold; None if it holds."""
        if table is None:
            return "it was read, and was dropped or renamed since"
        if self.table_uuid is not None and table.metadata.table_uuid != self.table_uuid:
            return "it was read, and was dropped and created again since"
        head = head_of(table.metadata)
        if head != self.snapshot_id:
            return f"it was read at snapshot {self.snapshot_id}, and main is at {head} by now"
        return None


def head_of(metadata: TableMetadata) -> int | None:
    """The snapshot that main is at; None for a table without one."""
    ref = metadata.refs.get(MAIN_BRANCH)
    return metadata.current_snapshot_id if ref is None else ref.snapshot_id


def _schema_of(metadata: TableMetadata, snapshot_id: int) -> Schema | None:
    snapshot = metadata.snapshot_by_id(snapshot_id)
    if snapshot is None or snapshot.schema_id is None:
        return None
    return next((schema for schema in metadata.schemas if schema.schema_id == snapshot.schema_id), None)
