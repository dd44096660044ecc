"""A kind of partitions: its definition, the columns that hold it, and rows for each key."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from itertools import product
from typing import Any

import pyarrow as pa
from dagster import MultiPartitionsDefinition, PartitionsDefinition, TimeWindowPartitionsDefinition

__all__ = ["DATE", "LOCAL", "ZONED", "Dimension", "Partitions", "by_both", "by_one", "labels", "windows"]

ZONED = pa.timestamp("us", "UTC")
LOCAL = pa.timestamp("us")
DATE = pa.date32()
_TICK = timedelta(microseconds=1)


@dataclass(frozen=True)
class Partitions:
    """One kind of partitions.

    Args:
        name: Used in the test ids.
        definition: What the assets are partitioned by.
        expr: The metadata `partition_expr`: the column of the partition, or a mapping from dimensions to columns.
        columns: The columns that hold the partitions, with their types.
        keys: At least three consecutive keys, in the order of the definition: the first and the last are a range.
        rows_of: The values of these columns for each row of a partition.
        dynamic: Keys to add to the instance, by the name of their dynamic partitions.
    """

    name: str
    definition: PartitionsDefinition[Any]
    expr: str | dict[str, str]
    columns: Mapping[str, pa.DataType]
    keys: Sequence[str]
    rows_of: Callable[[str], Sequence[Mapping[str, Any]]]
    dynamic: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def table(self, keys: Iterable[str], note: str = "") -> pa.Table:
        """The rows of these partitions: an id, the columns, and a note that distinguishes one write from another."""
        rows = [
            {"id": 100 * self.keys.index(key) + place, **row, "note": note}
            for key in keys
            for place, row in enumerate(self.rows_of(key))
        ]
        schema = pa.schema([("id", pa.int64()), *self.columns.items(), ("note", pa.string())])
        return pa.Table.from_pylist(rows, schema)


@dataclass(frozen=True)
class Dimension:
    """One column that an asset is partitioned by, and its values in each partition."""

    definition: PartitionsDefinition[Any]
    column: str
    kind: pa.DataType
    keys: Sequence[str]
    values_of: Callable[[str], Sequence[Any]]
    dynamic: Mapping[str, Sequence[str]] = field(default_factory=dict)


def windows(definition: TimeWindowPartitionsDefinition, column: str = "at", kind: pa.DataType = ZONED) -> Dimension:
    """All time windows of the definition, with values at their edges and in the middle."""

    def values_of(key: str) -> Sequence[datetime | date]:
        window = definition.time_window_for_partition_key(key)
        # Computed in UTC: local time repeats an hour when daylight saving ends.
        start, end = (edge.astimezone(timezone.utc) for edge in (window.start, window.end))
        moments = [start, start + (end - start) / 2, end - _TICK]
        if pa.types.is_timestamp(kind) and kind.tz is not None:
            return moments
        local = [moment.astimezone(window.start.tzinfo).replace(tzinfo=None) for moment in moments]
        return [moment.date() for moment in local] if pa.types.is_date(kind) else local

    return Dimension(definition, column, kind, definition.get_partition_keys(), values_of)


def labels(
    definition: PartitionsDefinition[Any],
    column: str,
    keys: Sequence[str],
    *,
    kind: pa.DataType | None = None,
    value: Callable[[str], Any] = str,
    dynamic: str | None = None,
) -> Dimension:
    """A column whose values are the keys; `dynamic` names the dynamic partitions to add to the instance."""
    known = {dynamic: keys} if dynamic is not None else {}
    return Dimension(definition, column, kind or pa.string(), keys, lambda key: [value(key)] * 2, known)


def by_one(name: str, dimension: Dimension) -> Partitions:
    """Partitions in one dimension."""
    return Partitions(
        name=name,
        definition=dimension.definition,
        expr=dimension.column,
        columns={dimension.column: dimension.kind},
        keys=dimension.keys,
        rows_of=lambda key: [{dimension.column: value} for value in dimension.values_of(key)],
        dynamic=dimension.dynamic,
    )


def by_both(name: str, **dimensions: Dimension) -> Partitions:
    """Partitions in two dimensions, by their names."""
    definition = MultiPartitionsDefinition({name: dimension.definition for name, dimension in dimensions.items()})
    ordered = {name: dimensions[name] for name in sorted(dimensions)}

    def rows_of(key: str) -> Sequence[Mapping[str, Any]]:
        parts = key.split("|")
        columns = [dimension.column for dimension in ordered.values()]
        values = [dimension.values_of(part) for dimension, part in zip(ordered.values(), parts, strict=True)]
        return [dict(zip(columns, row, strict=True)) for row in product(*values)]

    return Partitions(
        name=name,
        definition=definition,
        expr={name: dimension.column for name, dimension in dimensions.items()},
        columns={dimension.column: dimension.kind for dimension in ordered.values()},
        keys=["|".join(keys) for keys in product(*(dimension.keys for dimension in ordered.values()))],
        rows_of=rows_of,
        dynamic={name: keys for dimension in ordered.values() for name, keys in dimension.dynamic.items()},
    )
