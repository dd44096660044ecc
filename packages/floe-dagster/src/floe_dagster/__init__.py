"""Dagster assets stored as Iceberg tables."""

from floe_dagster.config import IcebergIOManagerConfig
from floe_dagster.definitions import create_definitions, create_iceberg_resources
from floe_dagster.io_manager import IcebergIOManager
from floe_dagster.maintenance import MaintenanceOptions, create_maintenance
from floe_dagster.resources import LakeResource

__all__ = [
    "IcebergIOManager",
    "IcebergIOManagerConfig",
    "LakeResource",
    "MaintenanceOptions",
    "create_definitions",
    "create_iceberg_resources",
    "create_maintenance",
]
