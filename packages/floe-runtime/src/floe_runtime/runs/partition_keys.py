"""Partition keys: which exist, which a run without options takes, and which fit into one run."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from difflib import get_close_matches

from dagster import (
    DagsterInstance,
    DynamicPartitionsDefinition,
    MultiPartitionsDefinition,
    PartitionKeyRange,
    PartitionsDefinition,
    TimeWindowPartitionsDefinition,
    partition_loading_context,
)

__all__ = [
    "KeyRange",
    "is_dynamic",
    "key_ranges",
    "keys_between",
    "known_keys",
    "latest_keys",
    "reversed_ends",
    "similar_key",
    "spans",
]


@dataclass(frozen=True)
class KeyRange:
    """Partitions from the first to the last; for two dimensions, all pairs within both."""

    first: str
    last: str
    count: int

    def __str__(self) -> str:
        return self.first if self.count == 1 else f"{self.first}...{self.last} ({self.count:,})"


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


def reversed_ends(
    partitions: PartitionsDefinition[str], instance: DagsterInstance, first: str, last: str
) -> tuple[str, str] | None:
    """The ends of a range, or of one of its dimensions, if the first comes after the last; else None."""
    if isinstance(partitions, MultiPartitionsDefinition):
        starts, ends = (partitions.get_partition_key_from_str(key).keys_by_dimension for key in (first, last))
        wrong = (
            reversed_ends(dimension.partitions_def, instance, starts[dimension.name], ends[dimension.name])
            for dimension in partitions.partitions_defs
        )
        return next((pair for pair in wrong if pair is not None), None)
    known = known_keys(partitions, instance)
    return (first, last) if known.index(first) > known.index(last) else None


def similar_key(name: str, known: Collection[str]) -> str | None:
    """The existing key that a mistyped one most likely stands for; never another date or another number."""

    def plain(key: str) -> list[str]:  # without zeros in front, case and the order of two dimensions
        return sorted(re.sub(r"(?<!\d)0+(?=\d)", "", key.casefold()).split("|"))

    def numbers(key: str) -> list[str]:
        return [digits.lstrip("0") for digits in re.findall(r"\d+", key)]

    wanted, wanted_numbers = plain(name), numbers(name)
    same = next((key for key in known if plain(key) == wanted), None)
    if same is not None:
        return same
    return next(iter(get_close_matches(name, [key for key in known if numbers(key) == wanted_numbers], n=1)), None)


def is_dynamic(partitions: PartitionsDefinition[str]) -> bool:
    """Whether keys can be added and removed at run time."""
    if isinstance(partitions, MultiPartitionsDefinition):
        return any(is_dynamic(dimension.partitions_def) for dimension in partitions.partitions_defs)
    return isinstance(partitions, DynamicPartitionsDefinition)


def spans(
    partitions: PartitionsDefinition[str],
    instance: DagsterInstance,
    keys: Collection[str],
    known: Sequence[str] | None = None,
) -> list[list[str]]:
    """The keys in groups, each of which Dagster can express as a range from its first to its last key.

    Consecutive keys; for two dimensions, all pairs of keys that are consecutive in both.

    Args:
        known: All keys, if the caller has them: listing thousands of windows takes time.
    """
    if not isinstance(partitions, MultiPartitionsDefinition):
        return list(_consecutive(known_keys(partitions, instance) if known is None else known, set(keys)))
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


def key_ranges(
    partitions: PartitionsDefinition[str], instance: DagsterInstance, keys: Collection[str], known: Sequence[str]
) -> list[KeyRange]:
    """The keys as ranges, of which there are few, where there may be thousands of keys."""
    return [KeyRange(span[0], span[-1], len(span)) for span in spans(partitions, instance, keys, known)]


def _consecutive(known: Sequence[str], wanted: set[str]) -> Iterator[list[str]]:
    """The wanted keys, in groups of consecutive ones."""
    for inside, group in itertools.groupby(known, key=lambda key: key in wanted):
        if inside:
            yield list(group)
