"""Catalog plugin `sql`: one SQLite file that PyIceberg and Spark read and write together."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar
from uuid import UUID

from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError, NoSuchNamespaceError, NoSuchTableError
from pyiceberg.typedef import Identifier
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.orm import Session
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_random

from floe_core import __version__
from floe_core.errors import FloeStorageError
from floe_core.identifiers import Namespace, TableIdentifier
from floe_core.jvm import SQLITE_JDBC
from floe_core.plugins import FLOE_API_VERSION
from floe_core.ports import CatalogPlugin, HealthStatus, PluginMetadata
from floe_core.references import resolve_model
from floe_core.spec import CATALOG_NAME, SqlCatalogConfig
from floe_iceberg.errors import translated
from floe_iceberg.local_storage import usable_path

__all__ = ["BUSY_SECONDS", "SqlCatalogPlugin"]

# How long a process waits for another one's lock on the SQLite file, in both engines.
BUSY_SECONDS = 60


class SqlCatalogPlugin(CatalogPlugin):
    """The embedded catalog. Several processes may use the file at once."""

    metadata: ClassVar[PluginMetadata] = PluginMetadata(
        name="sql", version=__version__, floe_api_version=FLOE_API_VERSION, description="an SQLite file"
    )

    def __init__(self, config: SqlCatalogConfig, *, root: Path) -> None:
        self._config = config
        self._root = root
        self._catalog: SqlCatalog | None = None

    @classmethod
    def get_config_schema(cls) -> type[SqlCatalogConfig]:
        return SqlCatalogConfig

    @property
    def path(self) -> Path:
        uri = resolve_model(self._config, root=self._root).uri
        return usable_path(self._root / uri.removeprefix("sqlite:///"))

    def connect(self) -> SqlCatalog:
        if self._catalog is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with translated("sql.connect", self.path.name, namespace=True):
                self._catalog = _open(self.path)
        return self._catalog

    def shutdown(self) -> None:
        if self._catalog is not None:
            self._catalog.engine.dispose()
            self._catalog = None

    def health_check(self) -> HealthStatus:
        count = len(self.connect().list_namespaces())
        return HealthStatus(healthy=True, message=f"{self.path} ({count} namespaces)")

    def get_spark_conf(self, catalog_name: str, warehouse: str) -> dict[str, str]:
        self.connect()  # creates the file and its tables in the layout that both engines know
        prefix = f"spark.sql.catalog.{catalog_name}"
        return {
            prefix: "org.apache.iceberg.spark.SparkCatalog",
            f"{prefix}.type": "jdbc",
            f"{prefix}.uri": f"jdbc:sqlite:{self.path}",
            f"{prefix}.jdbc.schema-version": "V1",
            f"{prefix}.jdbc.busy_timeout": str(BUSY_SECONDS * 1000),
            f"{prefix}.warehouse": warehouse,
            "spark.jars.packages": SQLITE_JDBC,
        }

    def table_location(self, identifier: TableIdentifier, namespace_uri: str) -> str:
        return f"{namespace_uri}/{identifier.name}"  # as Spark does it; PyIceberg alone would join the levels by dots

    def create_namespace(self, namespace: str, properties: Mapping[str, str] | None = None) -> None:
        levels = Namespace.from_string(namespace).levels
        with translated("sql.create_namespace", namespace, namespace=True):
            try:
                self.connect().create_namespace(levels, dict(properties or {}))
            except IntegrityError as exc:  # another process was quicker between PyIceberg's look and its insert
                raise NamespaceAlreadyExistsError(namespace) from exc

    def list_namespaces(self, parent: str | None = None) -> list[str]:
        levels = Namespace.from_string(parent).levels if parent else ()
        with translated("sql.list_namespaces", parent or CATALOG_NAME, namespace=True):
            return sorted(".".join(found) for found in self.connect().list_namespaces(levels))

    def delete_namespace(self, namespace: str) -> None:
        with translated("sql.delete_namespace", namespace, namespace=True):
            self.connect().drop_namespace(Namespace.from_string(namespace).levels)

    def create_table(self, identifier: str, schema: Any, *, location: str | None = None) -> None:
        table = TableIdentifier.from_string(identifier)
        with translated("sql.create_table", table):
            self.connect().create_table((*table.namespace, table.name), schema, location=location)

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

    def vend_credentials(self, table_path: str, operations: Sequence[str]) -> dict[str, str]:
        del table_path, operations  # files on this machine need no credentials
        return {}


class _NestedCatalog(SqlCatalog):
    """PyIceberg's, in which tables of nested namespaces can be created together with their rows as well."""

    @staticmethod
    def identifier_to_database_and_table(
        identifier: str | Identifier,
        err: type[ValueError] | type[NoSuchTableError] | type[NoSuchNamespaceError] = ValueError,
    ) -> tuple[str, str]:
        del err
        *levels, name = SqlCatalog.identifier_to_tuple(identifier)
        return ".".join(levels), name  # as the catalog's own rows name them


# Two processes that open a new file at once both find no tables, and the slower one's CREATE TABLE fails.
@retry(
    retry=retry_if_exception_type((OperationalError, sqlite3.OperationalError)),
    stop=stop_after_attempt(10),
    wait=wait_random(0.05, 0.3),
    reraise=True,
)
def _open(path: Path) -> SqlCatalog:
    with closing(sqlite3.connect(path, timeout=BUSY_SECONDS)) as connection:
        # Readers go on while one process writes; the setting stays with the file.
        connection.execute("PRAGMA journal_mode=WAL")
    return _NestedCatalog(CATALOG_NAME, uri=f"sqlite:///{path}?timeout={BUSY_SECONDS}")


def _refuse_second_name(catalog: SqlCatalog, identifier: TableIdentifier) -> None:
    """A table can be registered twice; then the files of one name are those of the other."""
    table = catalog.load_table((*identifier.namespace, identifier.name))
    everywhere = select(IcebergTables.table_namespace, IcebergTables.table_name).where(
        IcebergTables.catalog_name == catalog.name
    )
    with Session(catalog.engine) as session:
        names = [(*namespace.split("."), name) for namespace, name in session.execute(everywhere)]
    for name in names:
        if name != table.name() and _uuid(catalog, name) == table.metadata.table_uuid:
            raise FloeStorageError(
                f"'{'.'.join(name)}' is the same table as '{identifier}', so its files are not deleted. Drop one of "
                f"the two without purge first"
            )


def _uuid(catalog: SqlCatalog, name: Identifier) -> UUID | None:
    try:
        return catalog.load_table(name).metadata.table_uuid
    except (NoSuchTableError, FileNotFoundError):  # dropped meanwhile, or without its files already
        return None
