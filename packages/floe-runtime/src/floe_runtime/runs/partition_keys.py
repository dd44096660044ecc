"""Partition keys: which exist, which a run without options takes, and which fit into one run."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone

from dagster import (
    DagsterInstance,
    DynamicPartitionsDefinition,
    MultiPartitionsDefinition,
    PartitionKeyRange,
    PartitionsDefinition,
    TimeWindowPartitionsDefinition,
    partition_loading_context,
)

__all__ = ["is_dynamic", "keys_between", "known_keys", "latest_keys", "spans"]


def known_keys(partitions: PartitionsDefinition[str], instance: DagsterInstance) -> list[str]:
    """All keys that exist now, in the order of the definition."""
    with partition_loading_context(dynamic_partitions_store=instance):
        return [str(key) for key in partitions.get_partition_keys()]


def latest_keys(partitions: PartitionsDefinition[str], instance: DagsterInstance) -> list[str]:
    """The latest complete time window; all keys of other partitions, which have no order in time."""
    if isinstance(partitions, MultiPartitionsDefinition):
        latest = {
            dimension.name: set(latest_keys(dimension.partitions_def, instance))
            for dimension in partitions.partitions_defs
        }
        return [
            key
            for key in known_keys(partitions, instance)
            if all(
                part in latest[name]
                for name, part in partitions.get_partition_key_from_str(key).keys_by_dimension.items()
            )
        ]
    known = known_keys(partitions, instance)
    if not isinstance(partitions, TimeWindowPartitionsDefinition):
        return known
    now = datetime.now(timezone.utc)  # some definitions have keys of windows that have not ended
    ended = (key for key in reversed(known) if partitions.time_window_for_partition_key(key).end <= now)
    return [key for key in (next(ended, None),) if key is not None]


def keys_between(partitions: PartitionsDefinition[str], instance: DagsterInstance, first: str, last: str) -> list[str]:
    """The keys of a range; for two dimensions, all pairs of keys within both ranges."""
    with partition_loading_context(dynamic_partitions_store=instance):
        return [str(key) for key in partitions.get_partition_keys_in_range(PartitionKeyRange(first, last))]


def is_dynamic(partitions: PartitionsDefinition[str]) -> bool:
    """Whether keys can be added and removed at run time."""
    if isinstance(partitions, MultiPartitionsDefinition):
        return any(is_dynamic(dimension.partitions_def) for dimension in partitions.partitions_defs)
    return isinstance(partitions, DynamicPartitionsDefinition)


def spans(partitions: PartitionsDefinition[str], instance: DagsterInstance, keys: Sequence[str]) -> list[list[str]]:
    """The keys in groups, each of which Dagster can express as a range from its first to its last key.

    Consecutive keys; for two dimensions, all pairs of keys that are consecutive in both.
    """
    if not isinstance(partitions, MultiPartitionsDefinition):
        return [list(span) for span in _consecutive(known_keys(partitions, instance), set(keys))]
    first, second = partitions.partitions_defs
    outer, inner = (known_keys(dimension.partitions_def, instance) for dimension in (first, second))
    pairs: dict[str, set[str]] = {}
    for key in keys:
        parts = partitions.get_partition_key_from_str(key).keys_by_dimension
        pairs.setdefault(parts[first.name], set()).add(parts[second.name])
    groups: list[list[str]] = []
    rows = [(key, [tuple(span) for span in _consecutive(inner, pairs.get(key, set()))]) for key in outer]
    for alike, group in itertools.groupby(rows, key=lambda row: row[1]):
        names = [key for key, _ in group]
        groups += [[f"{outer_key}|{inner_key}" for outer_key in names for inner_key in span] for span in alike]
    return groups


def _consecutive(known: Sequence[str], wanted: set[str]) -> Iterator[list[str]]:
    """The wanted keys, in groups of consecutive ones."""
    for inside, group in itertools.groupby(known, key=lambda key: key in wanted):
        if inside:
            yield list(group)
