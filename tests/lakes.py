"""The embedded catalog in a folder, without Spark."""

from __future__ import annotations

from pathlib import Path

from floe_core.plugins import start
from floe_core.spec import LocalStorageConfig, SqlCatalogConfig
from floe_iceberg import IcebergTableManager, IcebergTableManagerConfig
from floe_iceberg.local_storage import LocalStoragePlugin
from floe_iceberg.sql_catalog import SqlCatalogPlugin

__all__ = ["open_manager"]


def open_manager(
    root: Path,
    config: IcebergTableManagerConfig | None = None,
    *,
    kind: type[IcebergTableManager] = IcebergTableManager,
    catalog: type[SqlCatalogPlugin] = SqlCatalogPlugin,
) -> IcebergTableManager:
    storage = LocalStoragePlugin(LocalStorageConfig(), root=root)
    start(storage)
    return kind(catalog(SqlCatalogConfig(), root=root), storage, config)
