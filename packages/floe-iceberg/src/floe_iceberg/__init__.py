"""Iceberg tables without a JVM: catalog, schema and snapshots through PyIceberg; the embedded SQL catalog."""

from floe_iceberg._pyiceberg.patches import apply_patches
from floe_iceberg.lake import Lake
from floe_iceberg.maintenance.run import Maintenance
from floe_iceberg.manager import IcebergTableManager, IcebergTableManagerConfig
from floe_iceberg.schema.changes import (
    AddColumn,
    DropColumn,
    MakeOptional,
    MakeRequired,
    MoveColumn,
    RenameColumn,
    WidenColumn,
)
from floe_iceberg.schema.drift import DriftDetector
from floe_iceberg.writing.request import WriteRequest, WriteResult

__all__ = [
    "AddColumn",
    "DriftDetector",
    "DropColumn",
    "IcebergTableManager",
    "IcebergTableManagerConfig",
    "Lake",
    "Maintenance",
    "MakeOptional",
    "MakeRequired",
    "MoveColumn",
    "RenameColumn",
    "WidenColumn",
    "WriteRequest",
    "WriteResult",
]

apply_patches()
