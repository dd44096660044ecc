"""PyIceberg's SQL catalog on a storage plugin: its files, and where new tables go."""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.catalog import LOCATION, METADATA, Catalog, MetastoreCatalog, delete_files
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.io import FileIO
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import StagedTable, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import RemovePropertiesUpdate, SetPropertiesUpdate, TableRequirement, TableUpdate
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties
from sqlalchemy import Engine

from floe_core.errors import PluginError
from floe_core.identifiers import TableIdentifier
from floe_core.ports import StoragePlugin
from floe_core.telemetry import warn
from floe_iceberg.belongings import Homes
from floe_iceberg.containment import is_inside
from floe_iceberg.foreign_tables import refuse_location_provider
from floe_iceberg.locations import fresh_location, is_taken
from floe_iceberg.metadata_log import deletable, dropped_from_log
from floe_iceberg.neighbours import Neighbours
from floe_iceberg.purge import finish_purge, plan_purge, report_kept

__all__ = ["StorageCatalog", "files_of"]


def files_of(storage: StoragePlugin) -> FileIO:
    """The FileIO of a storage plugin, checked: PyIceberg needs more of it than the port names."""
    files = storage.get_pyiceberg_fileio()
    if not isinstance(files, FileIO):
        raise PluginError(
            f"storage plugin {storage.metadata.name!r} returned a {type(files).__name__} from get_pyiceberg_fileio; it "
            f"must be a subclass of pyiceberg.io.FileIO"
        )
    return files


class StorageCatalog(SqlCatalog):
    """Every file of a table is read, written and deleted through the FileIO of the storage plugin.

    PyIceberg would choose a FileIO by the properties of the catalog and of the table, which may name any class.
    """

    def __init__(self, engine: Engine, name: str, storage: StoragePlugin) -> None:
        properties = {
            **storage.get_pyiceberg_properties(),
            "uri": str(engine.url),
            "warehouse": storage.get_warehouse_uri(),
        }
        MetastoreCatalog.__init__(self, name, **properties)
        self.engine = engine
        self.storage = storage
        self._init_catalog()

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:
        del properties, location
        return files_of(self.storage)

    def _convert_orm_to_iceberg(self, orm_table: IcebergTables) -> Table:
        location = orm_table.metadata_location
        if not location:
            raise NoSuchTableError(f"{orm_table.table_namespace}.{orm_table.table_name} has no metadata location")
        files = self._load_file_io()
        metadata = FromInputFile.table_metadata(files.new_input(location))
        name = (*Catalog.identifier_to_tuple(orm_table.table_namespace), orm_table.table_name)
        return Table(name, metadata, location, files, self)

    def _get_default_warehouse_location(self, database_name: str, table_name: str) -> str:
        """One folder per level, as in Spark and Floe, and never where the metadata of another table is."""
        own = self.load_namespace_properties(database_name).get(LOCATION)
        location = f"{own.rstrip('/') if own else self.storage.get_warehouse_uri(database_name)}/{table_name}"
        if not is_taken(self._load_file_io(), location):
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
        staged = self._create_staged_table(identifier, schema, location, partition_spec, sort_order, properties)
        self._write_metadata(staged.metadata, staged.io, staged.metadata_location)
        return self.register_table(identifier, staged.metadata_location)

    def _create_staged_table(
        self,
        identifier: str | Identifier,
        schema: Schema | pa.Schema,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Properties = EMPTY_DICT,
    ) -> StagedTable:
        refuse_location_provider(properties, f"new table '{'.'.join(self.identifier_to_tuple(identifier))}'")
        return super()._create_staged_table(identifier, schema, location, partition_spec, sort_order, properties)

    def _update_and_stage_table(
        self,
        current_table: Table | None,
        table_identifier: Identifier,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> StagedTable:
        """PyIceberg asks the table's location provider where the new metadata file goes."""
        properties = dict(current_table.properties) if current_table is not None else {}
        for update in updates:
            if isinstance(update, SetPropertiesUpdate):
                properties |= update.updates
            elif isinstance(update, RemovePropertiesUpdate):
                properties = {key: value for key, value in properties.items() if key not in update.removals}
        refuse_location_provider(properties, f"table '{'.'.join(table_identifier)}'")
        return super()._update_and_stage_table(current_table, table_identifier, requirements, updates)

    def _delete_old_metadata(  # type: ignore[override]  # PyIceberg's is static, and called on the catalog
        self, io: FileIO, base: TableMetadata, metadata: TableMetadata
    ) -> None:
        """Delete what a commit took off the metadata log only if it is the table's own; the rest may be orphans."""
        dropped = dropped_from_log(base, metadata)
        at_home = is_inside(metadata.location, self.storage.get_warehouse_uri())
        own = deletable(self, metadata, dropped) if dropped and at_home else set()
        for path in sorted(dropped - own):
            warn("not_removed", path=path, reason="it is not certain that it is the table's own earlier metadata")
        delete_files(io, own, METADATA)

    def purge_table(self, identifier: str | Identifier) -> None:
        """Delete the table's own files with it; what may be of others stays, and is reported in the log."""
        table = self.load_table(identifier)
        name = TableIdentifier.from_string(".".join(table.name()))
        homes = Homes(self.storage.get_warehouse_uri())
        purge = plan_purge(table, name, homes, Neighbours(self, lambda: ()))
        self.drop_table(identifier)
        finish_purge(table.io, purge.files, name)
        report_kept(name, purge.kept)
