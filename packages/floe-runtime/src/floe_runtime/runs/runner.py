"""Run assets through Dagster in this process, and report progress while they run."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from dagster import (
    AssetCheckSeverity,
    AssetKey,
    DagsterError,
    DagsterEventType,
    DagsterInstance,
    DagsterRunStatus,
    ExecuteInProcessResult,
)

from floe_core.errors import ConfigurationError, FloeError
from floe_core.notebooks import Listing, heading_html
from floe_core.observability import warn
from floe_core.security import redact
from floe_dagster.runs import BRANCH_TAG, partition_label
from floe_runtime.runs.batches import without
from floe_runtime.runs.durations import RANGE_END, RANGE_START, usual_seconds
from floe_runtime.runs.failures import Failure, failed_checks, failures_of, is_interruption, sentence, write_log
from floe_runtime.runs.pipeline import Pipeline
from floe_runtime.runs.planning import Batch
from floe_runtime.runs.processes import PROCESS_TAG, this_process

__all__ = [
    "CheckResult",
    "LogLine",
    "Materialized",
    "RunFailedError",
    "RunInterruptedError",
    "RunReport",
    "Skipped",
    "StepEvent",
    "materialized_of",
    "run_batches",
]

_ERROR = AssetCheckSeverity.ERROR.value
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
    """A change in the state of an asset: planned, started, done or failed.

    `usual_seconds` is how long a planned asset took the last time, if that is comparable; `partitions` are those of the
    run.
    """

    asset: str
    state: str
    seconds: float = 0.0
    materialized: Materialized | None = None
    usual_seconds: float | None = None
    partitions: str = ""


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
    """What the runs of one command wrote, checked, failed and skipped.

    `unpublished` is what an atomic run that failed wrote to its branch.
    """

    run_ids: tuple[str, ...] = ()
    materialized: tuple[Materialized, ...] = ()
    checks: tuple[CheckResult, ...] = ()
    failed: tuple[Failure, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    log: str | None = None
    unpublished: tuple[Materialized, ...] = ()

    def _repr_html_(self) -> str:
        parts = [Listing(self.materialized)._repr_html_()]
        for name, records in (
            ("checks", self.checks),
            ("failed", self.failed),
            ("skipped", self.skipped),
            ("unpublished", self.unpublished),
        ):
            if records:
                parts.append(f"{heading_html(name)}{Listing(records)._repr_html_()}")
        return "".join(parts)

    def __add__(self, other: RunReport) -> RunReport:
        return RunReport(
            self.run_ids + other.run_ids,
            self.materialized + other.materialized,
            self.checks + other.checks,
            self.failed + other.failed,
            self.skipped + other.skipped,
            other.log or self.log,
            self.unpublished + other.unpublished,
        )


class RunInterruptedError(KeyboardInterrupt):
    """Ctrl-C during a run: what the runs before it wrote, its id, its batch, and those that were still to come."""

    def __init__(self, report: RunReport, run_id: str, batches: Sequence[Batch]) -> None:
        super().__init__()
        self.report = report
        self.run_id = run_id
        self.batches = tuple(batches)


class RunFailedError(FloeError):
    """An asset or a check failed; earlier materializations are kept.

    Args:
        message: What failed, and why.
        report: What was written before, and what was skipped.
        batches: What is left of the batch that failed, and those that were still to come.

    Example:
        >>> from floe_runtime import RunFailedError, connect
        >>> from pathlib import Path
        >>> _ = Path("floe.yaml").write_text("name: shop")
        >>> _ = Path("definitions.py").write_text('''
        ... import dagster as dg
        ... from floe_dagster import create_definitions
        ...
        ... @dg.asset(key_prefix="bronze", metadata={"write_mode": "overwrite"})
        ... def orders():
        ...     raise ValueError("the till is empty")
        ...
        ... defs = create_definitions([orders])
        ... ''')
        >>> with connect() as lake:
        ...     try:
        ...         lake.run()
        ...     except RunFailedError as exc:
        ...         print(exc, len(exc.report.materialized))
        bronze/orders failed: ValueError: the till is empty 0
    """

    def __init__(self, message: str, report: RunReport, batches: Sequence[Batch] = ()) -> None:
        super().__init__(message)
        self.report = report
        self.batches = tuple(batches)


Watcher = Callable[[StepEvent], None]
Listener = Callable[[LogLine], None]


def run_batches(
    pipeline: Pipeline, batches: Sequence[Batch], watch: Watcher, *, listen: Listener | None = None
) -> RunReport:
    """Run the batches in order; the first failure stops, and its report includes what was written before.

    Args:
        listen: Called with each line that assets log with `context.log`.
    """
    report, process = RunReport(), this_process()
    for number, batch in enumerate(batches):
        arguments: dict[str, Any] = {"tags": {PROCESS_TAG: process}}
        if pipeline.artifacts.lake_branch is not None:
            arguments["tags"][BRANCH_TAG] = pipeline.artifacts.lake_branch
        if len(batch.keys) == 1:
            arguments["partition_key"] = batch.keys[0]
        elif batch.keys:
            arguments["tags"] |= {RANGE_START: batch.keys[0], RANGE_END: batch.keys[-1]}
        run_id = str(uuid.uuid4())
        try:
            report += _execute(pipeline, batch, (watch, listen), run_id, arguments)
        except KeyboardInterrupt as exc:
            _record_interruption(pipeline.instance, run_id)
            raise RunInterruptedError(report, run_id, batches[number:]) from exc
        except RunFailedError as exc:
            later = RunReport(
                skipped=tuple(asset for rest in batches[number + 1 :] for asset in _skipped(pipeline, rest))
            )
            rest = without(batches[number:], _done(exc.report))
            raise RunFailedError(str(exc), report + exc.report + later, rest) from exc
    return report


def _done(report: RunReport) -> set[str]:
    """The assets that a failed run wrote, unless one of their checks failed."""
    failed = {check.asset for check in report.checks if not check.passed and check.severity == _ERROR}
    return {made.asset for made in report.materialized} - failed


def _record_interruption(instance: DagsterInstance, run_id: str) -> None:
    """Record a run as canceled, which Dagster may have recorded as failed, or not at all."""
    run = instance.get_run_by_id(run_id)
    if run is not None and run.status not in (DagsterRunStatus.SUCCESS, DagsterRunStatus.CANCELED):
        instance.report_run_canceled(run, message="The run was interrupted with Ctrl-C.")


def _skipped(pipeline: Pipeline, batch: Batch, ended: Collection[str] = ()) -> list[Skipped]:
    """The assets of a batch that did not run, upstream first."""
    names = [key.to_user_string() for key in pipeline.graph.toposorted_asset_keys if key in batch.assets]
    return [Skipped(name, partition_label(batch.keys) or "") for name in names if name not in ended]


def _execute(
    pipeline: Pipeline,
    batch: Batch,
    watchers: tuple[Watcher, Listener | None],
    run_id: str,
    arguments: dict[str, Any],
) -> RunReport:
    with _watching(pipeline, run_id, *watchers, batch):
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
    log = _Log(pipeline.steps, _names(batch.assets))
    for event in result.all_events:
        list(_step_events(event, log))
    unpublished = tuple(made for asset, made in log.staged.items() if asset not in log.materialized)
    report = RunReport((run_id,), tuple(log.materialized.values()), tuple(log.checks), unpublished=unpublished)
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
    failed = tuple(failed_checks(result.all_events))
    if failed:
        raise RunFailedError("\n".join(map(str, failed)), replace(report, failed=failed))
    return report


@dataclass
class _Log:
    steps: dict[str, list[str]]
    wanted: set[str]  # the assets of the run; a group has steps of others too, which do nothing
    materialized: dict[str, Materialized] = field(default_factory=dict)
    staged: dict[str, Materialized] = field(default_factory=dict)  # written to the branch of an atomic run
    checks: list[CheckResult] = field(default_factory=list)
    ended: set[str] = field(default_factory=set)  # the assets that were written, or whose steps succeeded or failed
    started: set[str] = field(default_factory=set)  # the steps

    def assets(self, step: str) -> list[str]:
        """The assets of the run that a step makes."""
        return [asset for asset in self.steps.get(step, ()) if asset in self.wanted]


def _names(assets: Iterable[AssetKey]) -> set[str]:
    return {key.to_user_string() for key in assets}


@contextmanager
def _watching(pipeline: Pipeline, run_id: str, watch: Watcher, listen: Listener | None, batch: Batch) -> Iterator[None]:
    """Follow the run's event log in a thread; all events have been passed on when the block ends."""
    keys = batch.keys  # several take longer than those of the history
    label = partition_label(keys) or ""
    finished = threading.Event()
    log = _Log(pipeline.steps, _names(batch.assets))

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
                            assets = log.assets(entry.step_key)
                            source = assets[0] if len(assets) == 1 else entry.step_key
                            listen(LogLine(source, int(entry.level), entry.user_message))
                        for event in _step_events(entry.dagster_event, log):
                            is_known = event.state == "planned" and len(keys) <= 1
                            usual = usual_seconds(pipeline.instance, event.asset, before=run_id) if is_known else None
                            watch(replace(event, usual_seconds=usual, partitions=label))
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


