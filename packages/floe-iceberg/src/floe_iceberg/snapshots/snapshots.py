"""Snapshots of a table, and the write that made each of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from floe_core import __version__
from floe_core.errors import ConfigurationError
from floe_core.models import SnapshotInfo

__all__ = ["DATA_ROWS", "WRITE_ID", "ancestors_of", "find_writes", "snapshot_info", "write_summary"]

# The key in a snapshot's summary by which a retry finds its write.
WRITE_ID = "floe.write-id"
# The number of rows in the data of a write, if its snapshot also contains rewritten rows.
DATA_ROWS = "floe.data-records"
_VERSION = "floe.version"
# Keys of a summary that are reserved by Iceberg or Floe.
_TAKEN = re.compile(
    rf"(?i)(operation|changed-partition-count|partition-summaries-included|{WRITE_ID}|{DATA_ROWS}|{_VERSION})$"
    r"|(added|deleted|removed|total)-|partitions\."
)


def write_summary(write_id: str, properties: Mapping[str, str] | None = None) -> dict[str, str]:
    """The summary properties of a write: the caller's, the write id and Floe's version."""
    if not isinstance(write_id, str) or not write_id:
        raise ConfigurationError(f"write_id is {write_id!r}; it must be a text that is not empty, or omitted")
    wrong = [key for key, value in (properties or {}).items() if not isinstance(key, str) or not isinstance(value, str)]
    if wrong:
        raise ConfigurationError(f"snapshot_properties must be texts; {', '.join(map(repr, wrong))} is not")
    taken = [key for key in properties or {} if _TAKEN.match(key)]
    if taken:
        raise ConfigurationError(
            f"snapshot_properties must not set {', '.join(map(repr, taken))}: Iceberg and Floe write that themselves; "
            f"choose another name"
        )
    return {**(properties or {}), WRITE_ID: write_id, _VERSION: __version__}


def snapshot_info(snapshot: Snapshot) -> SnapshotInfo:
    """Floe's description of a PyIceberg snapshot."""
    summary = snapshot.summary
    # Not validated again: PyIceberg did so when it read the metadata.
    return SnapshotInfo.model_construct(
        snapshot_id=snapshot.snapshot_id,
        timestamp_ms=snapshot.timestamp_ms,
        operation=summary.operation.value if summary else "unknown",
        summary=dict(summary.additional_properties) if summary else {},
        parent_snapshot_id=snapshot.parent_snapshot_id,
    )


def ancestors_of(head: Snapshot | None, metadata: TableMetadata) -> Iterator[Snapshot]:
    """A snapshot and its ancestors, newest first. PyIceberg's own function searches all snapshots for each."""
    by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    while head is not None:
        yield head
        head = by_id.get(head.parent_snapshot_id) if head.parent_snapshot_id is not None else None


def find_writes(table: Table, write_id: str, *, branch: str = MAIN_BRANCH) -> list[SnapshotInfo]:
    """The snapshots of this write in the history of a branch: at most one, unless two attempts committed."""
    return [
        snapshot_info(snapshot)
        for snapshot in ancestors_of(table.snapshot_by_name(branch), table.metadata)
        if snapshot.summary is not None and snapshot.summary.additional_properties.get(WRITE_ID) == write_id
    ]
