"""Partition specs: of new tables, and their evolution."""

from floe_iceberg.partitioning.specs import partition_spec

__all__ = ["partition_spec"]
