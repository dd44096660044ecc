"""Partitioning in Spark's terms, and whether a slice consists of whole partitions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, cast

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import DoubleType, FloatType, NestedField, UUIDType
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from floe_core.identifiers import ColumnValues, Condition, TableSlice
from floe_core.models import PartitionTransform, PartitionTransformType
from floe_iceberg.expressions import bounds
from floe_spark.names import quoted
from floe_spark.reading.filters import column_path

# Spark's parser of transforms accepts no others, quoted or not.
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

__all__ = ["has_float_partitions", "is_aligned", "is_one_partition", "partition_columns", "partition_values"]


def partition_columns(transforms: Sequence[PartitionTransform]) -> list[Column] | None:
    """The transforms for `DataFrameWriterV2.partitionedBy`; None if it cannot express one of them."""
    if any(
        transform.transform_type is PartitionTransformType.TRUNCATE
        or transform.name is not None
        or not _PLAIN_NAME.fullmatch(transform.source_column)
        for transform in transforms
    ):
        return None
    return [_column(transform) for transform in transforms]


def _column(transform: PartitionTransform) -> Column:
    # Spark 4 moved the transforms one level down; 3.5 has them beside the other functions.
    functions = getattr(F, "partitioning", F)
    column = F.col(quoted(transform.source_column))
    if transform.transform_type is PartitionTransformType.IDENTITY:
        return column
    if transform.transform_type is PartitionTransformType.BUCKET:
        return cast("Column", functions.bucket(transform.num_buckets, column))
    return cast("Column", getattr(functions, f"{transform.transform_type.value}s")(column))


def partition_values(catalog: str, table: Table) -> dict[str, Column]:
    """Expressions for the partition of a row under the current spec, by unused column names: Iceberg's functions."""
    values, functions = {}, f"{quoted(catalog)}.system"
    for number, field in enumerate(table.spec().fields):
        path = column_path(table.schema(), field.source_id)
        transform = field.transform
        function = _FUNCTIONS.get(type(transform))
        if isinstance(transform, BucketTransform):
            if isinstance(table.schema().find_type(field.source_id), UUIDType):
                path = f"unhex(replace({path}, '-', ''))"  # Iceberg hashes the bytes, not the text
            value = f"{functions}.bucket({transform.num_buckets}, {path})"
        elif isinstance(transform, TruncateTransform):
            value = f"{functions}.truncate({transform.width}, {path})"
        elif function is not None:
            value = f"{functions}.{function}({path})"
        elif isinstance(transform, IdentityTransform):
            # As text, 0.0 and -0.0 differ, as they are two partitions in Iceberg.
            is_float = isinstance(table.schema().find_type(field.source_id), FloatType | DoubleType)
            value = f"CAST({path} AS STRING)" if is_float else path
        else:  # void: the field was dropped from the spec
            continue
        values[f"__floe_partition_{number}"] = F.expr(value)
    return values


_FUNCTIONS: dict[type[Transform[Any, Any]], str] = {
    HourTransform: "hours",
    DayTransform: "days",
    MonthTransform: "months",
    YearTransform: "years",
}


def has_float_partitions(spec: PartitionSpec, schema: Schema) -> bool:
    """Whether a partition may hold 0.0 or -0.0: Spark sorts them as one value, Iceberg has two partitions."""
    kinds = [
        schema.find_type(field.source_id) for field in spec.fields if isinstance(field.transform, IdentityTransform)
    ]
    return any(isinstance(kind, FloatType | DoubleType) for kind in kinds)


def is_aligned(table: Table, table_slice: TableSlice) -> bool:
    """Whether the slice is a union of whole partitions of the table's current spec."""
    units = {field.source_id: _unit(field.transform) for field in table.spec().fields}
    fields = {field.name.lower(): field for field in table.schema().fields}
    return all(
        _fits(condition, fields[condition.column.lower()], units.get(fields[condition.column.lower()].field_id))
        for part in table_slice.parts
        for condition in part
    )


def is_one_partition(table: Table, table_slice: TableSlice) -> bool:
    """Whether all rows of the slice lie in a single partition of the table's current spec."""
    if len(table_slice.parts) != 1 or table.spec().is_unpartitioned():
        return False
    conditions = {condition.column.lower(): condition for condition in table_slice.parts[0]}
    for partition in table.spec().fields:
        field = table.schema().find_field(partition.source_id)
        condition = conditions.get(str(table.schema().find_column_name(partition.source_id)).lower())
        if condition is None or not _is_one_value(condition, field, _unit(partition.transform)):
            return False
    return True


def _is_one_value(condition: Condition, field: NestedField, unit: PartitionTransformType | None) -> bool:
    if isinstance(condition, ColumnValues):
        return len(condition.values) == 1
    if unit not in _PARTS:
        return False
    start, end = bounds(condition, field)
    return start.timetuple()[: _PARTS[unit]] == (end - timedelta.resolution).timetuple()[: _PARTS[unit]]


# The number of leading parts of a time, from the year on, that identify a partition of a unit.
_PARTS: dict[PartitionTransformType | None, int] = {
    PartitionTransformType.YEAR: 1,
    PartitionTransformType.MONTH: 2,
    PartitionTransformType.DAY: 3,
    PartitionTransformType.HOUR: 4,
}


def _fits(condition: Condition, field: NestedField, unit: PartitionTransformType | None) -> bool:
    if isinstance(condition, ColumnValues) or unit in (None, PartitionTransformType.IDENTITY):
        return unit is PartitionTransformType.IDENTITY
    return all(_starts(unit, moment) for moment in bounds(condition, field))


def _unit(transform: Transform[Any, Any]) -> PartitionTransformType | None:
    for kind, unit in _UNITS.items():
        if isinstance(transform, kind):
            return unit
    return None


_UNITS: dict[type[Transform[Any, Any]], PartitionTransformType] = {
    IdentityTransform: PartitionTransformType.IDENTITY,
    HourTransform: PartitionTransformType.HOUR,
    DayTransform: PartitionTransformType.DAY,
    MonthTransform: PartitionTransformType.MONTH,
    YearTransform: PartitionTransformType.YEAR,
}


def _starts(unit: PartitionTransformType | None, moment: datetime) -> bool:
    """Whether a partition of this unit begins at this moment."""
    if (moment.minute, moment.second, moment.microsecond) != (0, 0, 0):
        return False
    return {
        PartitionTransformType.HOUR: True,
        PartitionTransformType.DAY: moment.hour == 0,
        PartitionTransformType.MONTH: (moment.hour, moment.day) == (0, 1),
        PartitionTransformType.YEAR: (moment.hour, moment.day, moment.month) == (0, 1, 1),
    }.get(unit or PartitionTransformType.IDENTITY, False)
