"""The assets and partitions that --partition and --partition-range select, or a run without them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from floe_core.errors import ConfigurationError
from floe_runtime.runs.partition_keys import (
    is_dynamic,
    keys_between,
    known_keys,
    latest_keys,
    reversed_ends,
    similar_key,
)

if TYPE_CHECKING:
    from dagster import AssetKey, DagsterInstance, PartitionsDefinition

    from floe_dagster._dagster.names import AssetGraph

__all__ = ["Choice", "LeftOut", "choose", "shared_partitions"]

_ADD = "add keys in the web UI (floe dev), or with instance.add_dynamic_partitions"


@dataclass(frozen=True)
class LeftOut:
    """A selected asset that does not run, because it does not have the partition."""

    asset: str
    reason: str


NOT_PARTITIONED = "not partitioned"


@dataclass(frozen=True)
class Choice:
    """The assets that run, the partitions for which the partitioned ones do, and the assets that do not run."""

    assets: tuple[AssetKey, ...]
    keys: tuple[str, ...]
    left_out: tuple[LeftOut, ...] = ()


def choose(
    graph: AssetGraph,
    assets: Sequence[AssetKey],
    instance: DagsterInstance,
    partitions: Sequence[str],
    partition_range: str | None,
    with_unpartitioned: bool,
) -> Choice:
    """The assets and partitions to run; without partitions, all assets and their latest partitions."""
    if not partitions and partition_range is None:
        shared = shared_partitions(graph, assets)
        return Choice(tuple(assets), () if shared is None else tuple(_latest(shared, instance)))
    named = list(partitions) if partition_range is None else list(_ends(partition_range))
    having, left_out = _having(graph, assets, named, instance)
    if with_unpartitioned:
        plain = [key for key in assets if graph.get(key).partitions_def is None]
        left_out = [one for one in left_out if one.reason != NOT_PARTITIONED]
        having = [key for key in assets if key in having or key in plain]
    definition = shared_partitions(graph, having)
    if definition is None:
        raise ConfigurationError("no selected asset is partitioned; leave the partition options out")
    if partition_range is None:
        known = known_keys(definition, instance)
        return Choice(tuple(having), tuple(key for key in known if key in partitions), tuple(left_out))
    first, last = named
    swapped = reversed_ends(definition, instance, first, last)
    if swapped is not None:
        raise ConfigurationError(f"--partition-range: {swapped[0]} comes after {swapped[1]}; swap them")
    keys = keys_between(definition, instance, first, last)
    if not keys:
        raise ConfigurationError(f"--partition-range {partition_range!r}: no partition is in it")
    return Choice(tuple(having), tuple(keys), tuple(left_out))


def shared_partitions(graph: AssetGraph, assets: Sequence[AssetKey]) -> PartitionsDefinition[str] | None:
    """The partitions that the partitioned assets share; None if none is partitioned."""
    by_definition: dict[PartitionsDefinition[str], list[str]] = {}
    for key in assets:
        definition = graph.get(key).partitions_def
        if definition is not None:
            by_definition.setdefault(definition, []).append(key.to_user_string())
    if len(by_definition) > 1:
        groups = "; ".join(", ".join(sorted(names)) for names in by_definition.values())
        raise ConfigurationError(
            f"these assets have different partitions ({groups}); run one group at a time with --select"
        )
    return next(iter(by_definition), None)


def _having(
    graph: AssetGraph, assets: Sequence[AssetKey], named: Sequence[str], instance: DagsterInstance
) -> tuple[list[AssetKey], list[LeftOut]]:
    """The assets that have all these partitions, and the others; an error if a partition exists nowhere."""
    definitions = dict.fromkeys(graph.get(key).partitions_def for key in assets)
    known = {one: known_keys(one, instance) for one in definitions if one is not None}
    if not known:
        raise ConfigurationError("no selected asset is partitioned; leave the partition options out")
    key_sets = {one: set(keys) for one, keys in known.items()}
    lacking = {one: [name for name in named if name not in keys] for one, keys in key_sets.items()}
    having = {one for one, names in lacking.items() if not names}
    if not having:
        # Of several definitions, the one that has most of the partitions shows what is wrong.
        closest = min(known, key=lambda one: len(lacking[one]))
        raise _no_partition(named, closest, known[closest])
    chosen, left_out = [], []
    for key in assets:
        definition = graph.get(key).partitions_def
        if definition in having:
            chosen.append(key)
        else:
            reason = NOT_PARTITIONED if definition is None else f"without partition {' or '.join(lacking[definition])}"
            left_out.append(LeftOut(key.to_user_string(), reason))
    return chosen, left_out


def _no_partition(
    named: Sequence[str], definition: PartitionsDefinition[str], known: Sequence[str]
) -> ConfigurationError:
    if not known:
        return _none_yet(definition)
    unknown = next(name for name in named if name not in known)
    near = similar_key(unknown, known)
    if near is not None:
        return ConfigurationError(f"there is no partition {unknown!r}. Did you mean {near!r}?")
    hint = f"; {_ADD}" if is_dynamic(definition) else ""
    return ConfigurationError(f"there is no partition {unknown!r}; they go from {known[0]} to {known[-1]}{hint}")


def _none_yet(definition: PartitionsDefinition[str]) -> ConfigurationError:
    hint = _ADD if is_dynamic(definition) else "wait for the first one"
    return ConfigurationError(f"these assets have no partition yet; {hint}")


def _latest(definition: PartitionsDefinition[str], instance: DagsterInstance) -> list[str]:
    """The latest complete time window, or all partitions that have no time."""
    latest = latest_keys(definition, instance)
    if not latest:
        if not known_keys(definition, instance):
            raise _none_yet(definition)
        raise ConfigurationError("the first window of these assets is not over yet; name it with --partition")
    return latest


def _ends(partition_range: str) -> tuple[str, str]:
    first, separator, last = partition_range.partition("...")
    if not (first and separator and last):
        raise ConfigurationError(f"--partition-range {partition_range!r}: write it as START...END")
    return first, last
