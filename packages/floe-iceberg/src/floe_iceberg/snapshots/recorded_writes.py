"""Whether a table still holds a write that was recorded elsewhere when it was committed.

The evidence is the table's metadata alone: its uuid, and the snapshots that lead to the head of a branch. Expiry
removes the oldest of them, so absence proves a loss only where the snapshot would have to be among those that remain.
Rows that later snapshots of the same history replaced or deleted are no loss: that history shows who did it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from floe_iceberg.snapshots.snapshots import WRITE_ID, summary_of, undone_in

__all__ = ["BranchHistory", "Loss", "RecordedWrite"]

# The source of a cherry-picked snapshot, as Iceberg records it in the summary.
_PICKED_FROM = "source-snapshot-id"
# Snapshots carry the time of their writer's clock; clocks may differ by this much.
_MAX_CLOCK_SKEW_MS = 3600 * 1000


class Loss(str, Enum):
    """Why a table does not hold a write."""

    DROPPED = "dropped"
    RECREATED = "recreated"
    ROLLED_BACK = "rolled back"
    OTHER_BRANCH = "on another branch"  # it was committed there, and only there
    UNKNOWN = "unknown"  # it was committed to another branch, and the earlier history of this one has expired


@dataclass(frozen=True)
class RecordedWrite:
    """What was recorded about a write; None where the record lacks it."""

    snapshot_id: int | None = None
    table_uuid: str | None = None
    branch: str | None = None
    write_id: str | None = None
    committed_ms: int | None = None
    table: str | None = None  # its name, which may have changed since


class BranchHistory:
    """The snapshots that lead to the head of a branch, as far as they have not expired."""

    def __init__(self, table: Table, branch: str = MAIN_BRANCH) -> None:
        self._metadata = table.metadata
        self._branch = branch
        self._by_id = {snapshot.snapshot_id: snapshot for snapshot in table.metadata.snapshots}
        self._chain = self._ancestors(branch)
        self.summaries = [item.summary.additional_properties for item in self._chain if item.summary is not None]
        undone = undone_in(self._chain)
        held = [item for item in self._chain if item.snapshot_id not in undone]
        self._undone = {str(snapshot_id) for snapshot_id in undone}
        self._write_ids = {summary[WRITE_ID] for summary in map(summary_of, held) if WRITE_ID in summary}
        self.snapshot_ids = {str(snapshot.snapshot_id) for snapshot in held}
        self.snapshot_ids |= {summary[_PICKED_FROM] for summary in self.summaries if _PICKED_FROM in summary}

    @property
    def created_at(self) -> datetime | None:
        """When the table was first written to; None if that snapshot has expired."""
        if not self._chain or not self._is_whole:
            return None
        return datetime.fromtimestamp(self._chain[-1].timestamp_ms / 1000, timezone.utc)

    @property
    def has_rows(self) -> bool:
        """Does the head of the branch have rows? Where its summary does not count them, it is assumed."""
        return bool(self.summaries and int(self.summaries[0].get("total-records", 1)))

    def loss_of(self, write: RecordedWrite) -> Loss | None:
        """Why the branch does not hold this write; None if it does, or if nothing proves that it does not."""
        if write.table_uuid is not None and write.table_uuid != str(self._metadata.table_uuid):
            return Loss.RECREATED
        if write.snapshot_id is None or self._holds(write):
            return None
        if str(write.snapshot_id) in self._undone:
            return Loss.ROLLED_BACK
        snapshot = self._by_id.get(write.snapshot_id)
        by_snapshot = write.branch is None and snapshot is not None and self._is_on_another_branch(snapshot)
        if by_snapshot or (write.branch or self._branch) != self._branch:
            # A branch without a snapshot never had one: expiry keeps the head.
            return Loss.OTHER_BRANCH if self._is_whole or not self._chain else Loss.UNKNOWN
        if self._is_whole:  # nothing has expired: the write was never in this history, or was taken out of it
            return Loss.RECREATED if snapshot is None and write.table_uuid is None else Loss.ROLLED_BACK
        if snapshot is None:
            return Loss.ROLLED_BACK if self._is_after_oldest(write.committed_ms) else None
        return Loss.ROLLED_BACK if self._chain and _order(snapshot) > _order(self._chain[-1]) else None

    def _holds(self, write: RecordedWrite) -> bool:
        return str(write.snapshot_id) in self.snapshot_ids or write.write_id in self._write_ids

    @property
    def _is_whole(self) -> bool:
        """Does the history reach back to the first snapshot of the table?

        A root without a parent is not enough: CREATE OR REPLACE TABLE makes one too.
        """
        if not self._chain:
            return not self._by_id and not getattr(self._metadata, "last_sequence_number", 0)
        oldest = self._chain[-1]
        return oldest.parent_snapshot_id is None and oldest.sequence_number == 1

    def _is_after_oldest(self, committed_ms: int | None) -> bool:
        """Was it committed after the oldest snapshot that remains, so that expiry does not explain its absence?"""
        if committed_ms is None or not self._chain:
            return False
        return committed_ms > self._chain[-1].timestamp_ms + _MAX_CLOCK_SKEW_MS

    def _is_on_another_branch(self, snapshot: Snapshot) -> bool:
        others = [name for name in _branches(self._metadata) if name != self._branch]
        return any(snapshot.snapshot_id == other.snapshot_id for name in others for other in self._ancestors(name))

    def _ancestors(self, branch: str) -> list[Snapshot]:
        """From the head to the oldest that remains; PyIceberg's own walk is quadratic in the number of snapshots."""
        ref = self._metadata.refs.get(branch)
        snapshot = self._by_id.get(ref.snapshot_id) if ref is not None else None
        ancestors: list[Snapshot] = []
        while snapshot is not None:
            ancestors.append(snapshot)
            snapshot = self._by_id.get(snapshot.parent_snapshot_id or -1)
        return ancestors


def _branches(metadata: TableMetadata) -> list[str]:
    return [name for name, ref in metadata.refs.items() if ref.snapshot_ref_type is SnapshotRefType.BRANCH]


def _order(snapshot: Snapshot) -> tuple[int, int]:
    """The order of commits; tables of format version 1 do not number them."""
    return snapshot.sequence_number or 0, snapshot.timestamp_ms
