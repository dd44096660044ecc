"""Snapshots of a table, and the write that made each of them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot, ancestors_of

from floe_core import __version__
from floe_core.errors import ConfigurationError
from floe_core.models import SnapshotInfo

__all__ = ["DATA_ROWS", "WRITE_ID", "find_writes", "snapshot_info", "write_summary"]

# The key in a snapshot's summary by which a write finds itself again.
WRITE_ID = "floe.write-id"
# How many rows a write brought, in the summary of a snapshot that also holds rows which it wrote again.
DATA_ROWS = "floe.data-records"
_VERSION = "floe.version"
# Keys of a summary that mean something to Iceberg or to Floe.
_TAKEN = re.compile(
    rf"(?i)(operation|changed-partition-count|partition-summaries-included|{WRITE_ID}|{DATA_ROWS}|{_VERSION})$"
    r"|(added|deleted|removed|total)-|partitions\."
)


def write_summary(write_id: str, properties: Mapping[str, str] | None = None) -> dict[str, str]:
    """What a write leaves in its snapshot's summary: what its caller wants to find there, and who it is."""
    if not isinstance(write_id, str) or not write_id:
        raise ConfigurationError(f"write_id is {write_id!r}; it must be a text that is not empty, or left out")
    wrong = [key for key, value in (properties or {}).items() if not isinstance(key, str) or not isinstance(value, str)]
    if wrong:
        raise ConfigurationError(f"snapshot_properties must be texts; {', '.join(map(repr, wrong))} is not")
    taken = [key for key in properties or {} if _TAKEN.match(key)]
    if taken:
        raise ConfigurationError(
            f"snapshot_properties must not say {', '.join(map(repr, taken))}: Iceberg and Floe write that themselves; "
            f"choose another name"
        )
    return {**(properties or {}), WRITE_ID: write_id, _VERSION: __version__}


def snapshot_info(snapshot: Snapshot) -> SnapshotInfo:
    """What Floe says about a PyIceberg snapshot."""
    summary = snapshot.summary
    # PyIceberg has checked all of it when it read the metadata.
    return SnapshotInfo.model_construct(
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
