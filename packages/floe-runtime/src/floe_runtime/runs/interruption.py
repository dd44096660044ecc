"""What an interrupted run wrote, by the snapshots of its tables: events of its last seconds may be missing."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dagster import AssetKey, DagsterEventType, DagsterInstance

from floe_core.errors import FloeError
from floe_core.models import SnapshotInfo
from floe_dagster.differences import tables_to_append_to
from floe_dagster.runs import partition_label
from floe_dagster.stored import Place, assets_in_lake, opened
from floe_iceberg.snapshots import ASSET, DATA_ROWS, PARTITION, RUN_ID, ancestors_of, snapshot_info
from floe_runtime.runs.batches import Appending, without
from floe_runtime.runs.runner import Materialized, Skipped

if TYPE_CHECKING:
    from floe_runtime.runs.batches import Batch
    from floe_runtime.runs.pipeline import Pipeline
    from floe_runtime.runs.runner import RunInterruptedError

__all__ = ["Interruption", "StoppedWrite", "appending", "examine", "remaining"]


@dataclass(frozen=True)
class StoppedWrite:
    """A write that was in progress.

    Attributes:
        asset: The asset.
        table: Its table; empty if Floe does not store it.
        outcome: `absent` from the table when Floe ended, or `unknown`.
        partitions: Its partitions, if it has any.
        reason: Why the outcome is unknown.
    """

    asset: str
    table: str
    outcome: str
    partitions: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Interruption:
    """What an interrupted run left.

    Attributes:
        run_id: The run.
        written: What it wrote, complete.
        in_progress: The writes that it had begun and that are not in their tables.
        not_started: The assets that did not start, of this run and of those after it.
        later_runs: The number of runs that did not start.
    """

    run_id: str
    written: tuple[Materialized, ...] = ()
    in_progress: tuple[StoppedWrite, ...] = ()
    not_started: tuple[Skipped, ...] = ()
    later_runs: int = 0


def examine(pipeline: Pipeline, stopped: RunInterruptedError) -> Interruption:
    """Find out what the interrupted run wrote."""
    batch, *later = stopped.batches
    label = partition_label(batch.keys) or ""
    started, ended = _steps(pipeline.instance, pipeline, stopped.run_id)
    written: list[Materialized] = []
    in_progress: list[StoppedWrite] = []
    not_started: list[Skipped] = []
    found = dict(_found(pipeline, batch.assets, stopped.run_id))
    for key in (key for key in pipeline.graph.toposorted_asset_keys if key in batch.assets):
        name, result = key.to_user_string(), found.get(key)
        own = label if pipeline.graph.get(key).partitions_def is not None else ""
        if isinstance(result, Materialized):
            written.append(replace(result, seconds=ended.get(name, 0.0)))
        elif name not in started:
            not_started.append(Skipped(name, own))
        elif isinstance(result, StoppedWrite):
            in_progress.append(replace(result, partitions=own))
        elif name not in ended:
            in_progress.append(StoppedWrite(name, "", "unknown", own, "Floe does not store it"))
    not_started += _of_later_runs(pipeline, later)
    return Interruption(stopped.run_id, tuple(written), tuple(in_progress), tuple(not_started), len(later))


def remaining(stopped: RunInterruptedError, found: Interruption) -> tuple[Batch, ...]:
    """What is left of the batch that was interrupted, and those that were still to come."""
    left = {write.asset for write in found.in_progress} | {skipped.asset for skipped in found.not_started}
    names = {key.to_user_string() for key in stopped.batches[0].assets}
    return without(stopped.batches, {made.asset for made in found.written} | (names - left))


def appending(pipeline: Pipeline) -> Appending:
    """Find which assets append to rows that are there; all of them, if their tables cannot be read."""

    def among(assets: Collection[AssetKey]) -> Collection[AssetKey]:
        try:
            return tables_to_append_to(pipeline.definitions, assets, pipeline.instance).keys()
        except FloeError:
            return assets

    return among


def _of_later_runs(pipeline: Pipeline, batches: Sequence[Batch]) -> Iterator[Skipped]:
    """The assets of runs that did not start, each once: there may be thousands of runs."""
    keys: dict[AssetKey, list[str]] = {}
    for batch in batches:
        for key in batch.assets:
            keys.setdefault(key, []).extend(batch.keys)
    for key in (key for key in pipeline.graph.toposorted_asset_keys if key in keys):
        partitioned = pipeline.graph.get(key).partitions_def is not None
        yield Skipped(key.to_user_string(), (partition_label(keys[key]) or "") if partitioned else "")


def _steps(instance: DagsterInstance, pipeline: Pipeline, run_id: str) -> tuple[set[str], dict[str, float]]:
    """The assets whose steps started, and those whose steps succeeded with the seconds they took."""
    kinds = {DagsterEventType.STEP_START, DagsterEventType.STEP_SUCCESS}
    started: set[str] = set()
    ended: dict[str, float] = {}
    records = instance.get_records_for_run(run_id, of_type=kinds).records if instance.has_run(run_id) else ()
    for record in records:
        event = record.event_log_entry.dagster_event
        if event is not None and event.step_key is not None:
            assets = pipeline.steps.get(event.step_key, ())
            started.update(assets)
            if event.event_type is DagsterEventType.STEP_SUCCESS:
                ended |= dict.fromkeys(assets, event.step_success_data.duration_ms / 1000)
    return started, ended


def _found(
    pipeline: Pipeline, assets: tuple[AssetKey, ...], run_id: str
) -> Iterator[tuple[AssetKey, Materialized | StoppedWrite]]:
    """What each table says of the run."""
    for stored in assets_in_lake(pipeline.definitions, assets):
        with opened(stored, pipeline.definitions, pipeline.instance) as place:
            if place is None:
                reason = "its IO manager needs the configuration of a run"
                yield stored.spec.key, StoppedWrite(stored.name, "", "unknown", reason=reason)
                continue
            try:
                snapshots = _snapshots_of(place, run_id)
            except FloeError as exc:
                yield stored.spec.key, StoppedWrite(stored.name, str(place.table), "unknown", reason=str(exc))
                continue
            if snapshots:
                yield stored.spec.key, _materialized(place, snapshots)
            else:
                yield stored.spec.key, StoppedWrite(stored.name, str(place.table), "absent")


def _snapshots_of(place: Place, run_id: str) -> list[SnapshotInfo]:
    table = place.find_table()
    if table is None:
        return []
    history = ancestors_of(table.snapshot_by_name(place.branch), table.metadata)
    summaries = (snapshot_info(snapshot) for snapshot in history)
    return [one for one in summaries if (one.summary.get(RUN_ID), one.summary.get(ASSET)) == (run_id, place.asset)]


def _materialized(place: Place, snapshots: list[SnapshotInfo]) -> Materialized:
    """What the run wrote, by the summaries of its snapshots, the latest first."""
    head = snapshots[0]
    added = sum(one.count("added-records") for one in snapshots)
    rows = sum(one.count(DATA_ROWS if DATA_ROWS in one.summary else "added-records") for one in snapshots)
    return Materialized(
        asset=place.asset,
        table=str(place.table),
        partitions=head.summary.get(PARTITION, ""),
        rows=rows,
        # The commit may have rewritten rows of other partitions, which are neither new nor removed.
        rows_removed=max(0, sum(one.count("deleted-records") for one in snapshots) - (added - rows)),
        files=sum(one.count("added-data-files") for one in snapshots),
        files_removed=sum(one.count("deleted-data-files") for one in snapshots),
        bytes=sum(one.count("added-files-size") for one in snapshots),
        snapshot_id=head.snapshot_id,
        schema_change="",
        deduplicated=False,
    )
