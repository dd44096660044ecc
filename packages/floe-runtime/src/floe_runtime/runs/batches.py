"""Which assets run for which partitions, in as few Dagster runs as possible."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dagster import AssetKey, IdentityPartitionMapping, TimeWindowPartitionMapping, partition_loading_context

from floe_runtime.runs.partition_keys import known_keys, spans

if TYPE_CHECKING:
    from dagster import DagsterInstance

    from floe_dagster._dagster.names import AssetGraph
    from floe_runtime.runs.materializations import Materializations
    from floe_runtime.runs.planning import RunPlan

__all__ = [
    "Appending",
    "Batch",
    "complete",
    "grouped",
    "other_parents",
    "reading_keys",
    "reads_same_key",
    "rest_of",
    "without",
]

# Which of these assets append to rows that are there.
Appending = Callable[[Collection[AssetKey]], Collection[AssetKey]]


@dataclass(frozen=True)
class Batch:
    """One Dagster run: these assets, for these consecutive partitions; no keys if nothing is partitioned."""

    assets: tuple[AssetKey, ...]
    keys: tuple[str, ...] = ()


def complete(graph: AssetGraph, wanted: dict[AssetKey, set[str]], plain: list[AssetKey]) -> None:
    """Add the siblings of assets of a multi-asset that cannot be subset."""
    for key in [*wanted, *plain]:
        definition = graph.assets_def_for_key(key)
        for sibling in () if definition.can_subset else definition.keys:
            if key in wanted:
                wanted.setdefault(sibling, set()).update(wanted[key])
            elif sibling not in plain:
                plain.append(sibling)


def grouped(
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


def without(batches: Sequence[Batch], done: Collection[str]) -> tuple[Batch, ...]:
    """The batches that are left: of the first, what is not done."""
    if not batches:
        return ()
    first, *later = batches
    rest = tuple(key for key in first.assets if key.to_user_string() not in done)
    return (*([replace(first, assets=rest)] if rest else []), *later)


def rest_of(plan: RunPlan, batches: Sequence[Batch], appends: Appending) -> list[Batch]:
    """The batches that are left, put together: all in one, unless that would append rows a second time.

    Args:
        plan: The plan of the whole run.
        batches: What is left of it, in order.
        appends: Which of these assets append to rows that are there.
    """
    groups: list[Batch] = []
    for batch in batches:
        if groups and set(groups[-1].assets) == set(batch.assets):
            groups[-1] = _together(plan, [groups[-1], batch])
        else:
            groups.append(batch)
    if len(groups) < 2:
        return groups
    whole = _together(plan, groups)
    repeated = {asset for asset, _ in set(_writes(plan, [whole])) - set(_writes(plan, batches))}
    return groups if repeated and appends(repeated) else [whole]


def _together(plan: RunPlan, batches: Sequence[Batch]) -> Batch:
    """One batch of all their assets and partitions, in the order of the plan."""
    assets = {key for batch in batches for key in batch.assets}
    keys = {key for batch in batches for key in batch.keys}
    return Batch(
        tuple(asset.key for asset in plan.assets if asset.key in assets),
        tuple(key for key in plan.partitions if key in keys),
    )


def _writes(plan: RunPlan, batches: Iterable[Batch]) -> Iterator[tuple[AssetKey, str]]:
    partitioned = {asset.key for asset in plan.assets if asset.partitions}
    for batch in batches:
        for key in batch.assets:
            yield from ((key, name) for name in (batch.keys if key in partitioned else ("",)))


def _chunks(
    graph: AssetGraph, wanted: Mapping[AssetKey, set[str]], instance: DagsterInstance
) -> list[tuple[Sequence[AssetKey], Sequence[str]]]:
    """The keys grouped by the assets that run for them, and within that by run, in the order of the keys."""
    definition = next((graph.get(key).partitions_def for key in wanted), None)
    if definition is None:
        return []
    known = known_keys(definition, instance)
    places = {key: place for place, key in enumerate(known)}
    by_stage: dict[int, list[AssetKey]] = {}
    for asset, stage in _stages(graph, wanted).items():
        by_stage.setdefault(stage, []).append(asset)
    alike: dict[tuple[int, tuple[AssetKey, ...]], list[str]] = {}
    for key in known:
        for stage, members in by_stage.items():
            assets = tuple(asset for asset in members if key in wanted[asset])
            if assets:
                alike.setdefault((stage, assets), []).append(key)
    chunks = [
        (stage, assets, span)
        for (stage, assets), keys in alike.items()
        for span in (
            spans(definition, instance, keys, known) if _take_several(graph, assets) else [[key] for key in keys]
        )
    ]
    chunks.sort(key=lambda chunk: (chunk[0], places[chunk[2][0]]))
    return [(assets, span) for _, assets, span in chunks]


def _stages(graph: AssetGraph, wanted: Mapping[AssetKey, set[str]]) -> dict[AssetKey, int]:
    """The stage of each asset: one that reads other partitions of a parent than its own runs a stage later."""
    stages: dict[AssetKey, int] = {}
    for key in (key for key in graph.toposorted_asset_keys if key in wanted):
        parents = [parent for parent in graph.get(key).parent_keys if parent in stages]
        stages[key] = max((stages[parent] + (not reads_same_key(graph, key, parent)) for parent in parents), default=0)
    return stages


def reads_same_key(graph: AssetGraph, key: AssetKey, parent: AssetKey) -> bool:
    """Whether each partition reads only the partition of the same key of its parent."""
    if graph.get(key).partitions_def != graph.get(parent).partitions_def:
        return False
    mapping = graph.get_partition_mapping(key, parent)
    if isinstance(mapping, TimeWindowPartitionMapping):
        return (mapping.start_offset, mapping.end_offset) == (0, 0)
    return isinstance(mapping, IdentityPartitionMapping)


def other_parents(graph: AssetGraph, key: AssetKey) -> list[AssetKey]:
    """The parents that are made by another function: what one function makes is made at once, and never behind itself.

    An asset that reads earlier partitions of its own table is not among them either.
    """
    definition = graph.assets_def_for_key(key)
    together = {key} if definition.can_subset else set(definition.keys)
    return sorted(graph.get(key).parent_keys - together)


def reading_keys(
    graph: AssetGraph, history: Materializations, key: AssetKey, parent: AssetKey, names: Collection[str]
) -> set[str]:
    """The partitions of an asset that read any of these partitions of a parent."""
    if not names or reads_same_key(graph, key, parent):
        return set(names)
    own, theirs = graph.get(key).partitions_def, graph.get(parent).partitions_def
    assert own is not None  # noqa: S101 - only partitioned assets are asked for
    assert theirs is not None  # noqa: S101 - as above
    existing = history.key_set(theirs).intersection(names)  # the history may hold keys that were removed since
    mapping = graph.get_partition_mapping(key, parent)
    with partition_loading_context(dynamic_partitions_store=history.instance):
        read = theirs.subset_with_partition_keys(existing)
        found = mapping.get_downstream_partitions_for_partitions(read, theirs, own)
        return {str(name) for name in found.get_partition_keys()} & history.key_set(own)


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
