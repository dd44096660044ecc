"""Where Dagster's history and the tables disagree: materializations that are recorded, and not in the table any more.

The tables are the truth. Dagster is asked first for the latest materialization of each partition, and each table is
loaded once, afterwards: what was recorded by then must be in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

from dagster import (
    AssetKey,
    AssetMaterialization,
    AssetRecordsFilter,
    AssetSpec,
    DagsterEventType,
    DagsterInstance,
    DagsterInvalidConfigError,
    Definitions,
    PartitionsDefinition,
    ResourceDefinition,
    build_resources,
)
from pyiceberg.table.refs import MAIN_BRANCH

from floe_core.identifiers import TableIdentifier
from floe_core.models import WriteMode
from floe_dagster._dagster.names import wrap_resources_for_execution
from floe_dagster.assets.names import is_stored, table_of
from floe_dagster.assets.options import OutputOptions, output_options
from floe_dagster.io_manager import IcebergIOManager
from floe_dagster.resources import lake_of
from floe_dagster.runs.steps import ASSET, PARTITION, labelled
from floe_iceberg import IcebergTableManager
from floe_iceberg.snapshots import BranchHistory, Loss, RecordedWrite

__all__ = ["Difference", "find_differences", "tables_to_append_to"]

# The one tag of materializations that Dagster indexes; Floe's IO manager gives it the snapshot id.
_DATA_VERSION = "dagster/data_version"
# How many events of an asset a quick comparison reads at first where the index does not decide.
_SAMPLES = 64
# How many are read by one query; databases limit the number of values in one.
_READ_AT_ONCE = 1000
# The manager's key among the resources that are opened for a comparison.
_MANAGER = "floe_compared"
# A write that went elsewhere says nothing about what this branch of this table holds.
_ELSEWHERE = (Loss.RECREATED, Loss.OTHER_BRANCH, Loss.UNKNOWN)
# Stands for the partition of an asset that has none.
_WHOLE = ""

CommitOutcome = TypeVar("CommitOutcome")
Read = Callable[[Sequence[str]], Sequence[RecordedWrite]]


@dataclass(frozen=True)
class Difference:
    """Recorded materializations of one asset that its table does not hold, and why."""

    asset: str
    table: str
    reason: str
    partitions: tuple[str, ...]  # none if the asset is not partitioned
    recorded: int
    message: str
    appends: bool = False
    recompute: bool = True  # by --missing; else it is only reported


@dataclass(frozen=True)
class _Records:
    """The latest materialization of each partition, in the order in which they were recorded."""

    snapshots: Mapping[str, str | None]  # the snapshot id by the index, where it has one
    places: Mapping[str, int]  # of all partitions that there are now, in their own order
    read: Read


@dataclass(frozen=True)
class _Stored:
    """An asset, and the IO manager of Floe that stores it, which may not be open yet."""

    spec: AssetSpec
    manager: Any
    options: OutputOptions

    @property
    def name(self) -> str:
        return str(self.spec.key.to_user_string())


@dataclass(frozen=True)
class _Place:
    """Where and how an asset is stored."""

    asset: str
    tables: IcebergTableManager
    table: TableIdentifier
    branch: str
    appends: bool


def find_differences(
    definitions: Definitions,
    assets: Collection[AssetKey],
    instance: DagsterInstance,
    *,
    quick: bool = False,
) -> list[Difference]:
    """The differences of these assets, upstream first. Those that Floe's IO manager does not store are left out.

    Args:
        quick: Read a sample of the events that the index does not decide, which take about a millisecond each. Enough
            for a warning: a loss between two samples may escape.
    """
    found: list[Difference] = []
    for stored in _stored(definitions, assets):
        key, partitions = stored.spec.key, stored.spec.partitions_def
        records = _of_asset(key, instance) if partitions is None else _of_partitions(key, partitions, instance)
        if records.snapshots:
            with _opened(stored, definitions, instance) as place:
                if place is None:
                    found.append(_not_compared(stored, len(records.snapshots)))
                else:
                    found += _differences(place, records, _SAMPLES if quick else None)
    return found


def tables_to_append_to(
    definitions: Definitions, assets: Collection[AssetKey], instance: DagsterInstance
) -> dict[AssetKey, TableIdentifier]:
    """The tables of those assets that append, where they have rows already."""
    found: dict[AssetKey, TableIdentifier] = {}
    for stored in _stored(definitions, assets):
        with _opened(stored, definitions, instance) as place:
            table = place.tables.find_table(place.table) if place is not None and place.appends else None
            if place is not None and table is not None and BranchHistory(table, place.branch).has_rows:
                found[stored.spec.key] = place.table
    return found


def _stored(definitions: Definitions, assets: Collection[AssetKey]) -> Iterator[_Stored]:
    """The assets that a manager of Floe stores, upstream first."""
    graph, resources = definitions.resolve_asset_graph(), definitions.resources or {}
    for key in (one for one in graph.toposorted_asset_keys if one in assets):
        definition = graph.assets_def_for_key(key)
        if definition.is_executable and is_stored(definition, key):
            name = definition.get_io_manager_key_for_asset_key(key)
            # The asset's own come first: io_manager_def, resource_defs.
            manager = definition.resource_defs.get(name, resources.get(name))
            if _is_floes(manager):
                spec = definition.get_asset_spec(key)
                yield _Stored(spec, manager, output_options(spec.metadata, key.to_user_string()))


def _is_floes(manager: Any) -> bool:
    """Is it an IcebergIOManager: an instance, one to be configured at launch, or what Dagster makes of either?"""
    kind = getattr(manager, "resource_cls", None) or getattr(manager, "configurable_resource_cls", None)
    return isinstance(manager, IcebergIOManager) or (isinstance(kind, type) and issubclass(kind, IcebergIOManager))


@contextmanager
def _opened(stored: _Stored, definitions: Definitions, instance: DagsterInstance) -> Iterator[_Place | None]:
    """Where an asset is stored, by its manager's own lake; the project's may have another default namespace.

    None if the manager cannot be opened without the configuration of a run.
    """
    with ExitStack() as stack:
        needed = _needed(stored.manager, definitions.resources or {})
        try:
            # Its settings may be environment variables, which Dagster resolves.
            opened = stack.enter_context(build_resources(needed, instance=instance))
        except DagsterInvalidConfigError:
            yield None
            return
        manager: IcebergIOManager = getattr(opened, _MANAGER)
        lake = lake_of(manager.lake, manager.table_manager)
        yield _Place(
            asset=stored.name,
            tables=lake.tables,
            table=table_of(stored.spec.key.path, stored.options, manager.naming),
            branch=stored.options.branch or manager.branch or MAIN_BRANCH,
            appends=_appends(stored, manager),
        )


def _not_compared(stored: _Stored, recorded: int) -> Difference:
    return Difference(
        asset=stored.name,
        table="",
        reason="not compared",
        partitions=(),
        recorded=recorded,
        message=f"asset {stored.name}: not compared with its table: its IO manager needs the configuration of a run",
        recompute=False,
    )


def _needed(manager: Any, resources: Mapping[str, Any]) -> dict[str, ResourceDefinition]:
    """The manager and the resources that it depends on; the others of the definitions are not opened."""
    known = wrap_resources_for_execution({**resources, _MANAGER: manager})
    needed, waiting = set(), [_MANAGER]
    while waiting:
        key = waiting.pop()
        if key not in needed:
            needed.add(key)
            waiting += known[key].get_required_resource_keys(known)
    return {key: known[key] for key in needed}


def _appends(stored: _Stored, manager: IcebergIOManager) -> bool:
    mode = stored.options.write_mode or manager.default_write_mode
    return stored.spec.partitions_def is None if mode is None else mode == WriteMode.APPEND


def _of_partitions(key: AssetKey, partitions: PartitionsDefinition[str], instance: DagsterInstance) -> _Records:
    """What is recorded of the partitions that there are now, by two queries however many they are."""
    kind = DagsterEventType.ASSET_MATERIALIZATION
    keys = partitions.get_partition_keys(dynamic_partitions_store=instance)
    places = {str(name): place for place, name in enumerate(keys)}
    tags = instance.event_log_storage.get_latest_tags_by_partition(key, kind, [_DATA_VERSION])
    latest = instance.get_latest_storage_id_by_partition(key, kind)
    ids = {name: latest[name] for name in sorted(latest, key=lambda one: latest[one]) if name in places}

    def read(names: Sequence[str]) -> list[RecordedWrite]:
        chosen = [ids[name] for name in names]
        found: dict[int, AssetMaterialization | None] = {}
        for start in range(0, len(chosen), _READ_AT_ONCE):
            some = chosen[start : start + _READ_AT_ONCE]
            wanted = AssetRecordsFilter(asset_key=key, storage_ids=some)
            records = instance.fetch_materializations(wanted, limit=len(some)).records
            found |= {one.storage_id: one.asset_materialization for one in records}
        return [_recorded(found.get(one)) for one in chosen]

    return _Records({name: tags.get(name, {}).get(_DATA_VERSION) for name in ids}, places, read)


def _of_asset(key: AssetKey, instance: DagsterInstance) -> _Records:
    event = instance.get_latest_materialization_event(key)
    if event is None:
        return _Records({}, {}, lambda _: ())
    return _Records({_WHOLE: None}, {_WHOLE: 0}, lambda names: [_recorded(event.asset_materialization) for _ in names])


def _recorded(materialization: AssetMaterialization | None) -> RecordedWrite:
    """What Floe's IO manager recorded; versions before this one recorded less, and others nothing."""
    metadata = {} if materialization is None else {key: one.value for key, one in materialization.metadata.items()}
    texts = {key: one for key, one in metadata.items() if isinstance(one, str) and one}
    snapshot_id, seconds = texts.get("floe/snapshot_id", ""), metadata.get("floe/committed_at")
    return RecordedWrite(
        table=texts.get("dagster/table_name"),
        snapshot_id=int(snapshot_id) if snapshot_id.isdecimal() else None,
        table_uuid=texts.get("floe/table_uuid"),
        branch=texts.get("floe/branch"),
        write_id=texts.get("floe/write_id"),
        committed_ms=int(seconds * 1000) if isinstance(seconds, float) else None,
    )


