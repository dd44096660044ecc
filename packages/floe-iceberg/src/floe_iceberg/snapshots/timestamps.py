"""Timestamps of a table's metadata: in the order of the commits, whatever the writers' clocks show.

Iceberg's Java library refuses to load a table whose snapshot log, metadata log or `last-updated-ms` goes back by more
than a minute; PyIceberg writes such metadata and reads it without an error.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AddSnapshotUpdate, TableUpdate

from floe_core.errors import FloeStorageError
from floe_core.identifiers import TableIdentifier

__all__ = ["GRACE_MS", "REPAIRED_AT", "disorder", "in_order", "latest_ms", "now_ms", "refuse_disorder", "stamped"]

# The property of a table that Floe repaired, with the time of the repair.
REPAIRED_AT = "floe.timestamps-repaired-at-ms"
# What Iceberg's Java library tolerates: TableMetadata.ONE_MINUTE.
GRACE_MS = 60_000


def now_ms() -> int:
    return int(time.time() * 1000)


def latest_ms(metadata: TableMetadata) -> int:
    """The timestamp that no later change may precede by more than the grace, or Java refuses it."""
    return max(
        metadata.last_updated_ms,
        *(entry.timestamp_ms for entry in metadata.snapshot_log[-1:]),
        *(entry.timestamp_ms for entry in metadata.metadata_log[-1:]),
        0,
    )


def disorder(metadata: TableMetadata) -> str | None:
    """Why Spark cannot load the table, by each of the checks in Java's TableMetadata; None if it can."""
    log = [entry.timestamp_ms for entry in metadata.snapshot_log]
    files = [entry.timestamp_ms for entry in metadata.metadata_log]
    if any(_goes_back(*pair) for pair in pairwise(log)):
        return "its snapshot log is not sorted by time"
    if log and _goes_back(log[-1], metadata.last_updated_ms):
        return "it was last updated before its last snapshot, by their timestamps"
    if any(_goes_back(*pair) for pair in pairwise(files)):
        return "its metadata log is not sorted by time"
    if files and _goes_back(files[-1], metadata.last_updated_ms):
        return "it was last updated before its previous version, by their timestamps"
    return None


def refuse_disorder(metadata: TableMetadata, identifier: TableIdentifier) -> None:
    """Refuse at once a table that Spark cannot load; Iceberg itself retries 20 times first, which takes minutes."""
    reason = disorder(metadata)
    if reason is not None:
        raise FloeStorageError(
            f"Spark cannot load '{identifier}': {reason}, because the clock of a writer went back. The next write "
            f"through Floe repairs it, or: floe maintain run --table {identifier}"
        )


def _goes_back(earlier: int, later: int) -> bool:
    return later - earlier < -GRACE_MS


def stamped(updates: Sequence[TableUpdate], base: TableMetadata, *, after: int = 0) -> tuple[TableUpdate, ...]:
    """The updates, with every new snapshot stamped after its parent, the last entry of the snapshot log and `after`."""
    stamps = {snapshot.snapshot_id: snapshot.timestamp_ms for snapshot in base.snapshots}
    floor = max(after, *(entry.timestamp_ms for entry in base.snapshot_log[-1:]), 0)
    result: list[TableUpdate] = []
    for update in updates:
        if isinstance(update, AddSnapshotUpdate):
            snapshot = update.snapshot
            floor = max(floor, stamps.get(snapshot.parent_snapshot_id or 0, 0))
            if snapshot.timestamp_ms <= floor:
                snapshot = snapshot.model_copy(update={"timestamp_ms": floor + 1})
                update = update.model_copy(update={"snapshot": snapshot})
            floor = stamps[snapshot.snapshot_id] = snapshot.timestamp_ms
        result.append(update)
    return tuple(result)


def in_order(metadata: TableMetadata, now: int, base: TableMetadata | None = None) -> TableMetadata:
    """The metadata with sorted logs and snapshots; the same object if nothing is out of order.

    Entries that this commit adds to the log of `base` never change earlier ones: this clock may be the wrong one. Among
    entries that were out of order before, a timestamp later than both the last one and this clock is lowered to the
    next one; any other that goes back is raised to just after its predecessor.
    """
    changed: dict[str, object] = {}
    log = [entry.timestamp_ms for entry in metadata.snapshot_log]
    ordered = _ordered(_after_base(metadata, base), now)
    if ordered != log:
        changed["snapshot_log"] = [
            entry.model_copy(update={"timestamp_ms": stamp})
            for entry, stamp in zip(metadata.snapshot_log, ordered, strict=True)
        ]
    last = max(metadata.last_updated_ms, *ordered[-1:], 0)
    files = [entry.timestamp_ms for entry in metadata.metadata_log]
    *versions, last = _ordered([*files, last], now)
    if versions != files:
        changed["metadata_log"] = [
            entry.model_copy(update={"timestamp_ms": stamp})
            for entry, stamp in zip(metadata.metadata_log, versions, strict=True)
        ]
    if last != metadata.last_updated_ms:
        changed["last_updated_ms"] = last
    snapshots = _snapshots_in_order(metadata, now)
    if snapshots is not None:
        changed["snapshots"] = snapshots
    return metadata.model_copy(update=changed) if changed else metadata


def _after_base(metadata: TableMetadata, base: TableMetadata | None) -> list[int]:
    """The timestamps of the snapshot log, with the entries that `base` does not have after the ones before them."""
    known = {(entry.snapshot_id, entry.timestamp_ms) for entry in (base.snapshot_log if base is not None else ())}
    stamps: list[int] = []
    for entry in metadata.snapshot_log:
        is_new = (entry.snapshot_id, entry.timestamp_ms) not in known
        goes_back = bool(stamps) and entry.timestamp_ms <= stamps[-1]
        stamps.append(stamps[-1] + 1 if is_new and goes_back else entry.timestamp_ms)
    return stamps


def _ordered(stamps: list[int], now: int) -> list[int]:
    if all(earlier <= later for earlier, later in pairwise(stamps)):
        return stamps
    fixed, ceiling = list(stamps), max(now, stamps[-1])
    # If most of them lie in the future of this clock, it is this clock that is wrong.
    lowers = 2 * sum(stamp > ceiling for stamp in stamps) < len(stamps)
    for place in range(len(fixed) - 2, -1, -1):
        if lowers and fixed[place] > ceiling:
            fixed[place] = fixed[place + 1]
    for place in range(1, len(fixed)):
        if fixed[place] < fixed[place - 1]:
            fixed[place] = fixed[place - 1] + 1
    return fixed


def _snapshots_in_order(metadata: TableMetadata, now: int) -> list[Snapshot] | None:
    """The snapshots with none stamped before its parent; None if that is so already."""
    stamps = {snapshot.snapshot_id: snapshot.timestamp_ms for snapshot in metadata.snapshots}
    if all(item.timestamp_ms >= stamps.get(item.parent_snapshot_id or 0, 0) for item in metadata.snapshots):
        return None
    # The order of the commits; snapshots of format version 1 all have number 0, and are listed in that order.
    commits = sorted(metadata.snapshots, key=lambda snapshot: snapshot.sequence_number or 0)
    ordered = _ordered([snapshot.timestamp_ms for snapshot in commits], now)
    fixed = {snapshot.snapshot_id: stamp for snapshot, stamp in zip(commits, ordered, strict=True)}
    return [item.model_copy(update={"timestamp_ms": fixed[item.snapshot_id]}) for item in metadata.snapshots]
