"""Snapshots of a table, and the write that made each of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Snapshot

from floe_core import __version__
from floe_core.errors import ConfigurationError
from floe_core.models import SnapshotInfo

__all__ = [
    "ASSET",
    "CREATES",
    "DATA_ROWS",
    "FOLLOWED",
    "INPUTS",
    "MODE",
    "MOVED_FROM",
    "PARTITION",
    "RUN_ID",
    "SLICE",
    "UNDOES",
    "UPSERTS",
    "WRITE_ID",
    "ancestors_of",
    "find_writes",
    "inputs_of",
    "is_rewrite",
    "snapshot_info",
    "summary_of",
    "undone_in",
    "write_summary",
]

# The key in a snapshot's summary by which a retry finds its write.
WRITE_ID = "floe.write-id"
# The asset, its partitions and the Dagster run that a write belongs to.
ASSET = "floe.asset"
PARTITION = "floe.partition"
RUN_ID = "floe.run-id"
# The snapshots that its rows were made from.
INPUTS = "floe.input-snapshots"
# The tables that the writer reads incrementally: the next run continues after what this one has read.
FOLLOWED = "floe.input-since"
# Said by the write that created the table.
CREATES = "floe.creates-table"
# Said by an upsert: it finds rows by key, wherever they are.
UPSERTS = "floe.upserts"
# How a write to a branch treats existing rows, and the slice that it replaces: they decide what it conflicts with.
MODE = "floe.mode"
SLICE = "floe.slice"
# The snapshots of the same history whose writes this one takes back.
UNDOES = "floe.undoes"
# The number of rows in the data of a write, if its snapshot also contains rewritten rows.
DATA_ROWS = "floe.data-records"
# Said by a write to a quarantine table: the write of the table that its rows were taken from.
MOVED_FROM = "floe.quarantined-from"
_VERSION = "floe.version"
# Keys of a summary that are reserved by Iceberg or Floe.
_TAKEN = re.compile(
    rf"(?i)(operation|changed-partition-count|partition-summaries-included|{WRITE_ID}|{DATA_ROWS}|{UNDOES}|{MODE}|{SLICE}|{_VERSION})$"
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


def summary_of(snapshot: Snapshot) -> dict[str, str]:
    """The properties of a snapshot's summary; empty if it has none."""
    return snapshot.summary.additional_properties if snapshot.summary is not None else {}


def inputs_of(summary: Mapping[str, str]) -> dict[str, int]:
    """The input snapshots of a write, by table; if a table was read more than once, the last one."""
    pairs = (entry.rpartition("@") for entry in summary.get(INPUTS, "").split(",") if entry)
    return {table: int(snapshot_id) for table, _, snapshot_id in pairs}


def undone_in(history: Iterable[Snapshot]) -> set[int]:
    """The snapshots of a history whose writes were taken back by a later one."""
    return {
        int(snapshot_id) for one in history for snapshot_id in summary_of(one).get(UNDOES, "").split(",") if snapshot_id
    }


def find_writes(table: Table, write_id: str, *, branch: str = MAIN_BRANCH) -> list[SnapshotInfo]:
    """The snapshots of this write in the history of a branch: at most one, unless two attempts committed.

    A write that was undone is not among them: a retry writes it again.
    """
    history = list(ancestors_of(table.snapshot_by_name(branch), table.metadata))
    found = [snapshot for snapshot in history if summary_of(snapshot).get(WRITE_ID) == write_id]
    undone = undone_in(history) if found else set()
    return [snapshot_info(snapshot) for snapshot in found if snapshot.snapshot_id not in undone]


def is_rewrite(snapshot: Snapshot) -> bool:
    """Does the snapshot hold the same rows as its parent, as after a compaction?"""
    return snapshot.summary is not None and snapshot.summary.operation is Operation.REPLACE