def _differences(place: _Place, records: _Records, samples: int | None) -> Iterator[Difference]:
    """The differences of one asset, one for each reason."""
    table = place.tables.find_table(place.table)
    history = None if table is None else BranchHistory(table, place.branch)
    losses = _losses(history, records, samples, str(place.table))
    if history is not None:
        losses = _without_others(losses, history, records, place.asset)
    for reason in Loss:
        lost = tuple(name for name, loss in losses.items() if loss is reason)
        if lost:
            yield Difference(
                asset=place.asset,
                table=str(place.table),
                reason=reason.value,
                partitions=tuple(name for name in lost if name != _WHOLE),
                recorded=len(records.snapshots),
                message=f"{place.table}: {_why(reason, history, place.branch)}; {_what(reason, lost, records)}",
                appends=place.appends,
                recompute=reason is not Loss.UNKNOWN,
            )


def _losses(
    history: BranchHistory | None, records: _Records, samples: int | None, table: str
) -> dict[str, Loss | None]:
    """Which recorded writes are lost; events are read only where the index does not show that the table holds them."""
    held = history.snapshot_ids if history is not None else ()
    doubtful = [name for name, snapshot_id in records.snapshots.items() if snapshot_id not in held]

    def loss_of(write: RecordedWrite) -> Loss | None:
        if history is not None:
            return history.loss_of(write)
        # An asset that stores by itself what it makes, and returns no value, never had a table here.
        return Loss.DROPPED if write.snapshot_id is not None or write.table == table else None

    def judge(places: Sequence[int]) -> list[Loss | None]:
        return [loss_of(one) for one in records.read([doubtful[place] for place in places])]

    return dict(zip(doubtful, spread(len(doubtful), judge, samples=samples), strict=True))


