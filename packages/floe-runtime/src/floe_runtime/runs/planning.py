"""Plan which assets run for which partitions: as few Dagster runs as possible, and each write at most once."""

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
    """Missing data cannot be recomputed without appending to existing rows."""


@dataclass(frozen=True)
class Batch:
    """One Dagster run: these assets, for these consecutive partitions; no keys if nothing is partitioned."""

    assets: tuple[AssetKey, ...]
    keys: tuple[str, ...] = ()


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


def batches(
    graph: AssetGraph, assets: Sequence[AssetKey], keys: Sequence[str], instance: DagsterInstance
) -> list[Batch]:
    """The runs of all these assets for all these partitions."""
    wanted = {key: set(keys) for key in assets if graph.get(key).partitions_def is not None}
    return _batches(graph, wanted, [key for key in assets if key not in wanted], instance)


def missing(
    graph: AssetGraph,
    assets: Sequence[AssetKey],
    instance: DagsterInstance,
    *,
    lost: Mapping[AssetKey, Collection[str]] | None = None,
) -> list[Batch]:
    """The runs of what was never materialized, and of what depends on it.

    An unpartitioned asset also counts as missing if one of its parents is newer.

    Args:
        lost: The partitions that are recorded as materialized but not in the table; empty for unpartitioned assets.
    """
    gone = lost or {}
    partitions = shared_partitions(graph, assets)
    known = known_keys(partitions, instance) if partitions is not None else []
    wanted: dict[AssetKey, set[str]] = {}
    plain: list[AssetKey] = []
    for key in (key for key in graph.toposorted_asset_keys if key in set(assets)):
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
    """The runs of what is missing or lost; refused if that would append rows a second time."""
    graph, instance = pipeline.graph, pipeline.instance
    lost: dict[AssetKey, set[str]] = {}
    for difference in differences:
        if difference.recompute:
            lost.setdefault(AssetKey.from_user_string(difference.asset), set()).update(difference.partitions)
    planned = missing(graph, assets, instance, lost=lost)
    if not lost:
        return planned
    # The history of the table proves that these writes were rolled back: their rows are gone.
    proven = {
        (AssetKey.from_user_string(difference.asset), name)
        for difference in differences
        if difference.reason == Loss.ROLLED_BACK.value
        for name in difference.partitions or ("",)
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
    """Add the siblings of assets of a multi-asset that cannot be subset."""
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
    """Consecutive partitions in one run where the assets support it; unpartitioned assets run once."""
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
    """The keys grouped by the assets that run for them, and within that by run, in the order of the keys."""
    definition = next((graph.get(key).partitions_def for key in wanted), None)
    if definition is None:
        return []
    places = {key: place for place, key in enumerate(known_keys(definition, instance))}
    stages = _stages(graph, wanted)
    alike: dict[tuple[int, tuple[AssetKey, ...]], list[str]] = {}
    for key in places:
        for stage in sorted(set(stages.values())):
            assets = tuple(asset for asset in wanted if key in wanted[asset] and stages[asset] == stage)
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
    """The stage of each asset: one that reads other partitions of a parent than its own runs a stage later."""
    stages: dict[AssetKey, int] = {}
    for key in (key for key in graph.toposorted_asset_keys if key in wanted):
        parents = [parent for parent in graph.get(key).parent_keys if parent in stages]
        stages[key] = max((stages[parent] + (not _reads_same_key(graph, key, parent)) for parent in parents), default=0)
    return stages


def _reads_same_key(graph: AssetGraph, key: AssetKey, parent: AssetKey) -> bool:
    """Whether each partition reads only the partition of the same key of its parent."""
    mapping = graph.get_partition_mapping(key, parent)
    if isinstance(mapping, TimeWindowPartitionMapping):
        return (mapping.start_offset, mapping.end_offset) == (0, 0)
    return isinstance(mapping, IdentityPartitionMapping)


def _take_several(graph: AssetGraph, assets: Sequence[AssetKey]) -> bool:
    policies = [graph.get(key).backfill_policy for key in assets]
    # None means all partitions in one run.
    return all(policy is not None and policy.max_partitions_per_run is None for policy in policies)


def _related(graph: AssetGraph, key: AssetKey, direction: str) -> set[AssetKey]:
    related: set[AssetKey] = set()
    waiting = [key]
    while waiting:
        for neighbour in getattr(graph.get(waiting.pop()), direction):
            if neighbour not in related:
                related.add(neighbour)
                waiting.append(neighbour)
    return related
