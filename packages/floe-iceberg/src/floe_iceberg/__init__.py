"""Iceberg tables without a JVM: catalog, schema and snapshots through PyIceberg; the embedded SQL catalog."""

from floe_iceberg import damage, partition_values, projection
from floe_iceberg.tables import IcebergTableManager, IcebergTableManagerConfig

__all__ = ["IcebergTableManager", "IcebergTableManagerConfig"]

projection.mend()
partition_values.mend()
damage.apply_patches()
