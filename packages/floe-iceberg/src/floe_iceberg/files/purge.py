"""Purge: which files of a dropped table are deleted, and the check that they are gone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.utils.concurrent import ExecutorFactory

from floe_core.errors import ConcurrencyConflictError, FloeStorageError
from floe_core.identifiers import TableIdentifier
from floe_core.maintenance import KeptFile
from floe_core.observability import warn
from floe_iceberg.files.other_tables import Neighbours
from floe_iceberg.files.ownership import Belongings, Homes
from floe_iceberg.files.reachable import reached_files

__all__ = [
    "GC_ENABLED",
    "Purge",
    "finish_purge",
    "is_shared",
    "plan_purge",
    "refuse_changed",
    "refuse_shared",
    "report_kept",
    "undeleted",
]

GC_ENABLED = "gc.enabled"
_REPORTED = 20  # files of one table in the log


def is_shared(properties: Mapping[str, str]) -> bool:
    """Does gc.enabled mark files of the table as possibly shared with another one?"""
    return properties.get(GC_ENABLED, "true").strip().lower() != "true"  # as Iceberg reads it


def refuse_shared(table: Table, identifier: TableIdentifier) -> None:
    """Refuse gc.enabled=false, Iceberg's mark that files of this table may belong to another one too."""
    if is_shared(table.properties):
        raise FloeStorageError(
            f"table '{identifier}' has {GC_ENABLED}={table.properties[GC_ENABLED]}: its files may be shared with "
            f"another table, so nothing was dropped or deleted. Drop it without purge, or set {GC_ENABLED} to true if "
            f"no other table uses them"
        )


def refuse_changed(table: Table, identifier: TableIdentifier, expected_metadata: str | None) -> None:
    """Refuse to drop a table that was changed since the decision to do so."""
    if expected_metadata is not None and table.metadata_location != expected_metadata:
        raise ConcurrencyConflictError(
            f"table '{identifier}' was changed in the meantime, so it was not dropped: check what was written, then "
            f"decide again"
        )


@dataclass(frozen=True)
class Purge:
    """The files that are deleted with a table, and those that its metadata references but that stay."""

    files: frozenset[str]
    kept: tuple[KeptFile, ...]


def plan_purge(table: Table, identifier: TableIdentifier, homes: Homes, neighbours: Neighbours) -> Purge:
    """Sort the files that a table's metadata references: its own, and those that may belong to others."""
    files = reached_files(table)
    kept = Belongings(table, homes, neighbours.references(identifier, files)).kept(files)
    return Purge(frozenset(files) - {file.path for file in kept}, kept)


def report_kept(identifier: TableIdentifier, kept: Sequence[KeptFile]) -> None:
    """Log the files that a dropped table leaves behind."""
    for file in kept[:_REPORTED]:
        warn("not_removed", table=str(identifier), path=file.path, reason=file.reason)
    if len(kept) > _REPORTED:
        warn("not_removed", table=str(identifier), more_files=len(kept) - _REPORTED)


def finish_purge(io: FileIO, files: Iterable[str], identifier: TableIdentifier | str) -> None:
    """Delete the files that the catalog left, check again, and raise if some still exist."""
    paths = sorted(files)
    left = undeleted(io, paths)
    if left:
        path, reason = next(iter(left.items()))
        raise FloeStorageError(
            f"table '{identifier}' is dropped, but {len(left)} of its {len(paths)} files are still there, such as "
            f"{path}: {reason}. Nothing refers to them any more: delete them by hand"
        )


def undeleted(io: FileIO, files: Iterable[str]) -> dict[str, str]:
    """Delete files; returns those that still exist, with the reason."""
    paths = sorted(files)
    return {path: reason for path, reason in zip(paths, _delete_in_parallel(io, paths), strict=True) if reason}


def _delete_in_parallel(io: FileIO, paths: list[str]) -> Iterable[str]:
    """For each path, why its file still exists; empty if it is gone."""

    def delete(path: str) -> str:
        try:
            if not io.new_input(path).exists():
                return ""
            io.delete(path)
            return "it was deleted and exists again" if io.new_input(path).exists() else ""
        except FileNotFoundError:
            return ""
        except Exception as exc:  # noqa: BLE001 - credentials that cannot be renewed, for example: reported
            return str(exc) or type(exc).__name__

    return ExecutorFactory.get_or_create().map(delete, paths)
