"""Names as Spark SQL writes them."""

from __future__ import annotations

from floe_core.identifiers import TableIdentifier
from floe_core.spec import CATALOG_NAME

__all__ = ["quoted", "table_name"]


def quoted(column: str) -> str:
    """A column name that may hold anything."""
    return f"`{column.replace('`', '``')}`"


def table_name(identifier: TableIdentifier) -> str:
    """The full name of a table, each level quoted."""
    return ".".join(quoted(part) for part in (CATALOG_NAME, *identifier.namespace, identifier.name))
