"""Explicit changes of a table's schema, each a small piece of data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.exceptions import ValidationError
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.types import IcebergType

from floe_core.errors import SchemaEvolutionError
from floe_core.identifiers import TableIdentifier
from floe_iceberg._pyiceberg.tables import resulting_schema
from floe_iceberg.schema.evolution import name_problems, to_iceberg_schema

__all__ = [
    "AddColumn",
    "ColumnChange",
    "DocumentColumn",
    "DropColumn",
    "MakeOptional",
    "MakeRequired",
    "MoveColumn",
    "RenameColumn",
    "WidenColumn",
    "apply_changes",
]


@dataclass(frozen=True)
class AddColumn:
    """Add an optional column, which is NULL in the rows that the table already has.

    Args:
        column: The name of the column. A dot separates the levels of a nested column, as in `place.city`.
        type: The type of the column, of Arrow or of Iceberg.
        doc: The documentation of the column.

    Example:
        >>> from floe_iceberg import AddColumn
        >>> _ = tables.create_table("bronze.orders", pa.schema([("id", pa.int64())]))
        >>> tables.evolve_schema("bronze.orders", AddColumn("phone", pa.string())).column_names
        ['id', 'phone']
    """

    column: str
    type: IcebergType | pa.DataType
    doc: str | None = None


@dataclass(frozen=True)
class WidenColumn:
    """Give a column a wider type: int to long, float to double, or a decimal of greater precision.

    Args:
        column: The name of the column, with dots for a nested one.
        type: The wider type, of Arrow or of Iceberg.

    Example:
        >>> from floe_iceberg import WidenColumn
        >>> _ = tables.create_table("bronze.orders", pa.schema([("id", pa.int32())]))
        >>> str(tables.evolve_schema("bronze.orders", WidenColumn("id", pa.int64())).find_type("id"))
        'long'
    """

    column: str
    type: IcebergType | pa.DataType


@dataclass(frozen=True)
class RenameColumn:
    """Rename a column; no data file is rewritten.

    Args:
        column: The name of the column, with dots for a nested one.
        to: The new name. Of a nested column, its last level only.

    Example:
        >>> from floe_iceberg import RenameColumn
        >>> _ = tables.create_table("bronze.orders", pa.schema([("id", pa.int64()), ("city", pa.string())]))
        >>> tables.evolve_schema("bronze.orders", RenameColumn("city", "town")).column_names
        ['id', 'town']
    """

    column: str
    to: str


@dataclass(frozen=True)
class DocumentColumn:
    """Set the documentation of a column."""

    column: str
    doc: str


@dataclass(frozen=True)
class MakeOptional:
    """Allow NULL in a required column.

    Args:
        column: The name of the column, with dots for a nested one.

    Example:
        >>> from floe_iceberg import MakeOptional
        >>> _ = tables.create_table("bronze.orders", pa.schema([pa.field("id", pa.int64(), nullable=False)]))
        >>> tables.evolve_schema("bronze.orders", MakeOptional("id")).find_field("id").required
        False
    """

    column: str


@dataclass(frozen=True)
class MoveColumn:
    """Move a column behind another one, or to the first place.

    Args:
        column: The name of the column, with dots for a nested one.
        after: The column that precedes it afterwards. None moves it to the first place.

    Example:
        >>> from floe_iceberg import MoveColumn
        >>> _ = tables.create_table("bronze.orders", pa.schema([("id", pa.int64()), ("city", pa.string())]))
        >>> tables.evolve_schema("bronze.orders", MoveColumn("city")).column_names
        ['city', 'id']
    """

    column: str
    after: str | None = None


@dataclass(frozen=True)
class DropColumn:
    """Drop a column. It needs `allow_incompatible_changes`: queries that name the column fail afterwards.

    Args:
        column: The name of the column, with dots for a nested one. A column that the table is or was partitioned or
            sorted by cannot be dropped.

    Example:
        >>> from floe_iceberg import DropColumn
        >>> _ = tables.create_table("bronze.orders", pa.schema([("id", pa.int64()), ("city", pa.string())]))
        >>> tables.evolve_schema("bronze.orders", DropColumn("city"), allow_incompatible_changes=True).column_names
        ['id']
    """

    column: str


@dataclass(frozen=True)
class MakeRequired:
    """Make a column required. It needs `allow_incompatible_changes`: existing rows are not checked for NULL.

    Args:
        column: The name of the column, with dots for a nested one.

    Example:
        >>> from floe_iceberg import MakeRequired
        >>> _ = tables.create_table("bronze.orders", pa.schema([("id", pa.int64())]))
        >>> changed = tables.evolve_schema("bronze.orders", MakeRequired("id"), allow_incompatible_changes=True)
        >>> changed.find_field("id").required
        True
    """

    column: str


ColumnChange = (
    AddColumn | WidenColumn | RenameColumn | DocumentColumn | MakeOptional | MoveColumn | DropColumn | MakeRequired
)


def apply_changes(
    table: Table, identifier: TableIdentifier, changes: Sequence[ColumnChange], *, allow_incompatible_changes: bool
) -> Schema:
    """Apply all changes in one metadata commit, or none; the error names the column."""
    for change in changes:
        _check(table, identifier, change, allow_incompatible_changes)
    update = table.update_schema(allow_incompatible_changes=allow_incompatible_changes)
    context = ""
    try:
        for change in changes:
            context = f"{type(change).__name__} of column {change.column!r} is not possible: "
            _apply(update, change)
        context = ""
        _refuse_names(table, identifier, update)
        update.commit()
    except (ValueError, ValidationError) as exc:
        raise SchemaEvolutionError(f"'{identifier}': {context}{exc}; nothing was changed") from exc
    return table.schema()


def _refuse_names(table: Table, identifier: TableIdentifier, update: UpdateSchema) -> None:
    """Refuse new names that are empty, or differ from another only in case; names that exist already may stay."""
    existing = name_problems(table.schema(), "it")
    problems = [problem for problem in name_problems(resulting_schema(update), "it") if problem not in existing]
    if problems:
        raise SchemaEvolutionError(f"'{identifier}' cannot be changed: {'; '.join(problems)}. Nothing was changed")


def _check(table: Table, identifier: TableIdentifier, change: ColumnChange, allowed: bool) -> None:
    if not isinstance(change, DropColumn | MakeRequired):
        return
    if not allowed:
        raise SchemaEvolutionError(
            f"{type(change).__name__} of column {change.column!r} of '{identifier}' breaks its readers; to allow it, "
            f"set allow_incompatible_changes=True. Nothing was changed"
        )
    # Files of an earlier spec may remain; without the column their partition values cannot be read.
    in_use = {field.source_id for spec in table.specs().values() for field in spec.fields}
    in_use |= {field.source_id for field in table.sort_order().fields}
    if isinstance(change, DropColumn) and change.column in table.schema().column_names:
        dropped = table.schema().find_field(change.column)
        if dropped.field_id in in_use:
            raise SchemaEvolutionError(
                f"'{identifier}' is or was partitioned or sorted by column {change.column!r}, so it cannot be dropped. "
                f"Nothing was changed"
            )


def _apply(update: UpdateSchema, change: ColumnChange) -> None:
    path = tuple(change.column.split("."))
    if isinstance(change, AddColumn):
        update.add_column(path, _iceberg(change.type), doc=change.doc)
    elif isinstance(change, WidenColumn):
        kind = _iceberg(change.type)
        if not kind.is_primitive:
            raise ValueError(f"{kind} is not a primitive type")
        update.update_column(path, field_type=kind)
    elif isinstance(change, RenameColumn):
        update.rename_column(path, change.to)
    elif isinstance(change, DocumentColumn):
        update.update_column(path, doc=change.doc)
    elif isinstance(change, MakeOptional):
        update.make_column_optional(path)
    elif isinstance(change, MoveColumn):
        if change.after is None:
            update.move_first(path)
        else:
            update.move_after(path, tuple(change.after.split(".")))
    elif isinstance(change, DropColumn):
        update.delete_column(path)
    else:
        update.update_column(path, required=True)


def _iceberg(kind: IcebergType | pa.DataType) -> IcebergType:
    if isinstance(kind, IcebergType):
        return kind
    return to_iceberg_schema(pa.schema([("column", kind)])).fields[0].field_type
