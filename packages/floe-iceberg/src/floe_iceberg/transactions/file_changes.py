"""The data files that snapshots added and removed, and what of that is still so at the head of a branch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntryStatus
from pyiceberg.table.snapshots import Snapshot

from floe_iceberg.partition_values import partition_key
from floe_iceberg.snapshots import DATA_ROWS, UPSERTS, WRITE_ID, is_rewrite, summary_of

__all__ = ["Conflict", "FileChanges", "NetChange", "carries_rows", "changes_of", "is_rewrite"]

Files = dict[str, DataFile]


@dataclass(frozen=True)
class FileChanges:
    """The data files that one snapshot added and removed; `deletes` if it added or removed delete files."""

    added: Files
    removed: Files
    deletes: bool


def changes_of(snapshot: Snapshot, io: FileIO) -> FileChanges:
    """What a snapshot changed, by the entries of its own manifests."""
    added: Files = {}
    removed: Files = {}
    deletes = False
    for manifest in snapshot.manifests(io):
        if manifest.added_snapshot_id != snapshot.snapshot_id:
            continue
        for entry in manifest.fetch_manifest_entry(io, discard_deleted=False):
            if entry.status == ManifestEntryStatus.EXISTING or entry.snapshot_id != snapshot.snapshot_id:
                continue
            if manifest.content == ManifestContent.DELETES:
                deletes = True
            elif entry.status == ManifestEntryStatus.ADDED:
                added[entry.data_file.file_path] = entry.data_file
            else:
                removed[entry.data_file.file_path] = entry.data_file
    return FileChanges(added, removed, deletes)


def carries_rows(snapshot: Snapshot) -> bool:
    """May the files that the snapshot added hold rows of the files that it removed?"""
    summary = summary_of(snapshot)
    return is_rewrite(snapshot) or DATA_ROWS in summary or UPSERTS in summary or WRITE_ID not in summary


@dataclass(frozen=True)
class Conflict:
    """A later snapshot because of which the changes cannot be taken back alone."""

    snapshot: Snapshot
    reason: str


@dataclass
class NetChange:
    """The files that the reverted snapshots added and that are still there, and those that they removed."""

    added: Files = field(default_factory=dict)
    removed: Files = field(default_factory=dict)
    conflicts: list[Conflict] = field(default_factory=list)
    has_deletes: bool = False

    def revert(self, changes: FileChanges) -> None:
        self.has_deletes = self.has_deletes or changes.deletes
        for path, file in changes.removed.items():
            if path in self.added:
                del self.added[path]
            else:
                self.removed[path] = file
        for path, file in changes.added.items():
            if path in self.removed:
                del self.removed[path]
            else:
                self.added[path] = file

    def meets(self, later: Snapshot, changes: FileChanges) -> None:
        """Take a later snapshot, which stays, into account."""
        touched = self.added.keys() & changes.removed.keys()
        if is_rewrite(later):
            if touched and changes.removed.keys() <= self.added.keys():
                self.added = {path: file for path, file in self.added.items() if path not in touched} | changes.added
            elif touched:
                self.conflicts.append(Conflict(later, "it compacted these rows together with others"))
        elif touched:
            self.conflicts.append(Conflict(later, "it replaced these rows"))
        elif changes.deletes:
            self.conflicts.append(Conflict(later, "it deleted rows by delete files, which may be these"))
        elif self.removed and UPSERTS in summary_of(later):
            self.conflicts.append(Conflict(later, "it found rows by key, and some of them may be among these"))
        elif self.removed and _partitions(changes.added, changes.removed) & _partitions(self.added, self.removed):
            self.conflicts.append(Conflict(later, "it wrote to the same slices"))


def _partitions(*files: Mapping[str, DataFile]) -> set[tuple[object, ...]]:
    return {(file.spec_id, partition_key(file.partition)) for file in _each(files)}


def _each(files: Iterable[Mapping[str, DataFile]]) -> Iterator[DataFile]:
    for by_path in files:
        yield from by_path.values()
