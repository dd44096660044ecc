"""Iceberg tables without a JVM: catalog, schema and snapshots through PyIceberg; the embedded SQL catalog."""

from floe_iceberg.tables import IcebergTableManager

__all__ = ["IcebergTableManager"]
