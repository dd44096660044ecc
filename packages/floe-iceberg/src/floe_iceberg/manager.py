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
    ConcurrencyConflictError,
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
from floe_iceberg.backoff import ATTEMPTS, retrying
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
from floe_iceberg.files.known_tables import ReadTable
from floe_iceberg.files.other_tables import Neighbours
from floe_iceberg.files.ownership import Homes, owned_location
from floe_iceberg.files.purge import Purge, finish_purge, plan_purge, refuse_shared, report_kept
from floe_iceberg.files.reachable import reached_files
from floe_iceberg.files.table_age import CREATED
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
from floe_iceberg.writing.arrow_source import ArrowData
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
    """What a manager does unless a call says otherwise."""

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


class IcebergTableManager(PhysicalMaintenance):
    """Tables of one catalog, by identifier."""

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
        """The tables of a compiled project, with its logs and spans; `close()` them, or leave it to the exit."""
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
            owned_locations=tuple(owned_location(one, artifacts.root) for one in artifacts.tables.owned_locations),
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
        """What the catalog is called in Spark SQL."""
        return self.catalog_plugin.catalog_name

    @property
    def _namespaces(self) -> Namespaces:
        return Namespaces(self._catalog, self.catalog_plugin, self._unlisted)

    def ensure_namespace(self, namespace: NamespaceName) -> None:
        """Create the namespace and its parents where they are missing."""
        namespace = namespace_of(namespace)
        self._namespaces.ensure(namespace)

    def create_namespace(
        self, namespace: NamespaceName, properties: Mapping[str, str] | None = None, *, if_not_exists: bool = False
    ) -> bool:
        """Create a namespace and its missing parents; True if it was not there before.

        One that is there with these properties (and perhaps more) is as good as created.

        Args:
            if_not_exists: Leave one that is there with other properties alone instead of raising
                NamespaceAlreadyExistsError.
        """
        namespace = namespace_of(namespace)
        return self._namespaces.create(namespace, properties or {}, if_not_exists=if_not_exists)

    def namespace_exists(self, namespace: NamespaceName) -> bool:
        namespace = namespace_of(namespace)
        return self._namespaces.exists(namespace)

    def list_namespaces(self, parent: NamespaceName | None = None, *, recursive: bool = False) -> list[Namespace]:
        """The namespaces directly in `parent`, or the outermost ones; `recursive` adds all that are below them."""
        parent = namespace_of(parent) if parent is not None else None
        return self._namespaces.below(parent, recursive=recursive)

    def load_namespace(self, namespace: NamespaceName) -> NamespaceInfo:
        """Its properties, those that the catalog gave it included, and the names of its tables."""
        namespace = namespace_of(namespace)
        return self._namespaces.load(namespace)

    def update_namespace(
        self,
        namespace: NamespaceName,
        *,
        set: Mapping[str, str] | None = None,  # noqa: A002 - the verb of SQL; the builtin is not needed here
        remove: Collection[str] = (),
    ) -> dict[str, str]:
        """Set and remove properties, all others stay; returns them as they are afterwards.

        One step on the embedded catalog; on a catalog server two requests, set before remove. If the second fails, the
        error names what was set, and the same update may be repeated.
        """
        namespace = namespace_of(namespace)
        return self._namespaces.update(namespace, set or {}, remove)

    def drop_namespace(self, namespace: NamespaceName) -> None:
        """Remove an empty namespace; one that holds something, even since a moment, stays with its properties."""
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
        """Create an empty table, and its namespace where that is missing.

        Args:
            schema: Field ids are given anew, documentation is kept.
            properties: Over Floe's defaults.
            location: A full address instead of the one that Floe or the catalog chooses; a catalog server may refuse
                it. The property `location` means the same.
            if_not_exists: Return the table that is there instead of raising TableAlreadyExistsError.
        """
        identifier = identifier_of(identifier)
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
        """A transaction that creates the table together with its first rows."""
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
        """Where a new table with these properties goes, and all its properties; None leaves the place to the catalog.

        Raises TableAlreadyExistsError if the table has been created by now.
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
        """Where a new table of this name goes unless its creator asks for another place."""
        identifier = identifier_of(identifier)
        namespace = str(Namespace(levels=identifier.namespace))
        location = self.catalog_plugin.table_location(identifier, self.storage_plugin.get_warehouse_uri(namespace))
        if location is None or not is_taken(self.storage_plugin.get_pyiceberg_fileio(), location):
            return location
        self._refuse_existing(identifier)  # otherwise it is the table's own metadata
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
        """Write rows in one commit and return its snapshot; a table that does not exist yet is created by it.

        Args:
            data: A pyarrow Table or RecordBatchReader (of any length), a pandas or polars DataFrame, a LazyFrame.
            mode: append; overwrite (the table, or what one of the next three says); upsert by `keys`.
            slice: The rows to replace; rows of the data outside of it are refused.
            overwrite_filter: The same by a filter such as `city = 'Oslo' AND day >= '2026-01-01'`.
            dynamic_partitions: Replace the partitions that the data has rows for.
            keys: The column by which an upsert finds the rows it replaces. Several need Spark.
            commit_strategy: fast_append (the default) leaves the manifests that are there, merge merges small ones
                once there are `commit.manifest.min-count-to-merge` (100) of them.
            branch: A branch made with `create_branch`; by default main.
            snapshot_properties: Kept in the snapshot's summary.
            write_id: A write whose id is found in the branch's history has happened already, and is not done again.
            partition_by: How a table that does not exist yet is partitioned.
            properties: Table properties for a table that does not exist yet; `location` places it.
            validate_from: The snapshot the data was made from: rows that changed since then are a conflict. By
                default, the head when the write begins.
            evolve: Let the table gain the columns and the wider types of the data.
            allow_empty: Let no rows replace all rows of a table.
            truncate_nanoseconds: Cut off what is finer than a microsecond, and count it in the snapshot's summary.
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
        """`write_data` as a request says; a target that was just loaded is not loaded again."""
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
        """Give a table another name; its files stay where they are."""
        identifier = identifier_of(identifier)
        to = identifier_of(to)
        with operation("iceberg.rename_table", table=str(identifier), to=str(to)):
            self.load_table(identifier)  # before a namespace is created for a table that does not exist
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
        """Take a table into the catalog whose files are there already; its newest metadata file says which.

        Registering a table under a second name lets the two drift apart: each goes on from here with the same files.
        """
        identifier = identifier_of(identifier)
        with (
            operation("iceberg.register_table", table=str(identifier), metadata_location=shown(metadata_location)),
            translated("register_table", identifier),
        ):
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
        """The table as it is now."""
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
        """The table as it is now, or None."""
        identifier = identifier_of(identifier)
        try:
            with translated("load_table", identifier):
                return self._catalog.load_table((*identifier.namespace, identifier.name))
        except TableNotFoundError:
            return None

    def table_exists(self, identifier: TableName) -> bool:
        identifier = identifier_of(identifier)
        return self.find_table(identifier) is not None

    def list_tables(self, namespace: NamespaceName) -> list[TableIdentifier]:
        namespace = namespace_of(namespace)
        return self._namespaces.tables(namespace)

    def neighbours(self) -> Neighbours:
        """The other tables of the catalog, as they are from now on when first asked about.

        What was read for an earlier question is not read again as long as the metadata of the table is the same.
        """
        return Neighbours(self._catalog, self._namespaces.every_table, self._read_tables)

    def homes(self) -> Homes:
        """Where files may be deleted: the warehouse, and what floe.yaml declares as owned."""
        return Homes(self.storage_plugin.get_warehouse_uri(), tuple(self.config.owned_locations))

    def drop_table(self, identifier: TableName, *, purge: bool = False) -> tuple[KeptFile, ...]:
        """Remove the table from the catalog; `purge` deletes the files that belong to it, and sees them gone.

        Those are the files that its metadata leads to, below its own location, in the warehouse or a declared location,
        that no other table of the catalog uses. Returned is what its metadata leads to besides, with the reason why it
        was not deleted; the log has it too.
        """
        identifier = identifier_of(identifier)
        with operation("iceberg.drop_table", table=str(identifier), purge=purge) as op:
            if not purge:
                self.catalog_plugin.drop_table(str(identifier))
                return ()
            with translated("drop_table", identifier):
                table = self.load_table(identifier)
                self.refuse_moved(table, identifier)
                refuse_shared(table, identifier)
                others = self.neighbours()
                others.refuse_same(table, identifier)
                if isinstance(self._catalog, SqlCatalog):  # a server does not list its other catalogs
                    others.refuse_unreadable(identifier)
                    others.refuse_used(identifier, lambda: reached_files(table))
                planned = plan_purge(table, identifier, self.homes(), others)
                others.refuse_same(table, identifier)  # again: since then others may have registered it
            self._drop_with_files(table, identifier, planned)
            finish_purge(table.io, planned.files, identifier)
            report_kept(identifier, planned.kept)
            op.set(files=len(planned.files), not_removed=len(planned.kept))
            return planned.kept

    def _drop_with_files(self, table: Table, identifier: TableIdentifier, planned: Purge) -> None:
        """Let a catalog server delete the files only if all of them may be deleted: it cannot keep some.

        The plugin of a catalog database would search for the same files a second time.
        """
        by_floe = planned.kept or type(self.catalog_plugin).drop_table is SqlCatalogPlugin.drop_table
        if by_floe or Homes(self.storage_plugin.get_warehouse_uri()).problem(table):
            self.catalog_plugin.drop_table(str(identifier))
            return
        try:
            self.catalog_plugin.drop_table(str(identifier), purge=True)
        except (PermissionDeniedError, NotImplementedError) as exc:
            raise PermissionDeniedError(
                f"the catalog does not delete the files of '{identifier}' ({exc}), and the table is still there. "
                f"Drop it without purge, or ask the administrator of the catalog to allow it"
            ) from exc

    def list_snapshots(self, identifier: TableName) -> list[SnapshotInfo]:
        """All snapshots, oldest first."""
        identifier = identifier_of(identifier)
        return [snapshot_info(snapshot) for snapshot in self.load_table(identifier).snapshots()]

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
    ) -> DataScan:
        """Read a table with `.to_arrow()`, `.to_arrow_batch_reader()`, `.to_pandas()` or `.to_polars()`.

        Columns and filter are pushed down; at most one of `snapshot_id`, `as_of` and `ref` names a moment of the past,
        and then columns have the names they had. `check` is called with the table as loaded, and may refuse it.
        """
        identifier = identifier_of(identifier)
        with (
            operation("iceberg.plan_scan", table=str(identifier), columns=columns, row_filter=row_filter, limit=limit),
            translated("scan", identifier),
        ):
            table = self.load_table(identifier)
            if check is not None:
                check(table)
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
        """Read, like a scan, only the rows appended after snapshot `since`, up to and including `until` or the head.

        Rows that were replaced or deleted in between are not told; a warning counts the snapshots that did so. A
        `since` that expired is an error: read the whole table once, and go on from the snapshot that you read.
        """
        identifier = identifier_of(identifier)
        with (
            operation("iceberg.plan_scan", table=str(identifier), since=since, until=until, columns=columns),
            translated("scan_changes", identifier),
        ):
            return scan_appends(
                self.load_table(identifier),
                identifier,
                since=since,
                until=until,
                columns=columns,
                row_filter=row_filter,
            )

    def inspect(self, identifier: TableName) -> InspectTable:
        """Files, partitions, manifests, refs and history, each as Arrow: `inspect(table).files()`."""
        identifier = identifier_of(identifier)
        return self.load_table(identifier).inspect

    def find_write(self, identifier: TableName, write_id: str, *, branch: str = "main") -> SnapshotInfo | None:
        """The snapshot a write made, or None if it did not commit; a write that did not create its table did not."""
        table = self.find_table(identifier_of(identifier))
        return next(iter(find_writes(table, write_id, branch=branch)), None) if table is not None else None

    def _is_placed_by_catalog(self, identifier: TableIdentifier) -> bool:
        """Does the catalog, not Floe, choose where its tables are?"""
        namespace_uri = self.storage_plugin.get_warehouse_uri(str(Namespace(levels=identifier.namespace)))
        return self.catalog_plugin.table_location(identifier, namespace_uri) is None

    def refuse_moved(self, table: Table, identifier: TableName) -> None:
        """A local lake that was moved or copied still points to where it was: writing here would write there."""
        identifier = identifier_of(identifier)
        if self._is_placed_by_catalog(identifier):
            return
        warehouse = self.storage_plugin.get_warehouse_uri()
        location = table.location()
        # The location of a registered table does not end like one of Floe's; that of a renamed one is in the warehouse.
        is_here = location.startswith(f"{warehouse}/")
        local = warehouse.startswith("file:") and location.startswith("file:")
        asked_for = table.properties.get(PLACED) == location
        moved = local and is_location_of(location, identifier) and not is_here and not asked_for
        if moved:
            raise FloeStorageError(
                f"this lake was moved or copied: table '{identifier}' lives at {location}, outside of {warehouse}, and "
                f"writing here would write there. Move the project back to where it was, or set storage.path in "
                f"floe.yaml to the folder with the tables, if they are to be used from here"
            )

    def repair_timestamps(self, table: Table, identifier: TableName) -> Table:
        """Sort the timestamps of a table that Spark cannot load, as every commit to a catalog database does.

        A catalog server keeps the log itself; where the commit changes nothing, the table is refused with the reason.
        """
        identifier = identifier_of(identifier)
        with translated("repair", identifier), table.transaction() as changes:
            changes.set_properties({REPAIRED_AT: str(now_ms())})
        repaired = self.load_table(identifier)
        refuse_disorder(repaired.metadata, identifier)
        return repaired

    def current_snapshot(self, identifier: TableName) -> SnapshotInfo | None:
        """The head of the table; None before its first write."""
        identifier = identifier_of(identifier)
        head = self.load_table(identifier).current_snapshot()
        return snapshot_info(head) if head else None

    def create_tag(
        self,
        identifier: TableName,
        tag: str,
        *,
        snapshot_id: int | None = None,
        max_ref_age: timedelta | None = None,
    ) -> None:
        """Name a snapshot, by default the head: expiry keeps it until the tag is older than `max_ref_age`."""
        identifier = identifier_of(identifier)

        def create(table: Table) -> None:
            refs.create_ref(table, identifier, tag, SnapshotRefType.TAG, snapshot_id=snapshot_id, max_age=max_ref_age)

        self._change("create_tag", identifier, create, ref=tag)

    def move_tag(self, identifier: TableName, tag: str, snapshot_id: int) -> None:
        """Let a tag point to this snapshot, whether it is there yet or not, unless somebody else moves it meanwhile."""
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
        """Let a branch begin at a snapshot, by default the head; expiry removes it once older than `max_ref_age`."""
        identifier = identifier_of(identifier)

        def create(table: Table) -> None:
            refs.create_ref(
                table, identifier, branch, SnapshotRefType.BRANCH, snapshot_id=snapshot_id, max_age=max_ref_age
            )

        self._change("create_branch", identifier, create, ref=branch)

    def remove_tag(self, identifier: TableName, tag: str) -> None:
        identifier = identifier_of(identifier)

        def remove(table: Table) -> None:
            refs.remove_ref(table, identifier, tag, SnapshotRefType.TAG)

        self._change("remove_tag", identifier, remove, ref=tag)

    def remove_branch(self, identifier: TableName, branch: str) -> None:
        identifier = identifier_of(identifier)

        def remove(table: Table) -> None:
            refs.remove_ref(table, identifier, branch, SnapshotRefType.BRANCH)

        self._change("remove_branch", identifier, remove, ref=branch)

    def fast_forward(self, identifier: TableName, branch: str, *, remove: bool = False) -> None:
        """Publish a branch: main becomes its head, if main did not move since the branch began."""
        identifier = identifier_of(identifier)
        with self._changing("fast_forward", identifier, ref=branch) as table:
            refs.fast_forward(table, identifier, branch, remove=remove)

    def rollback_to_snapshot(self, identifier: TableName, snapshot_id: int) -> None:
        """Make an earlier snapshot of the table's history its head again; nothing is deleted."""
        identifier = identifier_of(identifier)
        with self._changing("rollback", identifier, snapshot_id=snapshot_id) as table:
            refs.move_main(table, identifier, snapshot_id)

    def rollback_to_timestamp(self, identifier: TableName, moment: datetime) -> None:
        """Make the snapshot that was current at a moment the head again."""
        identifier = identifier_of(identifier)
        with self._changing("rollback", identifier, timestamp=moment) as table:
            refs.move_main(table, identifier, refs.snapshot_at(table, identifier, moment).snapshot_id)

    @contextmanager
    def _changing(self, what: str, identifier: TableIdentifier, **facts: object) -> Iterator[Table]:
        with operation(f"iceberg.{what}", table=str(identifier), **facts), translated(what, identifier):
            yield self.load_table(identifier)

    def _change(
        self, what: str, identifier: TableIdentifier, apply: Callable[[Table], _Changed], **facts: object
    ) -> _Changed:
        """Change metadata, retrying conflicts as often as a write; never on a table that replaced the first one."""
        seen: set[uuid.UUID] = set()

        def attempt() -> _Changed:
            with self._changing(what, identifier, **facts) as table:
                seen.add(table.metadata.table_uuid)
                if len(seen) > 1:
                    raise replaced(identifier)
                return apply(table)

        return retrying(ATTEMPTS, lambda exc: _is_conflict(exc) and len(seen) == 1)(attempt)

    def evolve_schema(
        self, identifier: TableName, *changes: ColumnChange, allow_incompatible_changes: bool = False
    ) -> Schema:
        """Change the schema as told, all in one commit: `evolve_schema(t, AddColumn("phone", pa.string()))`.

        Dropping a column and making one required need `allow_incompatible_changes`.
        """
        identifier = identifier_of(identifier)

        def evolve(table: Table) -> Schema:
            return apply_changes(table, identifier, changes, allow_incompatible_changes=allow_incompatible_changes)

        return self._change("evolve_schema", identifier, evolve, change=changes)

    def evolve_for(
        self, identifier: TableName, data: Schema, *, table: Table | None = None, evolve: bool = True
    ) -> SchemaChange:
        """Make the table take this data: add and widen columns, or refuse and name every field in the way.

        `table` is the table as the caller has just loaded it, to save a look.
        """
        identifier = identifier_of(identifier)
        for attempt in retrying(ATTEMPTS, _is_conflict):
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
        """Partition what is written from now on in another way, or not at all; files that are there stay as they are.

        A field that is there already keeps its name, unless the transform gives it one.
        """
        identifier = identifier_of(identifier)
        for attempt in retrying(ATTEMPTS, _is_conflict):
            with attempt, self._changing("evolve_partitions", identifier, partition_by=partition_by) as table:
                spec = replace_spec(table, identifier, partition_by)
        return spec


def _is_conflict(exc: BaseException) -> bool:
    return isinstance(exc, ConcurrencyConflictError)
