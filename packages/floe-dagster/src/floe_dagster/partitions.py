"""Dagster partitions as slices of tables."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timezone

from dagster import DailyPartitionsDefinition, PartitionsDefinition

from floe_core.errors import ConfigurationError
from floe_core.identifiers import TableSlice
from floe_core.models import PartitionTransform, PartitionTransformType

__all__ = ["partition_transform", "table_slice"]


def _daily(partitions: PartitionsDefinition, asset: str) -> DailyPartitionsDefinition:
    if isinstance(partitions, DailyPartitionsDefinition):
        return partitions
    raise ConfigurationError(
        f"asset {asset} is partitioned by {type(partitions).__name__}; this version of Floe stores unpartitioned "
        f"and daily partitioned assets"
    )


def table_slice(partitions: PartitionsDefinition, keys: Iterable[str], *, column: str, asset: str) -> TableSlice:
    """The rows of these partitions, neighbouring days merged."""
    daily = _daily(partitions, asset)
    windows = [daily.time_window_for_partition_key(key) for key in keys]
    if any(window.start.astimezone(timezone.utc).minute for window in windows):
        raise ConfigurationError(
            f"asset {asset}: days in {daily.timezone} do not begin on a whole hour of UTC; this version of Floe "
            f"stores days of UTC and of zones with whole hours"
        )
    return TableSlice.of_windows(column, [(window.start, window.end) for window in windows])


def partition_transform(partitions: PartitionsDefinition, *, column: str, asset: str) -> PartitionTransform:
    """How a new table is partitioned so that each day is made of whole partitions.

    Days that do not begin at midnight UTC begin at some other hour, which may change with daylight saving: hours fit.
    """
    daily = _daily(partitions, asset)
    midnight = daily.timezone in ("UTC", "Etc/UTC") and (daily.hour_offset, daily.minute_offset) == (0, 0)
    kind = PartitionTransformType.DAY if midnight else PartitionTransformType.HOUR
    return PartitionTransform(source_column=column, transform_type=kind)
