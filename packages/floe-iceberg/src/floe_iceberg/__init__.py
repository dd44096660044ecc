"""Iceberg tables without a JVM: catalog, schema and snapshots through PyIceberg; the embedded SQL catalog."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from floe_iceberg._pyiceberg.patches import apply_patches

if TYPE_CHECKING:
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

_MODULES = {
    "AddColumn": "schema.changes",
    "DriftDetector": "schema.drift",
    "DropColumn": "schema.changes",
    "IcebergTableManager": "manager",
    "IcebergTableManagerConfig": "manager",
    "Lake": "lake",
    "Maintenance": "maintenance.run",
    "MakeOptional": "schema.changes",
    "MakeRequired": "schema.changes",
    "MoveColumn": "schema.changes",
    "RenameColumn": "schema.changes",
    "WidenColumn": "schema.changes",
    "WriteRequest": "writing.request",
    "WriteResult": "writing.request",
}

apply_patches()

# The whole fence: a release of PyIceberg that lacks a private name is refused here, not in the middle of a write.
for _module in ("files", "snapshot_producers", "sql_catalog", "tables"):
    import_module(f"{__name__}._pyiceberg.{_module}")


def __getattr__(name: str) -> Any:
    """Import a name on first use: a command that reads rows needs few of them."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
