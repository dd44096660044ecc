"""The health of a table by its metadata: files, history, deletes; and what to do about it."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from enum import Enum

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFileContent, ManifestEntry, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.utils.concurrent import ExecutorFactory

from floe_core.config import CompactPolicy, MaintenancePolicy
from floe_core.formatting import counted, human_bytes
from floe_iceberg.files.purge import is_shared
from floe_iceberg.maintenance.leases import is_lease
from floe_iceberg.maintenance.retention import Expiring, expiring, held_by_cursor, of_ms, to_ms
from floe_iceberg.snapshots.lake_branches import PIN_PREFIX
from floe_iceberg.snapshots.snapshots import ancestors_of
from floe_iceberg.snapshots.timestamps import GRACE_MS, disorder, latest_ms

__all__ = ["LAST_MAINTENANCE", "Finding", "Light", "TableFacts", "cutoff_ms", "findings", "look"]

# The property in which maintenance records when it ended.
LAST_MAINTENANCE = "floe.last-maintenance"

# As in Iceberg's own planner: a file smaller or larger than this share of the target is worth rewriting.
_TOO_SMALL, _TOO_LARGE = 0.75, 1.8
_STRETCHED = 1.1
# Iceberg checks the size of a file only after this many rows: one with fewer cannot be split.
_LEAST_ROWS = 1000
_MANIFEST_BYTES = 8 * 2**20
_MANY_MANIFESTS = 20


@dataclass(frozen=True)
class TableFacts:
    """Numbers about one table at one moment."""

    snapshot_id: int | None = None
    rows: int = 0
    files: int = 0
    bytes: int = 0
    partitions: int = 0
    small_files: int = 0
    compactable_files: int = 0
    compactable_bytes: int = 0
    compactable_partitions: int = 0
    skew: float = 1.0
    delete_files: int = 0
    deleted_rows: int = 0
    manifests: int = 0
    few_manifests: int = 0  # the number that would suffice
    snapshots: int = 0
    tags: int = 0
    branches: int = 0
    oldest_snapshot: datetime | None = None
    last_write: datetime | None = None  # unknown if the remaining history has only rewrites
    last_maintenance: datetime | None = None
    expiring: Expiring = field(default_factory=lambda: Expiring(frozenset(), frozenset(), 0))
    held_by: tuple[str, datetime] | None = None
    has_statistics: bool = False
    shares_files: bool = False
    disorder: str | None = None  # why Spark cannot load the table: its timestamps
    stamped_ahead: datetime | None = None  # its latest timestamp, where that is in the future

    @property
    def delete_ratio(self) -> float:
        """The share of rows in the data files that delete files remove."""
        return self.deleted_rows / self.rows if self.rows else 0.0

    @property
    def too_many_manifests(self) -> bool:
        return self.manifests >= _MANY_MANIFESTS and self.manifests >= 4 * self.few_manifests


class Light(str, Enum):
    """The urgency of a finding."""

    GREEN = "green"
    YELLOW = "yellow"
    RED = "red"


@dataclass(frozen=True)
class Finding:
    """One problem of a table: why it matters, and the command that fixes it."""

    light: Light
    reason: str
    mend: str


@dataclass
class _Group:
    """The data files of one partition, and the deletes in it; sequence numbers give their order."""

    sizes: list[int] = field(default_factory=list)
    whole: set[int] = field(default_factory=set)  # the indexes of files with too few rows to be split
    oldest: int = 2**63
    newest_delete: int = -1

    def worth(self, policy: CompactPolicy) -> list[int]:
        """Sizes of the files to compact: large files, small files if fewer result, or all if deletes apply to them."""
        target = policy.target_file_size
        if self.newest_delete >= self.oldest:  # a delete that is older than all files removes nothing
            return self.sizes
        small = [size for size in self.sizes if size < target * _TOO_SMALL]
        large = [
            size for index, size in enumerate(self.sizes) if size > target * _TOO_LARGE and index not in self.whole
        ]
        odd = small + large
        if large:
            return odd
        enough = len(odd) >= policy.min_files or (len(odd) > 1 and sum(odd) > target)
        return odd if enough and _files_of(sum(odd), target) < len(odd) else []


def _files_of(size: int, target: int) -> int:
    """How many files Iceberg writes for this size: two files of 0.7 targets would become two of 0.7 targets again."""
    whole = max(1, size // target)
    rest = size - whole * target
    return whole + 1 if rest > target * _TOO_SMALL or size / whole > target * _STRETCHED else whole


def look(table: Table, policy: MaintenancePolicy, *, now: datetime, known: TableFacts | None = None) -> TableFacts:
    """Read the head's manifests; nothing else is opened, and nothing is changed.

    `known` are the facts of an earlier call: the files are the same as long as the head is.
    """
    metadata = table.metadata
    refs = [ref for name, ref in metadata.refs.items() if not is_lease(name)]
    now_ms = to_ms(now)
    cursor = held_by_cursor(metadata)
    older_than_ms = cutoff_ms(table, policy, now)
    history: dict[str, object] = {
        "snapshots": len(metadata.snapshots),
        "tags": sum(ref.snapshot_ref_type.value == "tag" for ref in refs),
        "branches": sum(ref.snapshot_ref_type.value == "branch" for ref in refs),
        "oldest_snapshot": _moment(min((snapshot.timestamp_ms for snapshot in metadata.snapshots), default=None)),
        "last_write": _last_write(table),
        "last_maintenance": _last_maintenance(table),
        "expiring": expiring(metadata, older_than_ms=older_than_ms, keep_last=policy.expire.keep_last, now_ms=now_ms),
        "held_by": None,
        "has_statistics": metadata.current_snapshot_id in {file.snapshot_id for file in metadata.statistics},
        "shares_files": is_shared(table.properties),
        "disorder": disorder(metadata),
        "stamped_ahead": _moment(latest_ms(metadata)) if latest_ms(metadata) - now_ms > GRACE_MS else None,
    }
    requested_ms = to_ms(now - policy.expire.older_than)
    if cursor is not None and cursor[1] < requested_ms:
        history["held_by"] = (cursor[0], _moment(cursor[1]))
    head = table.current_snapshot()
    if head is None:
        return TableFacts(**history)  # type: ignore[arg-type]
    history["snapshot_id"] = head.snapshot_id
    if known is not None and known.snapshot_id == head.snapshot_id:
        return replace(known, **history)  # type: ignore[arg-type]
    manifests = head.manifests(table.io)
    return TableFacts(**history, **_file_facts(table, manifests, policy.compact))  # type: ignore[arg-type]


def cutoff_ms(table: Table, policy: MaintenancePolicy, now: datetime) -> int:
    """Snapshots older than this may expire: by the policy, but none that a consumer still has to read."""
    requested = to_ms(now - policy.expire.older_than)
    cursor = held_by_cursor(table.metadata)
    return requested if cursor is None else min(requested, cursor[1])


def _file_facts(table: Table, manifests: list[ManifestFile], policy: CompactPolicy) -> dict[str, int | float]:
    groups: dict[str, _Group] = defaultdict(_Group)
    rows = deleted = deletes = 0
    read = ExecutorFactory.get_or_create().map(_reader(table.io), manifests)
    for manifest, entries in zip(manifests, read, strict=True):
        # Iceberg groups all files of earlier partition specs together, whatever their partition.
        is_present = manifest.partition_spec_id == table.metadata.default_spec_id
        for entry in entries:
            file, number = entry.data_file, entry.sequence_number or 0
            group = groups[str(file.partition) if is_present else ""]
            if file.content == DataFileContent.DATA:  # a plain number in format version 1
                if file.record_count <= _LEAST_ROWS:
                    group.whole.add(len(group.sizes))
                group.sizes.append(file.file_size_in_bytes)
                group.oldest = min(group.oldest, number)
                rows += file.record_count
            else:
                group.newest_delete = max(group.newest_delete, number)
                deletes += 1
                deleted += file.record_count
    sizes = [size for group in groups.values() for size in group.sizes]
    compactable = [chosen for group in groups.values() if (chosen := group.worth(policy))]
    by_partition = [sum(group.sizes) for group in groups.values() if group.sizes]
    return {
        "rows": rows,
        "files": len(sizes),
        "bytes": sum(sizes),
        "partitions": len(by_partition),
        "small_files": sum(size < policy.target_file_size * _TOO_SMALL for size in sizes),
        "compactable_files": sum(map(len, compactable)),
        "compactable_bytes": sum(map(sum, compactable)),
        "compactable_partitions": len(compactable),
        "skew": max(by_partition) / max(1.0, statistics.median(by_partition)) if by_partition else 1.0,
        "delete_files": deletes,
        "deleted_rows": deleted,
        "manifests": len(manifests),
        "few_manifests": _sufficient_manifests(table, manifests),
    }


def _sufficient_manifests(table: Table, manifests: list[ManifestFile]) -> int:
    """How many manifests would suffice: each has files of one partition spec, and either data or delete files."""
    configured = table.properties.get("commit.manifest.target-size-bytes", "")
    target = int(configured) if configured.isdecimal() and int(configured) > 0 else _MANIFEST_BYTES
    sizes: dict[tuple[int, int], int] = defaultdict(int)
    for manifest in manifests:
        sizes[manifest.partition_spec_id, manifest.content] += manifest.manifest_length
    return sum(-(-size // target) for size in sizes.values())


def _reader(io: FileIO) -> Callable[[ManifestFile], list[ManifestEntry]]:
    return lambda manifest: manifest.fetch_manifest_entry(io, discard_deleted=True)


def _last_write(table: Table) -> datetime | None:
    for snapshot in ancestors_of(table.current_snapshot(), table.metadata):
        if snapshot.summary is None or snapshot.summary.operation is not Operation.REPLACE:
            return _moment(snapshot.timestamp_ms)
    return None


def _last_maintenance(table: Table) -> datetime | None:
    recorded = table.properties.get(LAST_MAINTENANCE)
    try:
        moment = datetime.fromisoformat(recorded) if recorded else None
    except ValueError:
        return None
    return moment.replace(tzinfo=timezone.utc) if moment is not None and moment.tzinfo is None else moment


def _moment(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else of_ms(milliseconds)


def findings(name: str, facts: TableFacts, policy: MaintenancePolicy) -> list[Finding]:
    """The problems of the table, worst first; empty if it is healthy."""
    found = _clock_findings(name, facts)
    if not policy.enabled:
        return found  # maintenance is switched off for this table
    maintain = f"floe maintain run --table {name} --only"
    if facts.compactable_files:
        urgent = facts.compactable_files >= 1000 or facts.delete_ratio >= 0.3
        better = "fewer, larger or without deletes" if facts.delete_files else "fewer and larger"
        average = facts.compactable_bytes // max(1, facts.compactable_files)
        found.append(
            Finding(
                Light.RED if urgent else Light.YELLOW,
                f"{counted(facts.compactable_files, 'file')} of {human_bytes(average)} on average in "
                f"{counted(facts.compactable_partitions, 'partition')} could be {better}",
                f"{maintain} compact",
            )
        )
    if facts.delete_files and facts.compactable_files:
        found.append(
            Finding(
                Light.RED if facts.delete_ratio >= 0.3 else Light.YELLOW,
                f"{counted(facts.delete_files, 'delete file')} to apply at every read, to "
                f"{facts.delete_ratio:.0%} of the rows",
                f"{maintain} compact",
            )
        )
    if facts.too_many_manifests:
        found.append(
            Finding(
                Light.YELLOW,
                f"{facts.manifests} manifests where {facts.few_manifests} would suffice slow down every scan",
                f"{maintain} manifests",
            )
        )
    gone = len(facts.expiring.snapshots)
    if gone and not facts.shares_files:
        found.append(
            Finding(
                Light.RED if gone >= 1000 else Light.YELLOW,
                f"{gone} of {counted(facts.snapshots, 'snapshot')} are older than the policy keeps them",
                f"{maintain} expire",
            )
        )
    if facts.held_by is not None and facts.held_by[0].startswith(PIN_PREFIX):
        branch, since = facts.held_by[0].removeprefix(PIN_PREFIX), facts.held_by[1]
        found.append(
            Finding(
                Light.YELLOW,
                f"history since {since:%Y-%m-%d %H:%M} is kept for branch {branch!r} of the lake, which began then",
                f"floe branches update {branch}, or publish or discard it",
            )
        )
    elif facts.held_by is not None:
        tag, since = facts.held_by
        found.append(
            Finding(
                Light.YELLOW,
                f"history since {since:%Y-%m-%d %H:%M} is kept for a consumer that has not caught up (tag {tag})",
                "materialize that asset, or remove the tag if the asset no longer exists",
            )
        )
    if facts.partitions > 1 and facts.skew >= 10 and facts.bytes >= policy.compact.target_file_size:
        found.append(
            Finding(
                Light.YELLOW,
                f"the largest of {facts.partitions} partitions has {facts.skew:.0f} times the bytes of the median one",
                "partition by another column, or by bucket: IcebergTableManager.evolve_partitions",
            )
        )
    order = [Light.RED, Light.YELLOW, Light.GREEN]
    return sorted(found, key=lambda finding: order.index(finding.light))


def _clock_findings(name: str, facts: TableFacts) -> list[Finding]:
    """Problems with timestamps that a wrong clock left behind."""
    found: list[Finding] = []
    if facts.disorder is not None:
        found.append(
            Finding(
                Light.RED,
                f"Spark cannot load it: {facts.disorder}, because the clock of a writer went back. The next commit "
                f"through Floe repairs it",
                f"floe maintain run --table {name}",
            )
        )
    if facts.stamped_ahead is not None:
        found.append(
            Finding(
                Light.RED,
                f"its latest timestamp is {facts.stamped_ahead:%Y-%m-%d %H:%M} UTC, in the future of this clock: until "
                f"then Spark cannot write to it, new snapshots are stamped after it, and as_of and expiry by age count "
                f"from there",
                "set the clocks of its writers (NTP) and wait, or copy its rows into a new table",
            )
        )
    return found
