"""Maintenance as a Dagster job: each maintained table of an asset is recorded as an observation of that asset."""

# No postponed annotations here: Dagster inspects those of the op when it is defined.
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from dagster import (
    AssetKey,
    AssetObservation,
    AssetsDefinition,
    AssetSpec,
    Config,
    DagsterEventType,
    DagsterInstance,
    DagsterInvalidDefinitionError,
    DagsterRun,
    DefaultScheduleStatus,
    Definitions,
    EnvVar,
    Failure,
    JobDefinition,
    MetadataValue,
    OpExecutionContext,
    RunsFilter,
    ScheduleDefinition,
    job,
    op,
)
from pydantic import Field
from pyiceberg.table import Table

from floe_core.config import CompiledArtifacts, duration_text
from floe_core.errors import ConfigurationError, FloeError
from floe_core.identifiers import Namespace, TableIdentifier
from floe_core.maintenance import CompactReport, ExpireReport, PolicyEnforcer, Step
from floe_dagster._dagster.names import IN_PROGRESS_RUN_STATUSES, NodeDefinition
from floe_dagster.assets.arguments import KnownArguments
from floe_dagster.assets.names import Naming, is_stored, table_of
from floe_dagster.assets.options import OutputOptions, output_options
from floe_dagster.io_manager import IcebergIOManager
from floe_dagster.resources import LakeResource, lake_of
from floe_dagster.runs.description import sensitive_columns
from floe_iceberg import Lake
from floe_iceberg.arguments import choice
from floe_iceberg.maintenance import Maintenance, Outcome, Progress, TableOutcome
from floe_iceberg.snapshots import staged_since

__all__ = [
    "MAINTENANCE_JOB",
    "MaintenanceOptions",
    "StoredAsset",
    "create_maintenance",
    "enforcer_of",
    "may_store_in",
    "stored_assets",
]

MAINTENANCE_JOB = "floe_maintenance"
_SCHEDULE = "floe_maintenance_schedule"
_OP = "floe_maintain"
# The policy enforcer of each job, keyed by its op: Dagster rebuilds the job when definitions are merged.
_ENFORCERS: WeakKeyDictionary[NodeDefinition, PolicyEnforcer] = WeakKeyDictionary()
# How long the list of other runs in progress is cached.
_FRESH_SECONDS = 2.0
_MAX_REASON = 1000  # characters
_MAX_NOT_REMOVED = 100  # files listed in the metadata of an observation


class MaintenanceOptions(KnownArguments, Config):
    """The configuration of a run of the job `floe_maintenance`, for its op `floe_maintain`.

    Args:
        tables: The tables to maintain, such as `bronze.orders`. By default those of `namespaces`, or all tables.
        namespaces: Maintain the tables in these namespaces and below.
        only: The steps to run. By default all.

    Example:
        >>> from dagster import RunConfig
        >>> from floe_dagster import MaintenanceOptions
        >>> config = RunConfig(ops={"floe_maintain": MaintenanceOptions(namespaces=["bronze"], only=["expire"])})
        >>> config.to_config_dict()["ops"]["floe_maintain"]["config"]["namespaces"]
        ['bronze']
    """

    tables: list[str] = Field(default=[], description="such as bronze.orders; with no namespaces either: all tables")
    namespaces: list[str] = Field(default=[], description="the tables in these, and below")
    only: list[str] = Field(default=[], description=f"of {', '.join(step.value for step in Step)}; all by default")


@dataclass(frozen=True)
class StoredAsset:
    """An asset that an IcebergIOManager stores, and its table."""

    spec: AssetSpec
    manager: IcebergIOManager
    options: OutputOptions
    table: TableIdentifier

    @property
    def name(self) -> str:
        return str(self.spec.key.to_user_string())

    @property
    def hidden(self) -> frozenset[str]:
        """The columns that are never shown, in lower case."""
        return frozenset(sensitive_columns(self.options, self.spec.metadata))


def stored_assets(
    assets: Iterable[Any], artifacts: CompiledArtifacts, resources: Mapping[str, Any]
) -> Iterator[StoredAsset]:
    """The assets that are stored in tables by an IcebergIOManager."""
    for definition in assets:
        if not isinstance(definition, AssetsDefinition) or not definition.is_executable:
            continue
        for spec in definition.specs:
            manager = resources.get(definition.get_io_manager_key_for_asset_key(spec.key))
            if not isinstance(manager, IcebergIOManager) or not is_stored(definition, spec.key):
                continue
            options = output_options(spec.metadata, spec.key.to_user_string())
            namespace = manager.default_namespace
            namespace = namespace.get_value() if isinstance(namespace, EnvVar) else namespace
            ignored, tables = manager.ignore_key_prefix, artifacts.tables
            naming = Naming(
                namespace or tables.default_namespace, tables.ignore_key_prefix if ignored is None else ignored
            )
            yield StoredAsset(spec, manager, options, table_of(spec.key.path, options, naming))


