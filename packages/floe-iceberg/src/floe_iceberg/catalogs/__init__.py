"""Catalogs: the embedded SQL catalog, its databases, namespaces and registration."""

from floe_iceberg.catalogs.branch_records import BRANCHES, BranchRecords
from floe_iceberg.catalogs.foreign_tables import ServedTable, refuse_commits_by_spark, refuse_for_spark
from floe_iceberg.catalogs.locations import LOCATION
from floe_iceberg.catalogs.namespaces import JOURNAL
from floe_iceberg.catalogs.sql import SqlCatalogPlugin
from floe_iceberg.catalogs.storage_catalog import files_of
from floe_iceberg.catalogs.table_changes import MultiTableCatalog, TableChange

__all__ = [
    "BRANCHES",
    "JOURNAL",
    "LOCATION",
    "BranchRecords",
    "MultiTableCatalog",
    "ServedTable",
    "SqlCatalogPlugin",
    "TableChange",
    "files_of",
    "refuse_commits_by_spark",
    "refuse_for_spark",
]
