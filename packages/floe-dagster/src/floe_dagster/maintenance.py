"""Maintenance as a Dagster job: what is done to the table of an asset is an observation of that asset."""

# No postponed annotations here: Dagster looks at those of the op while it is made.
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
    "stored_assets",
]

MAINTENANCE_JOB = "floe_maintenance"
_SCHEDULE = "floe_maintenance_schedule"
_OP = "floe_maintain"
# Who agrees to the retention of a job, by its op: Dagster builds the job again when definitions are merged.
_ENFORCERS: WeakKeyDictionary[NodeDefinition, PolicyEnforcer] = WeakKeyDictionary()
# For so long, what other runs do is taken as it was.
_FRESH_SECONDS = 2.0
# Characters of a reason.
_LONGEST = 1000
_LISTED = 100  # files that were not removed, in the metadata of an asset


class MaintenanceOptions(KnownArguments, Config):
    """What one run of the job is about. ops: {floe_maintain: {config: {namespaces: [bronze]}}}"""

    tables: list[str] = Field(default=[], description="such as bronze.orders; with no namespaces either: all tables")
    namespaces: list[str] = Field(default=[], description="the tables in these, and below")
    only: list[str] = Field(default=[], description=f"of {', '.join(step.value for step in Step)}; all by default")


@dataclass(frozen=True)
class StoredAsset:
    """An asset that an IcebergIOManager keeps, and where."""

    spec: AssetSpec
    manager: IcebergIOManager
    options: OutputOptions
    table: TableIdentifier

    @property
    def name(self) -> str:
        return str(self.spec.key.to_user_string())


def stored_assets(
    assets: Iterable[Any], artifacts: CompiledArtifacts, resources: Mapping[str, Any]
) -> Iterator[StoredAsset]:
    """The assets that are kept in tables."""
    for definition in assets:
        if not isinstance(definition, AssetsDefinition) or not definition.is_executable:
            continue
        for spec in definition.specs:
            manager = resources.get(definition.get_io_manager_key_for_asset_key(spec.key))
            if not isinstance(manager, IcebergIOManager) or not is_stored(definition, spec.key):
                continue
            options = output_options(spec.metadata, spec.key.to_user_string())
            said = manager.default_namespace
            said = said.get_value() if isinstance(said, EnvVar) else said
            ignored, tables = manager.ignore_key_prefix, artifacts.tables
            naming = Naming(said or tables.default_namespace, tables.ignore_key_prefix if ignored is None else ignored)
            yield StoredAsset(spec, manager, options, table_of(spec.key.path, options, naming))


def create_maintenance(
    artifacts: CompiledArtifacts,
    assets: Iterable[Any],
    *,
    resources: Mapping[str, Any],
    enforcer: PolicyEnforcer | None = None,
) -> Definitions:
    """The job `floe_maintenance`, and its schedule if floe.yaml has one, to merge with Definitions of your own.

    Args:
        assets: Those that are observed; what is done to the other tables of the catalog stands in the log of the run.
        resources: Those of the Definitions. The job needs one of them, `lake`.
        enforcer: Who agrees to how short history is kept; by default the floor of floe.yaml.
    """
    own = [one for one in stored_assets(assets, artifacts, resources) if _is_in(one.manager, resources.get("lake"))]
    made = _job({one.spec.key: one.table for one in own}, enforcer)
    cron = artifacts.maintenance.schedule
    return Definitions(jobs=[made], schedules=[] if cron is None else [_schedule(made, cron)])


