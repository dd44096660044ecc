"""Plan which assets run for which partitions, and why. `floe run` executes the plan that `floe plan` shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dagster import AssetKey

from floe_core.errors import ConfigurationError
from floe_dagster.atomic import is_stored_alone, written_by
from floe_dagster.differences import Difference, find_differences, tables_to_append_to
from floe_iceberg.snapshots import Loss
from floe_runtime.runs.batches import Batch, complete, grouped, other_parents, reading_keys
from floe_runtime.runs.choice import LeftOut, choose, shared_partitions
from floe_runtime.runs.materializations import Materializations
from floe_runtime.runs.reasons import Reason, changed_code, is_behind, newer_keys, reasons_of

if TYPE_CHECKING:
    from dagster import DagsterInstance

    from floe_core.config import CompiledArtifacts, Publish
    from floe_dagster._dagster.names import AssetGraph
    from floe_runtime.runs.pipeline import Pipeline

__all__ = [
    "AppendAgainError",
    "Batch",
    "PlannedAsset",
    "RunPlan",
    "RunRequest",
    "batches",
    "missing",
    "missing_and_lost",
    "not_atomic",
    "plan_run",
    "refuse_atomic_branch",
    "refuse_not_atomic",
    "shared_partitions",
    "when_published",
]


class AppendAgainError(ConfigurationError):
    """Missing data cannot be recomputed without appending to existing rows."""


@dataclass(frozen=True)
class RunRequest:
    """What a run is asked for; at most one of `partitions`, `partition_range` and `missing` is given."""

    selection: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    partition_range: str | None = None
    missing: bool = False
    with_unpartitioned: bool = False


@dataclass(frozen=True)
class PlannedAsset:
    """An asset that runs.

    Attributes:
        key: Its key.
        partitions: The partitions to materialize, in their order; empty if it has none.
        reasons: Why; for a partition several may apply.
        runs: The Dagster runs that it is part of.
    """

    key: AssetKey
    partitions: tuple[str, ...]
    reasons: tuple[Reason, ...]
    runs: int

    @property
    def name(self) -> str:
        return str(self.key.to_user_string())


@dataclass(frozen=True)
class RunPlan:
    """What a run does.

    Attributes:
        selected: The assets that the selection names.
        batches: The Dagster runs, in order.
        assets: The assets that run, upstream first.
        partitions: The partitions that any of them runs for, in their order.
        left_out: Selected assets that do not have the partition.
        outdated: What does not run although its code has changed; not looked for if partitions are requested.
        differences: What the tables lack of Dagster's history, where they were compared.
        refused: Why nothing is run; None if the plan can be run.
    """

    selected: tuple[AssetKey, ...]
    batches: tuple[Batch, ...]
    assets: tuple[PlannedAsset, ...]
    partitions: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    outdated: tuple[tuple[str, Reason], ...] = ()
    differences: tuple[Difference, ...] = ()
    refused: str | None = None


def plan_run(pipeline: Pipeline, request: RunRequest, *, compare: bool = False) -> RunPlan:
    """Plan the run that a request asks for; nothing is materialized.

    Args:
        compare: Compare Dagster's history with the tables, to name the partitions that a table lacks. A request for
            what is missing always does.
    """
    graph, instance = pipeline.graph, pipeline.instance
    assets = pipeline.assets(request.selection)
    differences: list[Difference] = []
    if request.missing or compare:
        differences = find_differences(pipeline.definitions, assets, instance, quick=not request.missing)
    history, refused = Materializations(instance), None
    left_out: tuple[LeftOut, ...] = ()
    if request.missing:
        planned, refused = _missing_and_lost(pipeline, assets, differences, history)
    else:
        choice = choose(
            graph, assets, instance, request.partitions, request.partition_range, request.with_unpartitioned
        )
        planned, left_out = batches(graph, choice.assets, choice.keys, instance), choice.left_out
    wanted, partitions = _wanted(graph, planned, history)
    named = request.partitions or request.partition_range
    requested = None if request.missing else set(assets)
    reasons = reasons_of(graph, history, wanted, differences=differences, requested=requested)
    runs = Counter(key for batch in planned for key in batch.assets)
    return RunPlan(
        selected=tuple(assets),
        batches=tuple(planned),
        assets=tuple(PlannedAsset(key, names, reasons[key], runs[key]) for key, names in wanted.items()),
        partitions=partitions,
        left_out=left_out,
        outdated=tuple(_outdated(graph, assets, wanted, history)) if request.missing or (compare and not named) else (),
        differences=tuple(differences),
        refused=refused,
    )


def _wanted(
    graph: AssetGraph, planned: Sequence[Batch], history: Materializations
) -> tuple[dict[AssetKey, tuple[str, ...]], tuple[str, ...]]:
    """The partitions of each asset in the runs, upstream first, none for unpartitioned assets; and those of all."""
    keys: dict[AssetKey, set[str]] = {}
    for batch in planned:
        for key in batch.assets:
            own = keys.setdefault(key, set())
            if graph.get(key).partitions_def is not None:
                own.update(batch.keys)
    definition = next((graph.get(key).partitions_def for key, own in keys.items() if own), None)
    known = history.known_keys(definition) if definition is not None else []
    ordered: dict[frozenset[str], tuple[str, ...]] = {}  # most assets share their partitions

    def in_order(names: Collection[str]) -> tuple[str, ...]:
        chosen = frozenset(names)
        if chosen not in ordered:
            ordered[chosen] = tuple(name for name in known if name in chosen)
        return ordered[chosen]

    wanted = {key: in_order(keys[key]) for key in graph.toposorted_asset_keys if key in keys}
    return wanted, in_order(set().union(*keys.values()))


def _outdated(
    graph: AssetGraph,
    assets: Sequence[AssetKey],
    wanted: Mapping[AssetKey, Sequence[str]],
    history: Materializations,
) -> Iterator[tuple[str, Reason]]:
    """What is materialized by other code than the present, and does not run."""
    for key in assets:
        definition = graph.get(key).partitions_def
        if not graph.get(key).code_version or (definition is None and key in wanted):
            continue
        known = history.known_keys(definition) if definition is not None else []
        running = set(wanted.get(key, ()))
        rest = [name for name in known if name not in running]
        if rest or definition is None:
            yield from ((key.to_user_string(), reason) for reason in changed_code(graph, history, key, rest))


def batches(
    graph: AssetGraph, assets: Sequence[AssetKey], keys: Sequence[str], instance: DagsterInstance
) -> list[Batch]:
    """The runs of all these assets for all these partitions."""
    wanted = {key: set(keys) for key in assets if graph.get(key).partitions_def is not None}
    plain = [key for key in assets if key not in wanted]
    complete(graph, wanted, plain)
    return grouped(graph, wanted, plain, instance)


def missing(
    graph: AssetGraph,
    assets: Sequence[AssetKey],
    instance: DagsterInstance,
    *,
    lost: Mapping[AssetKey, Collection[str]] | None = None,
    appending: Collection[AssetKey] = (),
    history: Materializations | None = None,
) -> list[Batch]:
    """The runs of what was never materialized or is behind its parents, and of what depends on it.

    A partition is behind if a parent's partition that it reads is newer, an unpartitioned asset if any parent is.
    Unpartitioned parents leave partitions as they are: otherwise each of their runs would repeat all partitions.

    Args:
        lost: The partitions that are recorded as materialized but not in the table; empty for unpartitioned assets.
        appending: Assets whose partitions would be in the table twice; they are repeated only after a loss.
        history: What was read of Dagster's history before.
    """
    gone, recorded = lost or {}, history or Materializations(instance)
    partitions = shared_partitions(graph, assets)
    known = recorded.key_set(partitions) if partitions is not None else frozenset()
    wanted: dict[AssetKey, set[str]] = {}
    repaired: dict[AssetKey, set[str]] = {}  # those of the wanted partitions that are lost, or depend on lost ones
    plain: list[AssetKey] = []
    for key in (key for key in graph.toposorted_asset_keys if key in set(assets)):
        node = graph.get(key)
        if node.partitions_def is not None:
            have = recorded.by_partition(key).keys()
            repaired[key] = (set(gone.get(key, ())) & known) | _reading(graph, recorded, key, repaired)
            wanted[key] = set(known - have) | repaired[key]
            again = _reading(graph, recorded, key, wanted) | _behind(graph, recorded, key, known - wanted[key])
            wanted[key] |= again - have if key in appending else again
        elif (
            key in gone
            or any(wanted.get(parent) or parent in plain for parent in node.parent_keys)
            or recorded.latest(key) is None
            or is_behind(graph, recorded, key)
        ):
            plain.append(key)
    complete(graph, wanted, plain)
    return grouped(graph, wanted, plain, instance)


def _reading(
    graph: AssetGraph, history: Materializations, key: AssetKey, running: Mapping[AssetKey, Collection[str]]
) -> set[str]:
    """The partitions that read partitions which are about to run."""
    parents = (parent for parent in other_parents(graph, key) if parent in running)
    return set().union(*(reading_keys(graph, history, key, parent, running[parent]) for parent in parents))


def _behind(graph: AssetGraph, history: Materializations, key: AssetKey, names: Collection[str]) -> set[str]:
    """The partitions that read newer ones."""
    parents = [parent for parent in other_parents(graph, key) if graph.get(parent).partitions_def is not None]
    return set().union(*(newer_keys(graph, history, key, parent, names) for parent in parents))


def missing_and_lost(pipeline: Pipeline, assets: Sequence[AssetKey], differences: Sequence[Difference]) -> list[Batch]:
    """The runs of what is missing or lost; refused if that would append rows a second time."""
    planned, refused = _missing_and_lost(pipeline, assets, differences, Materializations(pipeline.instance))
    if refused is not None:
        raise AppendAgainError(refused)
    return planned


def _missing_and_lost(
    pipeline: Pipeline, assets: Sequence[AssetKey], differences: Sequence[Difference], history: Materializations
) -> tuple[list[Batch], str | None]:
    graph, instance = pipeline.graph, pipeline.instance
    lost: dict[AssetKey, set[str]] = {}
    for difference in differences:
        if difference.recompute:
            lost.setdefault(AssetKey.from_user_string(difference.asset), set()).update(difference.partitions)
    recorded = [key for key in assets if graph.get(key).partitions_def is not None and history.by_partition(key)]
    appending = tables_to_append_to(pipeline.definitions, recorded, instance)
    planned = missing(graph, assets, instance, lost=lost, appending=appending, history=history)
    if not lost:
        return planned, None
    # The history of the table proves that these writes were rolled back: their rows are gone.
    proven = {
        (AssetKey.from_user_string(difference.asset), name)
        for difference in differences
        if difference.reason == Loss.ROLLED_BACK.value
        for name in difference.partitions or ("",)
    }
    without = missing(graph, assets, instance, appending=appending, history=history)
    because = _writes(graph, planned) - _writes(graph, without) - proven
    twice = tables_to_append_to(pipeline.definitions, {key for key, _ in because}, instance)
    if not twice:
        return planned, None
    named = ", ".join(f"{key.to_user_string()} ({table})" for key, table in twice.items())
    return planned, (
        f"--missing would append to tables that have rows already, to recompute what others have lost or what was "
        f"recorded of another table: {named}. Nothing was run. Empty or drop these tables first, or run the other "
        f"assets with --select"
    )


def _writes(graph: AssetGraph, planned: Sequence[Batch]) -> set[tuple[AssetKey, str]]:
    """Each asset and partition that is written; the partition is empty for assets that have none."""
    return {
        (key, name)
        for batch in planned
        for key in batch.assets
        for name in (batch.keys if graph.get(key).partitions_def is not None else ("",))
    }


def when_published(atomic: bool, one_by_one: bool) -> Publish | None:
    """When the tables of the run become visible; None if floe.yaml decides."""
    return "one-by-one" if one_by_one else "run" if atomic else None


def refuse_atomic_branch(artifacts: CompiledArtifacts, publish: Publish | None) -> None:
    """Refuse an atomic run on a branch of the lake."""
    if publish is not None and artifacts.lake_branch is not None:
        raise ConfigurationError(
            f"an atomic run publishes to main, and this run writes to branch {artifacts.lake_branch!r} of the lake, "
            f"whose tables are published together anyway: leave --atomic out, and then run floe branches publish "
            f"{artifacts.lake_branch}"
        )


def refuse_not_atomic(pipeline: Pipeline, plan: RunPlan) -> None:
    """Refuse a plan that would not be published as a whole."""
    refused = not_atomic(pipeline, plan)
    if refused is not None:
        raise ConfigurationError(refused)


def not_atomic(pipeline: Pipeline, plan: RunPlan) -> str | None:
    """Why a plan would not be published as a whole; None if it would be."""
    if len(plan.batches) > 1:
        return (
            f"an atomic run is one run of Dagster, and this takes {len(plan.batches):,}. Nothing was run: give the "
            f"partitioned assets backfill_policy=BackfillPolicy.single_run(), so that one run takes a range of "
            f"partitions, or run one partition at a time"
        )
    groups = {
        definition.node_def.name
        for definition in (pipeline.graph.assets_def_for_key(asset.key) for asset in plan.assets)
        if written_by(definition)
    }
    if len(groups) > 1:
        return (
            f"these assets are in several atomic groups ({', '.join(sorted(groups))}), each of which is published by "
            f"itself. Nothing was run: run one group at a time"
        )
    alone = [
        asset.name for asset in plan.assets if is_stored_alone(pipeline.graph.assets_def_for_key(asset.key), asset.key)
    ]
    if alone:
        return (
            f"{', '.join(alone)} would not be published with the others, because only assets on main that "
            f"create_definitions stores in this project can be. Nothing was run: leave them out of the selection, or "
            f"make the definitions with floe_dagster.create_definitions"
        )
    return None
