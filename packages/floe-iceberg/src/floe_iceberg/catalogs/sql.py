"""Catalog plugin `sql`: the tables of one database, shared by PyIceberg and Spark."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Protocol

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.table import StagedTable, Table
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import Identifier
from sqlalchemy import Engine
from sqlalchemy.exc import IntegrityError, OperationalError
from tenacity import retry, retry_if_exception, stop_after_attempt, wait_random

from floe_core import __version__
from floe_core.config import LocalStorageConfig, PostgresAddress, SqlCatalogConfig, is_postgres, resolve_model
from floe_core.disk import usable_path
from floe_core.errors import ConfigurationError, DamagedFileError, FloeStorageError
from floe_core.identifiers import Namespace, TableIdentifier
from floe_core.observability import note, operation, warn
from floe_core.plugins import FLOE_API_VERSION, CatalogPlugin, HealthStatus, PluginMetadata, StoragePlugin
from floe_core.retry import Retry
from floe_iceberg.catalog_rows import RowName, load_previous, load_row, table_rows, tables_by_catalog
from floe_iceberg.catalogs.database_retry import RetryingSqlCatalog, is_away
from floe_iceberg.catalogs.locations import fresh_location, is_taken, taken
from floe_iceberg.catalogs.sqlite import SqliteFile
from floe_iceberg.errors import sql_state, translated
from floe_iceberg.files.containment import may_overlap
from floe_iceberg.snapshots.timestamps import in_order, now_ms, stamped
from floe_iceberg.storage.local import LocalStoragePlugin

__all__ = ["SqlCatalogPlugin"]

_REPORTED: set[tuple[str, str]] = set()


class _Database(Protocol):
    """The database with the catalog's own tables. `str()` gives its address without secrets."""

    jdbc_jar: ClassVar[str]

    def open(self) -> Engine: ...

    def jdbc_settings(self) -> dict[str, str]:
        """The catalog properties with which Spark opens the same database."""
        ...


