"""Apache Polaris and any Iceberg REST catalog: connect, authenticate, survive."""

from floe_polaris.catalog import PolarisCatalog, create_catalog

__all__ = ["PolarisCatalog", "create_catalog"]
