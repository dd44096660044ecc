"""Past runs, from Dagster's storage: what ran, what it wrote, and why it failed. The definitions are not imported."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Any

from dagster import AssetKey, DagsterEventType, DagsterInstance, DagsterRun, DagsterRunStatus, RunRecord, RunsFilter

from floe_core.config import CompiledArtifacts
from floe_core.errors import ConfigurationError
from floe_core.identifiers import TableIdentifier
from floe_core.notebooks import Listing
from floe_core.security import redact
from floe_runtime.runs.failures import Failure, failed_checks, is_interruption, log_path, place_of, sentence
from floe_runtime.runs.pipeline import open_history
from floe_runtime.runs.processes import PROCESS_TAG, has_ended
from floe_runtime.runs.runner import CheckResult, Materialized, RunReport, materialized_of

__all__ = [
    "LOST",
    "NO_RUNS",
    "STATUSES",
    "PastRun",
    "RunDetails",
    "UnfinishedRunError",
    "details_of",
    "ended_run",
    "find_run",
    "past_runs",
    "similar_assets",
    "tables_written",
]

LOST = "lost"
_ENDED = ("success", "failure", "canceled", LOST)
_UNFINISHED = set(DagsterRunStatus) - {DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED}
STATUSES = (*(status.value.lower() for status in DagsterRunStatus), LOST)
_PARTITION = "dagster/partition"
_RANGE = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")
NO_RUNS = "no runs yet: start one with floe run"
_FULL_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_PAGE = 100  # runs that are read at once
_OF_INTEREST = {
    DagsterEventType.ASSET_MATERIALIZATION,
    DagsterEventType.ASSET_CHECK_EVALUATION,
    DagsterEventType.STEP_OUTPUT,
    DagsterEventType.STEP_START,
    DagsterEventType.STEP_SUCCESS,
    DagsterEventType.STEP_FAILURE,
    DagsterEventType.RUN_FAILURE,
}


class UnfinishedRunError(ConfigurationError):
    """The run has not ended, so what it wrote is not known yet."""


@dataclass(frozen=True)
class PastRun:
    """One run.

    Attributes:
        run_id: The id of the run.
        status: Dagster's status, in lower case: success, failure, started, canceled and so on. `canceled` is also one
            that Ctrl-C stopped, `lost` one whose process is gone without recording an end.
        job: The name of the job.
        started: When it started; None if it did not start yet.
        seconds: How long it took, or has taken so far, for a lost run until its last event; None if it did not start.
        assets: The assets that it was to materialize.
        partitions: The partition or the range of partitions; empty if there was none.
        undone: Whether what it wrote was taken back with floe undo; None if the tables were not asked.
    """

    run_id: str
    status: str
    job: str
    started: datetime | None
    seconds: float | None
    assets: tuple[str, ...]
    partitions: str
    undone: bool | None = None

    @property
    def outcome(self) -> str:
        """The status, with what became of it."""
        return f"{self.status}, undone" if self.undone else self.status


@dataclass(frozen=True)
class RunDetails:
    """One run with what it wrote, checked and failed at.

    Attributes:
        run: The run.
        materialized: What it wrote.
        checks: The results of its checks.
        failed: What failed, and why.
        in_progress: The assets that it had begun and neither finished nor failed at.
        log: The file with its log, if one was written.
        unpublished: What an atomic run wrote to branches and did not publish.
    """

    run: PastRun
    materialized: tuple[Materialized, ...]
    checks: tuple[CheckResult, ...]
    failed: tuple[Failure, ...]
    in_progress: tuple[str, ...]
    log: str | None
    unpublished: tuple[Materialized, ...] = ()

    def _repr_html_(self) -> str:
        report = RunReport(
            materialized=self.materialized, checks=self.checks, failed=self.failed, unpublished=self.unpublished
        )
        return f"{Listing([self.run])._repr_html_()}{report._repr_html_()}"


def similar_assets(instance: DagsterInstance, asset: str) -> list[str]:
    """The assets of the history that a mistyped name may have meant, best first; none if it is known itself."""
    known = {key.to_user_string() for key in instance.all_asset_keys()}
    return [] if asset in known else get_close_matches(asset, known)


def past_runs(
    instance: DagsterInstance, *, limit: int, status: str | None = None, asset: str | None = None
) -> list[PastRun]:
    """The latest runs, newest first; with `status` or `asset`, those that match."""
    runs = (_run(instance, record) for record in _records(instance, RunsFilter(statuses=_recorded_as(status))))
    wanted = (run for run in runs if status in (None, run.status) and (asset is None or asset in run.assets))
    return list(islice(wanted, limit))


def _recorded_as(status: str | None) -> list[DagsterRunStatus] | None:
    """What Dagster calls this status; a lost run is one that it takes for unfinished."""
    if status is None:
        return None
    return list(_UNFINISHED) if status == LOST else [DagsterRunStatus(status.upper())]


def _records(instance: DagsterInstance, wanted: RunsFilter) -> Iterator[RunRecord]:
    cursor: str | None = None
    while True:
        page = instance.get_run_records(wanted, limit=_PAGE, cursor=cursor)
        yield from page
        if len(page) < _PAGE:
            return
        cursor = page[-1].dagster_run.run_id


def find_run(instance: DagsterInstance, prefix: str | None) -> PastRun:
    """The run whose id begins so, or the latest; an error if there is none, or more than one."""
    if prefix is None:
        latest_runs = past_runs(instance, limit=1)
        if not latest_runs:
            raise ConfigurationError(NO_RUNS)
        return latest_runs[0]
    ids = [run_id for run_id in instance.get_run_ids() if run_id.startswith(prefix.strip().lower())]
    if not prefix.strip() or not ids:
        latest = ", ".join(run.run_id[:8] for run in past_runs(instance, limit=5)) or "none"
        raise ConfigurationError(f"there is no run {prefix!r} (the latest: {latest}); list them with: floe runs list")
    if len(ids) > 1:
        raise ConfigurationError(
            f"{len(ids)} runs begin with {prefix!r}: {', '.join(ids[:5])}{', …' if len(ids) > 5 else ''}; type more"
        )
    (record,) = instance.get_run_records(RunsFilter(run_ids=ids))
    return _run(instance, record)


def ended_run(artifacts: CompiledArtifacts, run: str) -> str:
    """The id of a run that has ended, by its beginning; a full id may be that of a run of another machine.

    Args:
        artifacts: The compiled project.
        run: The id, or its beginning.
    """
    is_full = _FULL_ID.fullmatch(run.strip().lower()) is not None
    with open_history(artifacts) as instance:
        if instance is None:
            if is_full:
                return run.strip().lower()
            raise ConfigurationError(NO_RUNS)
        try:
            found = find_run(instance, run)
        except ConfigurationError:
            if is_full:
                return run.strip().lower()
            raise
    if found.status not in _ENDED:
        raise UnfinishedRunError(
            f"run {found.run_id} has not ended ({found.status}); nothing was changed: wait for its end"
        )
    return found.run_id


def tables_written(artifacts: CompiledArtifacts, run_id: str) -> dict[TableIdentifier, int]:
    """The snapshot of each table that the run is known to have written, by its materializations."""
    with open_history(artifacts) as instance:
        if instance is None:
            return {}
        try:
            details = details_of(instance, find_run(instance, run_id), artifacts.root)
        except ConfigurationError:
            return {}
    return {TableIdentifier.from_string(made.table): made.snapshot_id for made in details.materialized}


def _run(instance: DagsterInstance, record: RunRecord) -> PastRun:
    run = record.dagster_run
    lost = not run.is_finished and has_ended(run.tags.get(PROCESS_TAG, ""))
    end = record.end_time
    if end is None and not run.is_finished:
        end = _last_event(instance, run.run_id) if lost else datetime.now(timezone.utc).timestamp()
    return PastRun(
        run_id=run.run_id,
        status=LOST if lost else run.status.value.lower(),
        job=run.job_name,
        started=_moment(record.start_time),
        seconds=round(end - record.start_time, 1) if record.start_time and end else None,
        assets=tuple(_assets(instance, run)),
        partitions=_partitions(run),
    )


def _last_event(instance: DagsterInstance, run_id: str) -> float | None:
    latest = instance.get_records_for_run(run_id, limit=1, ascending=False).records
    return latest[0].timestamp if latest else None


def _moment(seconds: float | None) -> datetime | None:
    return datetime.fromtimestamp(seconds, timezone.utc) if seconds else None


def _assets(instance: DagsterInstance, run: DagsterRun) -> Sequence[str]:
    """The assets that the run selects; for a whole job those that Dagster planned at its start."""
    if run.asset_selection is not None:
        return sorted(key.to_user_string() for key in run.asset_selection)
    planned = {
        event.asset_key.to_user_string()
        for event in _events(instance, run.run_id, {DagsterEventType.ASSET_MATERIALIZATION_PLANNED})
        if event.asset_key is not None
    }
    return sorted(planned)


def _partitions(run: DagsterRun) -> str:
    if _PARTITION in run.tags:
        return run.tags[_PARTITION]
    ends = [run.tags[name] for name in _RANGE if name in run.tags]
    return "...".join(dict.fromkeys(ends))


def _events(instance: DagsterInstance, run_id: str, kinds: set[DagsterEventType]) -> Iterator[Any]:
    """The events of these kinds, in order."""
    cursor: str | None = None
    while True:
        page = instance.get_records_for_run(run_id, cursor=cursor, of_type=kinds, limit=1000)
        yield from (record.event_log_entry.dagster_event for record in page.records)
        if not page.has_more:
            return
        cursor = page.cursor


def details_of(instance: DagsterInstance, run: PastRun, root: Path) -> RunDetails:
    """What a run wrote, checked and failed at, from its events."""
    events = list(_events(instance, run.run_id, _OF_INTEREST))
    seconds = {
        event.step_key: event.step_success_data.duration_ms / 1000
        for event in events
        if event.event_type is DagsterEventType.STEP_SUCCESS
    }
    log, materialized = log_path(root, run.run_id), _materialized(events, seconds)
    published = {made.asset for made in materialized}
    return RunDetails(
        run,
        tuple(materialized),
        tuple(_checks(events)),
        tuple(_failures(events, run, root)),
        tuple(_in_progress(events, run)),
        str(log.relative_to(root)) if log.is_file() else None,
        tuple(made for made in _staged(events, run, seconds) if made.asset not in published),
    )


def _materialized(events: Sequence[Any], seconds: Mapping[str, float]) -> list[Materialized]:
    """What was written; a run over partitions records one materialization per partition of the same write."""
    written: dict[tuple[str, int], Materialized] = {}
    for event in events:
        if event.event_type is DagsterEventType.ASSET_MATERIALIZATION:
            metadata = {key: value.value for key, value in event.materialization.metadata.items()}
            if "floe/snapshot_id" in metadata:
                made = materialized_of(event.asset_key.to_user_string(), metadata)
                written[made.asset, made.snapshot_id] = replace(made, seconds=seconds.get(event.step_key, 0.0))
    return list(written.values())


def _staged(events: Sequence[Any], run: PastRun, seconds: Mapping[str, float]) -> Iterator[Materialized]:
    """What was written, published or not, by the outputs of the steps."""
    assets = {AssetKey.from_user_string(asset).to_python_identifier(): asset for asset in run.assets}
    for event in events:
        if event.event_type is DagsterEventType.STEP_OUTPUT:
            data = event.step_output_data
            asset = assets.get(data.step_output_handle.output_name)
            metadata = {key: value.value for key, value in data.metadata.items()}
            if asset is not None and "floe/snapshot_id" in metadata:
                yield replace(materialized_of(asset, metadata), seconds=seconds.get(event.step_key, 0.0))


def _checks(events: Sequence[Any]) -> Iterator[CheckResult]:
    for event in events:
        if event.event_type is DagsterEventType.ASSET_CHECK_EVALUATION:
            check = event.asset_check_evaluation_data
            asset = check.asset_key.to_user_string()
            yield CheckResult(asset, check.check_name, check.passed, check.severity.value, check.description or "")


def _in_progress(events: Sequence[Any], run: PastRun) -> list[str]:
    """The steps that started and neither succeeded nor failed, by the name of their asset."""
    ends = [
        event.event_type is DagsterEventType.STEP_SUCCESS
        or (event.event_type is DagsterEventType.STEP_FAILURE and not is_interruption(event.step_failure_data.error))
        for event in events
    ]
    ended = {event.step_key for event, ends_step in zip(events, ends, strict=True) if ends_step}
    started = [event.step_key for event in events if event.event_type is DagsterEventType.STEP_START]
    names = _names_of_steps(run)
    return [_name_of(step, names) for step in dict.fromkeys(started) if step not in ended]


def _names_of_steps(run: PastRun) -> dict[str, str]:
    return {asset.replace("/", "__"): asset for asset in run.assets}  # as Dagster names the step of an asset


def _name_of(step: str, names: Mapping[str, str]) -> str:
    """The asset of a step; the steps of an atomic group have its name before theirs."""
    return names.get(step) or names.get(step.rpartition(".")[2], step)


def _failures(events: Sequence[Any], run: PastRun, root: Path) -> Iterator[Failure]:
    """The failed steps, by the name of their asset; the failure of the run if no step failed. Ctrl-C is no failure."""
    assets = _names_of_steps(run)
    failed = [event for event in events if event.event_type is DagsterEventType.STEP_FAILURE]
    for event in failed:
        step, error = event.step_key or "a step", event.step_failure_data.error
        if is_interruption(error):
            continue
        if checks := failed_checks(events, error, step):
            yield from checks
            continue
        yield Failure(_name_of(step, assets), redact(sentence(error)), place_of(error, root))
    for event in events if not failed else ():
        if event.event_type is DagsterEventType.RUN_FAILURE:
            error = getattr(event.event_specific_data, "error", None)
            if is_interruption(error):
                continue
            yield Failure("the run", redact(sentence(error) if error else event.message or "no reason given"))
