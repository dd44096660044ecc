"""IcebergTableManager: the control plane of tables. No JVM, no server, no Dagster."""

from __future__ import annotations

from datetime import timedelta

from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from floe_core.errors import (
    ConcurrencyConflictError,
    FloeStorageError,
    NamespaceAlreadyExistsError,
    TableNotFoundError,
)
from floe_core.identifiers import Namespace, TableIdentifier
from floe_core.models import SnapshotInfo
from floe_core.ports import CatalogPlugin, StoragePlugin
from floe_core.telemetry import operation
from floe_iceberg.errors import translated
from floe_iceberg.schema import SchemaChange, apply_change, plan_change
from floe_iceberg.snapshots import find_writes, publish_branch, snapshot_info

__all__ = ["DEFAULT_PROPERTIES", "IcebergTableManager"]

# What tables Floe creates are given unless floe.yaml or the asset says otherwise.
DEFAULT_PROPERTIES = {
    "write.target-file-size-bytes": str(128 * 2**20),
    "write.parquet.row-group-size-bytes": str(128 * 2**20),
    "write.parquet.compression-codec": "zstd",
    "history.expire.max-snapshot-age-ms": str(7 * 24 * 3600 * 1000),
    "history.expire.min-snapshots-to-keep": "10",
    "commit.manifest-merge.enabled": "true",
    # With the engines' own 4 attempts, eight writers on one table lose commits.
    "commit.retry.num-retries": "20",
    "commit.retry.max-wait-ms": "5000",
    "commit.retry.total-timeout-ms": "600000",
}


class IcebergTableManager:
    """Tables of one catalog, by identifier."""

    def __init__(self, catalog_plugin: CatalogPlugin, storage_plugin: StoragePlugin) -> None:
        self.catalog_plugin = catalog_plugin
        self.storage_plugin = storage_plugin

    @property
    def _catalog(self) -> Catalog:
        catalog = self.catalog_plugin.connect()
        if not isinstance(catalog, Catalog):
            raise TypeError(f"catalog plugin {self.catalog_plugin.metadata.name!r} did not return a PyIceberg catalog")
        return catalog

    def ensure_namespace(self, namespace: Namespace) -> None:
        """Create the namespace and its parents where they are missing."""
        for level in namespace.lineage():
            if not self._catalog.namespace_exists(level.levels):
                try:
                    self.catalog_plugin.create_namespace(str(level))
                except NamespaceAlreadyExistsError:
                    continue  # somebody else was quicker, which is as good

    def load_table(self, identifier: TableIdentifier) -> Table:
        """The table as it is now."""
        with (
            operation("iceberg.load_table", table=str(identifier)) as op,
            translated("load_table", identifier),
        ):
            table = self._catalog.load_table((*identifier.namespace, identifier.name))
            snapshot = table.current_snapshot()
            op.set(snapshot_id=snapshot.snapshot_id if snapshot else None)
            return table

    def find_table(self, identifier: TableIdentifier) -> Table | None:
        """The table as it is now, or None."""
        try:
            with translated("load_table", identifier):
                return self._catalog.load_table((*identifier.namespace, identifier.name))
        except TableNotFoundError:
            return None

    def table_exists(self, identifier: TableIdentifier) -> bool:
        return self.find_table(identifier) is not None

    def list_tables(self, namespace: Namespace) -> list[TableIdentifier]:
        names = self.catalog_plugin.list_tables(str(namespace))
        return [TableIdentifier(namespace=namespace.levels, name=name) for name in names]

    def drop_table(self, identifier: TableIdentifier, *, purge: bool = False) -> None:
        """Remove the table from the catalog; `purge` deletes its files too."""
        with operation("iceberg.drop_table", table=str(identifier), purge=purge):
            self.catalog_plugin.drop_table(str(identifier), purge=purge)

    def list_snapshots(self, identifier: TableIdentifier) -> list[SnapshotInfo]:
        """All snapshots, oldest first."""
        return [snapshot_info(snapshot) for snapshot in self.load_table(identifier).snapshots()]

    def find_write(self, identifier: TableIdentifier, write_id: str, *, branch: str = "main") -> SnapshotInfo | None:
        """The snapshot a write made, or None if it did not commit."""
        return next(iter(find_writes(self.load_table(identifier), write_id, branch=branch)), None)

    def refuse_moved(self, table: Table, identifier: TableIdentifier) -> None:
        """A local lake that was moved or copied still points to where it was: writing here would write there."""
        warehouse = self.storage_plugin.get_warehouse_uri()
        location = table.location()
        own_place = "/" + "/".join((*identifier.namespace, identifier.name))
        # A table that was registered from elsewhere does not end like one of ours.
        moved = warehouse.startswith("file:") and location.endswith(own_place) and location != warehouse + own_place
        if moved:
            raise FloeStorageError(
                f"this lake was moved or copied: table '{identifier}' lives at {location}, outside of {warehouse}, and "
                f"writing here would write there. Move the project back to where it was, or delete its .floe folder "
                f"and fill it anew with: floe run --missing"
            )

    def create_branch(
        self, identifier: TableIdentifier, branch: str, *, snapshot_id: int, max_ref_age: timedelta
    ) -> None:
        """Let a branch begin at a snapshot; expiry removes it once it is older than `max_ref_age`."""
        age_ms = int(max_ref_age.total_seconds() * 1000)
        with translated("create_branch", identifier):
            update = self.load_table(identifier).manage_snapshots()
            update.create_branch(snapshot_id=snapshot_id, branch_name=branch, max_ref_age_ms=age_ms).commit()

    def publish_branch(self, identifier: TableIdentifier, branch: str, *, onto: int) -> None:
        """Make the branch's head the table's, and end the branch; a conflict if main is not at `onto` any more."""
        with operation("iceberg.publish", table=str(identifier), branch=branch), translated("publish", identifier):
            publish_branch(self.load_table(identifier), branch, onto=onto)

    def drop_branch(self, identifier: TableIdentifier, branch: str) -> None:
        with translated("drop_branch", identifier):
            self.load_table(identifier).manage_snapshots().remove_branch(branch).commit()

    def evolve_for(
        self, identifier: TableIdentifier, data: Schema, *, table: Table | None = None, evolve: bool = True
    ) -> SchemaChange:
        """Make the table take this data: add and widen columns, or refuse and name every field in the way.

        `table` is the table as the caller has just loaded it, to save a look.
        """
        for attempt in Retrying(
            retry=retry_if_exception_type(ConcurrencyConflictError),
            stop=stop_after_attempt(10),
            wait=wait_random_exponential(0.1, max=2),
            reraise=True,
        ):
            with attempt:
                current = table if table and attempt.retry_state.attempt_number == 1 else self.load_table(identifier)
                # A writer that met another's commit looks again: the column may be there by now.
                change = plan_change(current.schema(), data, name=identifier, evolve=evolve)
                if change:
                    with (
                        operation("iceberg.evolve_schema", table=str(identifier), change=str(change)),
                        translated("evolve_schema", identifier),
                    ):
                        apply_change(current, change)
        return change
