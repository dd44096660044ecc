"""Which files a table leads to."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from functools import partial
from typing import TypeVar

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.utils.concurrent import ExecutorFactory

from floe_core.errors import DamagedFileError, FloeStorageError
from floe_iceberg.belongings import is_metadata_file

__all__ = ["FileKind", "files_by_kind", "present_files", "reached_files"]

T = TypeVar("T")
_Skipped = tuple[type[Exception], ...]


class FileKind(str, Enum):
    """What a file is to a table."""

    METADATA = "metadata"
    STATISTICS = "statistics"
    MANIFEST_LIST = "manifest list"
    MANIFEST = "manifest"
    DELETES = "deletes"
    DATA = "data"


_Entries = dict[str, tuple[str, ...]]
_Reached = dict[str, FileKind]


def present_files(table: Table, *, skip_damaged: bool = False, known: _Entries | None = None) -> set[str]:
    """Every file that is part of the table: of all its snapshots, and so of all branches and tags.

    Args:
        skip_damaged: Leave out what only a damaged manifest or manifest list leads to, instead of raising.
        known: The files of manifests that were read before; those that are read now are added.
    """
    return set(files_by_kind(table, skip_damaged=skip_damaged, known=known))


def files_by_kind(
    table: Table,
    *,
    skip_damaged: bool = False,
    known: _Entries | None = None,
) -> dict[str, FileKind]:
    """The files that are part of the table; see `present_files`."""
    metadata = table.metadata
    earlier = (entry.metadata_file for entry in metadata.metadata_log)
    reached = dict.fromkeys((table.metadata_location, *earlier), FileKind.METADATA)
    skipped = (DamagedFileError,) if skip_damaged else ()
    _follow(table.io, metadata, reached, skipped=skipped, removed=False, known=known)
    return reached


def reached_files(table: Table) -> set[str]:
    """Every file that was part of the table as far as its metadata tells, and the earlier metadata files that it lists.

    PyIceberg expires snapshots without deleting their files. A file that none of them names stays: whoever put it
    there may need it. The log can name any address, so only the table's own metadata files are opened.
    """
    io = table.io
    reached = {table.metadata_location: FileKind.METADATA}
    _follow(io, table.metadata, reached, skipped=())
    for entry in table.metadata.metadata_log:
        reached[entry.metadata_file] = FileKind.METADATA
        if is_metadata_file(entry.metadata_file, table.metadata):
            with suppress(FileNotFoundError):
                _follow(io, _metadata_in(io, entry.metadata_file), reached, skipped=(FileNotFoundError,))
    return set(reached)


def _metadata_in(io: FileIO, path: str) -> TableMetadata:
    try:
        return FromInputFile.table_metadata(io.new_input(path))
    except (FileNotFoundError, PermissionError):
        raise
    except OSError as exc:
        raise FloeStorageError(
            f"the earlier metadata file {path} cannot be read, so the files that it leads to are unknown: {exc}. "
            f"Nothing was dropped; drop the table without purge, or repair or remove that file"
        ) from exc


def _follow(
    io: FileIO,
    metadata: TableMetadata,
    reached: _Reached,
    *,
    skipped: _Skipped,
    removed: bool = True,
    known: _Entries | None = None,
) -> None:
    statistics = (one.statistics_path for one in (*metadata.statistics, *metadata.partition_statistics))
    reached.update(dict.fromkeys(statistics, FileKind.STATISTICS))
    manifests: dict[str, ManifestFile] = {}
    for snapshot in (one for one in metadata.snapshots if one.manifest_list not in reached):
        found = _read(partial(snapshot.manifests, io), skipped=skipped)
        manifests.update({one.manifest_path: one for one in found if one.manifest_path not in reached})
        reached[snapshot.manifest_list] = FileKind.MANIFEST_LIST
    reached.update(dict.fromkeys(manifests, FileKind.MANIFEST))
    entries = known if known is not None else {}

    def paths(manifest: ManifestFile) -> tuple[str, ...]:
        if manifest.manifest_path in entries:
            return entries[manifest.manifest_path]
        # The entries that a commit removed are files as long as the snapshot before it is not expired.
        found = _read(partial(manifest.fetch_manifest_entry, io, discard_deleted=not removed), skipped=skipped)
        return tuple(entry.data_file.file_path for entry in found)

    for manifest, files in zip(
        manifests.values(), ExecutorFactory.get_or_create().map(paths, manifests.values()), strict=True
    ):
        kind = FileKind.DELETES if manifest.content is ManifestContent.DELETES else FileKind.DATA
        reached.update(dict.fromkeys(files, kind))
        if known is not None:
            known[manifest.manifest_path] = files


def _read(read: Callable[[], list[T]], *, skipped: _Skipped) -> list[T]:
    try:
        return read()
    except skipped:
        return []