def create_maintenance(
    artifacts: CompiledArtifacts,
    assets: Iterable[Any],
    *,
    resources: Mapping[str, Any],
    enforcer: PolicyEnforcer | None = None,
) -> Definitions:
    """Create the job `floe_maintenance`, and its schedule if floe.yaml has one, to merge with other Definitions.

    Args:
        artifacts: The compiled project.
        assets: The assets whose tables are observed. Maintenance of other tables of the catalog is only logged.
        resources: The resources of the Definitions. The job needs `lake`.
        enforcer: Validates the retention of each table. By default the floor in floe.yaml.

    Example:
        >>> from pathlib import Path
        >>> from dagster import Definitions
        >>> from floe_core import compile_project
        >>> from floe_dagster import create_iceberg_resources, create_maintenance
        >>> _ = Path("floe.yaml").write_text("{name: shop, maintenance: {schedule: '0 3 * * *'}}")
        >>> artifacts = compile_project(Path()).artifacts
        >>> resources = create_iceberg_resources(artifacts)
        >>> maintenance = create_maintenance(artifacts, [], resources=resources)
        >>> definitions = Definitions.merge(Definitions(resources=resources), maintenance)
        >>> definitions.resolve_schedule_def("floe_maintenance_schedule").cron_schedule
        '0 3 * * *'
    """
    lake = resources.get("lake")
    own = [stored for stored in stored_assets(assets, artifacts, resources) if may_store_in(stored.manager, lake)]
    made = _job({stored.spec.key: stored.table for stored in own}, enforcer)
    cron = artifacts.maintenance.schedule
    return Definitions(jobs=[made], schedules=[] if cron is None else [_schedule(made, cron)])


def may_store_in(manager: IcebergIOManager, lake: Any) -> bool:
    """Whether the manager may store its assets in this lake: no only if its project or environment differs."""
    here, there = _project_of(lake), _project_of(manager.lake)
    return here is None or there is None or here == there


def _project_of(lake: Any) -> tuple[Path, str | None] | None:
    if isinstance(lake, LakeResource):
        is_known = not isinstance(lake.project, EnvVar) and not isinstance(lake.environment, EnvVar)
        return (Path(lake.project).resolve(), lake.environment) if is_known else None
    if isinstance(lake, Lake):
        return lake.artifacts.root.resolve(), lake.artifacts.environment
    return None


def _schedule(made: JobDefinition, cron: str) -> ScheduleDefinition:
    try:
        return ScheduleDefinition(
            name=_SCHEDULE,
            job=made,
            cron_schedule=cron,
            execution_timezone="UTC",
            default_status=DefaultScheduleStatus.RUNNING,
            description="Maintains all tables, as floe.yaml says under maintenance.",
        )
    except DagsterInvalidDefinitionError as exc:
        raise ConfigurationError(
            f"maintenance.schedule in floe.yaml is {cron!r}, which is no cron schedule to Dagster; write it as five "
            f"fields, such as '0 3 * * *' for 3 o'clock every night"
        ) from exc


def _job(tables: Mapping[AssetKey, TableIdentifier], enforcer: PolicyEnforcer | None) -> JobDefinition:
    # No output, and so no IO manager; Dagster treats a return annotation of None as an output.
    @op(name=_OP, out={}, required_resource_keys={"lake"})
    def floe_maintain(context: OpExecutionContext, config: MaintenanceOptions):  # type: ignore[no-untyped-def]
        """Compacts, expires and cleans up tables, each as its policy says; what fails does not stop the others."""
        yield from _Run(context, lake_of(context.resources.lake, None), tables, enforcer).maintain(config)

    @job(name=MAINTENANCE_JOB, description="Maintains the tables of the lake, as floe.yaml says under maintenance.")
    def floe_maintenance() -> None:
        floe_maintain()

    made: JobDefinition = floe_maintenance
    if enforcer is not None:
        _ENFORCERS[floe_maintain] = enforcer
    return made


