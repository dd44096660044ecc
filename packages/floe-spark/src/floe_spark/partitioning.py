"""How tables are partitioned, as Spark says it, and whether a slice is made of whole partitions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import cast

from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform, HourTransform, MonthTransform, Transform, YearTransform
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from floe_core.identifiers import TableSlice
from floe_core.models import PartitionTransform, PartitionTransformType
from floe_spark.names import quoted

__all__ = ["is_aligned", "partition_columns"]


def partition_columns(transforms: Sequence[PartitionTransform]) -> list[Column]:
    """The transforms for `DataFrameWriterV2.partitionedBy`."""
    return [_column(one) for one in transforms]


def _column(one: PartitionTransform) -> Column:
    # Spark 4 moved the transforms one level down; 3.5 has them beside the other functions.
    transforms = getattr(F, "partitioning", F)
    column = F.col(quoted(one.source_column))
    if one.transform_type is PartitionTransformType.HOUR:
        return cast("Column", transforms.hours(column))
    if one.transform_type is PartitionTransformType.DAY:
        return cast("Column", transforms.days(column))
    raise NotImplementedError(f"creating a table partitioned by {one.transform_type.value}")


def is_aligned(table: Table, one: TableSlice) -> bool:
    """Is the slice a union of whole partitions of the table's present spec?"""
    schema = table.schema()
    for part in one.ranges:
        source = schema.find_field(part.column, case_sensitive=False).field_id
        transforms = [field.transform for field in table.spec().fields if field.source_id == source]
        if not any(_starts(transform, part.start) and _starts(transform, part.end) for transform in transforms):
            return False
    return True


def _starts(transform: Transform[object, object], moment: datetime) -> bool:
    """Does a partition of this transform begin at this moment?"""
    utc = moment.astimezone(timezone.utc)
    if (utc.minute, utc.second, utc.microsecond) != (0, 0, 0):
        return False
    if isinstance(transform, HourTransform):
        return True
    if isinstance(transform, DayTransform):
        return utc.hour == 0
    if isinstance(transform, MonthTransform):
        return (utc.hour, utc.day) == (0, 1)
    if isinstance(transform, YearTransform):
        return (utc.hour, utc.day, utc.month) == (0, 1, 1)
    return False
