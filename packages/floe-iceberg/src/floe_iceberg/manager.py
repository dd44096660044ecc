"""IcebergTableManager: the control plane of tables. No JVM, no server, no Dagster."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeVar

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, field_validator
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import BadRequestError, NoSuchTableError
from pyiceberg.expressions import BooleanExpression
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CreateTableTransaction, DataScan, IncrementalAppendScan, Table
from pyiceberg.table.inspect import InspectTable
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.typedef import Identifier

from floe_core.config import CompiledArtifacts
from floe_core.errors import (
    ConfigurationError,
    FloeStorageError,
    NamespaceNotFoundError,
    PermissionDeniedError,
    SchemaEvolutionError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from floe_core.identifiers import Namespace, TableIdentifier, TableSlice
from floe_core.maintenance import KeptFile
from floe_core.models import CommitStrategy, NamespaceInfo, PartitionTransform, SnapshotInfo, SortField, WriteMode
from floe_core.notebooks import Listing
from floe_core.observability import note, observe, operation, warn
from floe_core.plugins import CatalogPlugin, StoragePlugin, create_catalog_plugin, create_storage_plugin, start, stop
from floe_iceberg.arguments import (
    NamespaceName,
    TableName,
    check_slice,
    check_snapshot_id,
    check_transforms,
    choice,
    identifier_of,
    names_of,
    namespace_of,
    property_texts,
)
from floe_iceberg.backoff import ATTEMPTS, is_conflict, retrying
from floe_iceberg.branches.tables import BranchedTables
from floe_iceberg.catalog_rows import RowName
from floe_iceberg.catalogs.foreign_tables import refuse_location_provider
from floe_iceberg.catalogs.locations import (
    LOCATION,
    PLACED,
    check_location,
    fresh_location,
    is_location_of,
    is_taken,
    taken,
)
from floe_iceberg.catalogs.namespaces import Namespaces
from floe_iceberg.catalogs.registration import check_address, check_metadata_file, refusal, shown
from floe_iceberg.catalogs.sql import SqlCatalogPlugin
from floe_iceberg.catalogs.storage_catalog import StorageCatalog
from floe_iceberg.errors import replaced, translated
from floe_iceberg.files.former_folders import former_folder, local_address
from floe_iceberg.files.known_tables import ReadTable
from floe_iceberg.files.other_tables import Neighbours
from floe_iceberg.files.ownership import Homes, owned_location
from floe_iceberg.files.purge import Purge, finish_purge, plan_purge, refuse_changed, refuse_shared, report_kept
from floe_iceberg.files.reachable import reached_files
from floe_iceberg.files.table_age import CREATED
from floe_iceberg.inspection.operations import TableInspection
from floe_iceberg.maintenance.operations import PhysicalMaintenance
from floe_iceberg.partitioning.evolution import replace_spec
from floe_iceberg.partitioning.specs import partition_spec, sort_order
from floe_iceberg.reading.incremental import scan_appends
from floe_iceberg.reading.scans import scan
from floe_iceberg.schema.changes import ColumnChange, apply_changes
from floe_iceberg.schema.evolution import SchemaChange, apply_change, name_problems, plan_change, to_iceberg_schema
from floe_iceberg.snapshots import refs
from floe_iceberg.snapshots.snapshots import find_writes, snapshot_info, write_summary
from floe_iceberg.snapshots.timestamps import REPAIRED_AT, now_ms, refuse_disorder
from floe_iceberg.transactions.operations import TableTransactions
from floe_iceberg.writing.arrow_source import ArrowData, source_of
from floe_iceberg.writing.arrow_writes import write
from floe_iceberg.writing.request import Target, WriteRequest, WriteResult, write_operation

__all__ = ["DEFAULT_PROPERTIES", "IcebergTableManager", "IcebergTableManagerConfig"]

# Properties of the tables that Floe creates, unless floe.yaml or the asset sets them.
DEFAULT_PROPERTIES = {
    "write.target-file-size-bytes": str(128 * 2**20),
    "write.parquet.row-group-size-bytes": str(128 * 2**20),
    "write.parquet.compression-codec": "zstd",
    "history.expire.max-snapshot-age-ms": str(7 * 24 * 3600 * 1000),
    "history.expire.min-snapshots-to-keep": "10",
    "commit.manifest-merge.enabled": "true",
    # Spark sorts rows by partition, spilling to disk: otherwise each task keeps a file open for every partition it has.
    "write.spark.fanout.enabled": "false",
    # With the engines' own 4 attempts, eight writers on one table lose commits.
    "commit.retry.num-retries": "20",
    "commit.retry.max-wait-ms": "5000",
    "commit.retry.total-timeout-ms": "600000",
}

_Changed = TypeVar("_Changed")


class IcebergTableManagerConfig(BaseModel):
    """Settings of a manager that hold for all its tables.

    Args:
        table_properties: Properties of the tables that the manager creates. They override Floe's defaults.
        owned_locations: Locations outside of the warehouse at and below which files of tables may be deleted.

    Example:
        >>> from floe_iceberg import IcebergTableManagerConfig
        >>> config = IcebergTableManagerConfig(table_properties={"write.parquet.compression-codec": "snappy"})
        >>> config.table_properties["write.parquet.compression-codec"]
        'snappy'
        >>> config.table_properties["history.expire.min-snapshots-to-keep"]
        '10'
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    table_properties: dict[str, str] = Field(
        default_factory=dict, validate_default=True, description="for new tables, over Floe's defaults"
    )
    owned_locations: tuple[str, ...] = Field(
        default=(), description="addresses beside the warehouse at and below which files of tables may be deleted"
    )

    @field_validator("table_properties")
    @classmethod
    def _over_defaults(cls, given: dict[str, str]) -> dict[str, str]:
        return {**DEFAULT_PROPERTIES, **given}


