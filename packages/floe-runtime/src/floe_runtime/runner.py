"""Run a project's pipeline through Dagster, in this process, and say what happened while it happens."""

from __future__ import annotations

import importlib
import os
import sys
import threading
import traceback
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from dagster import (
    AssetKey,
    DagsterEventType,
    DagsterInstance,
    Definitions,
    ExecuteInProcessResult,
    JobDefinition,
    PartitionsDefinition,
)

from floe_core.artifacts import CompiledArtifacts
from floe_core.errors import ConfigurationError, FloeError

__all__ = ["Materialized", "Pipeline", "RunFailedError", "RunReport", "StepEvent", "open_pipeline"]

_RANGE_START = "dagster/asset_partition_range_start"
_RANGE_END = "dagster/asset_partition_range_end"
# Nothing is reported to anybody, and what assets print goes to the terminal, not through helper processes.
_DAGSTER_SETTINGS = """\
telemetry:
  enabled: false
compute_logs:
  module: dagster._core.storage.noop_compute_log_manager
  class: NoOpComputeLogManager
"""
_INTERRUPTIONS = ("DagsterExecutionInterruptedError", "KeyboardInterrupt")
_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


class RunFailedError(FloeError):
    """An asset failed; what was materialized before it stays."""

    def __init__(self, message: str, report: RunReport) -> None:
        super().__init__(message)
        self.report = report


@dataclass(frozen=True)
class StepEvent:
    """One thing that happened to one asset: planned, started, done or failed."""

    asset: str
    state: str
    seconds: float = 0.0
    materialized: Materialized | None = None


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
class RunReport:
    """What the runs of one command wrote, in the order in which it was written."""

    run_ids: tuple[str, ...] = ()
    materialized: tuple[Materialized, ...] = ()

    def __add__(self, other: RunReport) -> RunReport:
        return RunReport(self.run_ids + other.run_ids, self.materialized + other.materialized)


Watcher = Callable[[StepEvent], None]


@dataclass(frozen=True)
class Pipeline:
    """The definitions of a project, ready to run."""

    artifacts: CompiledArtifacts
    definitions: Definitions
    instance: DagsterInstance
    _job: list[JobDefinition] = field(default_factory=list)

    @property
    def job(self) -> JobDefinition:
        if not self._job:
            self._job.append(self.definitions.resolve_implicit_global_asset_job_def())
        return self._job[0]

    def assets(self, names: Sequence[str] = ()) -> list[AssetKey]:
        """The assets to run: all that can be materialized, or those named."""
        graph = self.definitions.resolve_asset_graph()
        known = {key.to_user_string(): key for key in graph.materializable_asset_keys}
        unknown = [name for name in names if name not in known]
        if unknown:
            raise ConfigurationError(f"no asset {', '.join(unknown)}; there are: {', '.join(sorted(known))}")
        if not known:
            raise ConfigurationError("the definitions hold no asset that can be materialized; add one")
        return [known[name] for name in names] if names else list(known.values())

    def partitions(self, assets: Sequence[AssetKey]) -> PartitionsDefinition[str] | None:
        """The partitions that the partitioned assets share; None if none is partitioned."""
        graph = self.definitions.resolve_asset_graph()
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

    def keys_missing(self, assets: Sequence[AssetKey], partitions: PartitionsDefinition[str]) -> list[str]:
        """The partitions that at least one of the partitioned assets has never materialized."""
        graph = self.definitions.resolve_asset_graph()
        done: set[str] | None = None
        for key in assets:
            if graph.get(key).partitions_def is not None:
                materialized = set(self.instance.get_materialized_partitions(key))
                done = materialized if done is None else done & materialized
        return [key for key in partitions.get_partition_keys() if key not in (done or set())]

    def run(self, assets: Sequence[AssetKey], keys: Sequence[str] | None, watch: Watcher) -> RunReport:
        """Materialize the assets for these partitions (None: nothing is partitioned)."""
        if keys is None:
            return self._execute(assets, watch)
        report = RunReport()
        for chunk in self._chunks(assets, keys):
            if len(chunk) == 1:
                report += self._execute(assets, watch, partition_key=chunk[0])
            else:
                report += self._execute(assets, watch, tags={_RANGE_START: chunk[0], _RANGE_END: chunk[-1]})
        return report

    def _chunks(self, assets: Sequence[AssetKey], keys: Sequence[str]) -> Iterator[list[str]]:
        """Neighbouring partitions together where every partitioned asset takes several at once, else one by one."""
        graph = self.definitions.resolve_asset_graph()
        nodes = [graph.get(key) for key in assets]
        partitioned = [node for node in nodes if node.partitions_def is not None]
        single_run = all(
            # None is Dagster's way of saying "all partitions in one run".
            node.backfill_policy is not None and node.backfill_policy.max_partitions_per_run is None
            for node in partitioned
        )
        wanted, chunk = set(keys), list[str]()
        definition = partitioned[0].partitions_def
        for key in definition.get_partition_keys() if definition is not None else ():
            if key in wanted and (single_run or not chunk):
                chunk.append(key)
                continue
            if chunk:
                yield chunk
            chunk = [key] if key in wanted else []
        if chunk:
            yield chunk

    def _execute(self, assets: Sequence[AssetKey], watch: Watcher, **arguments: Any) -> RunReport:
        run_id = str(uuid.uuid4())
        with _watching(self.instance, run_id, watch) as seen:
            result = self.job.execute_in_process(
                run_config=_QUIET,
                instance=self.instance,
                asset_selection=list(assets),
                raise_on_error=False,
                run_id=run_id,
                **arguments,
            )
        report = RunReport((run_id,), tuple(seen))
        if _was_interrupted(result):
            raise KeyboardInterrupt
        if not result.success:
            raise RunFailedError(_failure(result), report)
        return report


