"""Earlier metadata files, which a commit deletes where the table asks for it: only its own that nothing else uses."""

from __future__ import annotations

from collections.abc import Iterable

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.utils.properties import property_as_bool

from floe_core.errors import FloeStorageError
from floe_core.identifiers import TableIdentifier
from floe_iceberg.beginnings import is_witness
from floe_iceberg.belongings import is_metadata_file
from floe_iceberg.catalog_rows import load_row, table_rows
from floe_iceberg.containment import file_key, file_keys

__all__ = ["deletable", "dropped_from_log", "refuse_foreign_log"]

_ENABLED = TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED


def _deletes_metadata(metadata: TableMetadata) -> bool:
    return property_as_bool(metadata.properties, _ENABLED, TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED_DEFAULT)


def dropped_from_log(base: TableMetadata, metadata: TableMetadata) -> set[str]:
    """The metadata files that a commit took off the log and that the table wants deleted."""
    if not _deletes_metadata(metadata):
        return set()
    return {one.metadata_file for one in base.metadata_log} - {one.metadata_file for one in metadata.metadata_log}


def deletable(catalog: SqlCatalog, metadata: TableMetadata, files: Iterable[str]) -> set[str]:
    """Those that are certainly the table's own metadata, and that no row of the database refers to.

    The first one stays where nothing else shows when the table began.
    """
    own = {path for path in files if is_metadata_file(path, metadata) and not is_witness(path, metadata)}
    return own - _referenced(catalog, own)


def _referenced(catalog: SqlCatalog, files: set[str]) -> set[str]:
    """Files that are the newest metadata of a row, or in the log of another table in the same folder."""
    keys = file_keys(files)
    folders = {key.rpartition("/")[0] for key in keys}
    rows = {row: file_key(location) for row, location in table_rows(catalog).items() if location}
    used = keys.keys() & set(rows.values())
    beside = [row for row, key in rows.items() if key.rpartition("/")[0] in folders]
    if len(beside) > 1:  # one is the table itself
        for row in beside:
            try:
                log = load_row(catalog, row).metadata.metadata_log
            except Exception:  # noqa: BLE001 - what it refers to is unknown, so nothing is deleted
                return files
            used |= keys.keys() & file_keys(one.metadata_file for one in log).keys()
    return {path for key in used for path in keys[key]}


def refuse_foreign_log(table: Table, identifier: TableIdentifier) -> None:
    """Refuse a table that would have Java delete a file in a commit that is not certainly its own metadata.

    Java deletes what falls off the log itself, whatever file that is; nothing comes between.
    """
    metadata = table.metadata
    if not _deletes_metadata(metadata):
        return
    foreign = [one.metadata_file for one in metadata.metadata_log if not is_metadata_file(one.metadata_file, metadata)]
    if isinstance(table.catalog, SqlCatalog) and not foreign:
        log = {one.metadata_file for one in metadata.metadata_log}
        keys = file_keys(log)
        others = {file_key(one) for one in table_rows(table.catalog).values() if one} & keys.keys()
        foreign = [path for key in others for path in keys[key]]
    if foreign:
        raise FloeStorageError(
            f"'{identifier}' says {_ENABLED}=true, and its metadata log names {foreign[0]}, which is not an earlier "
            f"metadata file of its own, or is the metadata of another table: a commit by Spark would delete it. "
            f"Nothing was written; set {_ENABLED} to false"
        )
