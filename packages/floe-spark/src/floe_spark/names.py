"""Names as Spark SQL writes them."""

from __future__ import annotations

from floe_core.identifiers import TableIdentifier

__all__ = ["quoted", "table_name"]


def quoted(column: str) -> str:
    """A column name that may hold anything."""
    return f"`{column.replace('`', '``')}`"


def table_name(catalog: str, identifier: TableIdentifier, *, branch: str | None = None) -> str:
    """The full name of a table or of one of its branches, each level quoted."""
    levels = [catalog, *identifier.namespace, identifier.name]
    return ".".join(quoted(level) for level in (levels if branch is None else [*levels, f"branch_{branch}"]))
