"""Snapshots, refs, timestamps, and writes that were recorded elsewhere."""

from floe_iceberg.snapshots import refs, timestamps
from floe_iceberg.snapshots.recorded_writes import BranchHistory, Loss, RecordedWrite
from floe_iceberg.snapshots.refs import CURSOR_PREFIX, staged_since
from floe_iceberg.snapshots.snapshots import (
    DATA_ROWS,
    WRITE_ID,
    ancestors_of,
    find_writes,
    snapshot_info,
    write_summary,
)
from floe_iceberg.snapshots.timestamps import GRACE_MS, disorder, latest_ms, now_ms, refuse_disorder, stamped

__all__ = [
    "CURSOR_PREFIX",
    "DATA_ROWS",
    "GRACE_MS",
    "WRITE_ID",
    "BranchHistory",
    "Loss",
    "RecordedWrite",
    "ancestors_of",
    "disorder",
    "find_writes",
    "latest_ms",
    "now_ms",
    "refs",
    "refuse_disorder",
    "snapshot_info",
    "staged_since",
    "stamped",
    "timestamps",
    "write_summary",
]