class IcebergTableManager(TableInspection, TableTransactions, BranchedTables, PhysicalMaintenance):
    """The tables of one catalog: create, write, read, evolve and maintain them.

    `open` creates a manager from a compiled project. Only maintenance of files, such as compaction, starts a JVM.
    Tables and namespaces may be given by name, such as `bronze.orders`.

    Args:
        catalog_plugin: The catalog.
        storage_plugin: Where the files of the tables are.
        config: Settings for all tables of the manager.

    Example:
        >>> from pathlib import Path
        >>> from floe_core import compile_project
        >>> from floe_iceberg import IcebergTableManager
        >>> _ = Path("floe.yaml").write_text("name: shop")
        >>> tables = IcebergTableManager.open(compile_project(Path()).artifacts)
        >>> first = tables.write_data("bronze.orders", pa.table({"id": [1, 2]}), mode="append")
        >>> second = tables.write_data("bronze.orders", pa.table({"id": [3]}), mode="append")
        >>> tables.scan("bronze.orders").to_arrow().num_rows
        3
        >>> tables.rollback_to_snapshot("bronze.orders", first.snapshot_id)
        >>> tables.scan("bronze.orders").to_arrow().num_rows
        2
        >>> tables.close()
    """

    def __init__(
        self,
        catalog_plugin: CatalogPlugin,
        storage_plugin: StoragePlugin,
        config: IcebergTableManagerConfig | None = None,
    ) -> None:
        self.catalog_plugin = catalog_plugin
        self.storage_plugin = storage_plugin
        catalog_plugin.use_storage(storage_plugin)
        self.config = config or IcebergTableManagerConfig()
        self._read_tables: dict[RowName, ReadTable] = {}
        self._unlisted: set[Identifier] = set()

    @classmethod
    def open(cls, artifacts: CompiledArtifacts) -> IcebergTableManager:
        """Open the tables of a compiled project, and configure its logs and traces. Call `close` when done.

        Args:
            artifacts: The compiled project.
        """
        observe(artifacts)
        catalog, storage = create_catalog_plugin(artifacts), create_storage_plugin(artifacts)
        start(storage)
        try:
            start(catalog)
        except BaseException:
            stop(storage)
            raise
        config = IcebergTableManagerConfig(
            table_properties=dict(artifacts.tables.properties),
            owned_locations=tuple(owned_location(item, artifacts.root) for item in artifacts.tables.owned_locations),
        )
        tables = cls(catalog, storage, config)
        tables.artifacts = artifacts
        return tables

    def close(self) -> None:
        """Shut down the plugins that were started for these tables. A second call does nothing."""
        if self.compute is not None:
            stop(self.compute)
        stop(self.catalog_plugin, self.storage_plugin)

    @property
    def _catalog(self) -> Catalog:
        catalog = self.catalog_plugin.connect()
        if not isinstance(catalog, Catalog):
            raise TypeError(f"catalog plugin {self.catalog_plugin.metadata.name!r} did not return a PyIceberg catalog")
        if isinstance(catalog, StorageCatalog):  # its commits delete metadata files
            catalog.owned_locations = tuple(self.config.owned_locations)
        return catalog

    @property
    def catalog_name(self) -> str:
        """The name of the catalog in Spark SQL."""
        return self.catalog_plugin.catalog_name

    @property
    def _namespaces(self) -> Namespaces:
        return Namespaces(self._catalog, self.catalog_plugin, self._unlisted)

    def ensure_namespace(self, namespace: NamespaceName) -> None:
        """Create a namespace and its parents if they do not exist."""
        namespace = namespace_of(namespace)
        self._namespaces.ensure(namespace)

    def create_namespace(
        self, namespace: NamespaceName, properties: Mapping[str, str] | None = None, *, if_not_exists: bool = False
    ) -> bool:
        """Create a namespace and its missing parents. A namespace that exists with these properties is left as it is.

        Args:
            namespace: The namespace.
            properties: The properties of the namespace.
            if_not_exists: Keep a namespace that exists with other properties, instead of raising
                NamespaceAlreadyExistsError.

        Returns:
            Whether the namespace was created.
        """
        namespace = namespace_of(namespace)
        return self._namespaces.create(namespace, properties or {}, if_not_exists=if_not_exists)

    def namespace_exists(self, namespace: NamespaceName) -> bool:
        """Whether the namespace exists."""
        namespace = namespace_of(namespace)
        return self._namespaces.exists(namespace)

    def list_namespaces(self, parent: NamespaceName | None = None, *, recursive: bool = False) -> list[Namespace]:
        """List the namespaces directly in a namespace.

        Args:
            parent: The namespace. By default the top level.
            recursive: Also list the namespaces below them.
        """
        parent = namespace_of(parent) if parent is not None else None
        return self._namespaces.below(parent, recursive=recursive)

    def load_namespace(self, namespace: NamespaceName) -> NamespaceInfo:
        """Load the properties of a namespace, with those that the catalog sets, and the names of its tables."""
        namespace = namespace_of(namespace)
        return self._namespaces.load(namespace)

    def update_namespace(
        self,
        namespace: NamespaceName,
        *,
        set: Mapping[str, str] | None = None,  # noqa: A002 - the verb of SQL; the builtin is not needed here
        remove: Collection[str] = (),
    ) -> dict[str, str]:
        """Set and remove properties of a namespace; other properties stay. Returns the properties after the update.

        On the embedded catalog the update is atomic. On a catalog server it is two requests, set before remove. If the
        second fails, the error names the properties that were set, and the same update may be repeated.

        Args:
            namespace: The namespace.
            set: The properties to set.
            remove: The names of the properties to remove.
        """
        namespace = namespace_of(namespace)
        return self._namespaces.update(namespace, set or {}, remove)

    def drop_namespace(self, namespace: NamespaceName) -> None:
        """Drop a namespace. One that is not empty is refused and keeps its properties."""
        namespace = namespace_of(namespace)
        self._namespaces.drop(namespace)

    def create_table(
        self,
        identifier: TableName,
        schema: Schema | pa.Schema,
        *,
        partition_by: Sequence[PartitionTransform] = (),
        sort_by: Sequence[SortField] = (),
        properties: Mapping[str, str] | None = None,
        comment: str | None = None,
        location: str | None = None,
        if_not_exists: bool = False,
    ) -> Table:
        """Create an empty table, and its namespace if that does not exist.

        Args:
            identifier: The table.
            schema: The columns. Field ids are reassigned, documentation is kept.
            partition_by: The partitioning.
            sort_by: The sort order.
            properties: Properties of the table. They override those of the manager.
            comment: The description of the table.
            location: The full address of the table. By default Floe or the catalog chooses it; a catalog server may
                refuse another one. The property `location` has the same meaning.
            if_not_exists: Return an existing table instead of raising TableAlreadyExistsError.
        """
        identifier = identifier_of(identifier)
        self.refuse_on_branch("create a table without rows")
        fields = to_iceberg_schema(schema) if isinstance(schema, pa.Schema) else schema
        problems = name_problems(fields, "the schema")
        if problems:
            raise SchemaEvolutionError(f"'{identifier}' was not created: {'; '.join(problems)}")
        spec, order = partition_spec(partition_by, fields), sort_order(sort_by, fields)
        given = {**property_texts(properties or {}, "properties"), **({"comment": comment} if comment else {})}
        asked = given if location is None else {**given, LOCATION: check_location(location)}

        def create() -> Table:
            name = (*identifier.namespace, identifier.name)
            with translated("create_table", identifier):
                place, merged = self.placed(identifier, asked)
                return self._catalog.create_table(name, fields, place, spec, order, merged)

        with operation("iceberg.create_table", table=str(identifier), partition_spec=str(spec)) as op:
            try:
                try:
                    table = create()
                except NamespaceNotFoundError:  # rare, so the namespace is not checked on every call
                    self.ensure_namespace(Namespace(levels=identifier.namespace))
                    table = create()
            except TableAlreadyExistsError:
                if not if_not_exists:
                    raise
                table = self.load_table(identifier)
            op.set(schema_id=table.schema().schema_id)
            return table

    def begin_table(
        self,
        identifier: TableName,
        schema: Schema,
        *,
        partition_by: Sequence[PartitionTransform] = (),
        properties: Mapping[str, str] | None = None,
    ) -> CreateTableTransaction:
        """Begin a transaction that creates the table together with its first rows.

        Args:
            identifier: The table.
            schema: The columns.
            partition_by: The partitioning.
            properties: Properties of the table. They override those of the manager.
        """
        identifier = identifier_of(identifier)
        with translated("create_table", identifier):
            self.ensure_namespace(Namespace(levels=identifier.namespace))
            location, merged = self.placed(identifier, properties or {})
            return self._catalog.create_table_transaction(
                (*identifier.namespace, identifier.name),
                schema,
                location,
                partition_spec(partition_by, schema),
                properties=merged,
            )

    def placed(self, identifier: TableIdentifier, properties: Mapping[str, str]) -> tuple[str | None, dict[str, str]]:
        """Choose the location of a new table, and merge its properties with those of the manager.

        Raises TableAlreadyExistsError if the table was created in the meantime.

        Args:
            identifier: The table.
            properties: The properties that its creator sets; `location` sets the location.

        Returns:
            The location, None if the catalog chooses it, and all properties.
        """
        merged = {**self.config.table_properties, **properties}
        refuse_location_provider(merged, f"new table '{identifier}'")
        merged[CREATED] = str(now_ms())
        asked = merged.pop(LOCATION, None)
        if asked is None:
            return self.new_location(identifier), merged
        location = check_location(asked)
        if not self._is_placed_by_catalog(identifier):
            if is_taken(self.storage_plugin.get_pyiceberg_fileio(), location):
                self._refuse_existing(identifier)
                raise taken(location, identifier)
            merged[PLACED] = location
        return location, merged

    def new_location(self, identifier: TableName) -> str | None:
        """The default location of a new table; None if the catalog chooses it."""
        identifier = identifier_of(identifier)
        namespace = str(Namespace(levels=identifier.namespace))
        location = self.catalog_plugin.table_location(identifier, self.storage_plugin.get_warehouse_uri(namespace))
        if location is None or not is_taken(self.storage_plugin.get_pyiceberg_fileio(), location):
            return location
        self._refuse_existing(identifier)  # the files there may be the table's own
        return fresh_location(location)

    def _refuse_existing(self, identifier: TableIdentifier) -> None:
        if self.table_exists(identifier):
            raise TableAlreadyExistsError(f"table '{identifier}' exists already; load it, or choose another name")

    def write_data(
        self,
        identifier: TableName,
        data: ArrowData,
        mode: WriteMode | str,
        commit_strategy: CommitStrategy | str | None = None,
        *,
        slice: TableSlice | None = None,  # noqa: A002 - Iceberg's noun; the builtin is not needed here
        overwrite_filter: str | BooleanExpression | None = None,
        dynamic_partitions: bool = False,
        keys: Sequence[str] = (),
        branch: str | None = None,
        snapshot_properties: Mapping[str, str] | None = None,
        write_id: str | None = None,
        partition_by: Sequence[PartitionTransform] = (),
        properties: Mapping[str, str] | None = None,
        validate_from: int | None = None,
        evolve: bool = True,
        allow_empty: bool = False,
        truncate_nanoseconds: bool = False,
    ) -> SnapshotInfo:
        """Write rows in one commit and return its snapshot; a table that does not exist is created by it.

        At most one of `slice`, `overwrite_filter` and `dynamic_partitions` may be given.

        Args:
            identifier: The table.
            data: A pyarrow Table or RecordBatchReader (of any length), a pandas or polars DataFrame, or a LazyFrame.
            mode: How the write treats the rows that the table already has: `append`, `overwrite` or `upsert`.
            commit_strategy: How an append treats manifests. `fast_append` (the default) leaves them as they are,
                `merge` merges small ones from `commit.manifest.min-count-to-merge` (100) on.
            slice: The rows that an overwrite replaces. Rows of the data outside of it are refused.
            overwrite_filter: The rows that an overwrite replaces, as a filter such as
                `city = 'Oslo' AND day >= '2026-01-01'`. Rows of the data outside of it are refused.
            dynamic_partitions: An overwrite replaces the partitions that the data has rows for.
            keys: The key column of an upsert. Several key columns need Spark.
            branch: A branch created with `create_branch`. By default main.
            snapshot_properties: Added to the summary of the snapshot.
            write_id: The identity of the write. A write whose id is in the history of its branch is not repeated.
            partition_by: The partitioning of the table, if the write creates it.
            properties: The properties of the table, if the write creates it; `location` sets its location.
            validate_from: The snapshot that the data was computed from. Changes since then to the rows that are
                replaced are a conflict. By default the head when the write begins.
            evolve: Add missing columns to the table, and widen types.
            allow_empty: Allow an overwrite of the whole table without rows.
            truncate_nanoseconds: Truncate timestamps to microseconds, and count them in the summary of the snapshot.
        """
        identifier = identifier_of(identifier)
        check_slice(slice)
        check_transforms(partition_by)
        check_snapshot_id(validate_from, "validate_from")
        chosen = choice(WriteMode, mode, "mode")
        if validate_from is not None and chosen is WriteMode.APPEND:
            raise ConfigurationError(
                "validate_from detects changes to the rows that are replaced; an append replaces none: leave it out"
            )
        write_id = uuid.uuid4().hex if write_id is None else write_id
        request = WriteRequest(
            identifier=identifier,
            mode=chosen,
            write_id=write_id,
            summary=write_summary(write_id, snapshot_properties),
            slice=slice,
            overwrite_filter=overwrite_filter,
            dynamic_partitions=dynamic_partitions,
            keys=names_of(keys, "keys"),
            commit_strategy=None
            if commit_strategy is None
            else choice(CommitStrategy, commit_strategy, "commit_strategy"),
            branch=branch or MAIN_BRANCH,
            partition_by=tuple(partition_by),
            properties=properties,
            validate_from=validate_from,
            evolve=evolve,
            allow_empty=allow_empty,
            truncate_nanoseconds=truncate_nanoseconds,
        )
        return self.write(request, data).snapshot

    def write(self, request: WriteRequest, data: ArrowData, target: Target | None = None) -> WriteResult:
        """Write rows as a request describes it.

        Args:
            request: The write.
            data: The rows, as in `write_data`.
            target: The table as the caller has just loaded it. Only a second attempt loads it again.
        """
        if self.at_branch is not None:
            source = data = source_of(data)
            request, target = self.on_branch(request, lambda known: to_iceberg_schema(source.schema_for(known)), target)
        with write_operation(request, "arrow") as op, translated(request.mode.value, request.identifier):
            result = write(self, request, data, op, target)
            op.event("committed")
            op.set(
                num_rows=result.snapshot.count("added-records"),
                snapshot_id=result.snapshot.snapshot_id,
                deduplicated=result.deduplicated or None,
            )
            return replace(result, seconds=op.seconds())

    def rename_table(self, identifier: TableName, to: TableName) -> Table:
        """Rename a table; its files stay where they are.

        Args:
            identifier: The table.
            to: The new name. Its namespace is created if it does not exist.
        """
        identifier = identifier_of(identifier)
        self.refuse_on_branch("rename a table")
        to = identifier_of(to)
        with operation("iceberg.rename_table", table=str(identifier), to=str(to)):
            table = self.load_table(identifier)  # before a namespace is created for a table that does not exist
            self.refuse_moved(table, identifier)
            if to == identifier:
                raise ConfigurationError(f"the table is called '{to}' already; choose another name")
            self.ensure_namespace(Namespace(levels=to.namespace))
            try:
                with translated("rename_table", identifier):
                    return self._catalog.rename_table(
                        (*identifier.namespace, identifier.name), (*to.namespace, to.name)
                    )
            except TableAlreadyExistsError as exc:
                raise TableAlreadyExistsError(
                    f"table '{to}' exists already, so '{identifier}' keeps its name; choose another", detail=exc.detail
                ) from exc

    def register_table(self, identifier: TableName, metadata_location: str) -> Table:
        """Register a table whose files already exist in the catalog.

        A table registered under two names diverges: both continue from the same files, each with commits of its own.

        Args:
            identifier: The name of the table.
            metadata_location: The address of its newest metadata file.
        """
        identifier = identifier_of(identifier)
        self.refuse_on_branch("register a table")
        with operation("iceberg.register_table", table=str(identifier), metadata_location=shown(metadata_location)):
            try:
                with translated("register_table", identifier):
                    return self._register(identifier, metadata_location)
            except TableAlreadyExistsError as exc:
                raise TableAlreadyExistsError(
                    f"table '{identifier}' exists already: drop it with floe tables drop {identifier}, or choose "
                    f"another name",
                    detail=exc.detail,
                ) from exc

    def _register(self, identifier: TableIdentifier, metadata_location: str) -> Table:
        check_address(metadata_location, identifier)
        # A server reads the file itself, with keys that this machine may not have.
        if not self._is_placed_by_catalog(identifier):
            check_metadata_file(self.storage_plugin.get_pyiceberg_fileio(), metadata_location, identifier)
        self.ensure_namespace(Namespace(levels=identifier.namespace))
        try:
            return self._catalog.register_table((*identifier.namespace, identifier.name), metadata_location)
        except BadRequestError as exc:
            raise refusal(metadata_location, identifier, f"was refused by the catalog: {shown(exc)}") from exc

    def load_table(self, identifier: TableName) -> Table:
        """Load the current state of a table; TableNotFoundError if it does not exist."""
        identifier = identifier_of(identifier)
        with (
            operation("iceberg.load_table", table=str(identifier)) as op,
            translated("load_table", identifier),
        ):
            note("loading_table", table=str(identifier))
            try:
                table = self._catalog.load_table((*identifier.namespace, identifier.name))
            except NoSuchTableError:
                warn("table_not_found", table=str(identifier))
                op.reported()
                raise
            snapshot = table.current_snapshot()
            snapshot_id = snapshot.snapshot_id if snapshot else None
            op.set(snapshot_id=snapshot_id)
            note("table_loaded", table=str(identifier), snapshot_id=snapshot_id)
            return table

    def find_table(self, identifier: TableName) -> Table | None:
        """Load the current state of a table, or return None if it does not exist."""
        identifier = identifier_of(identifier)
        try:
            with translated("load_table", identifier):
                return self._catalog.load_table((*identifier.namespace, identifier.name))
        except TableNotFoundError:
            return None

    def table_exists(self, identifier: TableName) -> bool:
        """Whether the catalog has the table; also one that an atomic run has created and not published."""
        identifier = identifier_of(identifier)
        return self.find_table(identifier) is not None

    def list_tables(self, namespace: NamespaceName) -> list[TableIdentifier]:
        """List the tables of a namespace."""
        namespace = namespace_of(namespace)
        return self._namespaces.tables(namespace)

    def neighbours(self) -> Neighbours:
        """The other tables of the catalog; their state is read on first use.

        A table whose metadata has not changed since an earlier call is not read again.
        """
        return Neighbours(self._catalog, self._namespaces.every_table, self._read_tables)

    def homes(self) -> Homes:
        """The locations in which files may be deleted: the warehouse, and the owned locations in floe.yaml."""
        return Homes(self.storage_plugin.get_warehouse_uri(), tuple(self.config.owned_locations))

    def plan_purge(self, identifier: TableName) -> Purge:
        """The files that a drop with `purge` would delete, and those that would stay; nothing is changed.

        Args:
            identifier: The table.
        """
        identifier = identifier_of(identifier)
        with translated("drop_table", identifier):
            return self._purge_of(self.load_table(identifier), identifier)

    def drop_table(
        self,
        identifier: TableName,
        *,
        purge: bool = False,
        expected_metadata: str | None = None,
        log_kept: bool = True,
    ) -> tuple[KeptFile, ...]:
        """Drop a table from the catalog, and its files if `purge` is set.

        Purged are the files that its metadata references, below its own location, in the warehouse or an owned
        location, that no other table of the catalog uses.

        Args:
            identifier: The table.
            purge: Delete the files, and verify that they are gone.
            expected_metadata: The address of the metadata file that the decision is based on. If the table has another
                one by now, it stays, and a ConcurrencyConflictError is raised. By default any. The check and the drop
                are one step in a catalog database, and two requests to a catalog server.
            log_kept: Log the files that were not deleted.

        Returns:
            The referenced files that were not deleted, each with the reason.
        """
        identifier = identifier_of(identifier)
        self.refuse_on_branch("drop a table")
        with operation("iceberg.drop_table", table=str(identifier), purge=purge) as op:
            if not purge:
                self._drop(identifier, expected_metadata)
                return ()
            with translated("drop_table", identifier):
                table = self.load_table(identifier)
                refuse_changed(table, identifier, expected_metadata)
                planned = self._purge_of(table, identifier)
            self._drop_with_files(table, identifier, planned, expected_metadata)
            finish_purge(table.io, planned.files, identifier)
            if log_kept:
                report_kept(identifier, planned.kept)
            op.set(files=len(planned.files), not_removed=len(planned.kept))
            return planned.kept

    def _purge_of(self, table: Table, identifier: TableIdentifier) -> Purge:
        self.refuse_moved(table, identifier)
        refuse_shared(table, identifier)
        others = self.neighbours()
        others.refuse_same(table, identifier)
        if isinstance(self._catalog, SqlCatalog):  # a server does not list its other catalogs
            others.refuse_unreadable(identifier)
            others.refuse_used(identifier, lambda: reached_files(table))
        planned = plan_purge(table, identifier, self.homes(), others)
        others.refuse_same(table, identifier)  # again: another process may have registered it since
        return planned

    def _drop(self, identifier: TableIdentifier, expected_metadata: str | None) -> None:
        catalog = self._catalog
        if expected_metadata is not None and isinstance(catalog, StorageCatalog):
            with translated("drop_table", identifier):
                catalog.drop_unchanged((*identifier.namespace, identifier.name), expected_metadata)
            return
        if expected_metadata is not None:
            refuse_changed(self.load_table(identifier), identifier, expected_metadata)
        self.catalog_plugin.drop_table(str(identifier))

    def _drop_with_files(
        self, table: Table, identifier: TableIdentifier, planned: Purge, expected_metadata: str | None
    ) -> None:
        """Let a catalog server delete the files only if all of them may be deleted: it cannot keep some.

        The plugin of a catalog database would search for the same files a second time.
        """
        by_floe = planned.kept or type(self.catalog_plugin).drop_table is SqlCatalogPlugin.drop_table
        if by_floe or Homes(self.storage_plugin.get_warehouse_uri()).problem(table):
            self._drop(identifier, expected_metadata)
            return
        try:
            self.catalog_plugin.drop_table(str(identifier), purge=True)
        except (PermissionDeniedError, NotImplementedError) as exc:
            raise PermissionDeniedError(
                f"the catalog does not delete the files of '{identifier}' ({exc}), and the table is still there. "
                f"Drop it without purge, or ask the administrator of the catalog to allow it"
            ) from exc

    def list_snapshots(self, identifier: TableName) -> Listing[SnapshotInfo]:
        """List the snapshots of a table, oldest first."""
        identifier = identifier_of(identifier)
        return Listing(snapshot_info(snapshot) for snapshot in self.load_table(identifier).snapshots())

    def scan(
        self,
        identifier: TableName,
        *,
        columns: Sequence[str] | None = None,
        row_filter: str | BooleanExpression | None = None,
        snapshot_id: int | None = None,
        as_of: datetime | None = None,
        ref: str | None = None,
        limit: int | None = None,
        check: Callable[[Table], None] | None = None,
        table: Table | None = None,
    ) -> DataScan:
        """Read a table with `.to_arrow()`, `.to_arrow_batch_reader()`, `.to_pandas()` or `.to_polars()`.

        At most one of `snapshot_id`, `as_of` and `ref` may be given. Columns then have the names that they had in that
        snapshot.

        Args:
            identifier: The table.
            columns: The columns to read. By default all.
            row_filter: The rows to read, such as `city = 'Oslo'`. It is pushed down to the files.
            snapshot_id: Read this snapshot.
            as_of: Read the snapshot that was current at this time.
            ref: Read the snapshot of this tag or branch.
            limit: The maximum number of rows.
            check: Called with the table as loaded; it refuses the table by raising.
            table: The table as the caller has loaded it. By default it is loaded now.
        """
        identifier = identifier_of(identifier)
        with (
            operation("iceberg.plan_scan", table=str(identifier), columns=columns, row_filter=row_filter, limit=limit),
            translated("scan", identifier),
        ):
            table = self.load_table(identifier) if table is None else table
            if check is not None:
                check(table)
            if snapshot_id is None and as_of is None and ref is None:
                table = self.as_shown(table, identifier)
            return scan(
                table,
                identifier,
                columns=columns,
                row_filter=row_filter,
                snapshot_id=snapshot_id,
                as_of=as_of,
                ref=ref,
                limit=limit,
            )

    def scan_changes(
        self,
        identifier: TableName,
        *,
        since: int,
        until: int | None = None,
        columns: Sequence[str] | None = None,
        row_filter: str | BooleanExpression | None = None,
    ) -> IncrementalAppendScan:
        """Read only the rows that were appended after a snapshot.

        Rows that were replaced or deleted in between are not reported; a warning counts the snapshots that did so. An
        expired `since` is an error: read the whole table once, and continue from the snapshot that was read.

        Args:
            identifier: The table.
            since: The snapshot after which rows are read.
            until: The last snapshot to read. By default the head.
            columns: The columns to read. By default all.
            row_filter: The rows to read.
        """
        identifier = identifier_of(identifier)
        with (
            operation("iceberg.plan_scan", table=str(identifier), since=since, until=until, columns=columns),
            translated("scan_changes", identifier),
        ):
            return scan_appends(
                self.as_shown(self.load_table(identifier), identifier),
                identifier,
                since=since,
                until=until,
                columns=columns,
                row_filter=row_filter,
            )

    def inspect(self, identifier: TableName) -> InspectTable:
        """Files, partitions, manifests, refs and history of a table as Arrow: `inspect(table).files()`."""
        identifier = identifier_of(identifier)
        return self.as_shown(self.load_table(identifier), identifier).inspect

    def find_write(self, identifier: TableName, write_id: str, *, branch: str = "main") -> SnapshotInfo | None:
        """Find the snapshot that a write committed; None if the write did not commit, or the table does not exist.

        Args:
            identifier: The table.
            write_id: The identity of the write.
            branch: The branch whose history is searched.
        """
        table = self.find_table(identifier_of(identifier))
        if branch == MAIN_BRANCH and self.at_branch is not None and table is not None and self.at_branch.has(table):
            branch = self.at_branch.name
        return next(iter(find_writes(table, write_id, branch=branch)), None) if table is not None else None

    def _is_placed_by_catalog(self, identifier: TableIdentifier) -> bool:
        """Does the catalog, not Floe, choose the location of its tables?"""
        namespace_uri = self.storage_plugin.get_warehouse_uri(str(Namespace(levels=identifier.namespace)))
        return self.catalog_plugin.table_location(identifier, namespace_uri) is None

    def refuse_moved(self, table: Table, identifier: TableName) -> None:
        """Refuse a table of a local lake that was moved or copied: its metadata still points to the old location.

        Args:
            table: The table as loaded.
            identifier: Its name.
        """
        identifier = identifier_of(identifier)
        if self._is_placed_by_catalog(identifier):
            return
        warehouse = self.storage_plugin.get_warehouse_uri()
        location = table.location()
        is_local = warehouse.startswith("file:") and location.startswith("file:")
        if not is_local or location.startswith(f"{warehouse}/"):
            return
        # The location of a registered table does not end like one of Floe's.
        is_placed = table.properties.get(PLACED) == location
        if (is_location_of(location, identifier) and not is_placed) or self._is_from_former_folder(table):
            raise FloeStorageError(
                f"this lake was moved or copied: table '{identifier}' lives at {location}, outside of {warehouse}, and "
                f"writing here would write there. Rewrite the paths of the lake with floe move, which shows them "
                f"first; or set storage.path in floe.yaml to the folder with the tables"
            )

    def _is_from_former_folder(self, table: Table) -> bool:
        """Was a table, which may be renamed, recorded when the warehouse or the project was in another folder?"""
        metadata = table.metadata
        log = [table.metadata_location, *(entry.metadata_file for entry in reversed(metadata.metadata_log))]
        folders = [local_address(self.storage_plugin.get_warehouse_uri())]
        if self.artifacts is not None:
            folders.append(str(self.artifacts.root.resolve()))
        return any(former_folder(metadata.location, log, folder) is not None for folder in folders if folder)

    def repair_timestamps(self, table: Table, identifier: TableName) -> Table:
        """Sort the timestamps of a table that Spark cannot load, as every commit to a catalog database does.

        A catalog server keeps the log itself. If the commit does not repair it, the table is refused with the reason.

        Args:
            table: The table as loaded.
            identifier: Its name.
        """
        identifier = identifier_of(identifier)
        self.refuse_moved(table, identifier)
        with translated("repair", identifier), table.transaction() as changes:
            changes.set_properties({REPAIRED_AT: str(now_ms())})
        repaired = self.load_table(identifier)
        refuse_disorder(repaired.metadata, identifier)
        return repaired

    def current_snapshot(self, identifier: TableName) -> SnapshotInfo | None:
        """The head of the table; None before its first write."""
        identifier = identifier_of(identifier)
        head = self.as_shown(self.load_table(identifier), identifier).current_snapshot()
        return snapshot_info(head) if head else None

    def create_tag(
        self,
        identifier: TableName,
        tag: str,
        *,
        snapshot_id: int | None = None,
        max_ref_age: timedelta | None = None,
    ) -> None:
        """Create a tag for a snapshot, which expiry then keeps.

        Args:
            identifier: The table.
            tag: The name of the tag.
            snapshot_id: The snapshot. By default the head.
            max_ref_age: The age at which expiry removes the tag. By default as set for the table, or never.
        """
        identifier = identifier_of(identifier)

        def create(table: Table) -> None:
            shown = table if snapshot_id is not None else self.as_shown(table, identifier)
            refs.create_ref(shown, identifier, tag, SnapshotRefType.TAG, snapshot_id=snapshot_id, max_age=max_ref_age)

        self._change("create_tag", identifier, create, ref=tag)

    def move_tag(self, identifier: TableName, tag: str, snapshot_id: int) -> None:
        """Move a tag to a snapshot, or create it. A concurrent move of the tag is a conflict.

        Args:
            identifier: The table.
            tag: The name of the tag.
            snapshot_id: The snapshot.
        """
        identifier = identifier_of(identifier)
        with self._changing("move_tag", identifier, ref=tag) as table:
            refs.move_tag(table, identifier, tag, snapshot_id)

    def create_branch(
        self,
        identifier: TableName,
        branch: str,
        *,
        snapshot_id: int | None = None,
        max_ref_age: timedelta | None = None,
    ) -> None:
        """Create a branch at a snapshot. Publish what is written to it with `fast_forward`.

        Args:
            identifier: The table.
            branch: The name of the branch.
            snapshot_id: The snapshot. By default the head.
            max_ref_age: The age at which expiry removes the branch. By default as set for the table, or never.
        """
        identifier = identifier_of(identifier)

        def create(table: Table) -> None:
            refs.create_ref(
                table, identifier, branch, SnapshotRefType.BRANCH, snapshot_id=snapshot_id, max_age=max_ref_age
            )

        self._change("create_branch", identifier, create, ref=branch)

    def remove_tag(self, identifier: TableName, tag: str) -> int:
        """Remove a tag, and return the id of its snapshot, which then expires like any other."""
        identifier = identifier_of(identifier)

        def remove(table: Table) -> int:
            return refs.remove_ref(table, identifier, tag, SnapshotRefType.TAG)

        return self._change("remove_tag", identifier, remove, ref=tag)

    def remove_branch(self, identifier: TableName, branch: str) -> int:
        """Remove a branch, and return the id of its head; snapshots that only it keeps then expire like any other."""
        identifier = identifier_of(identifier)

        def remove(table: Table) -> int:
            return refs.remove_ref(table, identifier, branch, SnapshotRefType.BRANCH)

        return self._change("remove_branch", identifier, remove, ref=branch)

    def fast_forward(self, identifier: TableName, branch: str, *, remove: bool = False) -> None:
        """Publish a branch: main becomes its head. It is refused if main has moved since the branch began.

        Args:
            identifier: The table.
            branch: The name of the branch.
            remove: Remove the branch in the same commit.
        """
        identifier = identifier_of(identifier)
        self.refuse_on_branch("publish a branch of a table")
        with self._changing("fast_forward", identifier, ref=branch) as table:
            refs.fast_forward(table, identifier, branch, remove=remove)

    def rollback_to_snapshot(
        self, identifier: TableName, snapshot_id: int, *, expected_head: int | None = None
    ) -> None:
        """Make an earlier snapshot the head again; nothing is deleted.

        Args:
            identifier: The table.
            snapshot_id: A snapshot in the history of main.
            expected_head: The head that `plan_rollback` showed. Another head is a conflict. By default any.
        """
        identifier = identifier_of(identifier)
        self.refuse_on_branch("roll a table back")
        with self._changing("rollback", identifier, snapshot_id=snapshot_id) as table:
            refs.move_main(table, identifier, snapshot_id, expected=expected_head)

    def restore_snapshot(self, identifier: TableName, snapshot_id: int) -> None:
        """Undo a rollback: make a snapshot that main was rolled back from the head again.

        Refused if main has other commits since then, which would be lost.

        Args:
            identifier: The table.
            snapshot_id: A snapshot that descends from main's head.
        """
        identifier = identifier_of(identifier)
        self.refuse_on_branch("restore a snapshot")
        with self._changing("restore", identifier, snapshot_id=snapshot_id) as table:
            refs.move_main_forward(table, identifier, snapshot_id)

    def rollback_to_timestamp(self, identifier: TableName, moment: datetime) -> None:
        """Make the snapshot that was current at a time the head again; nothing is deleted.

        Args:
            identifier: The table.
            moment: The time, with a time zone.
        """
        identifier = identifier_of(identifier)
        self.refuse_on_branch("roll a table back")
        with self._changing("rollback", identifier, timestamp=moment) as table:
            refs.move_main(table, identifier, refs.snapshot_at(table, identifier, moment).snapshot_id)

    @contextmanager
    def _changing(self, action: str, identifier: TableIdentifier, **facts: object) -> Iterator[Table]:
        with operation(f"iceberg.{action}", table=str(identifier), **facts), translated(action, identifier):
            table = self.load_table(identifier)
            self.refuse_moved(table, identifier)
            yield table

    def _change(
        self, action: str, identifier: TableIdentifier, apply: Callable[[Table], _Changed], **facts: object
    ) -> _Changed:
        """Change metadata, retrying conflicts as often as a write; never on a table that replaced the first one."""
        seen: set[uuid.UUID] = set()

        def attempt() -> _Changed:
            with self._changing(action, identifier, **facts) as table:
                seen.add(table.metadata.table_uuid)
                if len(seen) > 1:
                    raise replaced(identifier)
                return apply(table)

        return retrying(ATTEMPTS, lambda exc: is_conflict(exc) and len(seen) == 1)(attempt)

    def evolve_schema(
        self, identifier: TableName, *changes: ColumnChange, allow_incompatible_changes: bool = False
    ) -> Schema:
        """Change the schema in one commit, and return it.

        Args:
            identifier: The table.
            changes: The changes, such as `AddColumn("phone", pa.string())`, in the order in which they apply.
            allow_incompatible_changes: Allow DropColumn and MakeRequired.
        """
        identifier = identifier_of(identifier)
        self.refuse_on_branch("change the columns of a table")

        def evolve(table: Table) -> Schema:
            return apply_changes(table, identifier, changes, allow_incompatible_changes=allow_incompatible_changes)

        return self._change("evolve_schema", identifier, evolve, change=changes)

    def evolve_for(
        self, identifier: TableName, data: Schema, *, table: Table | None = None, evolve: bool = True
    ) -> SchemaChange:
        """Add and widen columns so that the table can store data of this schema, or raise an error with every problem.

        Args:
            identifier: The table.
            data: The schema of the data.
            table: The table as the caller has just loaded it. Only a second attempt loads it again.
            evolve: If False, a schema that needs a change is an error.
        """
        identifier = identifier_of(identifier)
        for attempt in retrying(ATTEMPTS, is_conflict):
            with attempt:
                current = table if table and attempt.retry_state.attempt_number == 1 else self.load_table(identifier)
                # After a conflict, plan against the new schema: the other writer may have added the column.
                change = plan_change(current.schema(), data, name=identifier, evolve=evolve)
                if change:
                    with (
                        operation("iceberg.evolve_schema", table=str(identifier), change=str(change)),
                        translated("evolve_schema", identifier),
                    ):
                        apply_change(current, change)
        return change

    def evolve_partitions(self, identifier: TableName, partition_by: Sequence[PartitionTransform]) -> PartitionSpec:
        """Change the partitioning of rows that are written from now on; existing files stay as they are.

        Args:
            identifier: The table.
            partition_by: The new partitioning; empty for none. A field that exists already keeps its name, unless its
                transform sets one.
        """
        identifier = identifier_of(identifier)
        self.refuse_on_branch("change the partitioning of a table")
        for attempt in retrying(ATTEMPTS, is_conflict):
            with attempt, self._changing("evolve_partitions", identifier, partition_by=partition_by) as table:
                spec = replace_spec(table, identifier, partition_by)
        return spec
