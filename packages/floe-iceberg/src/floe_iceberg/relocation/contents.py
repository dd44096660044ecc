"""What the metadata of a table references: files with their recorded sizes, and the rows of each snapshot."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.manifest import DataFileContent, ManifestFile
from pyiceberg.table.metadata import TableMetadata

from floe_iceberg.files.former_folders import local_address

__all__ = ["Contents", "FilesElsewhere", "SnapshotRows", "contents_of", "file_size"]


@dataclass(frozen=True)
class SnapshotRows:
    """The live files of a snapshot and their rows, of data and of deletes."""

    files: int = 0
    rows: int = 0
    delete_files: int = 0
    deletes: int = 0

    def __add__(self, other: SnapshotRows) -> SnapshotRows:
        return SnapshotRows(
            self.files + other.files,
            self.rows + other.rows,
            self.delete_files + other.delete_files,
            self.deletes + other.deletes,
        )


@dataclass
class Contents:
    """The files that a table references, by their recorded addresses."""

    rows: dict[int, SnapshotRows] = field(default_factory=dict)  # by snapshot
    manifest_lists: dict[str, int] = field(default_factory=dict)  # the snapshot of each
    manifests: dict[str, int] = field(default_factory=dict)  # the size of each
    files: dict[str, int] = field(default_factory=dict)
    position_deletes: dict[str, str] = field(default_factory=dict)  # the format of each
    statistics: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)  # files that are missing, or not of the recorded size

    def addresses(self) -> Iterator[str]:
        yield from self.manifest_lists
        yield from self.manifests
        yield from self.files
        yield from self.statistics


class FilesElsewhere(PyArrowFileIO):
    """Reads files by recorded addresses that are no longer theirs."""

    def __init__(self, where: Callable[[str], str]) -> None:
        super().__init__()
        self._where = where

    def new_input(self, location: str) -> PyArrowFile:
        return super().new_input(self._where(location))


def contents_of(metadata: TableMetadata, where: Callable[[str], str]) -> Contents:
    """Read the manifests of all snapshots. Missing files are problems; damaged manifests are an error.

    Args:
        where: The address at which the file of a recorded address is.
    """
    contents = Contents()
    for file in (*metadata.statistics, *metadata.partition_statistics):
        contents.statistics[file.statistics_path] = file.file_size_in_bytes
    io = FilesElsewhere(where)
    by_manifest: dict[str, SnapshotRows] = {}
    for snapshot in metadata.snapshots:
        contents.manifest_lists[snapshot.manifest_list] = snapshot.snapshot_id
        if file_size(where(snapshot.manifest_list)) is None:
            contents.problems.append(_problem(where(snapshot.manifest_list), None))
            continue
        total = SnapshotRows()
        for manifest in snapshot.manifests(io):
            path = manifest.manifest_path
            if path not in by_manifest:
                contents.manifests[path] = manifest.manifest_length
                readable = file_size(where(path)) == manifest.manifest_length
                by_manifest[path] = _read(manifest, io, contents) if readable else SnapshotRows()
            total += by_manifest[path]
        contents.rows[snapshot.snapshot_id] = total
    for address, size in (contents.manifests | contents.files | contents.statistics).items():
        if file_size(where(address)) != size:
            contents.problems.append(_problem(where(address), size))
    return contents


def _problem(address: str, recorded: int | None) -> str:
    size = file_size(address)
    if size is None:
        return f"missing: {address}"
    return f"{address} has {size:,} bytes instead of the recorded {recorded:,}"


def _read(manifest: ManifestFile, io: FilesElsewhere, contents: Contents) -> SnapshotRows:
    """Add the live files of a manifest to the contents. Files of removed entries may be gone."""
    total = SnapshotRows()
    for entry in manifest.fetch_manifest_entry(io):
        file = entry.data_file
        contents.files[file.file_path] = file.file_size_in_bytes
        if file.content is DataFileContent.POSITION_DELETES:
            contents.position_deletes[file.file_path] = file.file_format.value
        if file.content is DataFileContent.DATA:
            total += SnapshotRows(files=1, rows=file.record_count)
        else:
            total += SnapshotRows(delete_files=1, deletes=file.record_count)
    return total


def file_size(address: str) -> int | None:
    """The size of a file on this machine; None if there is no such file."""
    path = local_address(address)
    try:
        return None if path is None else os.stat(path).st_size  # noqa: PTH116 - text, as the other addresses
    except OSError:
        return None
