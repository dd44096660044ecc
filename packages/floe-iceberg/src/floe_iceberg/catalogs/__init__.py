"""Catalogs: the embedded SQL catalog, its databases, namespaces and registration."""

from floe_iceberg.catalogs.foreign_tables import ServedTable, refuse_commits_by_spark, refuse_for_spark
from floe_iceberg.catalogs.locations import LOCATION
from floe_iceberg.catalogs.sql import SqlCatalogPlugin
from floe_iceberg.catalogs.storage_catalog import files_of

__all__ = ["LOCATION", "ServedTable", "SqlCatalogPlugin", "files_of", "refuse_commits_by_spark", "refuse_for_spark"]
