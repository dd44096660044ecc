"""Deletion of earlier metadata files by a commit: only of the table's own, and only if nothing else uses them.

Each commit writes a metadata file with the whole history, so that they add up to far more than the data of a table with
many small commits. Those that fall off the metadata log (`write.metadata.previous-versions-max`, 100) are deleted if
`write.metadata.delete-after-commit.enabled` is true, which is the default for tables that Floe created.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.utils.properties import property_as_bool

from floe_core.errors import FloeStorageError
from floe_core.identifiers import TableIdentifier
from floe_iceberg.catalog_rows import load_row, previous_locations, table_rows
from floe_iceberg.files.containment import file_keys
from floe_iceberg.files.ownership import is_metadata_file
from floe_iceberg.files.purge import is_shared
from floe_iceberg.files.table_age import CREATED, is_witness

__all__ = ["DELETE_AFTER_COMMIT", "deletable", "dropped_from_log", "refuse_foreign_log", "why_kept"]

DELETE_AFTER_COMMIT = TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED


def _deletes_metadata(metadata: TableMetadata, *, by_default: bool) -> bool:
    return property_as_bool(metadata.properties, DELETE_AFTER_COMMIT, by_default)


def dropped_from_log(base: TableMetadata, metadata: TableMetadata) -> set[str]:
    """The metadata files that a commit removed from the start of the log and that are to be deleted.

    None if `base` is not what was committed on: the handle of a writer may be older, or of a table registered since.
    """
    if is_shared(metadata.properties) or not _deletes_metadata(metadata, by_default=CREATED in metadata.properties):
        return set()
    before = [entry.metadata_file for entry in base.metadata_log]
    kept = [entry.metadata_file for entry in metadata.metadata_log[:-1]]
    dropped = before[: len(before) - len(kept)]
    follows = metadata.metadata_log and metadata.metadata_log[-1].timestamp_ms == base.last_updated_ms
    return set(dropped) - set(kept) if follows and before == [*dropped, *kept] else set()


def deletable(catalog: SqlCatalog, metadata: TableMetadata, files: Iterable[str], *, newest: str | None) -> set[str]:
    """The files that are certainly the table's own metadata, and that no row of the database references.

    The first one stays if nothing else shows when the table began.

    Args:
        newest: The file of `metadata`, if it is known: the row that names it is that of the table itself.
    """
    own = {path for path in files if is_metadata_file(path, metadata) and not is_witness(path, metadata)}
    return own - _referenced(catalog, own, except_row_of=newest)


def why_kept(path: str, metadata: TableMetadata) -> str:
    """Why a metadata file is not `deletable`."""
    if is_metadata_file(path, metadata) and is_witness(path, metadata):
        return "it is the table's first metadata file, which shows when the table began"
    return "it is not certain that it is the table's own earlier metadata"


def _referenced(catalog: SqlCatalog, files: set[str], *, except_row_of: str | None) -> set[str]:
    """Files that a row names as its newest or previous metadata, or that are in the log of another row.

    The logs are read of rows whose newest metadata is in the same folder, or is not in the default folder of its own
    table: a registered copy keeps the log of the original when its metadata goes elsewhere.
    """
    keys = file_keys(files)
    folders = {key.rpartition("/")[0] for key in keys}
    rows = table_rows(catalog)
    named = file_keys({*filter(None, rows.values()), *previous_locations(catalog)})
    used = keys.keys() & named.keys()
    folder_of = {path: key.rpartition("/")[0] for key, paths in named.items() for path in paths}
    for row, location in rows.items():
        if not location or location == except_row_of:
            continue
        folder = folder_of[location]
        if folder not in folders and folder.endswith(f"/{row.name[-1]}/metadata"):
            continue
        try:
            log = load_row(catalog, row).metadata.metadata_log
        except Exception:  # noqa: BLE001 - its references are unknown, so nothing is deleted
            return files
        used |= keys.keys() & file_keys(entry.metadata_file for entry in log).keys()
    return {path for key in used for path in keys[key]}


def refuse_foreign_log(table: Table, identifier: TableIdentifier) -> None:
    """Refuse a table on which a commit by Java would delete a file that is not certainly its own metadata.

    Java itself deletes every file that falls off the log; Floe cannot intervene.
    """
    metadata = table.metadata
    if not _deletes_metadata(metadata, by_default=TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED_DEFAULT):
        return
    log = [entry.metadata_file for entry in metadata.metadata_log]
    foreign = [path for path in log if not is_metadata_file(path, metadata)]
    if isinstance(table.catalog, SqlCatalog) and not foreign:
        # The last entry is the previous version that the table's own row names.
        foreign = sorted(_referenced(table.catalog, set(log[:-1]), except_row_of=table.metadata_location))
    if foreign:
        raise FloeStorageError(
            f"'{identifier}' has {DELETE_AFTER_COMMIT}=true, and its metadata log names {foreign[0]}, which is not an "
            f"earlier metadata file of its own, or is the metadata of another table: a commit by Spark would delete "
            f"it. Nothing was written; set {DELETE_AFTER_COMMIT} to false"
        )
