"""Tables that others made: what they name is not loaded, and not handed to Spark."""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Identifier

from floe_core.errors import ConfigurationError, FloeStorageError
from floe_core.foreign_settings import PYTHON_LOCATION_PROVIDER, table_refusals
from floe_core.identifiers import TableIdentifier
from floe_iceberg.metadata_log import refuse_foreign_log

__all__ = ["ServedTable", "refuse_commits_by_spark", "refuse_for_spark", "refuse_location_provider"]


class ServedTable(Table):
    """A table as a catalog server sent it, with the names of the settings that Spark must not be given."""

    def __init__(
        self,
        identifier: Identifier,
        metadata: TableMetadata,
        metadata_location: str,
        io: FileIO,
        catalog: Catalog,
        *,
        refused_for_spark: tuple[str, ...] = (),
    ) -> None:
        super().__init__(identifier, metadata, metadata_location, io, catalog)
        self.refused_for_spark = refused_for_spark


def refuse_for_spark(table: Table) -> None:
    """Refuse a table whose properties, or whose server, would make a JVM load classes or ask other hosts."""
    name = ".".join(table.name())
    found = table_refusals(table.properties)
    if found:
        listed = ", ".join(f"'{key}'" for key in found)
        raise FloeStorageError(
            f"table '{name}' is not handed to Spark: its properties {', '.join(found)} make Java load what they name, "
            f"and any writer of the table can set them. Reads as Arrow work (tables.scan). Remove them: ALTER TABLE "
            f"{name} UNSET TBLPROPERTIES ({listed})"
        )
    if isinstance(table, ServedTable) and table.refused_for_spark:
        sent = ", ".join(table.refused_for_spark)
        raise FloeStorageError(
            f"table '{name}' is not handed to Spark: with it, the catalog server sends {sent}, which only the project "
            f"may set, and Java lets the server's settings win. Have them removed on the server; reads as Arrow work "
            f"(tables.scan)"
        )


def refuse_commits_by_spark(table: Table, identifier: TableIdentifier) -> None:
    """The same, before Spark commits to the table: Java also deletes what falls off its metadata log."""
    refuse_for_spark(table)
    refuse_foreign_log(table, identifier)


def refuse_location_provider(properties: Mapping[str, str], name: str) -> None:
    """Refuse to write where only code that the table names could say where its files belong."""
    if properties.get(PYTHON_LOCATION_PROVIDER):
        raise ConfigurationError(
            f"{name} names a Python class in the property {PYTHON_LOCATION_PROVIDER}, which decides where its files "
            f"go. Floe runs no code that a table names, so nothing was written; reads work. Remove the property: ALTER "
            f"TABLE … UNSET TBLPROPERTIES ('{PYTHON_LOCATION_PROVIDER}'), or write the table with the program it is for"
        )
