"""PyIceberg's SQL catalog with public methods in place of the private ones that Floe overrides."""

from __future__ import annotations

import threading
from abc import abstractmethod

import pyarrow as pa
from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.io import FileIO
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, StagedTable, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties
from sqlalchemy import Engine

from floe_core.engines import require_members

__all__ = ["AdaptedSqlCatalog", "file_io_of", "holds_views"]

require_members(
    "pyiceberg",
    SqlCatalog,
    "_convert_orm_to_iceberg",
    "_create_staged_table",
    "_delete_old_metadata",
    "_get_default_warehouse_location",
    "_init_catalog",
    "_load_file_io",
    "_schema_version",
    "_update_and_stage_table",
    "_write_metadata",
    promise="the SQL catalog loads no code that a table names, and deletes no files of other tables",
)


def file_io_of(catalog: SqlCatalog, location: str) -> FileIO:
    """The FileIO of a catalog. The properties of a table are ignored: they may name code to import."""
    return catalog._load_file_io(location=location)


def holds_views(catalog: SqlCatalog) -> bool:
    """Can the rows of the database be views? An older table layout has no type column."""
    return catalog._schema_version == "v1"


class AdaptedSqlCatalog(SqlCatalog):
    """A catalog on a given engine. A subclass decides about the FileIO and the location of tables."""

    def __init__(self, engine: Engine, name: str, properties: Properties) -> None:
        MetastoreCatalog.__init__(self, name, **properties)  # SqlCatalog.__init__ would create its own engine
        self.engine = engine
        self._committing = threading.local()
        self._init_catalog()

    @abstractmethod
    def file_io(self) -> FileIO:
        """The FileIO of every table."""

    @abstractmethod
    def table_of_row(self, row: IcebergTables) -> Table:
        """The table of a row of the database."""

    @abstractmethod
    def new_location(self, database_name: str, table_name: str) -> str:
        """The default location of a new table."""

    @abstractmethod
    def delete_old_metadata(
        self, io: FileIO, base: TableMetadata, metadata: TableMetadata, *, newest: str | None
    ) -> None:
        """Delete the metadata files that a commit removed from the log; `newest` is the file that it wrote."""

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Commit to the table; its metadata is parsed again only if the catalog refers to another file by now."""
        self._committing.table = table
        try:
            response = super().commit_table(table, requirements, updates)
        finally:
            self._committing.table = None
        self._committing.newest = response.metadata_location
        return response

    def stage_new_table(
        self,
        identifier: str | Identifier,
        schema: Schema | pa.Schema,
        location: str | None,
        partition_spec: PartitionSpec,
        sort_order: SortOrder,
        properties: Properties,
    ) -> StagedTable:
        """The metadata of a new table, not written yet."""
        return super()._create_staged_table(identifier, schema, location, partition_spec, sort_order, properties)

    def stage_update(
        self,
        current_table: Table | None,
        table_identifier: Identifier,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> StagedTable:
        """The metadata after a commit, not written yet."""
        return super()._update_and_stage_table(current_table, table_identifier, requirements, updates)

    def write_metadata(self, staged: StagedTable) -> None:
        self._write_metadata(staged.metadata, staged.io, staged.metadata_location)

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:
        del properties, location
        return self.file_io()

    def _convert_orm_to_iceberg(self, orm_table: IcebergTables) -> Table:
        committed: Table | None = getattr(self._committing, "table", None)
        if committed is not None and committed.metadata_location == orm_table.metadata_location:
            return committed
        return self.table_of_row(orm_table)

    def _get_default_warehouse_location(self, database_name: str, table_name: str) -> str:
        return self.new_location(database_name, table_name)

    def _create_staged_table(
        self,
        identifier: str | Identifier,
        schema: Schema | pa.Schema,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Properties = EMPTY_DICT,
    ) -> StagedTable:
        return self.stage_new_table(identifier, schema, location, partition_spec, sort_order, properties)

    def _update_and_stage_table(
        self,
        current_table: Table | None,
        table_identifier: Identifier,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> StagedTable:
        return self.stage_update(current_table, table_identifier, requirements, updates)

    def _delete_old_metadata(  # type: ignore[override]  # PyIceberg's is static, and called on the catalog
        self, io: FileIO, base: TableMetadata, metadata: TableMetadata
    ) -> None:
        self.delete_old_metadata(io, base, metadata, newest=getattr(self._committing, "newest", None))
