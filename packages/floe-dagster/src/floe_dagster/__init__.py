"""Dagster assets stored as Iceberg tables."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import floe_dagster._dagster  # noqa: F401 - rejects an unsupported Dagster release before any other import

if TYPE_CHECKING:
    from floe_dagster.atomic.groups import AtomicGroup
    from floe_dagster.config import IcebergIOManagerConfig
    from floe_dagster.definitions import create_definitions, create_iceberg_resources
    from floe_dagster.io_manager import IcebergIOManager
    from floe_dagster.maintenance import MaintenanceOptions, create_maintenance
    from floe_dagster.resources import LakeResource
    from floe_dagster.runs.transaction import current_run_branch
    from floe_dagster.sensors import create_table_sensor

__all__ = [
    "AtomicGroup",
    "IcebergIOManager",
    "IcebergIOManagerConfig",
    "LakeResource",
    "MaintenanceOptions",
    "create_definitions",
    "create_iceberg_resources",
    "create_maintenance",
    "create_table_sensor",
    "current_run_branch",
]

# Imported on first use: Dagster's own processes need only the storage, and neither PySpark nor PyIceberg.
_MODULES = {
    "AtomicGroup": "atomic.groups",
    "IcebergIOManager": "io_manager",
    "IcebergIOManagerConfig": "config",
    "LakeResource": "resources",
    "MaintenanceOptions": "maintenance",
    "create_definitions": "definitions",
    "create_iceberg_resources": "definitions",
    "create_maintenance": "maintenance",
    "create_table_sensor": "sensors",
    "current_run_branch": "runs.transaction",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        return value
