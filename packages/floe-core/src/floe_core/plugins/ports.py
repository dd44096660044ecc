"""What catalogs, storages and engines must offer as plugins. `floe_core` names the methods, others fill them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    """Files of a table, as PyIceberg sees them."""

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
    """Tells how a table differs from a declared schema."""

    def detect(self, identifier: TableIdentifier, declared: Any) -> SchemaDrift: ...


class PluginMetadata(BaseModel):
    """Who a plugin is and which Floe it was made for."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]*$")]
    version: Annotated[str, StringConstraints(pattern=r"^\d+\.\d+\.\d+$")]
    floe_api_version: Annotated[str, StringConstraints(pattern=r"^\d+\.\d+$")]
    description: str = ""
    dependencies: tuple[str, ...] = Field(
        default=(), description="names of plugins, of any kind, that must be installed for this one to work"
    )


class HealthStatus(BaseModel):
    """Does it work, and if not, what to do."""

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
        """Called once before use; 30 seconds."""

    def shutdown(self) -> None:  # noqa: B027 - most plugins have nothing to stop
        """Called at most once, after use: by `close()` of the lake that opened the plugin, else when the process exits.

        It is not called for a plugin that is garbage by then, because its lake was not closed: give what it holds back
        in its own finalizer, too.
        At the exit it may run in another thread, and all plugins together have 10 seconds. A forked process does not
        shut down the plugins of its parent.
        """

    def health_check(self) -> HealthStatus:
        """Does it work now? 5 seconds."""
        return HealthStatus(healthy=True)


class CatalogPlugin(Plugin):
    """A catalog that both engines see: PyIceberg through `connect`, Spark through `get_spark_conf`."""

    storage: StoragePlugin | None = None

    @property
    def catalog_name(self) -> str:
        """What the catalog is called in Spark SQL: `SELECT * FROM lake.bronze.orders`."""
        return CATALOG_NAME

    @abstractmethod
    def connect(self) -> Catalog:
        """The PyIceberg catalog; the same object each time."""

    @abstractmethod
    def get_spark_conf(self, catalog_name: str, warehouse: str) -> dict[str, str]:
        """Spark settings for the same catalog, the jars it needs in `spark.jars.packages` included."""

    def check_for_spark(self) -> None:
        """Raise where Spark must not be given this catalog: its server sends settings that Java would act on."""

    def use_storage(self, storage: StoragePlugin) -> None:
        """Called before `connect` when a lake is opened: where the files are, and how to get at them."""
        self.storage = storage

    def diagnose(self) -> Iterator[tuple[str, Callable[[], str]]]:
        """For `floe doctor`: steps on the way to the catalog, each a name and a check that tells a fact or raises.

        A catalog that has none is asked for its health alone.
        """
        return iter(())

    def table_location(self, identifier: TableIdentifier, namespace_uri: str) -> str | None:
        """Where a new table goes; None leaves it to the catalog, which is right for a server."""
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
        """What the catalog vends for the files of one table, in PyIceberg's property names; empty if it vends nothing.

        `floe doctor` reports it. What the credentials permit is the catalog's decision.
        """
        del table_path
        return {}


class StoragePlugin(Plugin):
    """Where the files of tables are."""

    @abstractmethod
    def get_pyiceberg_fileio(self) -> FileIO:
        """The `pyiceberg.io.FileIO` that PyIceberg reads, writes and deletes all files of tables with.

        A plain `PyArrowFileIO` with `get_pyiceberg_properties` may be replaced by one that adds what a catalog vends;
        any other class is used as it is, and vended credentials are ignored.
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
    """What runs the pipeline of a project; it is made with the settings of `pipeline`."""

    @abstractmethod
    def definitions_in(self, module: ModuleType) -> Any:
        """The pipeline that the user's module holds; ConfigurationError if it does not hold exactly one."""


class ComputePlugin(Plugin):
    """The data plane: DataFrames, and physical maintenance, which deletes or rewrites the files of tables."""

    @abstractmethod
    def use_lake(self, lake: Any) -> None:
        """Called once, before use, with the `floe_iceberg.Lake` whose tables the engine works on."""

    def session(self) -> Any:
        """The session of an engine that has DataFrames."""
        raise NotImplementedError(f"{type(self).__name__} has no session for DataFrames")

    def reading(self, identifier: TableIdentifier, **options: Any) -> Any:
        """A table as a DataFrame, with the snapshot that it reads."""
        raise NotImplementedError(f"{type(self).__name__} reads no DataFrames")

    def write(self, frame: Any, identifier: TableIdentifier, **options: Any) -> Any:
        """Write a DataFrame."""
        raise NotImplementedError(f"{type(self).__name__} writes no DataFrames")

    def write_request(self, frame: Any, request: Any, target: Any = None) -> Any:
        """Write a DataFrame as a `WriteRequest` says."""
        raise NotImplementedError(f"{type(self).__name__} writes no DataFrames")

    def schema_of(self, frame: Any) -> Any:
        """The schema of a DataFrame as Iceberg's."""
        raise NotImplementedError(f"{type(self).__name__} has no DataFrames")

    @abstractmethod
    def expire_snapshots(
        self, identifier: TableIdentifier, *, older_than: datetime, keep_last: int, neighbours: Any = None
    ) -> ExpireReport:
        """`neighbours` are the other tables of the catalog, for whoever has looked at them already."""

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
