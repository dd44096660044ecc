"""Which snapshots and refs Iceberg's expiry takes away, told beforehand from the metadata alone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot, ancestors_of

from floe_iceberg.refs import CURSOR_PREFIX

__all__ = ["Expiring", "expiring", "held_by_cursor", "of_ms", "to_ms"]


_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def to_ms(moment: datetime) -> int:
    """Milliseconds since 1970, exactly: as a float they would be one less now and then."""
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def of_ms(milliseconds: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=milliseconds)


@dataclass(frozen=True)
class Expiring:
    """What goes."""

    snapshots: frozenset[int]
    refs: frozenset[str]
    bytes: int

    def __bool__(self) -> bool:
        return bool(self.snapshots or self.refs)


def held_by_cursor(metadata: TableMetadata) -> tuple[str, int] | None:
    """The consumer that is furthest behind: its tag, and the time from which on all snapshots are needed.

    What was appended after the one it consumed last is told by the snapshots that did so. Writers' clocks differ: none
    of them, however old it says it is, may go before the consumer has caught up.
    """
    cursors = {ref.snapshot_id: name for name, ref in metadata.refs.items() if name.startswith(CURSOR_PREFIX)}
    least: int | None = None
    found: tuple[str, int] | None = None
    for one in ancestors_of(metadata.current_snapshot(), metadata):
        least = one.timestamp_ms if least is None else min(least, one.timestamp_ms)
        if one.snapshot_id in cursors:
            found = cursors[one.snapshot_id], least
    return found


def expiring(metadata: TableMetadata, *, older_than_ms: int, keep_last: int, now_ms: int) -> Expiring:
    """As Iceberg decides it: a branch keeps its newest and its young ones, a tag its own, and both may age."""
    refs = {name: ref for name, ref in metadata.refs.items() if _stays(metadata, name, ref, now_ms)}
    kept: set[int] = set()
    referenced: set[int] = set()
    for ref in refs.values():
        if ref.snapshot_ref_type is SnapshotRefType.TAG:
            kept.add(ref.snapshot_id)
            referenced.add(ref.snapshot_id)
            continue
        line = list(ancestors_of(metadata.snapshot_by_id(ref.snapshot_id), metadata))
        referenced.update(one.snapshot_id for one in line)
        kept.update(one.snapshot_id for one in _of_branch(line, ref, older_than_ms, keep_last, now_ms))
    for one in metadata.snapshots:
        if one.snapshot_id not in referenced and one.timestamp_ms >= older_than_ms:
            kept.add(one.snapshot_id)
    gone = frozenset(one.snapshot_id for one in metadata.snapshots) - kept
    return Expiring(gone, frozenset(metadata.refs) - frozenset(refs), _bytes_of(metadata, gone))


def _stays(metadata: TableMetadata, name: str, ref: SnapshotRef, now_ms: int) -> bool:
    snapshot = metadata.snapshot_by_id(ref.snapshot_id)
    if name == MAIN_BRANCH or snapshot is None:
        return name == MAIN_BRANCH
    said = ref.max_ref_age_ms or metadata.properties.get("history.expire.max-ref-age-ms")
    return said is None or now_ms - snapshot.timestamp_ms <= int(said)


def _of_branch(
    line: list[Snapshot], ref: SnapshotRef, older_than_ms: int, keep_last: int, now_ms: int
) -> list[Snapshot]:
    cutoff = older_than_ms if ref.max_snapshot_age_ms is None else now_ms - ref.max_snapshot_age_ms
    least = ref.min_snapshots_to_keep or keep_last
    kept: list[Snapshot] = []
    for one in line:
        if len(kept) >= least and one.timestamp_ms < cutoff:
            break
        kept.append(one)
    return kept


def _bytes_of(metadata: TableMetadata, gone: frozenset[int]) -> int:
    """What the snapshots that go lead to and no other one does, about: what their successors on main had replaced."""
    total = 0
    for one in ancestors_of(metadata.current_snapshot(), metadata):
        if one.parent_snapshot_id in gone and one.summary is not None:
            total += int(one.summary.additional_properties.get("removed-files-size", 0))
    return total