def enforcer_of(definitions: Definitions) -> PolicyEnforcer | None:
    """The enforcer of the maintenance job of these definitions; None if it has none of its own, or there is no job."""
    for definition in definitions.jobs or ():
        if isinstance(definition, JobDefinition) and definition.name == MAINTENANCE_JOB:
            return next((_ENFORCERS[node] for node in definition.graph.node_defs if node in _ENFORCERS), None)
    return None


class _Run:
    """One run of the job."""

    def __init__(
        self,
        context: OpExecutionContext,
        lake: Lake,
        tables: Mapping[AssetKey, TableIdentifier],
        enforcer: PolicyEnforcer | None,
    ) -> None:
        self._context = context
        self._lake = lake
        self._tables = tables
        self._assets = {table: key for key, table in tables.items()}
        self._maintenance = Maintenance(lake, enforcer=enforcer, busy=self._busy, watch=self._watch)
        self._in_progress: list[tuple[DagsterRun, set[AssetKey]]] = []
        self._refreshed_at = float("-inf")
        # Data files before and after compaction.
        self._files: dict[TableIdentifier, tuple[int, int]] = {}

    def maintain(self, config: MaintenanceOptions) -> Iterator[AssetObservation]:
        """Yields each observation when its table is done, so that none is lost if the op fails at the end."""
        steps = [choice(Step, name, "only") for name in config.only] or list(Step)
        names = [TableIdentifier.from_string(name) for name in config.tables]
        namespaces = [Namespace.from_string(name) for name in config.namespaces]
        self._lake.tables.refuse_on_branch("maintain the tables")
        identifiers = self._maintenance.tables(names, namespaces)
        if Step.EXPIRE in steps and not names and not namespaces:
            for name in self._maintenance.discard_branches():
                self._context.log.info(f"branch {name!r} of the lake was not used for long enough, and is discarded")
        failed: list[TableOutcome] = []
        for outcome in self._maintenance.run(identifiers, steps):
            key = self._assets.get(outcome.table)
            self._log(outcome, key)
            if key is not None:
                yield AssetObservation(asset_key=key, metadata=self._described(outcome))
            if outcome.outcome is Outcome.FAILED or outcome.refused:
                failed.append(outcome)
        if failed:
            reasons = "\n".join(f"{outcome.table}: {_reason(outcome)}" for outcome in failed)
            raise Failure(f"{len(failed)} of {len(identifiers)} tables could not be maintained:\n{reasons}")

    # Tables being written -------------------------------------------------------------------------------------------

    def _busy(self, identifier: TableIdentifier, table: Table) -> str | None:
        """Why the table is skipped: the write or run that is changing it. None if there is none."""
        longest = self._lake.artifacts.maintenance.longest_job
        since = datetime.now(timezone.utc) - longest
        staged = [began for began in staged_since(table) if began > since]
        if staged:
            return f"a write that began at {staged[0].isoformat(timespec='seconds')} is staged on a branch"
        instance = self._context.instance
        for run, unwritten in self._others():
            for key in sorted(unwritten):
                if self._table_of(key) != identifier:
                    continue
                reason = f"run {run.run_id[:8]} is materializing {key.to_user_string()}"
                if not _is_silent(instance, run, since):
                    return reason
                self._context.log.warning(
                    f"{reason} as far as Dagster knows, and has logged nothing for {duration_text(longest)} "
                    f"(maintenance.longest_job): it is taken for dead"
                )
        return None

    def _others(self) -> list[tuple[DagsterRun, set[AssetKey]]]:
        """The other runs in progress and the assets they have still to write, cached for `_FRESH_SECONDS`."""
        if time.monotonic() > self._refreshed_at + _FRESH_SECONDS:
            instance = self._context.instance
            runs = instance.get_runs(filters=RunsFilter(statuses=list(IN_PROGRESS_RUN_STATUSES)))
            self._in_progress = [(run, _unwritten(instance, run)) for run in runs if run.run_id != self._context.run_id]
            self._refreshed_at = time.monotonic()
        return self._in_progress

    def _table_of(self, key: AssetKey) -> TableIdentifier | None:
        """The table of an asset; for an asset outside these definitions, the table that its key maps to."""
        if key in self._tables:
            return self._tables[key]
        with suppress(ConfigurationError):
            return Naming(self._lake.default_namespace, self._lake.ignore_key_prefix).table(key.path)
        return None

    # Logs and metadata ----------------------------------------------------------------------------------------------

    def _watch(self, progress: Progress) -> None:
        step = f"{progress.table}: {progress.step.step.value}"
        if progress.report is None:
            self._context.log.info(f"{step} begins: {progress.step.reason}")
            return
        self._context.log.info(f"{step} done: {progress.report.summary()}")
        if isinstance(progress.report, CompactReport):
            with suppress(FloeError):  # the table is compacted; only the file counts are missing
                self._count(progress.table, progress.report)

    def _count(self, identifier: TableIdentifier, report: CompactReport) -> None:
        """Record the number of data files now: a later step may expire the snapshot."""
        snapshot = self._lake.tables.load_table(identifier).snapshot_by_id(report.snapshot_id or -1)
        if snapshot is not None and snapshot.summary is not None:
            after = int(snapshot.summary.additional_properties.get("total-data-files", 0))
            self._files[identifier] = (after - report.files_added + report.files_rewritten, after)

    def _log(self, outcome: TableOutcome, key: AssetKey | None) -> None:
        prefix = f"{outcome.table}{'' if key is not None else ' (no asset here)'}: {outcome.outcome.value}"
        if outcome.outcome is Outcome.FAILED or outcome.refused:
            self._context.log.error(f"{prefix}: {outcome.reason or _reason(outcome)}")
            return
        reason = f": {_reason(outcome)}" if _reason(outcome) else ""
        freed = f"{outcome.files_removed} files and {outcome.bytes_freed} bytes freed"
        kept = f"; {len(outcome.not_removed)} files not removed" if outcome.not_removed else ""
        self._context.log.info(f"{prefix}{reason}; {freed}{kept}")

    def _described(self, outcome: TableOutcome) -> dict[str, Any]:
        expired = sum(len(report.snapshots) for report in outcome.reports if isinstance(report, ExpireReport))
        described: dict[str, Any] = {
            "dagster/table_name": str(outcome.table),
            "floe/maintenance": outcome.outcome.value,
            "floe/maintenance_steps": MetadataValue.json(
                {report.step.value: report.summary() for report in outcome.reports}
            ),
            "floe/files_removed": outcome.files_removed,
            "floe/bytes_freed": outcome.bytes_freed,
            "floe/snapshots_expired": expired,
        }
        if outcome.table in self._files:
            described["floe/files_before"], described["floe/files_after"] = self._files[outcome.table]
        if outcome.not_removed:
            listed = [file.model_dump() for file in outcome.not_removed[:_MAX_NOT_REMOVED]]
            described["floe/files_not_removed"] = len(outcome.not_removed)
            described["floe/not_removed"] = MetadataValue.json(listed)
        if _reason(outcome):
            described["floe/maintenance_reason"] = _reason(outcome)
        return described


