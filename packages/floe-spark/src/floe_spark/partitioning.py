"""How tables are partitioned, as Spark says it, and whether a slice is made of whole partitions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any, cast

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
from pyiceberg.types import UUIDType
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from floe_core.identifiers import TableSlice
from floe_core.models import PartitionTransform, PartitionTransformType
from floe_core.spec import CATALOG_NAME
from floe_spark.filters import column_path
from floe_spark.names import quoted

# Spark's parser of transforms does not take others, quoted or not.
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

__all__ = ["is_aligned", "partition_columns", "partition_values"]


def partition_columns(transforms: Sequence[PartitionTransform]) -> list[Column] | None:
    """The transforms for `DataFrameWriterV2.partitionedBy`; None if it has no words for one of them."""
    if any(
        one.transform_type is PartitionTransformType.TRUNCATE
        or one.name is not None
        or not _PLAIN_NAME.fullmatch(one.source_column)
        for one in transforms
    ):
        return None
    return [_column(one) for one in transforms]


def _column(one: PartitionTransform) -> Column:
    # Spark 4 moved the transforms one level down; 3.5 has them beside the other functions.
    functions = getattr(F, "partitioning", F)
    column = F.col(quoted(one.source_column))
    if one.transform_type is PartitionTransformType.IDENTITY:
        return column
    if one.transform_type is PartitionTransformType.BUCKET:
        return cast("Column", functions.bucket(one.num_buckets, column))
    return cast("Column", getattr(functions, f"{one.transform_type.value}s")(column))


def partition_values(table: Table) -> dict[str, Column]:
    """The partition of a row under the table's present spec, by names that no column has: Iceberg's own functions."""
    values = {}
    for number, field in enumerate(table.spec().fields):
        path = column_path(table.schema(), field.source_id)
        transform = field.transform
        function = _FUNCTIONS.get(type(transform))
        if isinstance(transform, BucketTransform):
            if isinstance(table.schema().find_type(field.source_id), UUIDType):
                path = f"unhex(replace({path}, '-', ''))"  # Iceberg's buckets are of the bytes, not of the text
            value = f"{CATALOG_NAME}.system.bucket({transform.num_buckets}, {path})"
        elif isinstance(transform, TruncateTransform):
            value = f"{CATALOG_NAME}.system.truncate({transform.width}, {path})"
        elif function is not None:
            value = f"{CATALOG_NAME}.system.{function}({path})"
        elif isinstance(transform, IdentityTransform):
            value = path
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


def is_aligned(table: Table, one: TableSlice) -> bool:
    """Is the slice a union of whole partitions of the table's present spec?"""
    names = {field.field_id: field.name.lower() for field in table.schema().fields}
    units = [(names.get(field.source_id), _unit(field.transform)) for field in table.spec().fields]
    return _fits(one, units)


def _fits(one: TableSlice, units: Sequence[tuple[str | None, PartitionTransformType | None]]) -> bool:
    return all(
        any(
            column == part.column.lower() and _starts(unit, part.start) and _starts(unit, part.end)
            for column, unit in units
        )
        for part in one.ranges
    )


def _unit(transform: Transform[Any, Any]) -> PartitionTransformType | None:
    for kind, unit in _UNITS.items():
        if isinstance(transform, kind):
            return unit
    return None


_UNITS: dict[type[Transform[Any, Any]], PartitionTransformType] = {
    HourTransform: PartitionTransformType.HOUR,
    DayTransform: PartitionTransformType.DAY,
    MonthTransform: PartitionTransformType.MONTH,
    YearTransform: PartitionTransformType.YEAR,
}


def _starts(unit: PartitionTransformType | None, moment: datetime) -> bool:
    """Does a partition of this unit begin at this moment?"""
    utc = moment.astimezone(timezone.utc)
    if (utc.minute, utc.second, utc.microsecond) != (0, 0, 0):
        return False
    return {
        PartitionTransformType.HOUR: True,
        PartitionTransformType.DAY: utc.hour == 0,
        PartitionTransformType.MONTH: (utc.hour, utc.day) == (0, 1),
        PartitionTransformType.YEAR: (utc.hour, utc.day, utc.month) == (0, 1, 1),
    }.get(unit or PartitionTransformType.IDENTITY, False)