@contextmanager
def open_pipeline(artifacts: CompiledArtifacts) -> Iterator[Pipeline]:
    """The pipeline of a project; Dagster keeps its history under `.floe/dagster` unless DAGSTER_HOME says otherwise."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*is currently in (beta|preview).*")
        with _inside(artifacts), _dagster_home(artifacts.root) as home:
            definitions = _load(artifacts)
            with DagsterInstance.from_config(str(home)) as instance:
                yield Pipeline(artifacts, definitions, instance)


@contextmanager
def _inside(artifacts: CompiledArtifacts) -> Iterator[None]:
    """The project's folder is current and importable, and its environment is the chosen one."""
    before, path, environment = Path.cwd(), list(sys.path), os.environ.get("FLOE_ENV")
    os.chdir(artifacts.root)
    sys.path.insert(0, str(artifacts.root))
    os.environ["FLOE_ENV"] = artifacts.environment or ""
    try:
        yield
    finally:
        os.chdir(before)
        sys.path[:] = path
        os.environ.pop("FLOE_ENV")
        if environment is not None:
            os.environ["FLOE_ENV"] = environment


@contextmanager
def _dagster_home(root: Path) -> Iterator[Path]:
    given = os.environ.get("DAGSTER_HOME")
    if given:
        yield Path(given)
        return
    home = root / ".floe" / "dagster"
    home.mkdir(parents=True, exist_ok=True)
    settings = home / "dagster.yaml"
    if not settings.exists():
        settings.write_text(_DAGSTER_SETTINGS, encoding="utf-8")
    os.environ["DAGSTER_HOME"] = str(home)
    try:
        yield home
    finally:
        del os.environ["DAGSTER_HOME"]


def _load(artifacts: CompiledArtifacts) -> Definitions:
    name = artifacts.pipeline.definitions
    _forget_other_projects(name, artifacts.root)
    try:
        module = importlib.import_module(name)
    except FloeError:
        raise
    except ModuleNotFoundError as exc:
        if exc.name and (name == exc.name or name.startswith(f"{exc.name}.")):
            raise ConfigurationError(
                f"pipeline.definitions is {name!r}, but {artifacts.root} has no such module; create "
                f"{name.replace('.', '/')}.py there, or name another module"
            ) from exc
        raise ConfigurationError(_import_failure(name, exc, artifacts.root)) from exc
    except Exception as exc:
        raise ConfigurationError(_import_failure(name, exc, artifacts.root)) from exc
    found = [value for value in vars(module).values() if isinstance(value, Definitions)]
    if len(found) != 1:
        raise ConfigurationError(
            f"module {name} must hold one Definitions object (found {len(found)}): defs = create_definitions([...])"
        )
    return found[0]


def _forget_other_projects(name: str, root: Path) -> None:
    """Two projects may both have a module `definitions`; one process may run both."""
    top = name.split(".")[0]
    loaded: ModuleType | None = sys.modules.get(top)
    if loaded is None or not getattr(loaded, "__file__", None):
        return
    if root not in Path(str(loaded.__file__)).resolve().parents:
        for module in [one for one in sys.modules if one == top or one.startswith(f"{top}.")]:
            del sys.modules[module]


