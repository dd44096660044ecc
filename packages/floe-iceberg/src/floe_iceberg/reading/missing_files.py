"""Explain a file that is missing for a scan: the table may have changed after the scan was made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from floe_core.errors import ConcurrencyConflictError, FloeStorageError, TableNotFoundError
from floe_iceberg.errors import translated
from floe_iceberg.files.unreadable import is_missing

__all__ = ["reading_files"]


@contextmanager
def reading_files(
    name: str, metadata: TableMetadata, snapshot_id: int | None, load: Callable[[], Table]
) -> Iterator[None]:
    """Translate the errors of a scan of this snapshot; `load` loads the table as it is now.

    A scan keeps the metadata it was made with, so files that were deleted since then are missing for it alone.
    """
    try:
        with translated("scan", name):
            yield
    except FloeStorageError as exc:
        if not is_missing(exc.__cause__):
            raise
        raise _explained(exc, name, metadata, snapshot_id, load) from exc.__cause__
    except OSError as exc:
        if not is_missing(exc):
            raise
        raise _explained(exc, name, metadata, snapshot_id, load) from exc


def _explained(
    exc: Exception, name: str, metadata: TableMetadata, snapshot_id: int | None, load: Callable[[], Table]
) -> Exception:
    try:
        now = load()
    except NoSuchTableError:
        return TableNotFoundError(f"Table '{name}' was dropped after this scan was made, and its files were deleted")
    except Exception:  # noqa: BLE001 - the missing file is the failure to report
        return exc
    if now.metadata.table_uuid != metadata.table_uuid:
        return ConcurrencyConflictError(
            f"'{name}' was dropped and created again after this scan was made; make the scan again"
        )
    if snapshot_id is not None and now.snapshot_by_id(snapshot_id) is None:
        return FloeStorageError(
            f"snapshot {snapshot_id} of '{name}' expired after this scan was made, and its files were deleted; make "
            f"the scan again. To keep a snapshot while it is read, tag it: create_tag"
        )
    return exc