class SqlCatalogPlugin(CatalogPlugin):
    """A catalog without a server of its own: an SQLite file, or a PostgreSQL database."""

    metadata: ClassVar[PluginMetadata] = PluginMetadata(
        name="sql",
        version=__version__,
        floe_api_version=FLOE_API_VERSION,
        description="an SQLite file or a PostgreSQL database",
    )

    def __init__(self, config: SqlCatalogConfig, *, root: Path) -> None:
        self._config = config
        self._root = root
        self._catalog: SqlCatalog | None = None
        self._retry: Retry | None = None

    @property
    def catalog_name(self) -> str:
        return self._config.name

    @classmethod
    def get_config_schema(cls) -> type[SqlCatalogConfig]:
        return SqlCatalogConfig

    @property
    def database(self) -> _Database:
        uri = resolve_model(self._config, root=self._root).uri
        if is_postgres(uri):
            return _postgres(PostgresAddress.parse(uri, root=self._root.resolve()))
        return SqliteFile(usable_path(self._root / uri.removeprefix("sqlite:///")))

    def connect(self) -> SqlCatalog:
        if self._catalog is None:
            database = self.database
            with (
                operation("sql.connect", uri=str(database), catalog=self.catalog_name),
                translated("sql.connect", database, namespace=True),
            ):
                policy = self._retry_policy(database)
                self._catalog = policy.call(lambda: _open(database, self.catalog_name, self._files, policy))
                _report_others(self._catalog, database)
        return self._catalog

    def _retry_policy(self, database: _Database) -> Retry:
        """Shared by all connections of the plugin, so that its circuit breaker keeps its state."""
        if self._retry is None:
            self._retry = Retry(self._config.retry, f"the catalog database {database}", is_transient=is_away)
        return self._retry

    @property
    def _files(self) -> StoragePlugin:
        """The storage that was given, or the default of a floe.yaml without one."""
        return self.storage or LocalStoragePlugin(LocalStorageConfig(), root=self._root)

    def shutdown(self) -> None:
        if self._catalog is not None:
            self._catalog.engine.dispose()
            self._catalog = None

    def health_check(self) -> HealthStatus:
        count = len(self.list_namespaces())
        others = _other_catalogs(self.connect())
        note_on_others = f"; other catalogs in it have tables: {_named(others)}" if others else ""
        return HealthStatus(healthy=True, message=f"{self.database} ({count} namespaces){note_on_others}")

    def get_spark_conf(self, catalog_name: str, warehouse: str) -> dict[str, str]:
        self.connect()  # creates the tables in the layout that both engines support
        prefix, database = f"spark.sql.catalog.{catalog_name}", self.database
        return {
            prefix: "org.apache.iceberg.spark.SparkCatalog",
            f"{prefix}.type": "jdbc",
            f"{prefix}.jdbc.schema-version": "V1",
            # For CREATE TABLE in SQL, which does not check whether its location is taken.
            f"{prefix}.unique-table-location": "true",
            **{f"{prefix}.{key}": value for key, value in database.jdbc_settings().items()},
            f"{prefix}.warehouse": warehouse,
            "spark.jars.packages": database.jdbc_jar,
        }

    def table_location(self, identifier: TableIdentifier, namespace_uri: str) -> str:
        return f"{namespace_uri}/{identifier.name}"  # like Spark; PyIceberg itself would join the levels by dots

    def create_namespace(self, namespace: str, properties: Mapping[str, str] | None = None) -> None:
        levels = Namespace.from_string(namespace).levels
        with translated("sql.create_namespace", namespace, namespace=True):
            try:
                self.connect().create_namespace(levels, dict(properties or {}))
            except IntegrityError as exc:  # another process created it between PyIceberg's check and its insert
                raise NamespaceAlreadyExistsError(namespace) from exc

    def list_namespaces(self, parent: str | None = None) -> list[str]:
        levels = Namespace.from_string(parent).levels if parent else ()
        with translated("sql.list_namespaces", parent or self.catalog_name, namespace=True):
            return sorted(".".join(name) for name in self.connect().list_namespaces(levels))

    def delete_namespace(self, namespace: str) -> None:
        with translated("sql.delete_namespace", namespace, namespace=True):
            self.connect().drop_namespace(Namespace.from_string(namespace).levels)

    def create_table(self, identifier: str, schema: Any, *, location: str | None = None) -> None:
        table = TableIdentifier.from_string(identifier)
        with translated("sql.create_table", table):
            location = self._new_location(table, self._files, requested=location)
            self.connect().create_table((*table.namespace, table.name), schema, location=location)

    def _new_location(self, table: TableIdentifier, storage: StoragePlugin, *, requested: str | None) -> str:
        namespace, io = str(Namespace(levels=table.namespace)), storage.get_pyiceberg_fileio()
        location = requested or self.table_location(table, storage.get_warehouse_uri(namespace))
        if not is_taken(io, location):
            return location
        if self.connect().table_exists((*table.namespace, table.name)):
            raise TableAlreadyExistsError(str(table))
        if requested is not None:
            raise taken(requested, table)
        return fresh_location(location)

    def list_tables(self, namespace: str) -> list[str]:
        with translated("sql.list_tables", namespace, namespace=True):
            return sorted(name[-1] for name in self.connect().list_tables(Namespace.from_string(namespace).levels))

    def drop_table(self, identifier: str, *, purge: bool = False) -> None:
        table = TableIdentifier.from_string(identifier)
        with translated("sql.drop_table", table):
            catalog = self.connect()
            if purge:
                _refuse_second_name(catalog, table)
            (catalog.purge_table if purge else catalog.drop_table)((*table.namespace, table.name))


