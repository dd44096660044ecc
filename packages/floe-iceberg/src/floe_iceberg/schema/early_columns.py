"""Columns that readers of main see before a branch is published: the branches of a table share its schema."""

from __future__ import annotations

from pyiceberg.schema import Schema
from pyiceberg.table import Table

from floe_core.errors import ConfigurationError
from floe_core.identifiers import TableIdentifier
from floe_core.observability import warn
from floe_iceberg.schema.evolution import plan_change
from floe_iceberg.snapshots import unpublished_by

__all__ = ["refuse_early_columns"]


def refuse_early_columns(
    table: Table, identifier: TableIdentifier, data: Schema, *, evolve: bool, allowed: bool, how: str
) -> None:
    """Refuse a change of the schema that readers of main would see before the publication, unless it is allowed.

    Args:
        table: The table.
        identifier: Its name.
        data: The columns of the rows.
        evolve: Whether the write may change the columns of the table.
        allowed: Whether readers may see that.
        how: How the user allows it, for the error.
    """
    if unpublished_by(table.properties) is not None:
        return  # no reader sees it yet
    change = plan_change(table.schema(), data, name=identifier, evolve=evolve)
    if not change:
        return
    if not allowed:
        raise ConfigurationError(
            f"the data changes the columns of '{identifier}' ({change}), and readers of main would see that before the "
            f"rows are published, because the branches of an Iceberg table share its schema. Nothing was written: "
            f"allow it with {how}, or change the table first with evolve_schema"
        )
    warn("the columns of a table change before its rows are published", table=str(identifier), change=str(change))
