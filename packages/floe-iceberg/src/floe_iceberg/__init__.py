"""Iceberg tables without a JVM: catalog, schema and snapshots through PyIceberg; the embedded SQL catalog."""

from floe_iceberg.projection import mend
from floe_iceberg.tables import IcebergTableManager, IcebergTableManagerConfig

__all__ = ["IcebergTableManager", "IcebergTableManagerConfig"]

mend()