def _brief(reason: str) -> str:
    """The reason without the stack trace that Java errors have in their text."""
    text = re.split(r"\n\s+at ", reason, maxsplit=1)[0]
    return " ".join(text.split())[:_MAX_REASON]


def _reason(outcome: TableOutcome) -> str:
    """Why steps were skipped or failed."""
    skipped: dict[str, list[str]] = {}
    for step, why in outcome.skipped:
        skipped.setdefault(why, []).append(step.value)
    reasons = [f"{', '.join(steps)}: {why}" for why, steps in skipped.items()]
    return "; ".join([_brief(outcome.reason), *reasons] if outcome.reason else reasons)


def _unwritten(instance: DagsterInstance, run: DagsterRun) -> set[AssetKey]:
    """The assets that a run in progress has still to write: planned, and their step has not succeeded."""
    planned: dict[AssetKey, set[str | None]] = {}
    succeeded: set[str | None] = set()
    kinds = {DagsterEventType.ASSET_MATERIALIZATION_PLANNED, DagsterEventType.STEP_SUCCESS}
    for entry in instance.all_logs(run.run_id, of_type=kinds):
        event = entry.get_dagster_event()
        if event.event_type is DagsterEventType.STEP_SUCCESS:
            succeeded.add(event.step_key)
        elif event.asset_key is not None:
            planned.setdefault(event.asset_key, set()).add(event.step_key)
    if not planned:
        return set(run.asset_selection or ())
    return {key for key, steps in planned.items() if not steps <= succeeded}


def _is_silent(instance: DagsterInstance, run: DagsterRun, since: datetime) -> bool:
    """Whether a run has logged nothing since then. The run of a killed process stays in progress forever."""
    newest = instance.get_records_for_run(run.run_id, limit=1, ascending=False).records
    return bool(newest) and newest[0].timestamp < since.timestamp()
