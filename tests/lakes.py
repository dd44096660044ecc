"""The embedded catalog in a folder, without Spark."""

from __future__ import annotations

import os
import time
from pathlib import Path

from floe_core.config.spec import LocalStorageConfig, SqlCatalogConfig
from floe_core.plugins.discovery import start
from floe_iceberg import IcebergTableManager, IcebergTableManagerConfig
from floe_iceberg.catalogs.sql import SqlCatalogPlugin
from floe_iceberg.storage.local import LocalStoragePlugin

__all__ = ["ORPHAN", "began_earlier", "open_manager"]

# As a writer would call a file that it then did not commit.
ORPHAN = "00000-7-6f1c0d3e-8f7b-4a51-9d0c-2b7e6c1f0a55-00001.parquet"


def began_earlier(location: str | Path, *, days: float = 60) -> None:
    """Let a local table be so many days old: only files younger than its first metadata can be its orphans."""
    first = min((Path(str(location).removeprefix("file://")) / "metadata").glob("*.metadata.json"))
    moment = time.time() - days * 86_400
    os.utime(first, (moment, moment))


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
