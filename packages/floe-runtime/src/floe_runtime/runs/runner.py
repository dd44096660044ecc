"""Run assets through Dagster in this process, and report progress while they run."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from dagster import AssetCheckSeverity, DagsterError, DagsterEventType, ExecuteInProcessResult

from floe_core.errors import ConfigurationError, FloeError
from floe_core.observability import warn
from floe_core.security import redact
from floe_dagster.runs import partition_label
from floe_runtime.runs.failures import Failure, causes, failures_of, sentence, write_log
from floe_runtime.runs.pipeline import Pipeline
from floe_runtime.runs.planning import Batch

__all__ = [
    "CheckResult",
    "LogLine",
    "Materialized",
    "RunFailedError",
    "RunReport",
    "Skipped",
    "StepEvent",
    "run_batches",
]

_RANGE_START = "dagster/asset_partition_range_start"
_RANGE_END = "dagster/asset_partition_range_end"
_INTERRUPTIONS = ("DagsterExecutionInterruptedError", "KeyboardInterrupt")
_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


@dataclass(frozen=True)
class Materialized:
    """What one asset wrote in one run."""

    asset: str
    table: str
    partitions: str
    rows: int
    rows_removed: int
    files: int
    files_removed: int
    bytes: int
    snapshot_id: int
    schema_change: str
    deduplicated: bool
    seconds: float = 0.0


@dataclass(frozen=True)
class CheckResult:
    """The result of one asset check."""

    asset: str
    check: str
    passed: bool
    severity: str
    description: str


@dataclass(frozen=True)
class StepEvent:
    """A change in the state of an asset: planned, started, done or failed."""

    asset: str
    state: str
    seconds: float = 0.0
    materialized: Materialized | None = None


@dataclass(frozen=True)
class LogLine:
    """A line logged with `context.log`; `source` is the asset, or the step if it has several assets or none."""

    source: str
    level: int
    message: str


@dataclass(frozen=True)
class Skipped:
    """An asset that did not run because of a failure, and its partitions if it has any."""

    asset: str
    partitions: str = ""


@dataclass(frozen=True)
class RunReport:
    """What the runs of one command wrote, checked, failed and skipped."""

    run_ids: tuple[str, ...] = ()
    materialized: tuple[Materialized, ...] = ()
    checks: tuple[CheckResult, ...] = ()
    failed: tuple[Failure, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    log: str | None = None

    def __add__(self, other: RunReport) -> RunReport:
        return RunReport(
            self.run_ids + other.run_ids,
            self.materialized + other.materialized,
            self.checks + other.checks,
            self.failed + other.failed,
            self.skipped + other.skipped,
            other.log or self.log,
        )


class RunFailedError(FloeError):
    """An asset or a check failed; earlier materializations are kept."""

    def __init__(self, message: str, report: RunReport) -> None:
        super().__init__(message)
        self.report = report


Watcher = Callable[[StepEvent], None]
Listener = Callable[[LogLine], None]


def run_batches(
    pipeline: Pipeline, batches: Sequence[Batch], watch: Watcher, *, listen: Listener | None = None
) -> RunReport:
    """Run the batches in order; the first failure stops, and its report includes what was written before.

    Args:
        listen: Called with each line that assets log with `context.log`.
    """
    report = RunReport()
    for number, batch in enumerate(batches):
        arguments: dict[str, Any] = {}
        if len(batch.keys) == 1:
            arguments["partition_key"] = batch.keys[0]
        elif batch.keys:
            arguments["tags"] = {_RANGE_START: batch.keys[0], _RANGE_END: batch.keys[-1]}
        try:
            report += _execute(pipeline, batch, (watch, listen), arguments)
        except RunFailedError as exc:
            later = RunReport(
                skipped=tuple(asset for rest in batches[number + 1 :] for asset in _skipped(pipeline, rest))
            )
            raise RunFailedError(str(exc), report + exc.report + later) from exc
    return report


def _skipped(pipeline: Pipeline, batch: Batch, ended: Collection[str] = ()) -> list[Skipped]:
    """The assets of a batch that did not run, upstream first."""
    names = [key.to_user_string() for key in pipeline.graph.toposorted_asset_keys if key in batch.assets]
    return [Skipped(name, partition_label(batch.keys) or "") for name in names if name not in ended]


def _execute(
    pipeline: Pipeline, batch: Batch, watchers: tuple[Watcher, Listener | None], arguments: dict[str, Any]
) -> RunReport:
    run_id = str(uuid.uuid4())
    with _watching(pipeline, run_id, *watchers):
        try:
            result = pipeline.job.execute_in_process(
                run_config=_QUIET,
                instance=pipeline.instance,
                asset_selection=list(batch.assets),
                raise_on_error=False,
                run_id=run_id,
                **arguments,
            )
        except DagsterError as exc:  # the run did not start: an invalid selection, a missing setting
            raise ConfigurationError(f"Dagster refused the run: {' '.join(str(exc).split())}") from exc
    # From the result, not from the watcher: an output error must not hide a failed check.
    log = _Log({}, [], set(), set())
    for event in result.all_events:
        list(_step_events(event, log, pipeline.steps))
    report = RunReport((run_id,), tuple(log.materialized.values()), tuple(log.checks))
    if _was_interrupted(result):
        raise KeyboardInterrupt
    if not result.success:
        failures, written = tuple(failures_of(pipeline, result)), write_log(pipeline, run_id)
        report = replace(
            report,
            failed=failures,
            skipped=tuple(_skipped(pipeline, batch, log.ended)),
            log=str(written.relative_to(pipeline.artifacts.root)) if written else None,
        )
        raise RunFailedError(redact("\n".join(map(str, failures)) or _run_failure(result)), report)
    failed = [check for check in report.checks if not check.passed and check.severity == AssetCheckSeverity.ERROR.value]
    if failed:
        failures = tuple(
            Failure(f"check {check.check} of {check.asset}", redact(check.description or "no reason given"))
            for check in failed
        )
        raise RunFailedError("\n".join(map(str, failures)), replace(report, failed=failures))
    return report


@dataclass
class _Log:
    materialized: dict[str, Materialized]
    checks: list[CheckResult]
    ended: set[str]  # the assets that were written, or whose steps succeeded or failed
    started: set[str]  # the steps


@contextmanager
def _watching(pipeline: Pipeline, run_id: str, watch: Watcher, listen: Listener | None) -> Iterator[None]:
    """Follow the run's event log in a thread; all events have been passed on when the block ends."""
    finished = threading.Event()
    log = _Log({}, [], set(), set())

    def follow() -> None:
        cursor: str | None = None
        while True:
            last_round = finished.wait(0.2)
            if pipeline.instance.has_run(run_id):
                while True:
                    page = pipeline.instance.get_records_for_run(run_id, cursor=cursor, limit=200)
                    cursor = page.cursor
                    for record in page.records:
                        entry = record.event_log_entry
                        # Dagster logs messages of its own for steps that never start.
                        if entry.dagster_event is None and listen is not None and entry.step_key in log.started:
                            assets = pipeline.steps.get(entry.step_key, ())
                            source = assets[0] if len(assets) == 1 else entry.step_key
                            listen(LogLine(source, int(entry.level), entry.user_message))
                        for event in _step_events(entry.dagster_event, log, pipeline.steps):
                            watch(event)
                    if not page.has_more:
                        break
            if last_round:
                return

    def follow_or_warn() -> None:
        try:
            follow()
        except Exception as exc:  # noqa: BLE001 - a display error must not stop the run
            warn("the progress of the run is not shown any more", reason=f"{type(exc).__name__}: {exc}")

    thread = threading.Thread(target=follow_or_warn, daemon=True)
    thread.start()
    try:
        yield
    finally:
        finished.set()
        thread.join(30)


