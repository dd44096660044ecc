"""Slices of a table as PyIceberg expressions, and the rows that lie outside of one."""

from __future__ import annotations

from datetime import datetime
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import And, BooleanExpression, GreaterThanOrEqual, LessThan, Or
from pyiceberg.schema import Schema
from pyiceberg.types import DateType, IcebergType, TimestampType, TimestamptzType

from floe_core.errors import ConfigurationError, PartitionMismatchError
from floe_core.identifiers import ColumnRange, TableIdentifier, TableSlice
from floe_iceberg.conditions import columns_of, matches

__all__ = ["Guard", "slice_filter"]

_EXAMPLES = 3


def slice_filter(one: TableSlice, schema: Schema) -> BooleanExpression:
    """True for the rows of the slice, and for no row without a value."""
    return reduce(Or, (_range_filter(part, schema) for part in one.ranges))


def _range_filter(part: ColumnRange, schema: Schema) -> BooleanExpression:
    for field in schema.fields:
        if field.name.lower() == part.column.lower():
            start, end = (_literal(moment, field.field_type, part) for moment in (part.start, part.end))
            at_least: Any = GreaterThanOrEqual
            less: Any = LessThan
            return And(at_least(field.name, start), less(field.name, end))
    there = ", ".join(field.name for field in schema.fields)
    raise ConfigurationError(
        f"the partition column {part.column!r} is not in the data (there: {there}); add it, or name another one as "
        f"partition_expr"
    )


def _literal(moment: datetime, kind: IcebergType, part: ColumnRange) -> str:
    if isinstance(kind, TimestamptzType):
        return moment.isoformat()
    if isinstance(kind, TimestampType):
        return moment.replace(tzinfo=None).isoformat()
    if isinstance(kind, DateType):
        if (moment.hour, moment.minute, moment.second, moment.microsecond) != (0, 0, 0, 0):
            raise ConfigurationError(
                f"the partition column {part.column!r} is a date, but the partition starts at {moment.isoformat()}; "
                f"use a timestamp column, or partitions in UTC"
            )
        return moment.date().isoformat()
    raise ConfigurationError(
        f"the partition column {part.column!r} is {kind}; it must be a timestamp or a date: cast it"
    )


class Guard:
    """Counts the rows outside of what is being replaced, as they come by."""

    def __init__(self, condition: BooleanExpression | None, schema: Schema, words: str) -> None:
        self._inside = None if condition is None else matches(condition, schema)
        self._words = words
        self._columns = [] if condition is None else columns_of(condition, schema)
        self.outside = 0
        self._examples: list[str] = []

    def check(self, batch: pa.RecordBatch) -> bool:
        """Are all rows inside, so far?"""
        if self._inside is not None and len(batch):
            strays = pa.Table.from_batches([batch]).filter(pc.invert(self._inside))
            self.outside += len(strays)
            if len(strays) and len(self._examples) < _EXAMPLES:
                self._remember(strays.select(self._columns).slice(0, 1000))
        return self.outside == 0

    def _remember(self, strays: pa.Table) -> None:
        for row in strays.to_pylist():
            text = ", ".join(f"{name} = {'NULL' if value is None else value}" for name, value in row.items())
            if text not in self._examples and len(self._examples) < _EXAMPLES:
                self._examples.append(text)

    def refusal(self, identifier: TableIdentifier) -> PartitionMismatchError:
        return PartitionMismatchError(
            f"{self.outside} {'row lies' if self.outside == 1 else 'rows lie'} outside the slice being written to "
            f"'{identifier}' ({self._words}), with {'; '.join(self._examples)}; filter the data to its partition. "
            f"Nothing was written"
        )