def _is_in(manager: IcebergIOManager, lake: Any) -> bool:
    """Is it this lake that the manager keeps its assets in? Only another project is known not to be."""
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
    # Without an output, and so without an IO manager; Dagster takes an annotation with None for one.
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
    """Who the maintenance job of these definitions asks; None where it has the floor of floe.yaml, or none."""
    for one in definitions.jobs or ():
        if isinstance(one, JobDefinition) and one.name == MAINTENANCE_JOB:
            return next((_ENFORCERS[node] for node in one.graph.node_defs if node in _ENFORCERS), None)
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
        self._looked_at = float("-inf")
        # Data files before and after compaction.
        self._files: dict[TableIdentifier, tuple[int, int]] = {}

    def maintain(self, config: MaintenanceOptions) -> Iterator[AssetObservation]:
        """Each observation when its table is done: what is logged otherwise is lost if the op fails in the end."""
        steps = [choice(Step, one, "only") for one in config.only] or list(Step)
        names = [TableIdentifier.from_string(one) for one in config.tables]
        namespaces = [Namespace.from_string(one) for one in config.namespaces]
        identifiers = self._maintenance.tables(names, namespaces)
        failed: list[TableOutcome] = []
        for outcome in self._maintenance.run(identifiers, steps):
            key = self._assets.get(outcome.table)
            self._log(outcome, key)
            if key is not None:
                yield AssetObservation(asset_key=key, metadata=self._described(outcome))
            if outcome.outcome is Outcome.FAILED or outcome.refused:
                failed.append(outcome)
        if failed:
            told = "\n".join(f"{one.table}: {_reason(one)}" for one in failed)
            raise Failure(f"{len(failed)} of {len(identifiers)} tables could not be maintained:\n{told}")

    # Tables that are written right now ------------------------------------------------------------------------------

    def _busy(self, identifier: TableIdentifier, table: Table) -> str | None:
        """Who writes to the table right now, in a sentence."""
        longest = self._lake.artifacts.maintenance.longest_job
        since = datetime.now(timezone.utc) - longest
        staged = [one for one in staged_since(table) if one > since]
        if staged:
            return f"a write that began at {staged[0].isoformat(timespec='seconds')} is staged on a branch"
        instance = self._context.instance
        for run, unwritten in self._others():
            for key in sorted(unwritten):
                if self._table_of(key) != identifier:
                    continue
                told = f"run {run.run_id[:8]} is materializing {key.to_user_string()}"
                if not _is_silent(instance, run, since):
                    return told
                self._context.log.warning(
                    f"{told} as far as Dagster knows, and has logged nothing for {duration_text(longest)} "
                    f"(maintenance.longest_job): it is taken for dead"
                )
        return None

    def _others(self) -> list[tuple[DagsterRun, set[AssetKey]]]:
        """The other runs in progress and what they have still to write; looked up anew after a few seconds."""
        if time.monotonic() > self._looked_at + _FRESH_SECONDS:
            instance = self._context.instance
            runs = instance.get_runs(filters=RunsFilter(statuses=list(IN_PROGRESS_RUN_STATUSES)))
            self._in_progress = [(run, _unwritten(instance, run)) for run in runs if run.run_id != self._context.run_id]
            self._looked_at = time.monotonic()
        return self._in_progress

    def _table_of(self, key: AssetKey) -> TableIdentifier | None:
        """The table of an asset; of one that is not of these definitions, the one that its key says."""
        if key in self._tables:
            return self._tables[key]
        with suppress(ConfigurationError):
            return Naming(self._lake.default_namespace, self._lake.ignore_key_prefix).table(key.path)
        return None

    # What is told ---------------------------------------------------------------------------------------------------

    def _watch(self, progress: Progress) -> None:
        told = f"{progress.table}: {progress.step.step.value}"
        if progress.report is None:
            self._context.log.info(f"{told} begins: {progress.step.reason}")
            return
        self._context.log.info(f"{told} done: {progress.report.told()}")
        if isinstance(progress.report, CompactReport):
            with suppress(FloeError):  # it is compacted; the numbers are all that is missing
                self._count(progress.table, progress.report)

    def _count(self, identifier: TableIdentifier, report: CompactReport) -> None:
        """Now, because a later step may expire the snapshot."""
        made = self._lake.tables.load_table(identifier).snapshot_by_id(report.snapshot_id or -1)
        if made is not None and made.summary is not None:
            after = int(made.summary.additional_properties.get("total-data-files", 0))
            self._files[identifier] = (after - report.files_added + report.files_rewritten, after)

    def _log(self, outcome: TableOutcome, key: AssetKey | None) -> None:
        told = f"{outcome.table}{'' if key is not None else ' (no asset here)'}: {outcome.outcome.value}"
        if outcome.outcome is Outcome.FAILED or outcome.refused:
            self._context.log.error(f"{told}: {outcome.reason or _reason(outcome)}")
            return
        reason = f": {_reason(outcome)}" if _reason(outcome) else ""
        freed = f"{outcome.files_removed} files and {outcome.bytes_freed} bytes freed"
        kept = f"; {len(outcome.not_removed)} files not removed" if outcome.not_removed else ""
        self._context.log.info(f"{told}{reason}; {freed}{kept}")

    def _described(self, outcome: TableOutcome) -> dict[str, Any]:
        expired = sum(len(one.snapshots) for one in outcome.reports if isinstance(one, ExpireReport))
        described: dict[str, Any] = {
            "dagster/table_name": str(outcome.table),
            "floe/maintenance": outcome.outcome.value,
            "floe/maintenance_steps": MetadataValue.json({one.step.value: one.told() for one in outcome.reports}),
            "floe/files_removed": outcome.files_removed,
            "floe/bytes_freed": outcome.bytes_freed,
            "floe/snapshots_expired": expired,
        }
        if outcome.table in self._files:
            described["floe/files_before"], described["floe/files_after"] = self._files[outcome.table]
        if outcome.not_removed:
            listed = [one.model_dump() for one in outcome.not_removed[:_LISTED]]
            described["floe/files_not_removed"] = len(outcome.not_removed)
            described["floe/not_removed"] = MetadataValue.json(listed)
        if _reason(outcome):
            described["floe/maintenance_reason"] = _reason(outcome)
        return described


def _brief(reason: str) -> str:
    """Without the stack that the errors of Java have in their text."""
    text = re.split(r"\n\s+at ", reason, maxsplit=1)[0]
    return " ".join(text.split())[:_LONGEST]


def _reason(outcome: TableOutcome) -> str:
    """Why nothing was done, or not everything."""
    skipped: dict[str, list[str]] = {}
    for step, why in outcome.skipped:
        skipped.setdefault(why, []).append(step.value)
    told = [f"{', '.join(steps)}: {why}" for why, steps in skipped.items()]
    return "; ".join([_brief(outcome.reason), *told] if outcome.reason else told)


def _unwritten(instance: DagsterInstance, run: DagsterRun) -> set[AssetKey]:
    """The assets that a run in progress has still to write: those it planned, but for those whose step succeeded."""
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
    """Did a run log nothing since then? The run of a process that was killed is in progress for ever."""
    newest = instance.get_records_for_run(run.run_id, limit=1, ascending=False).records
    return bool(newest) and newest[0].timestamp < since.timestamp()
