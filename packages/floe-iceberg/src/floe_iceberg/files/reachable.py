"""Which files a table references."""

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
from floe_iceberg.files.ownership import is_metadata_file
from floe_iceberg.files.unreadable import is_lasting, is_missing

__all__ = ["FileKind", "files_by_kind", "present_files", "reached_files"]

T = TypeVar("T")
_Skips = Callable[[Exception], bool]


class FileKind(str, Enum):
    """The role of a file in a table."""

    METADATA = "metadata"
    STATISTICS = "statistics"
    MANIFEST_LIST = "manifest list"
    MANIFEST = "manifest"
    DELETES = "deletes"
    DATA = "data"


_Entries = dict[str, tuple[str, ...]]
_Reached = dict[str, FileKind]


def present_files(table: Table, *, skip_unreadable: bool = False, known: _Entries | None = None) -> set[str]:
    """Every file that is part of the table: of all its snapshots, and so of all branches and tags.

    Args:
        skip_unreadable: Leave out files that only a damaged, missing or hidden manifest or manifest list references,
            instead of raising.
        known: The files of manifests that were read before; those that are read now are added.
    """
    return set(files_by_kind(table, skip_unreadable=skip_unreadable, known=known))


def files_by_kind(
    table: Table,
    *,
    skip_unreadable: bool = False,
    known: _Entries | None = None,
) -> dict[str, FileKind]:
    """The files that are part of the table; see `present_files`."""
    metadata = table.metadata
    earlier = (entry.metadata_file for entry in metadata.metadata_log)
    reached = dict.fromkeys((table.metadata_location, *earlier), FileKind.METADATA)
    skips = is_lasting if skip_unreadable else _skip_none
    _follow(table.io, metadata, reached, skips=skips, removed=False, known=known)
    return reached


def _skip_none(_exc: Exception) -> bool:
    return False


def reached_files(table: Table) -> set[str]:
    """Every file that is or was part of the table, by its metadata and the earlier metadata files that it lists.

    PyIceberg expires snapshots without deleting their files. A file that none of them references stays: its owner may
    need it. The log can name any address, so only the table's own metadata files are opened.
    """
    io = table.io
    reached = {table.metadata_location: FileKind.METADATA}
    _follow(io, table.metadata, reached, skips=_skip_none)
    for entry in table.metadata.metadata_log:
        reached[entry.metadata_file] = FileKind.METADATA
        if is_metadata_file(entry.metadata_file, table.metadata):
            with suppress(FileNotFoundError):
                _follow(io, _metadata_in(io, entry.metadata_file), reached, skips=is_missing)
    return set(reached)


def _metadata_in(io: FileIO, path: str) -> TableMetadata:
    try:
        return FromInputFile.table_metadata(io.new_input(path))
    except (FileNotFoundError, PermissionError):
        raise
    except (OSError, DamagedFileError) as exc:
        # The remedy in a DamagedFileError applies to the newest metadata of a table.
        reason = "it is damaged" if isinstance(exc, DamagedFileError) else exc
        raise FloeStorageError(
            f"the earlier metadata file {path} cannot be read, so the files that it references are unknown: {reason}. "
            f"Nothing was dropped; drop the table without purge, or repair or remove that file"
        ) from exc


def _follow(
    io: FileIO,
    metadata: TableMetadata,
    reached: _Reached,
    *,
    skips: _Skips,
    removed: bool = True,
    known: _Entries | None = None,
) -> None:
    statistics = (file.statistics_path for file in (*metadata.statistics, *metadata.partition_statistics))
    reached.update(dict.fromkeys(statistics, FileKind.STATISTICS))
    manifests: dict[str, ManifestFile] = {}
    for snapshot in (snapshot for snapshot in metadata.snapshots if snapshot.manifest_list not in reached):
        listed = _read(partial(snapshot.manifests, io), skips=skips)
        manifests.update({file.manifest_path: file for file in listed if file.manifest_path not in reached})
        reached[snapshot.manifest_list] = FileKind.MANIFEST_LIST
    reached.update(dict.fromkeys(manifests, FileKind.MANIFEST))
    entries = known if known is not None else {}

    def paths(manifest: ManifestFile) -> tuple[str, ...]:
        if manifest.manifest_path in entries:
            return entries[manifest.manifest_path]
        # The files of entries that a commit removed exist until the snapshot before it expires.
        present = _read(partial(manifest.fetch_manifest_entry, io, discard_deleted=not removed), skips=skips)
        return tuple(entry.data_file.file_path for entry in present)

    for manifest, files in zip(
        manifests.values(), ExecutorFactory.get_or_create().map(paths, manifests.values()), strict=True
    ):
        kind = FileKind.DELETES if manifest.content is ManifestContent.DELETES else FileKind.DATA
        reached.update(dict.fromkeys(files, kind))
        if known is not None:
            known[manifest.manifest_path] = files


def _read(read: Callable[[], list[T]], *, skips: _Skips) -> list[T]:
    try:
        return read()
    except Exception as exc:
        if skips(exc):
            return []
        raise
