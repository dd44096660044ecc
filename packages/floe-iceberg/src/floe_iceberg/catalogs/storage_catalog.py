"""PyIceberg's SQL catalog on a storage plugin: its files, and where new tables go."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pyarrow as pa
from pyiceberg.catalog import LOCATION, METADATA, Catalog, delete_files
from pyiceberg.catalog.sql import IcebergTables
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.io import FileIO
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import StagedTable, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import RemovePropertiesUpdate, SetPropertiesUpdate, TableRequirement, TableUpdate
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties
from sqlalchemy import Engine, delete
from sqlalchemy.orm import Session

from floe_core.errors import PluginError
from floe_core.identifiers import TableIdentifier
from floe_core.observability import note, warn
from floe_core.plugins import StoragePlugin
from floe_iceberg._pyiceberg.sql_catalog import AdaptedSqlCatalog
from floe_iceberg.catalog_rows import newest_locations
from floe_iceberg.catalogs.foreign_tables import refuse_location_provider
from floe_iceberg.catalogs.locations import fresh_location, is_taken
from floe_iceberg.catalogs.sql_transaction import commit_rows
from floe_iceberg.catalogs.table_changes import TableChange
from floe_iceberg.files.metadata_log import DELETE_AFTER_COMMIT, deletable, dropped_from_log, why_kept
from floe_iceberg.files.other_tables import Neighbours
from floe_iceberg.files.ownership import Homes
from floe_iceberg.files.purge import finish_purge, plan_purge, refuse_changed, report_kept

__all__ = ["StorageCatalog", "files_of"]


def files_of(storage: StoragePlugin) -> FileIO:
    """The FileIO of a storage plugin, checked: PyIceberg needs more of it than the port declares."""
    files = storage.get_pyiceberg_fileio()
    if not isinstance(files, FileIO):
        raise PluginError(
            f"storage plugin {storage.metadata.name!r} returned a {type(files).__name__} from get_pyiceberg_fileio; it "
            f"must be a subclass of pyiceberg.io.FileIO"
        )
    return files


class StorageCatalog(AdaptedSqlCatalog):
    """Every file of a table is read, written and deleted through the FileIO of the storage plugin.

    PyIceberg would choose a FileIO by the properties of the catalog and of the table, which may name any class.
    """

    owned_locations: tuple[str, ...] = ()  # as floe.yaml declares them; see `Homes`

    def __init__(self, engine: Engine, name: str, storage: StoragePlugin) -> None:
        properties = {
            **storage.get_pyiceberg_properties(),
            "uri": str(engine.url),
            "warehouse": storage.get_warehouse_uri(),
        }
        self.storage = storage
        super().__init__(engine, name, properties)

    def file_io(self) -> FileIO:
        return files_of(self.storage)

    def table_of_row(self, row: IcebergTables) -> Table:
        return self._table_at(
            (*Catalog.identifier_to_tuple(row.table_namespace), row.table_name), row.metadata_location
        )

    def _table_at(self, name: Identifier, location: str | None) -> Table:
        if not location:
            raise NoSuchTableError(f"{'.'.join(name)} has no metadata location")
        files = self.file_io()
        return Table(name, FromInputFile.table_metadata(files.new_input(location)), location, files, self)

    def load_tables(self, names: Collection[Identifier], known: Collection[Table] = ()) -> list[Table]:
        """The tables that exist, all as they were at one moment. The metadata of a `known` one is not parsed again."""
        parsed = {table.metadata_location: table for table in known}
        found = newest_locations(self, names)
        return [parsed.get(found[name]) or self._table_at(name, found[name]) for name in names if name in found]

    @property
    def refuses_many_tables(self) -> None:
        return None

    @property
    def is_atomic(self) -> bool:
        return True

    def commit_tables(self, changes: Sequence[TableChange]) -> None:
        """Every change, or none, in one transaction of the database."""
        commit_rows(self, changes)

    def new_location(self, database_name: str, table_name: str) -> str:
        """One folder per namespace level, as in Spark and Floe; never a location with the metadata of another table."""
        own = self.load_namespace_properties(database_name).get(LOCATION)
        location = f"{own.rstrip('/') if own else self.storage.get_warehouse_uri(database_name)}/{table_name}"
        if not is_taken(self.file_io(), location):
            return location
        if self.table_exists(f"{database_name}.{table_name}"):
            raise TableAlreadyExistsError(f"Table {database_name}.{table_name} already exists")
        return fresh_location(location)

    def create_table(
        self,
        identifier: str | Identifier,
        schema: Schema | pa.Schema,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Properties = EMPTY_DICT,
    ) -> Table:
        namespace = Catalog.namespace_from(identifier)
        if not self.namespace_exists(namespace):
            raise NoSuchNamespaceError(f"Namespace does not exist: {namespace}")
        staged = self.stage_new_table(identifier, schema, location, partition_spec, sort_order, properties)
        self.write_metadata(staged)
        return self.register_table(identifier, staged.metadata_location)

    def stage_new_table(
        self,
        identifier: str | Identifier,
        schema: Schema | pa.Schema,
        location: str | None,
        partition_spec: PartitionSpec,
        sort_order: SortOrder,
        properties: Properties,
    ) -> StagedTable:
        refuse_location_provider(properties, f"new table '{'.'.join(self.identifier_to_tuple(identifier))}'")
        return super().stage_new_table(identifier, schema, location, partition_spec, sort_order, properties)

    def stage_update(
        self,
        current_table: Table | None,
        table_identifier: Identifier,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> StagedTable:
        """Refuse a location provider: PyIceberg would ask it where the new metadata file goes."""
        properties = dict(current_table.properties) if current_table is not None else {}
        for update in updates:
            if isinstance(update, SetPropertiesUpdate):
                properties |= update.updates
            elif isinstance(update, RemovePropertiesUpdate):
                properties = {key: value for key, value in properties.items() if key not in update.removals}
        refuse_location_provider(properties, f"table '{'.'.join(table_identifier)}'")
        return super().stage_update(current_table, table_identifier, requirements, updates)

    def delete_old_metadata(
        self, io: FileIO, base: TableMetadata, metadata: TableMetadata, *, newest: str | None
    ) -> None:
        """Delete the table's own metadata files that a commit removed from the log; the rest may be orphans."""
        dropped = dropped_from_log(base, metadata)
        if not dropped:
            return
        problem = self._homes().problem_at(metadata.location)
        own = set() if problem else deletable(self, metadata, dropped, newest=newest)
        report = warn if DELETE_AFTER_COMMIT in metadata.properties else note
        for path in sorted(dropped - own):
            report("not_removed", path=path, reason=problem or why_kept(path, metadata))
        delete_files(io, own, METADATA)

    def _homes(self) -> Homes:
        return Homes(self.storage.get_warehouse_uri(), self.owned_locations)

    def drop_unchanged(self, identifier: Identifier, metadata_location: str) -> None:
        """Drop the table if this is its metadata file; a conflict if it has another one by now."""
        *levels, name = identifier
        dropped = delete(IcebergTables).where(
            IcebergTables.catalog_name == self.name,
            IcebergTables.table_namespace == ".".join(levels),
            IcebergTables.table_name == name,
            IcebergTables.metadata_location == metadata_location,
        )
        with Session(self.engine) as session:
            matched = session.connection().execute(dropped).rowcount
            session.commit()
        if matched == 0:
            table = TableIdentifier.from_string(".".join(identifier))
            refuse_changed(self.load_table(identifier), table, metadata_location)
            raise CommitFailedException(f"Table was replaced: {table}")

    def purge_table(self, identifier: str | Identifier) -> None:
        """Drop the table and delete its own files; files that may belong to others stay, and are logged."""
        table = self.load_table(identifier)
        name = TableIdentifier.from_string(".".join(table.name()))
        purge = plan_purge(table, name, self._homes(), Neighbours(self, lambda _near: ()))
        self.drop_table(identifier)
        finish_purge(table.io, purge.files, name)
        report_kept(name, purge.kept)
