"""Plugins: the ports they fill and the registry that finds them."""

from floe_core.plugins.discovery import (
    FLOE_API_VERSION,
    check_health,
    create_catalog_plugin,
    create_compute_plugin,
    create_orchestrator_plugin,
    create_storage_plugin,
    start,
    stop,
)
from floe_core.plugins.ports import (
    CatalogPlugin,
    ComputePlugin,
    DividedFrame,
    FileIO,
    HealthStatus,
    OrchestratorPlugin,
    PluginMetadata,
    StoragePlugin,
)

__all__ = [
    "FLOE_API_VERSION",
    "CatalogPlugin",
    "ComputePlugin",
    "DividedFrame",
    "FileIO",
    "HealthStatus",
    "OrchestratorPlugin",
    "PluginMetadata",
    "StoragePlugin",
    "check_health",
    "create_catalog_plugin",
    "create_compute_plugin",
    "create_orchestrator_plugin",
    "create_storage_plugin",
    "start",
    "stop",
]
