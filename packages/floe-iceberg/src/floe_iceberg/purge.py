"""The files of a table that is dropped for good: which there are, and that they are gone afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.utils.concurrent import ExecutorFactory

from floe_core.errors import FloeStorageError
from floe_core.identifiers import TableIdentifier

__all__ = ["finish_purge", "reached_files", "refuse_shared"]

T = TypeVar("T")

_GC_ENABLED = "gc.enabled"


def refuse_shared(table: Table, identifier: TableIdentifier) -> None:
    """Iceberg's own sign that the files of this table may belong to another one too."""
    if table.properties.get(_GC_ENABLED, "true").lower() == "false":
        raise FloeStorageError(
            f"table '{identifier}' says {_GC_ENABLED}=false: its files may be those of another table too, so nothing "
            f"was dropped or deleted. Drop it without purge, or set {_GC_ENABLED} to true if you are sure"
        )


def reached_files(table: Table) -> set[str]:
    """Every file that the table's metadata leads to: from all snapshots, and so from all branches and tags.

    The earlier metadata files that it lists are followed as well, because PyIceberg expires snapshots without deleting
    their files. A file that none of them names stays: whoever put it there may need it.
    """
    io = table.io
    reached = {table.metadata_location}
    _follow(io, table.metadata, reached, may_be_gone=False)
    for entry in table.metadata.metadata_log:
        reached.add(entry.metadata_file)
        with suppress(FileNotFoundError):
            earlier = FromInputFile.table_metadata(io.new_input(entry.metadata_file))
            _follow(io, earlier, reached, may_be_gone=True)
    return reached


def _follow(io: FileIO, metadata: TableMetadata, reached: set[str], *, may_be_gone: bool) -> None:
    reached.update(one.statistics_path for one in (*metadata.statistics, *metadata.partition_statistics))
    manifests: dict[str, ManifestFile] = {}
    for snapshot in (one for one in metadata.snapshots if one.manifest_list not in reached):
        found = _read(partial(snapshot.manifests, io), may_be_gone=may_be_gone)
        manifests.update({one.manifest_path: one for one in found if one.manifest_path not in reached})
        reached.add(snapshot.manifest_list)
    reached.update(manifests)

    def paths(manifest: ManifestFile) -> list[str]:
        # The entries that a commit removed are files as long as the snapshot before it is not expired.
        entries = _read(partial(manifest.fetch_manifest_entry, io, discard_deleted=False), may_be_gone=may_be_gone)
        return [entry.data_file.file_path for entry in entries]

    for found_paths in ExecutorFactory.get_or_create().map(paths, manifests.values()):
        reached.update(found_paths)


def _read(read: Callable[[], list[T]], *, may_be_gone: bool) -> list[T]:
    try:
        return read()
    except FileNotFoundError:
        if may_be_gone:
            return []
        raise


def finish_purge(io: FileIO, files: Iterable[str], identifier: TableIdentifier) -> None:
    """Delete what the catalog left of the files, look again, and raise if some are still there."""
    paths = sorted(files)
    left = {path: reason for path, reason in zip(paths, _in_parallel(io, paths), strict=True) if reason}
    if left:
        path, reason = next(iter(left.items()))
        raise FloeStorageError(
            f"table '{identifier}' is dropped, but {len(left)} of its {len(paths)} files are still there, such as "
            f"{path}: {reason}. Nothing refers to them any more: delete them by hand"
        )


def _in_parallel(io: FileIO, paths: list[str]) -> Iterable[str]:
    """For each path, why its file is still there; empty if it is gone."""

    def delete(path: str) -> str:
        try:
            if not io.new_input(path).exists():
                return ""
            io.delete(path)
        except FileNotFoundError:
            return ""
        except Exception as exc:  # noqa: BLE001 - credentials that cannot be renewed, for example: it is told
            return str(exc) or type(exc).__name__
        return "it was deleted and is there again" if io.new_input(path).exists() else ""

    return ExecutorFactory.get_or_create().map(delete, paths)
