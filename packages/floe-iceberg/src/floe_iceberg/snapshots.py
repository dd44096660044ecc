"""Snapshots of a table, and the write that made each of them."""

from __future__ import annotations

from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot, ancestors_of

from floe_core.models import SnapshotInfo

__all__ = ["WRITE_ID", "find_writes", "snapshot_info"]

# The key in a snapshot's summary by which a write finds itself again.
WRITE_ID = "floe.write-id"


def snapshot_info(snapshot: Snapshot) -> SnapshotInfo:
    """What Floe says about a PyIceberg snapshot."""
    summary = snapshot.summary
    return SnapshotInfo(
        snapshot_id=snapshot.snapshot_id,
        timestamp_ms=snapshot.timestamp_ms,
        operation=summary.operation.value if summary else "unknown",
        summary=dict(summary.additional_properties) if summary else {},
        parent_snapshot_id=snapshot.parent_snapshot_id,
    )


def find_writes(table: Table, write_id: str, *, branch: str = MAIN_BRANCH) -> list[SnapshotInfo]:
    """The snapshots this write made, looked for among the ancestors of a branch: none, or one if all is well."""
    return [
        snapshot_info(snapshot)
        for snapshot in ancestors_of(table.snapshot_by_name(branch), table.metadata)
        if snapshot.summary and snapshot.summary.additional_properties.get(WRITE_ID) == write_id
    ]
