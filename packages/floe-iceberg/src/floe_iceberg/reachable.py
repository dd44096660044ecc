"""Which files a table leads to."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.utils.concurrent import ExecutorFactory

from floe_core.errors import DamagedFileError

__all__ = ["present_files", "reached_files"]

T = TypeVar("T")
_Skipped = tuple[type[Exception], ...]


def present_files(table: Table, *, skip_damaged: bool = False) -> set[str]:
    """Every file that is part of the table: of all its snapshots, and so of all branches and tags.

    Args:
        skip_damaged: Leave out what only a damaged manifest or manifest list leads to, instead of raising.
    """
    reached = {table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)}
    skipped = (DamagedFileError,) if skip_damaged else ()
    _follow(table.io, table.metadata, reached, skipped=skipped, removed=False)
    return reached


def reached_files(table: Table) -> set[str]:
    """Every file that was part of the table as far as its metadata tells, and the earlier metadata files that it lists.

    PyIceberg expires snapshots without deleting their files. A file that none of them names stays: whoever put it
    there may need it.
    """
    io = table.io
    reached = {table.metadata_location}
    _follow(io, table.metadata, reached, skipped=())
    for entry in table.metadata.metadata_log:
        reached.add(entry.metadata_file)
        with suppress(FileNotFoundError):
            earlier = FromInputFile.table_metadata(io.new_input(entry.metadata_file))
            _follow(io, earlier, reached, skipped=(FileNotFoundError,))
    return reached


def _follow(io: FileIO, metadata: TableMetadata, reached: set[str], *, skipped: _Skipped, removed: bool = True) -> None:
    reached.update(one.statistics_path for one in (*metadata.statistics, *metadata.partition_statistics))
    manifests: dict[str, ManifestFile] = {}
    for snapshot in (one for one in metadata.snapshots if one.manifest_list not in reached):
        found = _read(partial(snapshot.manifests, io), skipped=skipped)
        manifests.update({one.manifest_path: one for one in found if one.manifest_path not in reached})
        reached.add(snapshot.manifest_list)
    reached.update(manifests)

    def paths(manifest: ManifestFile) -> list[str]:
        # The entries that a commit removed are files as long as the snapshot before it is not expired.
        entries = _read(partial(manifest.fetch_manifest_entry, io, discard_deleted=not removed), skipped=skipped)
        return [entry.data_file.file_path for entry in entries]

    for found_paths in ExecutorFactory.get_or_create().map(paths, manifests.values()):
        reached.update(found_paths)


def _read(read: Callable[[], list[T]], *, skipped: _Skipped) -> list[T]:
    try:
        return read()
    except skipped:
        return []
