"""Table slices as Spark expressions."""

from __future__ import annotations

from datetime import datetime, timezone
from functools import reduce
from operator import or_

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention
from pyspark.sql.types import DataType, DateType, StructField, StructType, TimestampNTZType, TimestampType

from floe_core.errors import ConfigurationError
from floe_core.identifiers import ColumnRange, TableSlice
from floe_spark.names import quoted

__all__ = ["slice_column", "slice_condition"]


def slice_condition(one: TableSlice, schema: StructType) -> Column:
    """True for the rows of the slice; NULL where the column is NULL."""
    return reduce(or_, (_range_condition(part, schema) for part in one.ranges))


def slice_column(one: TableSlice, schema: StructType) -> StructField:
    """The column of the data that the slice is about; Spark does not tell `At` from `at`."""
    return _column(one.ranges[0], schema)


def _column(part: ColumnRange, schema: StructType) -> StructField:
    for field in schema.fields:
        if field.name.lower() == part.column.lower():
            return field
    raise ConfigurationError(
        f"the partition column {part.column!r} is not in the data (there: {', '.join(schema.fieldNames())}); "
        f"add it, or name another one as partition_expr"
    )


def _range_condition(part: ColumnRange, schema: StructType) -> Column:
    field = _column(part, schema)
    start, end = (_literal(moment, field.dataType, part) for moment in (part.start, part.end))
    column = F.col(quoted(field.name))
    return (column >= F.expr(start)) & (column < F.expr(end))


def _literal(moment: datetime, kind: DataType, part: ColumnRange) -> str:
    utc = moment.astimezone(timezone.utc)
    if isinstance(kind, TimestampType):
        return f"TIMESTAMP '{utc:%Y-%m-%d %H:%M:%S.%f}+00:00'"
    if isinstance(kind, TimestampNTZType):
        return f"TIMESTAMP_NTZ '{utc:%Y-%m-%d %H:%M:%S.%f}'"
    if isinstance(kind, DateType):
        if (utc.hour, utc.minute, utc.second, utc.microsecond) != (0, 0, 0, 0):
            raise ConfigurationError(
                f"the partition column {part.column!r} is a date, but the partition starts at {moment.isoformat()}; "
                f"use a timestamp column, or partitions in UTC"
            )
        return f"DATE '{utc:%Y-%m-%d}'"
    raise ConfigurationError(
        f"the partition column {part.column!r} is {kind.simpleString()}; it must be a timestamp or a date: cast it"
    )
