"""The interfaces of plugins: catalogs, storages, engines and orchestrators. Other packages implement them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, ClassVar, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from floe_core.config.catalog_name import CATALOG_NAME
from floe_core.config.policy import CompactionStrategy
from floe_core.identifiers import TableIdentifier, TableSlice
from floe_core.maintenance.reports import CompactReport, ExpireReport, ManifestsReport, OrphansReport, StatisticsReport
from floe_core.models import SchemaDrift

__all__ = [
    "Catalog",
    "CatalogPlugin",
    "ComputePlugin",
    "DividedFrame",
    "DriftDetectorProtocol",
    "FileIO",
    "HealthStatus",
    "OrchestratorPlugin",
    "Plugin",
    "PluginMetadata",
    "StoragePlugin",
]


@runtime_checkable
class FileIO(Protocol):
    """Access to the files of a table: the methods of PyIceberg's FileIO."""

    def new_input(self, location: str) -> Any: ...

    def new_output(self, location: str) -> Any: ...

    def delete(self, location: str) -> None: ...


@runtime_checkable
class Catalog(Protocol):
    """The part of a PyIceberg catalog that Floe relies on everywhere."""

    def list_namespaces(self, namespace: Any = ()) -> Any: ...

    def list_tables(self, namespace: Any) -> Any: ...

    def load_table(self, identifier: Any) -> Any: ...


@runtime_checkable
class DriftDetectorProtocol(Protocol):
    """Compares a table with a declared schema."""

    def detect(self, identifier: TableIdentifier, declared: Any) -> SchemaDrift: ...


class PluginMetadata(BaseModel):
    """The identity of a plugin, and the version of the plugin API it was made for."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]*$")]
    version: Annotated[str, StringConstraints(pattern=r"^\d+\.\d+\.\d+$")]
    floe_api_version: Annotated[str, StringConstraints(pattern=r"^\d+\.\d+$")]
    description: str = ""
    dependencies: tuple[str, ...] = Field(
        default=(), description="names of plugins, of any kind, that must be installed for this one to work"
    )


class HealthStatus(BaseModel):
    """Whether a plugin works, and if not, the next step."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    healthy: bool
    message: str = ""


class Plugin(ABC):
    """A component made from its settings; references in them are resolved when it connects, not before."""

    metadata: ClassVar[PluginMetadata]

    @abstractmethod
    def __init__(self, config: BaseModel, *, root: Path) -> None:
        """`root` is the folder that relative paths and `${file:…}` start from."""

    @classmethod
    def get_config_schema(cls) -> type[BaseModel] | None:
        """The settings this plugin takes in floe.yaml, or None if it takes none."""
        return None

    def startup(self) -> None:  # noqa: B027 - most plugins have nothing to start
        """Called once before use; it may take 30 seconds."""

    def shutdown(self) -> None:  # noqa: B027 - most plugins have nothing to stop
        """Called at most once, after use: by `close()` of the lake that opened the plugin, else when the process exits.

        It is not called for a plugin that was garbage-collected because its lake was not closed: release resources in
        a finalizer, too.
        At exit it may run in another thread, and all plugins together have 10 seconds. A forked process does not shut
        down the plugins of its parent.
        """

    def health_check(self) -> HealthStatus:
        """Whether it works now; it may take 5 seconds."""
        return HealthStatus(healthy=True)


class CatalogPlugin(Plugin):
    """A catalog that both engines use: PyIceberg through `connect`, Spark through `get_spark_conf`."""

    storage: StoragePlugin | None = None

    @property
    def catalog_name(self) -> str:
        """The name of the catalog in Spark SQL: `SELECT * FROM lake.bronze.orders`."""
        return CATALOG_NAME

    @abstractmethod
    def connect(self) -> Catalog:
        """The PyIceberg catalog; the same object each time."""

    @abstractmethod
    def get_spark_conf(self, catalog_name: str, warehouse: str) -> dict[str, str]:
        """Spark settings for the same catalog, the jars it needs in `spark.jars.packages` included."""

    def check_for_spark(self) -> None:
        """Raise if Spark must not use this catalog, because its server sends settings that Java would act on."""

    def use_storage(self, storage: StoragePlugin) -> None:
        """Called before `connect` when a lake is opened, with the storage of its files."""
        self.storage = storage

    def diagnose(self) -> Iterator[tuple[str, Callable[[], str]]]:
        """For `floe doctor`: the steps of a connection, each a name and a check that returns its finding or raises.

        Without steps, `floe doctor` runs `health_check` only.
        """
        return iter(())

    def table_location(self, identifier: TableIdentifier, namespace_uri: str) -> str | None:
        """The location of a new table; None leaves it to the catalog, as a catalog server expects."""
        del identifier, namespace_uri
        return None

    @abstractmethod
    def create_namespace(self, namespace: str, properties: Mapping[str, str] | None = None) -> None: ...

    @abstractmethod
    def list_namespaces(self, parent: str | None = None) -> list[str]: ...

    @abstractmethod
    def delete_namespace(self, namespace: str) -> None: ...

    @abstractmethod
    def create_table(self, identifier: str, schema: Any, *, location: str | None = None) -> None:
        """Register a table, nothing more; IcebergTableManager does the rest."""

    @abstractmethod
    def list_tables(self, namespace: str) -> list[str]: ...

    @abstractmethod
    def drop_table(self, identifier: str, *, purge: bool = False) -> None: ...

    def vend_credentials(self, table_path: str) -> dict[str, str]:
        """The credentials that the catalog vends for the files of one table, as PyIceberg's properties; empty if none.

        `floe doctor` reports them. The catalog decides what they permit.
        """
        del table_path
        return {}