def _import_failure(name: str, exc: Exception, root: Path) -> str:
    frames = [frame for frame in traceback.extract_tb(exc.__traceback__) if Path(frame.filename).is_relative_to(root)]
    where = f" at {Path(frames[-1].filename).relative_to(root)}:{frames[-1].lineno}" if frames else ""
    return f"importing {name} failed{where}: {type(exc).__name__}: {exc}"


@contextmanager
def _watching(instance: DagsterInstance, run_id: str, watch: Watcher) -> Iterator[list[Materialized]]:
    """Follow the run's event log beside the run; the list holds what was materialized once the block ends."""
    finished = threading.Event()
    seen: dict[str, Materialized] = {}

    def follow() -> None:
        cursor: str | None = None
        while True:
            last_round = finished.wait(0.2)
            if instance.has_run(run_id):
                while True:
                    page = instance.get_records_for_run(run_id, cursor=cursor, limit=200)
                    cursor = page.cursor
                    for record in page.records:
                        event = _step_event(record.event_log_entry.dagster_event, seen)
                        if event is not None:
                            watch(event)
                    if not page.has_more:
                        break
            if last_round:
                return

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    results: list[Materialized] = []
    try:
        yield results
    finally:
        finished.set()
        thread.join(30)
        results += seen.values()


def _step_event(event: Any, seen: dict[str, Materialized]) -> StepEvent | None:
    """Dagster's event in Floe's words; `seen` gathers what each asset wrote."""
    if event is None or event.step_key is None:
        if event is not None and event.event_type is DagsterEventType.ASSET_MATERIALIZATION_PLANNED:
            return StepEvent(event.asset_key.to_user_string(), "planned")
        return None
    asset = event.step_key.replace("__", "/")
    if event.event_type is DagsterEventType.ASSET_MATERIALIZATION_PLANNED:
        return StepEvent(event.asset_key.to_user_string(), "planned")
    if event.event_type is DagsterEventType.STEP_START:
        return StepEvent(asset, "started")
    if event.event_type is DagsterEventType.ASSET_MATERIALIZATION:
        metadata = {key: value.value for key, value in event.materialization.metadata.items()}
        if "floe/snapshot_id" in metadata:
            name = event.asset_key.to_user_string()
            seen[name] = _materialized(name, metadata)
        return None
    if event.event_type is DagsterEventType.STEP_SUCCESS:
        seconds = event.step_success_data.duration_ms / 1000
        if asset in seen:
            seen[asset] = Materialized(**{**vars(seen[asset]), "seconds": seconds})
        return StepEvent(asset, "done", seconds, seen.get(asset))
    if event.event_type is DagsterEventType.STEP_FAILURE:
        return StepEvent(asset, "failed")
    return None


def _materialized(asset: str, metadata: dict[str, Any]) -> Materialized:
    return Materialized(
        asset=asset,
        table=metadata["dagster/table_name"],
        partitions=metadata["floe/partitions"],
        rows=metadata["floe/rows_added"],
        rows_removed=metadata["floe/rows_removed"],
        files=metadata["floe/files_added"],
        files_removed=metadata["floe/files_removed"],
        bytes=metadata["floe/bytes_added"],
        snapshot_id=int(metadata["floe/snapshot_id"]),
        schema_change=metadata["floe/schema_change"],
        deduplicated=metadata["floe/deduplicated"],
    )


def _was_interrupted(result: ExecuteInProcessResult) -> bool:
    """Dagster turns Ctrl-C into a failed or canceled run; for the user it is still Ctrl-C."""
    return any(
        event.event_type is DagsterEventType.RUN_CANCELED
        or (
            event.event_type is DagsterEventType.STEP_FAILURE
            and event.step_failure_data.error is not None
            and any(name in event.step_failure_data.error.to_string() for name in _INTERRUPTIONS)
        )
        for event in result.all_events
    )


def _failure(result: ExecuteInProcessResult) -> str:
    """The sentence of each failed asset: Floe's own error as it is, another's with its place in the user's code."""
    sentences = []
    for event in result.all_events:
        if event.event_type is not DagsterEventType.STEP_FAILURE:
            continue
        error = event.step_failure_data.error
        while error is not None and error.cause is not None:
            # Dagster wraps what user code raises, Floe keeps the engine's error as the cause of its own.
            if not error.cls_name or not error.cls_name.startswith("Dagster"):
                break
            error = error.cause
        text = error.message.strip() if error is not None else "failed"
        sentences.append(f"{(event.step_key or '').replace('__', '/')} failed: {text}")
    return "\n".join(sentences) or "the run failed before any asset started; look into it with: dagster dev"
