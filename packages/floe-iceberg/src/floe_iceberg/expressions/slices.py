"""Slices of a table as PyIceberg expressions, and the rows that lie outside of one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import And, BooleanExpression, GreaterThanOrEqual, In, LessThan, Or
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
)

from floe_core.errors import ConfigurationError, PartitionMismatchError
from floe_core.identifiers import ColumnRange, ColumnValues, Condition, TableIdentifier, TableSlice
from floe_iceberg.expressions.conditions import columns_of, matches

__all__ = ["Guard", "bounds", "slice_filter"]

_EXAMPLES = 3


def slice_filter(one: TableSlice, schema: Schema) -> BooleanExpression:
    """An expression that is true for the rows of the slice, and never for NULL."""
    return _all(Or, [_all(And, [_filter(condition, schema) for condition in part]) for part in one.parts])


def _all(kind: Any, expressions: Sequence[BooleanExpression]) -> BooleanExpression:
    joined: BooleanExpression = kind(*expressions) if len(expressions) > 1 else expressions[0]
    return joined


def _filter(condition: Condition, schema: Schema) -> BooleanExpression:
    field = _field(condition.column, schema)
    if isinstance(condition, ColumnValues):
        isin: Any = In
        among: BooleanExpression = isin(field.name, {_value(text, field) for text in condition.values})
        return among
    at_least: Any = GreaterThanOrEqual
    less: Any = LessThan
    start, end = (_literal(moment, field.field_type) for moment in bounds(condition, field))
    return And(at_least(field.name, start), less(field.name, end))


def _field(column: str, schema: Schema) -> NestedField:
    for field in schema.fields:
        if field.name.lower() == column.lower():
            return field
    there = ", ".join(field.name for field in schema.fields)
    if "(" in column:
        raise ConfigurationError(
            f"partition_expr {column!r} is an expression, and must be the name of a column (there: {there}); name the "
            f"timestamp or the date itself, or add a column with that value to the data and name it"
        )
    raise ConfigurationError(
        f"the partition column {column!r} is not in the data (there: {there}); add it, or name another one as "
        f"partition_expr"
    )


def bounds(condition: ColumnRange, field: NestedField) -> tuple[datetime, datetime]:
    """The start and end of a window: in UTC, or in local time of its zone if the column has no time zone."""
    moments = condition.start, condition.end
    if isinstance(field.field_type, TimestamptzType):
        return moments
    if not isinstance(field.field_type, TimestampType | DateType):
        raise ConfigurationError(
            f"the partition column {condition.column!r} is {field.field_type}; for windows of time it must be a "
            f"timestamp or a date: cast it in the data, or name another column as partition_expr"
        )
    if isinstance(field.field_type, DateType):
        return _dates(condition)
    for moment in moments:
        if condition.is_ambiguous(moment):
            raise ConfigurationError(
                f"the partition column {condition.column!r} has no time zone, and clocks in {condition.zone} show "
                f"{condition.local(moment):%Y-%m-%d %H:%M} twice; use a timestamp with a time zone, or windows in UTC"
            )
    return condition.local(condition.start), condition.local(condition.end)


def _dates(condition: ColumnRange) -> tuple[datetime, datetime]:
    """The first date of a window and the date after its last; a change of the clocks may skip midnight itself."""
    dates = [condition.local(moment).date() for moment in (condition.start, condition.end)]
    before = [condition.local(moment - timedelta.resolution).date() for moment in (condition.start, condition.end)]
    if any(at == just_before for at, just_before in zip(dates, before, strict=True)):
        start, end = condition.local(condition.start), condition.local(condition.end)
        raise ConfigurationError(
            f"the partition column {condition.column!r} is a date, but the partition reaches from {start} to {end} "
            f"{condition.zone}; use a timestamp column, or partitions that begin at midnight"
        )
    return datetime.combine(dates[0], time()), datetime.combine(dates[1], time())


def _literal(moment: datetime, kind: IcebergType) -> str:
    return moment.date().isoformat() if isinstance(kind, DateType) else moment.isoformat()


def _value(text: str, field: NestedField) -> Any:
    """The column value of a partition key; each value has one spelling, or two keys would be one partition."""
    kind = field.field_type
    if isinstance(kind, StringType):
        return text
    if isinstance(kind, IntegerType | LongType):
        if re.fullmatch(r"0|-?[1-9][0-9]*", text) and kind.min <= int(text) <= kind.max:
            return int(text)
    elif isinstance(kind, DateType):
        with suppress(ValueError):
            if date.fromisoformat(text).isoformat() == text:
                return text
    else:
        raise ConfigurationError(
            f"the partition column {field.name!r} is {kind}; for these partitions it must be a string, an integer or a "
            f"date: cast it"
        )
    example = "2026-01-31" if isinstance(kind, DateType) else "7"
    raise ConfigurationError(
        f"the partition column {field.name!r} is {kind}, and the partition key {text!r} is no such value; write keys "
        f"like {example!r}, or cast the column to string"
    )


class Guard:
    """Counts, batch by batch, the rows outside of the slice or filter being written."""

    def __init__(self, condition: BooleanExpression | None, schema: Schema, description: str) -> None:
        self._inside = None if condition is None else matches(condition, schema)
        self._description = description
        self._columns = [] if condition is None else columns_of(condition, schema)
        self.outside = 0
        self._examples: list[str] = []

    def check(self, batch: pa.RecordBatch) -> bool:
        """Were all rows so far inside?"""
        if self._inside is not None and len(batch):
            strays = pa.Table.from_batches([batch]).filter(pc.invert(self._inside))
            self.outside += len(strays)
            if len(strays) and len(self._examples) < _EXAMPLES:
                self._collect_examples(strays.select(self._columns).slice(0, 1000))
        return self.outside == 0

    def _collect_examples(self, strays: pa.Table) -> None:
        for row in strays.to_pylist():
            text = ", ".join(f"{name} = {'NULL' if value is None else value}" for name, value in row.items())
            if text not in self._examples and len(self._examples) < _EXAMPLES:
                self._examples.append(text)

    def complete(self, inside: Iterable[pa.RecordBatch], identifier: TableIdentifier) -> Iterator[pa.RecordBatch]:
        """Yield the batches that are inside; after the last one, raise if any row was outside."""
        yield from inside
        if self.outside:
            raise self._refusal(identifier)

    def _refusal(self, identifier: TableIdentifier) -> PartitionMismatchError:
        return PartitionMismatchError(
            f"{self.outside} {'row lies' if self.outside == 1 else 'rows lie'} outside the slice being written to "
            f"'{identifier}' ({self._description}), with {'; '.join(self._examples)}; filter the data to its "
            f"partition. Nothing was written"
        )