class StoragePlugin(Plugin):
    """The storage of the files of tables."""

    @abstractmethod
    def get_pyiceberg_fileio(self) -> FileIO:
        """The `pyiceberg.io.FileIO` that PyIceberg reads, writes and deletes all files of tables with.

        A plain `PyArrowFileIO` may be replaced by one that adds vended credentials to `get_pyiceberg_properties`; any
        other class is used unchanged, and vended credentials are ignored.
        """

    def get_pyiceberg_properties(self) -> dict[str, str]:
        """The properties of a plain `PyArrowFileIO` for the same files; local files need none."""
        return {}

    @abstractmethod
    def get_warehouse_uri(self, namespace: str | None = None) -> str:
        """The address under which tables are stored, of one namespace or of all."""

    @abstractmethod
    def get_spark_conf(self, catalog_name: str) -> dict[str, str]:
        """Spark settings for the same files."""


class OrchestratorPlugin(Plugin):
    """Runs the pipeline of a project; created from the settings of `pipeline`."""

    @abstractmethod
    def definitions_in(self, module: ModuleType) -> Any:
        """The pipeline that the user's module holds; ConfigurationError if it does not hold exactly one."""


@dataclass(frozen=True)
class DividedFrame:
    """The rows of a DataFrame, divided by conditions.

    Attributes:
        kept: The rows that meet none of the conditions.
        moved: The others, with the names of the conditions that they meet in `floe_failed_checks`.
        counts: How many rows were moved, by these names.
    """

    kept: Any
    moved: Any
    counts: Mapping[str, int]


class ComputePlugin(Plugin):
    """The data plane: DataFrames, and physical maintenance, which deletes or rewrites the files of tables."""

    @abstractmethod
    def use_lake(self, lake: Any) -> None:
        """Called once, before use, with the `floe_iceberg.Lake` whose tables the engine works on."""

    def session(self) -> Any:
        """The session of an engine that has DataFrames."""
        raise NotImplementedError(f"{type(self).__name__} has no session for DataFrames")

    @property
    def has_session(self) -> bool:
        """Whether a session on the lake's catalog is running in this process."""
        return False

    def reading(self, identifier: TableIdentifier, **options: Any) -> Any:
        """A table as a DataFrame, with the snapshot that it reads."""
        raise NotImplementedError(f"{type(self).__name__} reads no DataFrames")

    def query(self, text: str, tables: Sequence[tuple[TableIdentifier, Any, int | None]]) -> Any:
        """Start a query in the SQL of the engine, and return a `floe_iceberg.query.QueryResult`.

        It was checked: it is one query, and reads these tables, each with its snapshot, and nothing else.
        """
        raise NotImplementedError(f"{type(self).__name__} runs no SQL")

    def write(self, frame: Any, identifier: TableIdentifier, **options: Any) -> Any:
        """Write a DataFrame."""
        raise NotImplementedError(f"{type(self).__name__} writes no DataFrames")

    def write_request(self, frame: Any, request: Any, target: Any = None) -> Any:
        """Write a DataFrame as a `WriteRequest` specifies."""
        raise NotImplementedError(f"{type(self).__name__} writes no DataFrames")

    def divided(
        self,
        frame: Any,
        conditions: Mapping[str, str],
        identifier: TableIdentifier,
        *,
        columns: Any,
        marks: Mapping[str, Any],
    ) -> DividedFrame:
        """Divide the rows of a DataFrame by conditions in the SQL of the engine; each row is evaluated once.

        Args:
            frame: The DataFrame.
            conditions: What is true for the rows that are moved, by name.
            identifier: The table that the rows are for.
            columns: The Iceberg schema that the conditions refer to; a column that the frame lacks is NULL.
            marks: The values of further columns of the moved rows.
        """
        raise NotImplementedError(f"{type(self).__name__} divides no DataFrames")

    def schema_of(self, frame: Any) -> Any:
        """The Iceberg schema of a DataFrame."""
        raise NotImplementedError(f"{type(self).__name__} has no DataFrames")

    @abstractmethod
    def expire_snapshots(
        self, identifier: TableIdentifier, *, older_than: datetime, keep_last: int, neighbours: Any = None
    ) -> ExpireReport:
        """`neighbours` are the other tables of the catalog, if the caller has already read them."""

    @abstractmethod
    def compact(
        self,
        identifier: TableIdentifier,
        *,
        strategy: CompactionStrategy = CompactionStrategy.BIN_PACK,
        columns: Sequence[str] = (),
        slice: TableSlice | None = None,  # noqa: A002 - Iceberg's noun; the builtin is not needed here
        target_file_size: int | None = None,
        min_files: int = 5,
    ) -> CompactReport: ...

    @abstractmethod
    def rewrite_manifests(self, identifier: TableIdentifier) -> ManifestsReport: ...

    @abstractmethod
    def remove_orphans(
        self,
        identifier: TableIdentifier,
        *,
        older_than: datetime,
        dry_run: bool = True,
        neighbours: Any = None,
    ) -> OrphansReport: ...

    @abstractmethod
    def compute_statistics(self, identifier: TableIdentifier, *, columns: Sequence[str] = ()) -> StatisticsReport: ...
