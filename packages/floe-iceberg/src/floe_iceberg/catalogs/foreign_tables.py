"""Tables of other writers: the code that they name is neither loaded nor passed to Spark."""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Identifier

from floe_core.errors import ConfigurationError, FloeStorageError
from floe_core.identifiers import TableIdentifier
from floe_core.security import PYTHON_LOCATION_PROVIDER, table_refusals
from floe_iceberg.files.metadata_log import refuse_foreign_log

__all__ = ["ServedTable", "refuse_commits_by_spark", "refuse_for_spark", "refuse_location_provider"]


class ServedTable(Table):
    """A table as a catalog server sent it, with the names of the settings that must not reach Spark."""

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
    """Refuse a table whose properties, or whose server, would make a JVM load classes or contact other hosts."""
    name = ".".join(table.name())
    refused = table_refusals(table.properties)
    if refused:
        listed = ", ".join(f"'{key}'" for key in refused)
        raise FloeStorageError(
            f"table '{name}' is not handed to Spark: its properties {', '.join(refused)} make Java load what they "
            f"name, and any writer of the table can set them. Reads as Arrow work (tables.scan). Remove them: ALTER "
            f"TABLE {name} UNSET TBLPROPERTIES ({listed})"
        )
    if isinstance(table, ServedTable) and table.refused_for_spark:
        sent = ", ".join(table.refused_for_spark)
        raise FloeStorageError(
            f"table '{name}' is not handed to Spark: the catalog server sends {sent} with it, which only the project "
            f"may set, and Java gives the server's settings precedence. Have them removed on the server; reads as "
            f"Arrow work (tables.scan)"
        )


def refuse_commits_by_spark(table: Table, identifier: TableIdentifier) -> None:
    """The same before Spark commits to the table: Java also deletes the files that fall off its metadata log."""
    refuse_for_spark(table)
    refuse_foreign_log(table, identifier)


def refuse_location_provider(properties: Mapping[str, str], name: str) -> None:
    """Refuse to write to a table that names code which decides where its files go."""
    if properties.get(PYTHON_LOCATION_PROVIDER):
        raise ConfigurationError(
            f"{name} names a Python class in the property {PYTHON_LOCATION_PROVIDER}, which decides where its files "
            f"go. Floe runs no code that a table names, so nothing was written; reads work. Remove the property: ALTER "
            f"TABLE … UNSET TBLPROPERTIES ('{PYTHON_LOCATION_PROVIDER}'), or write the table with the program it is for"
        )