def _without_others(
    losses: Mapping[str, Loss | None], history: BranchHistory, records: _Records, asset: str
) -> dict[str, Loss | None]:
    """Without what was recorded last of another table or branch, while this one was written to as well.

    Environments that share Dagster's instance share its history, and each has a table of its own.
    """
    own = [one.get(PARTITION, _WHOLE) for one in history.summaries if one.get(ASSET) == asset]
    held = {name for label in set(own) for name in labelled(label, records.places)}
    return {name: loss for name, loss in losses.items() if loss not in _ELSEWHERE or name not in held}


def spread(
    count: int, judge: Callable[[Sequence[int]], Sequence[CommitOutcome]], *, samples: int | None = None
) -> list[CommitOutcome]:
    """A verdict for each of `count` events in a row; from few of them if `samples` says how many to begin with.

    Verdicts change where a table was created again or rolled back, which is rare: events between two samples of the
    same verdict are assumed to have it, and between two that differ the place of the change is searched.
    """
    if not count:
        return []
    step = 1 if samples is None else math.ceil(count / samples)
    places = sorted({*range(0, count, step), count - 1})
    known: dict[int, CommitOutcome] = {}
    while places:
        known.update(zip(places, judge(places), strict=True))
        edges = pairwise(sorted(known))
        places = [(one + other) // 2 for one, other in edges if other - one > 1 and known[one] != known[other]]
    found: list[CommitOutcome] = []
    for place in range(count):
        found.append(known[place] if place in known else found[-1])
    return found


def _why(reason: Loss, history: BranchHistory | None, branch: str) -> str:
    if reason is Loss.DROPPED:
        return "the catalog has no such table"
    if reason is Loss.RECREATED:
        moment = history.created_at if history is not None else None
        return f"the table was created again{f' on {moment:%Y-%m-%d %H:%M:%S} UTC' if moment else ''}"
    if reason is Loss.OTHER_BRANCH:
        return f"the latest write went to another branch than {branch}"
    if reason is Loss.UNKNOWN:
        return f"the latest write went to another branch than {branch}, whose own snapshots have expired"
    return f"branch {branch} was rolled back" if branch != MAIN_BRANCH else "the table was rolled back"


def _what(reason: Loss, lost: Sequence[str], records: _Records) -> str:
    place = "on the asset's own branch" if reason in (Loss.OTHER_BRANCH, Loss.UNKNOWN) else "in it"
    if _WHOLE in lost:
        what, verb = "what was recorded last", "is"
    else:
        what, verb = f"{len(lost)} of {len(records.snapshots)} recorded partitions", "is" if len(lost) == 1 else "are"
    return f"it is unknown whether {what} {verb} {place}" if reason is Loss.UNKNOWN else f"{what} {verb} not {place}"