def _step_events(event: Any, log: _Log) -> Iterator[StepEvent]:
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
            made, staged = materialized_of(name, metadata), log.staged.get(name)
            log.materialized[name] = replace(made, seconds=staged.seconds) if staged is not None else made
        # In graph-backed assets, step keys are not asset names.
        log.ended.add(event.asset_key.to_user_string())
    elif kind is DagsterEventType.ASSET_CHECK_EVALUATION:
        check = event.asset_check_evaluation_data
        asset = check.asset_key.to_user_string()
        log.checks.append(
            CheckResult(asset, check.check_name, check.passed, check.severity.value, check.description or "")
        )
    elif kind is DagsterEventType.STEP_OUTPUT:
        metadata = {key: value.value for key, value in event.step_output_data.metadata.items()}
        output = event.step_output_data.step_output_handle.output_name
        for asset in log.assets(event.step_key) if "floe/snapshot_id" in metadata else ():
            if AssetKey.from_user_string(asset).to_python_identifier() == output:
                log.staged[asset] = materialized_of(asset, metadata)
    elif event.step_key is not None:
        if kind is DagsterEventType.STEP_START:
            log.started.add(event.step_key)
        for asset in log.assets(event.step_key):
            if kind is DagsterEventType.STEP_START:
                yield StepEvent(asset, "started")
            elif kind is DagsterEventType.STEP_FAILURE:
                log.ended.add(asset)
                yield StepEvent(asset, "failed")
            elif kind is DagsterEventType.STEP_SUCCESS:
                log.ended.add(asset)
                seconds = event.step_success_data.duration_ms / 1000
                for found in (log.materialized, log.staged):
                    if asset in found:
                        found[asset] = replace(found[asset], seconds=seconds)
                yield StepEvent(asset, "done", seconds, log.materialized.get(asset) or log.staged.get(asset))


def materialized_of(asset: str, metadata: dict[str, Any]) -> Materialized:
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
        if event.event_type is DagsterEventType.STEP_FAILURE and is_interruption(event.step_failure_data.error):
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
