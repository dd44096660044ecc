"""Predicts which snapshots and refs Iceberg's expiry removes, from the metadata alone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from floe_core.errors import ConfigurationError
from floe_core.formatting import counted
from floe_core.identifiers import TableIdentifier
from floe_iceberg.snapshots.lake_branches import PIN_PREFIX
from floe_iceberg.snapshots.refs import CURSOR_PREFIX
from floe_iceberg.snapshots.snapshots import ancestors_of

__all__ = ["Expiring", "expiring", "held_by_cursor", "of_ms", "refuse_short_branches", "to_ms"]


_MAX_REF_AGE = "history.expire.max-ref-age-ms"
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def to_ms(moment: datetime) -> int:
    """Milliseconds since 1970, exactly: float arithmetic is sometimes off by one."""
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def of_ms(milliseconds: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=milliseconds)


@dataclass(frozen=True)
class Expiring:
    """The snapshots and refs that expire, and about how many bytes that frees."""

    snapshots: frozenset[int]
    refs: frozenset[str]
    bytes: int

    def __bool__(self) -> bool:
        return bool(self.snapshots or self.refs)


def held_by_cursor(metadata: TableMetadata) -> tuple[str, int] | None:
    """The consumer that is furthest behind: its tag, and the time from which on all snapshots are needed.

    The rows appended after the snapshot it consumed last are known by the snapshots that appended them. Writers' clocks
    differ: none of these, whatever its timestamp, may expire before the consumer has caught up. A branch of the lake
    that has written to the table is such a consumer: it needs the snapshots since it began.
    """
    cursors = {
        ref.snapshot_id: name
        for name, ref in metadata.refs.items()
        if name.startswith(CURSOR_PREFIX)
        or (name.startswith(PIN_PREFIX) and name.removeprefix(PIN_PREFIX) in metadata.refs)
    }
    earliest: int | None = None
    furthest: tuple[str, int] | None = None
    for snapshot in ancestors_of(metadata.current_snapshot(), metadata):
        earliest = snapshot.timestamp_ms if earliest is None else min(earliest, snapshot.timestamp_ms)
        if snapshot.snapshot_id in cursors:
            furthest = cursors[snapshot.snapshot_id], earliest
    return furthest


def refuse_short_branches(
    metadata: TableMetadata, identifier: TableIdentifier, *, older_than_ms: int, keep_last: int, now_ms: int
) -> None:
    """Refuse a branch with a shorter retention than the policy: Iceberg lets it override the requested expiry.

    Runs that are retried would not find their writes, and consumers would not find what is new to them.
    """
    policy = expiring(
        metadata, older_than_ms=older_than_ms, keep_last=keep_last, now_ms=now_ms, by_branch=False
    ).snapshots
    going = expiring(metadata, older_than_ms=older_than_ms, keep_last=keep_last, now_ms=now_ms).snapshots
    lost = going - policy
    if lost:
        short = sorted(
            name
            for name, ref in metadata.refs.items()
            if ref.snapshot_ref_type is SnapshotRefType.BRANCH
            and (ref.max_snapshot_age_ms is not None or ref.min_snapshots_to_keep is not None)
        )
        raise ConfigurationError(
            f"{counted(len(lost), 'snapshot')} of '{identifier}' that the policy keeps would expire, because a branch "
            f"has a shorter retention of its own ({', '.join(short)}); nothing was expired. Set the branch again with "
            f"a longer retention, or without one: ALTER TABLE ... REPLACE BRANCH"
        )


def expiring(
    metadata: TableMetadata, *, older_than_ms: int, keep_last: int, now_ms: int, by_branch: bool = True
) -> Expiring:
    """Predicts Iceberg's expiry: a branch keeps its `keep_last` newest snapshots and those newer than the cutoff.

    A tag keeps its snapshot; refs past their maximum age are removed. With `by_branch`, a branch's own retention
    overrides the requested one.
    """
    refs = {name: ref for name, ref in metadata.refs.items() if _is_kept(metadata, name, ref, now_ms)}
    kept: set[int] = set()
    referenced: set[int] = set()
    for ref in refs.values():
        if ref.snapshot_ref_type is SnapshotRefType.TAG:
            kept.add(ref.snapshot_id)
            referenced.add(ref.snapshot_id)
            continue
        ancestors = list(ancestors_of(metadata.snapshot_by_id(ref.snapshot_id), metadata))
        referenced.update(snapshot.snapshot_id for snapshot in ancestors)
        own = ref if by_branch else None
        kept_here = _kept_by_branch(ancestors, own, older_than_ms, keep_last, now_ms)
        kept.update(snapshot.snapshot_id for snapshot in kept_here)
    for snapshot in metadata.snapshots:
        if snapshot.snapshot_id not in referenced and snapshot.timestamp_ms >= older_than_ms:
            kept.add(snapshot.snapshot_id)
    gone = frozenset(snapshot.snapshot_id for snapshot in metadata.snapshots) - kept
    return Expiring(gone, frozenset(metadata.refs) - frozenset(refs), _bytes_of(metadata, gone))


def _is_kept(metadata: TableMetadata, name: str, ref: SnapshotRef, now_ms: int) -> bool:
    snapshot = metadata.snapshot_by_id(ref.snapshot_id)
    if name == MAIN_BRANCH or snapshot is None:
        return name == MAIN_BRANCH
    max_age = ref.max_ref_age_ms or metadata.properties.get(_MAX_REF_AGE)
    if isinstance(max_age, str) and not max_age.strip().isdecimal():
        raise ConfigurationError(f"table property {_MAX_REF_AGE} is {max_age!r}; it must be a number of milliseconds")
    return max_age is None or now_ms - snapshot.timestamp_ms <= int(max_age)


def _kept_by_branch(
    ancestors: list[Snapshot], ref: SnapshotRef | None, older_than_ms: int, keep_last: int, now_ms: int
) -> list[Snapshot]:
    cutoff, minimum = older_than_ms, keep_last
    if ref is not None:
        cutoff = cutoff if ref.max_snapshot_age_ms is None else now_ms - ref.max_snapshot_age_ms
        minimum = ref.min_snapshots_to_keep or minimum
    kept: list[Snapshot] = []
    for snapshot in ancestors:
        if len(kept) >= minimum and snapshot.timestamp_ms < cutoff:
            break
        kept.append(snapshot)
    return kept


def _bytes_of(metadata: TableMetadata, gone: frozenset[int]) -> int:
    """About how many bytes only the expired snapshots reference: the files that their successors on main replaced."""
    total = 0
    for snapshot in ancestors_of(metadata.current_snapshot(), metadata):
        if snapshot.parent_snapshot_id in gone and snapshot.summary is not None:
            total += int(snapshot.summary.additional_properties.get("removed-files-size", 0))
    return total
