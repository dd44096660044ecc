"""Where Dagster's history and the tables disagree: recorded materializations that the table no longer holds.

The tables are the source of truth. The latest materialization of each partition is read from Dagster first, and each
table is loaded once, afterwards, so that it must hold everything recorded by then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from dagster import (
    AssetKey,
    AssetMaterialization,
    AssetRecordsFilter,
    DagsterEventType,
    DagsterInstance,
    Definitions,
    PartitionsDefinition,
)
from pyiceberg.table.refs import MAIN_BRANCH

from floe_core.identifiers import TableIdentifier
from floe_dagster.runs.steps import labelled
from floe_dagster.stored import AssetInLake, Place, assets_in_lake, opened
from floe_iceberg.snapshots import ASSET, PARTITION, BranchHistory, Loss, RecordedWrite

__all__ = ["Difference", "find_differences", "spread", "tables_to_append_to"]

# The one tag of materializations that Dagster indexes; Floe's IO manager gives it the snapshot id.
_DATA_VERSION = "dagster/data_version"
# Events per asset that a quick comparison samples first, where the index alone does not decide.
_SAMPLES = 64
# Events per query; databases limit the number of values in one.
_READ_AT_ONCE = 1000
# Losses of writes that went to another table or branch: they do not show what this branch of this table holds.
_ELSEWHERE = (Loss.RECREATED, Loss.OTHER_BRANCH, Loss.UNKNOWN)
# Stands for the partition of an asset that has none.
_WHOLE = ""

Verdict = TypeVar("Verdict")
Read = Callable[[Sequence[str]], Sequence[RecordedWrite]]


@dataclass(frozen=True)
class Difference:
    """Recorded materializations of one asset that its table does not hold, and the reason."""

    asset: str
    table: str
    reason: str
    partitions: tuple[str, ...]  # empty if the asset is not partitioned
    recorded: int
    message: str
    appends: bool = False
    recompute: bool = True  # by --missing; otherwise only reported


@dataclass(frozen=True)
class _Records:
    """The latest materialization of each partition, in the order in which they were recorded."""

    snapshots: Mapping[str, str | None]  # the snapshot id in the index, where it has one
    places: Mapping[str, int]  # the position of each partition that exists now, in the order of the definition
    read: Read


def find_differences(
    definitions: Definitions,
    assets: Collection[AssetKey],
    instance: DagsterInstance,
    *,
    quick: bool = False,
) -> list[Difference]:
    """The differences of these assets, upstream first; assets that Floe does not store are left out.

    Args:
        quick: Sample the events that the index does not decide (about a millisecond each). Enough for a warning: a
            loss between two samples can be missed.
    """
    differences: list[Difference] = []
    places: dict[PartitionsDefinition[str], Mapping[str, int]] = {}  # to list thousands of windows takes time
    for stored in assets_in_lake(definitions, assets):
        key, partitions = stored.spec.key, stored.spec.partitions_def
        if partitions is not None and partitions not in places:
            keys = partitions.get_partition_keys(dynamic_partitions_store=instance)
            places[partitions] = {str(name): place for place, name in enumerate(keys)}
        records = _of_asset(key, instance) if partitions is None else _of_partitions(key, places[partitions], instance)
        if records.snapshots:
            with opened(stored, definitions, instance) as place:
                if place is None:
                    differences.append(_not_compared(stored, len(records.snapshots)))
                else:
                    differences += _differences(place, records, _SAMPLES if quick else None)
    return differences


def tables_to_append_to(
    definitions: Definitions, assets: Collection[AssetKey], instance: DagsterInstance
) -> dict[AssetKey, TableIdentifier]:
    """The tables, of those assets that append, that already have rows."""
    tables: dict[AssetKey, TableIdentifier] = {}
    for stored in assets_in_lake(definitions, assets):
        with opened(stored, definitions, instance) as place:
            table = place.find_table() if place is not None and place.appends else None
            if place is not None and table is not None and BranchHistory(table, place.branch).has_rows:
                tables[stored.spec.key] = place.table
    return tables


def _not_compared(stored: AssetInLake, recorded: int) -> Difference:
    return Difference(
        asset=stored.name,
        table="",
        reason="not compared",
        partitions=(),
        recorded=recorded,
        message=f"asset {stored.name}: not compared with its table: its IO manager needs the configuration of a run",
        recompute=False,
    )


def _of_partitions(key: AssetKey, places: Mapping[str, int], instance: DagsterInstance) -> _Records:
    """The records of all partitions that exist now, by two queries regardless of their number."""
    kind = DagsterEventType.ASSET_MATERIALIZATION
    tags = instance.event_log_storage.get_latest_tags_by_partition(key, kind, [_DATA_VERSION])
    latest = instance.get_latest_storage_id_by_partition(key, kind)
    ids = {name: latest[name] for name in sorted(latest, key=lambda partition: latest[partition]) if name in places}

    def read(names: Sequence[str]) -> list[RecordedWrite]:
        chosen = [ids[name] for name in names]
        events: dict[int, AssetMaterialization | None] = {}
        for start in range(0, len(chosen), _READ_AT_ONCE):
            some = chosen[start : start + _READ_AT_ONCE]
            wanted = AssetRecordsFilter(asset_key=key, storage_ids=some)
            records = instance.fetch_materializations(wanted, limit=len(some)).records
            events |= {record.storage_id: record.asset_materialization for record in records}
        return [_recorded(events.get(storage_id)) for storage_id in chosen]

    return _Records({name: tags.get(name, {}).get(_DATA_VERSION) for name in ids}, places, read)


def _of_asset(key: AssetKey, instance: DagsterInstance) -> _Records:
    event = instance.get_latest_materialization_event(key)
    if event is None:
        return _Records({}, {}, lambda _: ())
    return _Records({_WHOLE: None}, {_WHOLE: 0}, lambda names: [_recorded(event.asset_materialization) for _ in names])


def _recorded(materialization: AssetMaterialization | None) -> RecordedWrite:
    """The write that a materialization records; fields that its IO manager did not record are None."""
    metadata = {} if materialization is None else {key: entry.value for key, entry in materialization.metadata.items()}
    texts = {key: value for key, value in metadata.items() if isinstance(value, str) and value}
    snapshot_id, seconds = texts.get("floe/snapshot_id", ""), metadata.get("floe/committed_at")
    return RecordedWrite(
        table=texts.get("dagster/table_name"),
        snapshot_id=int(snapshot_id) if snapshot_id.isdecimal() else None,
        table_uuid=texts.get("floe/table_uuid"),
        branch=texts.get("floe/branch"),
        write_id=texts.get("floe/write_id"),
        committed_ms=int(seconds * 1000) if isinstance(seconds, float) else None,
    )


def _differences(place: Place, records: _Records, samples: int | None) -> Iterator[Difference]:
    """The differences of one asset, one per reason."""
    table = place.find_table()
    history = None if table is None else BranchHistory(table, place.branch)
    losses = _losses(history, records, samples, str(place.table))
    if history is not None:
        losses = _without_other_tables(losses, history, records, place.asset)
    for reason in Loss:
        lost = tuple(name for name, loss in losses.items() if loss is reason)
        if lost:
            yield Difference(
                asset=place.asset,
                table=str(place.table),
                reason=reason.value,
                partitions=tuple(name for name in lost if name != _WHOLE),
                recorded=len(records.snapshots),
                message=f"{place.table}: {_cause(reason, history, place.branch)}; {_effect(reason, lost, records)}",
                appends=place.appends,
                recompute=reason is not Loss.UNKNOWN,
            )


def _losses(
    history: BranchHistory | None, records: _Records, samples: int | None, table: str
) -> dict[str, Loss | None]:
    """The loss of each recorded write, or None; events are read only where the index does not show that it is held."""
    held = history.snapshot_ids if history is not None else ()
    doubtful = [name for name, snapshot_id in records.snapshots.items() if snapshot_id not in held]

    def loss_of(write: RecordedWrite) -> Loss | None:
        if history is not None:
            return history.loss_of(write)
        # An asset that returns no value and stores its data itself never had a table here.
        return Loss.DROPPED if write.snapshot_id is not None or write.table == table else None

    def judge(places: Sequence[int]) -> list[Loss | None]:
        return [loss_of(write) for write in records.read([doubtful[place] for place in places])]

    return dict(zip(doubtful, spread(len(doubtful), judge, samples=samples), strict=True))


def _without_other_tables(
    losses: Mapping[str, Loss | None], history: BranchHistory, records: _Records, asset: str
) -> dict[str, Loss | None]:
    """Drops losses recorded for another table or branch where this branch holds a write of the partition too.

    Environments that share a Dagster instance share its history, and each has its own table.
    """
    own = [summary.get(PARTITION, _WHOLE) for summary in history.summaries if summary.get(ASSET) == asset]
    held = {name for label in set(own) for name in labelled(label, records.places)}
    return {name: loss for name, loss in losses.items() if loss not in _ELSEWHERE or name not in held}


def spread(
    count: int, judge: Callable[[Sequence[int]], Sequence[Verdict]], *, samples: int | None = None
) -> list[Verdict]:
    """A verdict for each of `count` consecutive events; with `samples`, from that many at first.

    Verdicts change only where a table was recreated or rolled back, which is rare: events between two samples with the
    same verdict are assumed to share it; between two that differ, a binary search finds the change.
    """
    if not count:
        return []
    step = 1 if samples is None else math.ceil(count / samples)
    places = sorted({*range(0, count, step), count - 1})
    known: dict[int, Verdict] = {}
    while places:
        known.update(zip(places, judge(places), strict=True))
        edges = pairwise(sorted(known))
        places = [(left + right) // 2 for left, right in edges if right - left > 1 and known[left] != known[right]]
    verdicts: list[Verdict] = []
    for place in range(count):
        verdicts.append(known[place] if place in known else verdicts[-1])
    return verdicts


def _cause(reason: Loss, history: BranchHistory | None, branch: str) -> str:
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


def _effect(reason: Loss, lost: Sequence[str], records: _Records) -> str:
    place = "on the asset's own branch" if reason in (Loss.OTHER_BRANCH, Loss.UNKNOWN) else "in it"
    if _WHOLE in lost:
        subject, verb = "what was recorded last", "is"
    else:
        subject = f"{len(lost)} of {len(records.snapshots)} recorded partitions"
        verb = "is" if len(lost) == 1 else "are"
    if reason is Loss.UNKNOWN:
        return f"it is unknown whether {subject} {verb} {place}"
    return f"{subject} {verb} not {place}"
