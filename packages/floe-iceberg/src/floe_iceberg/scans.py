"""Which rows a scan reads: columns, filter and moment checked before any file is opened."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions import parser as filters
from pyiceberg.expressions.visitors import bind
from pyiceberg.schema import Schema
from pyiceberg.table import DataScan, Table
from pyparsing import ParseException

from floe_core.errors import ConfigurationError
from floe_core.identifiers import TableIdentifier
from floe_iceberg.refs import snapshot_at

__all__ = ["scan"]


def scan(
    table: Table,
    identifier: TableIdentifier,
    *,
    columns: Sequence[str] | None = None,
    row_filter: str | BooleanExpression | None = None,
    snapshot_id: int | None = None,
    as_of: datetime | None = None,
    ref: str | None = None,
    limit: int | None = None,
) -> DataScan:
    """A scan of the table as it is, or as it was at a snapshot, a moment, a tag or a branch."""
    if limit is not None and limit < 0:
        raise ConfigurationError(f"limit is {limit}; it cannot be negative")
    chosen = _snapshot(table, identifier, snapshot_id, as_of, ref)
    reading = table.scan(snapshot_id=chosen, limit=limit)
    schema = reading.projection()
    condition = _condition(row_filter, schema, identifier)
    names = tuple(columns) if columns is not None else ("*",)
    _check_columns(columns or (), schema, identifier)
    return table.scan(row_filter=condition, selected_fields=names, snapshot_id=chosen, limit=limit)


def _snapshot(
    table: Table, identifier: TableIdentifier, snapshot_id: int | None, as_of: datetime | None, ref: str | None
) -> int | None:
    if sum(one is not None for one in (snapshot_id, as_of, ref)) > 1:
        raise ConfigurationError("snapshot_id, as_of and ref exclude each other: say one of them")
    if as_of is not None:
        return snapshot_at(table, identifier, as_of).snapshot_id
    if ref is not None:
        found = table.metadata.refs.get(ref)
        if found is None:
            there = ", ".join(table.metadata.refs) or "none"
            raise ConfigurationError(f"table '{identifier}' has no tag or branch {ref!r} (there: {there})")
        return found.snapshot_id
    if snapshot_id is not None and table.snapshot_by_id(snapshot_id) is None:
        raise ConfigurationError(f"table '{identifier}' has no snapshot {snapshot_id}; it may have expired")
    return snapshot_id


def _condition(
    row_filter: str | BooleanExpression | None, schema: Schema, identifier: TableIdentifier
) -> BooleanExpression:
    if row_filter is None:
        return AlwaysTrue()
    try:
        parsed = filters.parse(row_filter) if isinstance(row_filter, str) else row_filter
        bind(schema, parsed, case_sensitive=True)
    except ParseException as exc:
        raise ConfigurationError(
            f"row_filter {row_filter!r} cannot be read at character {exc.column}; write it like n > 10 AND note = 'x'"
        ) from None
    except (ValueError, TypeError) as exc:
        raise ConfigurationError(f"row_filter {str(row_filter)!r} does not fit table '{identifier}': {exc}") from exc
    return parsed


def _check_columns(columns: Sequence[str], schema: Schema, identifier: TableIdentifier) -> None:
    unknown = [name for name in columns if name not in schema.column_names]
    if unknown:
        there = ", ".join(field.name for field in schema.fields)
        raise ConfigurationError(f"table '{identifier}' has no column {', '.join(map(repr, unknown))} (there: {there})")
