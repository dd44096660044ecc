"""The partitions of a run, for steps that have no partitions themselves."""

from __future__ import annotations

from typing import Any

from dagster import PartitionKeyRange, PartitionsDefinition, partition_loading_context

__all__ = ["partition_keys_of"]

_PARTITION = "dagster/partition"
_RANGE = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")


def partition_keys_of(step: Any, definition: PartitionsDefinition[Any] | None) -> list[str]:
    """The partitions of the run that the asset has; none if the run has none, or if the asset is not partitioned."""
    if definition is None:
        return []
    tags = step.run_tags
    with partition_loading_context(dynamic_partitions_store=step.instance):
        if all(tag in tags for tag in _RANGE):
            return list(definition.get_partition_keys_in_range(PartitionKeyRange(*(tags[tag] for tag in _RANGE))))
        key = tags.get(_PARTITION)
        return [key] if key is not None and definition.has_partition_key(key) else []
