"""Which assets run for which partitions, in as few Dagster runs as possible, and each write no more than once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dagster import AssetKey, IdentityPartitionMapping, TimeWindowPartitionMapping

from floe_core.errors import ConfigurationError
from floe_dagster.differences import Difference, tables_to_append_to
from floe_iceberg.snapshots import Loss
from floe_runtime.runs.partition_keys import known_keys, spans

if TYPE_CHECKING:
    from dagster import DagsterInstance, PartitionsDefinition

    from floe_dagster._dagster.names import AssetGraph
    from floe_runtime.runs.pipeline import Pipeline

__all__ = ["AppendAgainError", "Batch", "batches", "missing", "missing_and_lost", "shared_partitions"]


class AppendAgainError(ConfigurationError):
    """What is missing cannot be recomputed without appending to rows that are still there."""


@dataclass(frozen=True)
class Batch:
    """One Dagster run: these assets, for these neighbouring partitions; no partitions if nothing is partitioned."""

    assets: tuple[AssetKey, ...]
    keys: tuple[str, ...] = ()


def shared_partitions(graph: AssetGraph, assets: Sequence[AssetKey]) -> PartitionsDefinition[str] | None:
    """The partitions that the partitioned assets share; None if none is partitioned."""
    found: dict[PartitionsDefinition[str], list[str]] = {}
    for key in assets:
        one = graph.get(key).partitions_def
        if one is not None:
            found.setdefault(one, []).append(key.to_user_string())
    if len(found) > 1:
        groups = "; ".join(", ".join(sorted(names)) for names in found.values())
        raise ConfigurationError(
            f"these assets have different partitions ({groups}); run one group at a time with --select"
        )
    return next(iter(found), None)


def batches(
    graph: AssetGraph, assets: Sequence[AssetKey], keys: Sequence[str], instance: DagsterInstance
) -> list[Batch]:
    """All assets for all these partitions."""
    wanted = {key: set(keys) for key in assets if graph.get(key).partitions_def is not None}
    return _batches(graph, wanted, [key for key in assets if key not in wanted], instance)


def missing(
    graph: AssetGraph,
    assets: Sequence[AssetKey],
    instance: DagsterInstance,
    *,
    lost: Mapping[AssetKey, Collection[str]] | None = None,
) -> list[Batch]:
    """What was never materialized, and what depends on it.

    An unpartitioned asset counts as missing too if something it reads is newer than itself.

    Args:
        lost: The partitions that are recorded as materialized, and not in the table; none if the asset has none.
    """
    gone = lost or {}
    partitions = shared_partitions(graph, assets)
    known = known_keys(partitions, instance) if partitions is not None else []
    wanted: dict[AssetKey, set[str]] = {}
    plain: list[AssetKey] = []
    for key in (one for one in graph.toposorted_asset_keys if one in set(assets)):
        node = graph.get(key)
        if node.partitions_def is not None:
            lacking = set(known) - (set(instance.get_materialized_partitions(key)) - set(gone.get(key, ())))
            wanted[key] = lacking.union(*(wanted.get(parent, set()) for parent in node.parent_keys))
        elif (
            key in gone
            or any(wanted.get(parent) or parent in plain for parent in node.parent_keys)
            or _is_behind(key, node.parent_keys, instance)
        ):
            plain.append(key)
    _complete(graph, wanted, plain)
    return _batches(graph, wanted, plain, instance)


def missing_and_lost(pipeline: Pipeline, assets: Sequence[AssetKey], differences: Sequence[Difference]) -> list[Batch]:
    """What is missing, and what the tables have lost; refused if that would append rows a second time."""
    graph, instance = pipeline.graph, pipeline.instance
    lost: dict[AssetKey, set[str]] = {}
    for one in (one for one in differences if one.recompute):
        lost.setdefault(AssetKey.from_user_string(one.asset), set()).update(one.partitions)
    planned = missing(graph, assets, instance, lost=lost)
    if not lost:
        return planned
    # The history of the same table proves that a write was rolled back: its rows are not there.
    proven = {
        (AssetKey.from_user_string(one.asset), name)
        for one in differences
        if one.reason == Loss.ROLLED_BACK.value
        for name in one.partitions or ("",)
    }
    because = _writes(graph, planned) - _writes(graph, missing(graph, assets, instance)) - proven
    twice = tables_to_append_to(pipeline.definitions, {key for key, _ in because}, instance)
    if twice:
        named = ", ".join(f"{key.to_user_string()} ({table})" for key, table in twice.items())
        raise AppendAgainError(
            f"--missing would append to tables that have rows already, to recompute what others have lost or what was "
            f"recorded of another table: {named}. Nothing was run. Empty or drop these tables first, or run the other "
            f"assets with --select"
        )
    return planned


def _writes(graph: AssetGraph, planned: Sequence[Batch]) -> set[tuple[AssetKey, str]]:
    """Each asset and partition that is written; the partition is empty for assets that have none."""
    return {
        (key, name)
        for batch in planned
        for key in batch.assets
        for name in (batch.keys if graph.get(key).partitions_def is not None else ("",))
    }


def _complete(graph: AssetGraph, wanted: dict[AssetKey, set[str]], plain: list[AssetKey]) -> None:
    """Assets that one function makes together, and only together, run together."""
    for key in [*wanted, *plain]:
        definition = graph.assets_def_for_key(key)
        for sibling in () if definition.can_subset else definition.keys:
            if key in wanted:
                wanted.setdefault(sibling, set()).update(wanted[key])
            elif sibling not in plain:
                plain.append(sibling)


def _is_behind(key: AssetKey, parents: Collection[AssetKey], instance: DagsterInstance) -> bool:
    own = instance.get_latest_materialization_event(key)
    if own is None:
        return True
    events = (instance.get_latest_materialization_event(parent) for parent in parents)
    return any(event is not None and event.timestamp > own.timestamp for event in events)


def _batches(
    graph: AssetGraph, wanted: Mapping[AssetKey, set[str]], plain: Sequence[AssetKey], instance: DagsterInstance
) -> list[Batch]:
    """Neighbouring partitions together where the assets take several at once; unpartitioned assets run once."""
    runs = [(tuple(assets), tuple(keys)) for assets, keys in _chunks(graph, wanted, instance)]
    if not runs:
        return [Batch(tuple(plain))] if plain else []
    partitioned = set(wanted)
    first: list[AssetKey] = []
    last: list[AssetKey] = []
    each: list[AssetKey] = []
    for key in plain:
        follows = bool(_related(graph, key, "parent_keys") & partitioned)
        leads = bool(_related(graph, key, "child_keys") & partitioned)
        (each if follows and leads else last if follows else first).append(key)
    result = []
    for number, (assets, keys) in enumerate(runs):
        before = first if number == 0 else []
        after = last if number == len(runs) - 1 else []
        result.append(Batch((*before, *assets, *each, *after), keys))
    return result


def _chunks(
    graph: AssetGraph, wanted: Mapping[AssetKey, set[str]], instance: DagsterInstance
) -> list[tuple[Sequence[AssetKey], Sequence[str]]]:
    """The keys for which the same assets run, those that go into one run together, in the order of the keys."""
    definition = next((graph.get(key).partitions_def for key in wanted), None)
    if definition is None:
        return []
    places = {key: place for place, key in enumerate(known_keys(definition, instance))}
    stages = _stages(graph, wanted)
    alike: dict[tuple[int, tuple[AssetKey, ...]], list[str]] = {}
    for key in places:
        for stage in sorted(set(stages.values())):
            assets = tuple(one for one in wanted if key in wanted[one] and stages[one] == stage)
            if assets:
                alike.setdefault((stage, assets), []).append(key)
    chunks = [
        (stage, assets, span)
        for (stage, assets), keys in alike.items()
        for span in (spans(definition, instance, keys) if _take_several(graph, assets) else [[key] for key in keys])
    ]
    chunks.sort(key=lambda chunk: (chunk[0], places[chunk[2][0]]))
    return [(assets, span) for _, assets, span in chunks]


def _stages(graph: AssetGraph, wanted: Mapping[AssetKey, set[str]]) -> dict[AssetKey, int]:
    """Which assets must wait until others are filled: those that read other partitions of them than their own."""
    stages: dict[AssetKey, int] = {}
    for key in (one for one in graph.toposorted_asset_keys if one in wanted):
        parents = [one for one in graph.get(key).parent_keys if one in stages]
        stages[key] = max((stages[one] + (not _is_its_own(graph, key, one)) for one in parents), default=0)
    return stages


def _is_its_own(graph: AssetGraph, key: AssetKey, parent: AssetKey) -> bool:
    """Does each partition read the same one of its parent?"""
    mapping = graph.get_partition_mapping(key, parent)
    if isinstance(mapping, TimeWindowPartitionMapping):
        return (mapping.start_offset, mapping.end_offset) == (0, 0)
    return isinstance(mapping, IdentityPartitionMapping)


def _take_several(graph: AssetGraph, assets: Sequence[AssetKey]) -> bool:
    policies = [graph.get(key).backfill_policy for key in assets]
    # None is Dagster's way of saying "all partitions in one run".
    return all(policy is not None and policy.max_partitions_per_run is None for policy in policies)


def _related(graph: AssetGraph, key: AssetKey, direction: str) -> set[AssetKey]:
    found: set[AssetKey] = set()
    waiting = [key]
    while waiting:
        for one in getattr(graph.get(waiting.pop()), direction):
            if one not in found:
                found.add(one)
                waiting.append(one)
    return found