class _NestedCatalog(RetryingSqlCatalog):
    """PyIceberg's SQL catalog; tables of nested namespaces can also be created together with their rows."""

    def __init__(self, engine: Engine, name: str, storage: StoragePlugin, retry: Retry) -> None:
        self.connected_by(retry)
        super().__init__(engine, name, storage)

    @staticmethod
    def identifier_to_database_and_table(
        identifier: str | Identifier,
        err: type[ValueError] | type[NoSuchTableError] | type[NoSuchNamespaceError] = ValueError,
    ) -> tuple[str, str]:
        del err
        *levels, name = SqlCatalog.identifier_to_tuple(identifier)
        return ".".join(levels), name  # the form of the names in the catalog's database

    def stage_update(
        self,
        current_table: Table | None,
        table_identifier: Identifier,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> StagedTable:
        """Stamp each commit so that Spark can load the table, whatever the local clock and earlier commits."""
        base = current_table.metadata if current_table is not None else None
        stamps = updates if base is None else stamped(updates, base)
        staged = super().stage_update(current_table, table_identifier, requirements, stamps)
        staged.metadata = in_order(staged.metadata, now_ms(), base)
        return staged


def _postgres(address: PostgresAddress) -> _Database:
    try:
        from floe_iceberg.catalogs.postgres import PostgresDatabase
    except ModuleNotFoundError as exc:
        raise ConfigurationError(
            f"a catalog in PostgreSQL needs a driver ({exc.name} is missing): pip install 'floe-iceberg[postgres]'"
        ) from exc
    return PostgresDatabase(address)


def _was_created_concurrently(exc: BaseException) -> bool:
    """Two processes that open a new catalog at once both find no tables, and the slower CREATE TABLE fails."""
    # PostgreSQL reports that the table exists, or its type, depending on the progress of the other process.
    return isinstance(exc, OperationalError | sqlite3.OperationalError) or sql_state(exc) in ("42P07", "42710", "23505")


@retry(
    retry=retry_if_exception(_was_created_concurrently),
    stop=stop_after_attempt(10),
    wait=wait_random(0.05, 0.3),
    reraise=True,
)
def _open(database: _Database, name: str, storage: StoragePlugin, policy: Retry) -> SqlCatalog:
    engine = database.open()
    try:
        return _NestedCatalog(engine, name, storage, policy)
    except BaseException:
        engine.dispose()
        raise


def _report_others(catalog: SqlCatalog, database: _Database) -> None:
    """Report other catalogs of the database, once per process: an empty one may have been opened by the wrong name."""
    others, seen = _other_catalogs(catalog), (str(database), catalog.name)
    if not others or seen in _REPORTED:
        return
    _REPORTED.add(seen)
    if tables_by_catalog(catalog).get(catalog.name):
        note("other_catalogs", database=str(database), catalogs=", ".join(others))
    else:
        warn(
            f"catalog {catalog.name!r} has no tables, but other catalogs in the same database do: {_named(others)}",
            database=str(database),
        )


def _other_catalogs(catalog: SqlCatalog) -> dict[str, int]:
    return {name: count for name, count in sorted(tables_by_catalog(catalog).items()) if name != catalog.name}


def _named(others: Mapping[str, int]) -> str:
    """The other catalogs with their numbers of tables, and the line of floe.yaml that selects one."""
    listed = ", ".join(f"{name!r} ({count})" for name, count in others.items())
    return f"{listed}. To use one of them, write in floe.yaml: catalog: {{type: sql, name: {next(iter(others))}}}"


def _refuse_second_name(catalog: SqlCatalog, identifier: TableIdentifier) -> None:
    """Refuse a table that is registered twice, also in another catalog: both names share the same files."""
    table = catalog.load_table((*identifier.namespace, identifier.name))
    own = RowName((*identifier.namespace, identifier.name))
    for row, metadata in table_rows(catalog).items():
        if row != own and _is_same(catalog, row, metadata, table):
            raise FloeStorageError(
                f"'{row}' is the same table as '{identifier}', so its files are not deleted. Drop one of the two "
                f"without purge first"
            )


def _is_same(catalog: SqlCatalog, row: RowName, metadata: str, table: Table) -> bool:
    """Is a row of the database this table? A damaged one is, unless its metadata shows otherwise or lies elsewhere."""
    uuid = table.metadata.table_uuid
    try:
        return load_row(catalog, row).metadata.table_uuid == uuid
    except (NoSuchTableError, FileNotFoundError):  # dropped since it was listed, or its files are gone
        return False
    except DamagedFileError:
        try:
            return load_previous(catalog, row).metadata.table_uuid == uuid
        except (NoSuchTableError, FileNotFoundError, DamagedFileError):
            return may_overlap(metadata, table.location())