def _step_events(event: Any, log: _Log, steps: dict[str, list[str]]) -> Iterator[StepEvent]:
    """Convert a Dagster event to step events; the log collects materializations and check results."""
    if event is None:
        return
    kind = event.event_type
    if kind is DagsterEventType.ASSET_MATERIALIZATION_PLANNED:
        yield StepEvent(event.asset_key.to_user_string(), "planned")
    elif kind is DagsterEventType.ASSET_MATERIALIZATION:
        metadata = {key: value.value for key, value in event.materialization.metadata.items()}
        if "floe/snapshot_id" in metadata:
            name = event.asset_key.to_user_string()
            log.materialized[name] = _materialized(name, metadata)
        # In graph-backed assets, step keys are not asset names.
        log.ended.add(event.asset_key.to_user_string())
    elif kind is DagsterEventType.ASSET_CHECK_EVALUATION:
        check = event.asset_check_evaluation_data
        asset = check.asset_key.to_user_string()
        log.checks.append(
            CheckResult(asset, check.check_name, check.passed, check.severity.value, check.description or "")
        )
    elif event.step_key is not None:
        if kind is DagsterEventType.STEP_START:
            log.started.add(event.step_key)
        for asset in steps.get(event.step_key, ()):
            if kind is DagsterEventType.STEP_START:
                yield StepEvent(asset, "started")
            elif kind is DagsterEventType.STEP_FAILURE:
                log.ended.add(asset)
                yield StepEvent(asset, "failed")
            elif kind is DagsterEventType.STEP_SUCCESS:
                log.ended.add(asset)
                seconds = event.step_success_data.duration_ms / 1000
                if asset in log.materialized:
                    log.materialized[asset] = replace(log.materialized[asset], seconds=seconds)
                yield StepEvent(asset, "done", seconds, log.materialized.get(asset))


def _materialized(asset: str, metadata: dict[str, Any]) -> Materialized:
    """What was written; if describing the write failed, only the table and snapshot are known."""
    return Materialized(
        asset=asset,
        table=metadata["dagster/table_name"],
        partitions=metadata.get("floe/partitions", ""),
        rows=metadata.get("floe/rows_added", 0),
        rows_removed=metadata.get("floe/rows_removed", 0),
        files=metadata.get("floe/files_added", 0),
        files_removed=metadata.get("floe/files_removed", 0),
        bytes=metadata.get("floe/bytes_added", 0),
        snapshot_id=int(metadata["floe/snapshot_id"]),
        schema_change=metadata.get("floe/schema_change", ""),
        deduplicated=metadata.get("floe/deduplicated", False),
    )


def _was_interrupted(result: ExecuteInProcessResult) -> bool:
    """Whether the run was interrupted: Dagster turns Ctrl-C into a failed or canceled run."""
    for event in result.all_events:
        if event.event_type is DagsterEventType.RUN_CANCELED:
            return True
        if event.event_type is DagsterEventType.STEP_FAILURE and any(
            cause.cls_name in _INTERRUPTIONS for cause in causes(event.step_failure_data.error)
        ):
            return True
    return False


def _run_failure(result: ExecuteInProcessResult) -> str:
    """Why a run failed although no step did."""
    errors = [
        event.event_specific_data.error  # type: ignore[union-attr]  # this kind of event has one
        for event in result.all_events
        if event.event_type is DagsterEventType.RUN_FAILURE
    ]
    reasons = [f"the run failed before any asset started: {sentence(error)}" for error in errors]
    return "\n".join(reasons) or "the run failed, and Dagster gives no reason"
