"""Apache Polaris and any Iceberg REST catalog: connect, authenticate, retry."""

from floe_polaris.catalog import PolarisCatalog, create_catalog

__all__ = ["PolarisCatalog", "create_catalog"]
