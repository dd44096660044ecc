"""The keys of partitions: which there are, which of them a run without options takes, and which go into one run."""

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
    """All keys there are now, in their order."""
    with partition_loading_context(dynamic_partitions_store=instance):
        return [str(key) for key in partitions.get_partition_keys()]


def latest_keys(partitions: PartitionsDefinition[str], instance: DagsterInstance) -> list[str]:
    """Of windows of time the latest complete one; of everything else all, for none is later than another."""
    if isinstance(partitions, MultiPartitionsDefinition):
        latest = {one.name: set(latest_keys(one.partitions_def, instance)) for one in partitions.partitions_defs}
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
    now = datetime.now(timezone.utc)  # some definitions have keys of windows that are not over yet
    ended = (key for key in reversed(known) if partitions.time_window_for_partition_key(key).end <= now)
    return [key for key in (next(ended, None),) if key is not None]


def keys_between(partitions: PartitionsDefinition[str], instance: DagsterInstance, first: str, last: str) -> list[str]:
    """The keys of a range; of two dimensions, all pairs of keys that lie in both ranges."""
    with partition_loading_context(dynamic_partitions_store=instance):
        return [str(key) for key in partitions.get_partition_keys_in_range(PartitionKeyRange(first, last))]


def is_dynamic(partitions: PartitionsDefinition[str]) -> bool:
    """Do keys come and go while the project runs?"""
    if isinstance(partitions, MultiPartitionsDefinition):
        return any(is_dynamic(one.partitions_def) for one in partitions.partitions_defs)
    return isinstance(partitions, DynamicPartitionsDefinition)


def spans(partitions: PartitionsDefinition[str], instance: DagsterInstance, keys: Sequence[str]) -> list[list[str]]:
    """The keys in groups, each of which Dagster can name by its first and its last.

    Keys that follow each other; of two dimensions, all pairs of keys that follow each other in both.
    """
    if not isinstance(partitions, MultiPartitionsDefinition):
        return [list(span) for span in _runs(known_keys(partitions, instance), set(keys))]
    first, second = partitions.partitions_defs
    outer, inner = (known_keys(one.partitions_def, instance) for one in (first, second))
    pairs: dict[str, set[str]] = {}
    for key in keys:
        parts = partitions.get_partition_key_from_str(key).keys_by_dimension
        pairs.setdefault(parts[first.name], set()).add(parts[second.name])
    found: list[list[str]] = []
    rows = [(one, [tuple(span) for span in _runs(inner, pairs.get(one, set()))]) for one in outer]
    for alike, group in itertools.groupby(rows, key=lambda row: row[1]):
        names = [one for one, _ in group]
        found += [[f"{one}|{other}" for one in names for other in span] for span in alike]
    return found


def _runs(known: Sequence[str], wanted: set[str]) -> Iterator[list[str]]:
    """The wanted keys, those that follow each other together."""
    for inside, group in itertools.groupby(known, key=lambda key: key in wanted):
        if inside:
            yield list(group)
