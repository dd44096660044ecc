"""The files of a table that is dropped for good: which there are, and that they are gone afterwards."""

from __future__ import annotations

from collections.abc import Iterable

from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.utils.concurrent import ExecutorFactory

from floe_core.errors import FloeStorageError
from floe_core.identifiers import TableIdentifier

__all__ = ["GC_ENABLED", "finish_purge", "is_shared", "refuse_shared"]

GC_ENABLED = "gc.enabled"


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


def finish_purge(io: FileIO, files: Iterable[str], identifier: TableIdentifier | str) -> None:
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
