"""The files of a table that is dropped for good: which there are, and that they are gone afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.utils.concurrent import ExecutorFactory

from floe_core.errors import FloeStorageError
from floe_core.identifiers import TableIdentifier
from floe_core.maintenance import KeptFile
from floe_core.telemetry import warn
from floe_iceberg.belongings import Belongings, Homes
from floe_iceberg.neighbours import Neighbours
from floe_iceberg.reachable import reached_files

__all__ = [
    "GC_ENABLED",
    "Purge",
    "finish_purge",
    "is_shared",
    "plan_purge",
    "refuse_shared",
    "report_kept",
    "undeleted",
]

GC_ENABLED = "gc.enabled"
_REPORTED = 20  # files of one table in the log


def is_shared(table: Table) -> bool:
    """Does the table say that its files may belong to another one too?"""
    return table.properties.get(GC_ENABLED, "true").strip().lower() != "true"  # as Iceberg reads it


def refuse_shared(table: Table, identifier: TableIdentifier) -> None:
    """Iceberg's own sign that the files of this table may belong to another one too."""
    if is_shared(table):
        raise FloeStorageError(
            f"table '{identifier}' says {GC_ENABLED}={table.properties[GC_ENABLED]}: its files may be those of another "
            f"table too, so nothing was dropped or deleted. Drop it without purge, or set {GC_ENABLED} to true if you "
            f"are sure"
        )


@dataclass(frozen=True)
class Purge:
    """What goes with a table, and what its metadata leads to but stays."""

    files: frozenset[str]
    kept: tuple[KeptFile, ...]


def plan_purge(table: Table, identifier: TableIdentifier, homes: Homes, neighbours: Neighbours) -> Purge:
    """Sort the files that a table's metadata leads to: its own, and those that may be of others."""
    files = reached_files(table)
    kept = Belongings(table, homes, neighbours.references(identifier, files)).kept(files)
    return Purge(frozenset(files) - {one.path for one in kept}, kept)


def report_kept(identifier: TableIdentifier, kept: Sequence[KeptFile]) -> None:
    """Log what a dropped table leaves behind."""
    for one in kept[:_REPORTED]:
        warn("not_removed", table=str(identifier), path=one.path, reason=one.reason)
    if len(kept) > _REPORTED:
        warn("not_removed", table=str(identifier), more_files=len(kept) - _REPORTED)


def finish_purge(io: FileIO, files: Iterable[str], identifier: TableIdentifier | str) -> None:
    """Delete what the catalog left of the files, look again, and raise if some are still there."""
    paths = sorted(files)
    left = undeleted(io, paths)
    if left:
        path, reason = next(iter(left.items()))
        raise FloeStorageError(
            f"table '{identifier}' is dropped, but {len(left)} of its {len(paths)} files are still there, such as "
            f"{path}: {reason}. Nothing refers to them any more: delete them by hand"
        )


def undeleted(io: FileIO, files: Iterable[str]) -> dict[str, str]:
    """Delete files; returns those that are still there, with the reason."""
    paths = sorted(files)
    return {path: reason for path, reason in zip(paths, _in_parallel(io, paths), strict=True) if reason}


def _in_parallel(io: FileIO, paths: list[str]) -> Iterable[str]:
    """For each path, why its file is still there; empty if it is gone."""

    def delete(path: str) -> str:
        try:
            if not io.new_input(path).exists():
                return ""
            io.delete(path)
            return "it was deleted and is there again" if io.new_input(path).exists() else ""
        except FileNotFoundError:
            return ""
        except Exception as exc:  # noqa: BLE001 - credentials that cannot be renewed, for example: it is told
            return str(exc) or type(exc).__name__

    return ExecutorFactory.get_or_create().map(delete, paths)
