"""Dagster partitions as slices of tables, and the hidden partitioning that fits them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dagster import (
    DynamicPartitionsDefinition,
    MultiPartitionsDefinition,
    PartitionsDefinition,
    StaticPartitionsDefinition,
    TimeWindowPartitionsDefinition,
)
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import DateType, TimestamptzType

from floe_core.errors import ConfigurationError
from floe_core.identifiers import ColumnRange, ColumnValues, Condition, TableIdentifier, TableSlice
from floe_core.models import PartitionTransform, PartitionTransformType
from floe_dagster.assets.options import PartitionExpr
from floe_iceberg.expressions import slice_filter
from floe_iceberg.snapshots import snapshot_info

__all__ = ["Partitioning", "partitioning"]

_UTC = {"UTC", "Etc/UTC", "Etc/UCT", "UCT", "Zulu", "Etc/Zulu", "GMT", "Etc/GMT", "Etc/Greenwich", "Universal"}


_ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


@dataclass(frozen=True)
class _Dimension:
    """One dimension of an asset's partitions, and the column that holds it."""

    name: str
    column: str
    definition: PartitionsDefinition[str]

    def condition(self, key: str) -> Condition:
        if not isinstance(self.definition, TimeWindowPartitionsDefinition):
            return ColumnValues(column=self.column, values=(key,))
        window = self.definition.time_window_for_partition_key(key)
        return ColumnRange(
            column=self.column, start=window.start, end=window.end, zone=str(self.definition.timezone or "UTC")
        )

    def transform(self, schema: Schema) -> PartitionTransform:
        """The coarsest transform whose partitions never span two keys; hours if there is none."""
        kind = PartitionTransformType.IDENTITY
        column = next((field for field in schema.fields if field.name.lower() == self.column.lower()), None)
        if isinstance(self.definition, TimeWindowPartitionsDefinition):
            kind = _unit(self.definition)
            # Iceberg partitions timestamptz by UTC; days of other zones begin at another hour of UTC, which may change
            # with daylight saving.
            if column is not None and isinstance(column.field_type, TimestamptzType) and not self._is_utc():
                kind = PartitionTransformType.HOUR
            if column is not None and isinstance(column.field_type, DateType) and kind is PartitionTransformType.HOUR:
                kind = PartitionTransformType.DAY  # dates have no hours; windows that split a date are refused
        return PartitionTransform(source_column=column.name if column else self.column, transform_type=kind)

    def _is_utc(self) -> bool:
        return str(getattr(self.definition, "timezone", None) or "UTC") in _UTC


@dataclass(frozen=True)
class Partitioning:
    """How the partitions of an asset map to rows of its table."""

    definition: PartitionsDefinition[str]
    dimensions: tuple[_Dimension, ...]

    def slice(self, keys: Iterable[str]) -> TableSlice:
        """The rows of these partitions, with adjacent windows merged."""
        return TableSlice.union(
            [dimension.condition(part) for dimension, part in zip(self.dimensions, self._parts(key), strict=True)]
            for key in keys
        )

    def refuse_keys_of_others(self, keys: Sequence[str], asset: str) -> None:
        """Refuse an upsert whose keys could match, and so move, rows of other partitions."""
        named = {key.lower() for key in keys}
        missing = [dimension.column for dimension in self.dimensions if dimension.column.lower() not in named]
        if missing:
            raise ConfigurationError(
                f"asset {asset}: an upsert finds rows by {', '.join(keys)} in the whole table, and would move rows "
                f"here from other partitions; add {', '.join(missing)} to upsert_keys, or leave out the partitions. "
                f"Nothing was written"
            )

    def refuse_without_columns(self, identifier: TableIdentifier, branch: str) -> Callable[[Table], None]:
        """A check that the table has the partition columns: without them, no run would replace its existing rows."""

        def check(table: Table) -> None:
            known = {field.name.lower() for field in table.schema().fields}
            unknown = [dimension.column for dimension in self.dimensions if dimension.column.lower() not in known]
            head = table.snapshot_by_name(branch)
            if unknown and head is not None and snapshot_info(head).summary.get("total-records") != "0":
                raise ConfigurationError(
                    f"table '{identifier}' has rows and no column {', '.join(map(repr, unknown))}, so it cannot be "
                    f"told which of them a run replaces; rename the column there first (evolve_schema), or name the "
                    f"one that it has as partition_expr. Nothing was written"
                )

        return check

    def check(self, keys: Iterable[str], schema: Schema, asset: str) -> None:
        """Refuse data without the partition column, or with one whose type cannot hold the partition key."""
        try:
            slice_filter(self.slice(keys), schema)
        except ConfigurationError as exc:
            raise ConfigurationError(f"asset {asset}: {exc}. Nothing was written") from None

    def transforms(self, schema: Schema) -> list[PartitionTransform]:
        """How a new table for data of this schema is partitioned."""
        return [dimension.transform(schema) for dimension in self.dimensions]

    def _parts(self, key: str) -> Sequence[str]:
        if not isinstance(self.definition, MultiPartitionsDefinition):
            return [key]
        parts = self.definition.get_partition_key_from_str(str(key)).keys_by_dimension
        return [parts[dimension.name] for dimension in self.dimensions]


def partitioning(definition: PartitionsDefinition[Any], expr: PartitionExpr | None, asset: str) -> Partitioning:
    """The dimensions of a partitions definition with their columns; raises if the metadata does not name them."""
    if isinstance(definition, MultiPartitionsDefinition):
        named = {dimension.name: dimension.partitions_def for dimension in definition.partitions_defs}
        example = ", ".join(f'"{name}": "COLUMN"' for name in named)
        if not isinstance(expr, dict) or set(expr) != set(named):
            raise ConfigurationError(
                f"asset {asset} is partitioned by {' and '.join(named)}, but its metadata does not name the column of "
                f'each: add metadata={{"partition_expr": {{{example}}}}}'
            )
        if len({column.lower() for column in expr.values()}) < len(expr):
            raise ConfigurationError(f"asset {asset}: partition_expr names one column twice: {expr}")
        dimensions = [_Dimension(name, expr[name], _supported(inner, asset)) for name, inner in named.items()]
        return Partitioning(definition, tuple(dimensions))
    if not isinstance(expr, str) or not expr:
        raise ConfigurationError(
            f"asset {asset} is partitioned, but its metadata does not name the column of the partition: "
            f'add metadata={{"partition_expr": "COLUMN"}}'
        )
    return Partitioning(definition, (_Dimension("", expr, _supported(definition, asset)),))


def _supported(definition: PartitionsDefinition[Any], asset: str) -> PartitionsDefinition[str]:
    if isinstance(
        definition, TimeWindowPartitionsDefinition | StaticPartitionsDefinition | DynamicPartitionsDefinition
    ):
        return definition
    raise ConfigurationError(
        f"asset {asset} is partitioned by {type(definition).__name__}, which Floe does not know; it knows windows of "
        f"time, static, dynamic and multi-dimensional partitions"
    )


def _unit(definition: TimeWindowPartitionsDefinition) -> PartitionTransformType:
    """Years, months, days or hours, by when windows begin, not by their length."""
    schedule = _ALIASES.get(definition.cron_schedule.strip().lower(), definition.cron_schedule)
    minute, hour, day, month, weekday = schedule.split()[:5]
    if (minute, hour) != ("0", "0"):
        return PartitionTransformType.HOUR
    if (day, weekday) == ("1", "*"):
        return PartitionTransformType.YEAR if month == "1" else PartitionTransformType.MONTH
    return PartitionTransformType.DAY
