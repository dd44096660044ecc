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
from floe_iceberg.catalog_rows import load_row, table_rows
from floe_iceberg.files.containment import file_keys
from floe_iceberg.files.ownership import is_metadata_file
from floe_iceberg.files.table_age import CREATED, is_witness

__all__ = ["DELETE_AFTER_COMMIT", "deletable", "dropped_from_log", "refuse_foreign_log", "why_kept"]

DELETE_AFTER_COMMIT = TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED


def _deletes_metadata(metadata: TableMetadata, *, by_default: bool) -> bool:
    return property_as_bool(metadata.properties, DELETE_AFTER_COMMIT, by_default)


def dropped_from_log(base: TableMetadata, metadata: TableMetadata) -> set[str]:
    """The metadata files that a commit removed from the log and that are to be deleted."""
    if not _deletes_metadata(metadata, by_default=CREATED in metadata.properties):
        return set()
    return {entry.metadata_file for entry in base.metadata_log} - {
        entry.metadata_file for entry in metadata.metadata_log
    }


def deletable(catalog: SqlCatalog, metadata: TableMetadata, files: Iterable[str]) -> set[str]:
    """The files that are certainly the table's own metadata, and that no row of the database references.

    The first one stays if nothing else shows when the table began.
    """
    own = {path for path in files if is_metadata_file(path, metadata) and not is_witness(path, metadata)}
    return own - _referenced(catalog, own)


def why_kept(path: str, metadata: TableMetadata) -> str:
    """Why a metadata file is not `deletable`."""
    if is_metadata_file(path, metadata) and is_witness(path, metadata):
        return "it is the table's first metadata file, which shows when the table began"
    return "it is not certain that it is the table's own earlier metadata"


def _referenced(catalog: SqlCatalog, files: set[str]) -> set[str]:
    """Files that are the newest metadata of a row, or in the log of another table in the same folder."""
    keys = file_keys(files)
    folders = {key.rpartition("/")[0] for key in keys}
    rows = table_rows(catalog)
    newest = file_keys({location for location in rows.values() if location})
    used = keys.keys() & newest.keys()
    near = {path for key, paths in newest.items() if key.rpartition("/")[0] in folders for path in paths}
    beside = [row for row, location in rows.items() if location in near]
    if len(beside) > 1:  # one is the table itself
        for row in beside:
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
        keys = file_keys(set(log))
        newest = {location for location in table_rows(table.catalog).values() if location}
        others = file_keys(newest).keys() & keys.keys()
        foreign = [path for key in others for path in keys[key]]
    if foreign:
        raise FloeStorageError(
            f"'{identifier}' has {DELETE_AFTER_COMMIT}=true, and its metadata log names {foreign[0]}, which is not an "
            f"earlier metadata file of its own, or is the metadata of another table: a commit by Spark would delete "
            f"it. Nothing was written; set {DELETE_AFTER_COMMIT} to false"
        )
