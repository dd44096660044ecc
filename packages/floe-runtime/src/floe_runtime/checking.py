"""Run the checks of a project without writing: those of assets in a run of Dagster, those of other tables directly."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from dagster import AssetCheckKey, AssetKey, DagsterError, DagsterEventType, partition_loading_context

from floe_core.errors import ConfigurationError
from floe_core.formatting import counted, markdown_table
from floe_core.identifiers import TableIdentifier
from floe_core.notebooks import Listing
from floe_core.security import redact
from floe_iceberg import Lake
from floe_iceberg.checks import CheckOutcome
from floe_runtime.runs.failures import sentence
from floe_runtime.runs.pipeline import Pipeline
from floe_runtime.runs.processes import PROCESS_TAG, this_process

__all__ = ["CheckReport", "Checked", "check_project"]

_PARTITION = "dagster/partition"


@dataclass(frozen=True)
class Checked:
    """The result of one check.

    Attributes:
        check: The name of the check.
        table: The table; None for a check of an asset that Floe does not store.
        asset: The asset; None for a table without one.
        passed: Whether it passed.
        severity: `warn` if a failure is only reported, otherwise `error`.
        message: What was found.
        rows: The rows that were checked, if they were counted.
        failing: The rows that break the rule, if it is about rows.
        snapshot_id: The snapshot that was checked.
        examples: Some of the failing rows, as a Markdown table; empty if there are none.
    """

    check: str
    table: str | None
    asset: str | None
    passed: bool
    severity: str
    message: str
    rows: int | None = None
    failing: int | None = None
    snapshot_id: int | None = None
    examples: str = ""

    @property
    def stops(self) -> bool:
        """Whether the failure counts as one."""
        return not self.passed and self.severity == "error"


@dataclass(frozen=True)
class CheckReport:
    """What the checks found; `run_id` is the run in Dagster's history, None if no asset was checked."""

    checks: tuple[Checked, ...]
    run_id: str | None = None

    @property
    def failed(self) -> tuple[Checked, ...]:
        """The checks that failed, without warnings."""
        return tuple(check for check in self.checks if check.stops)

    def _repr_html_(self) -> str:
        return Listing(self.checks)._repr_html_()


def check_project(pipeline: Pipeline, selection: Sequence[str] = (), *, partition: str | None = None) -> CheckReport:
    """Run the checks of assets, and those that floe.yaml declares of other tables.

    Args:
        pipeline: The project.
        selection: Assets, as floe run takes them, or tables. By default all.
        partition: The partition to check, of assets that are partitioned. By default their whole tables.
    """
    alone = _tables_alone(pipeline)
    tables = [name for name in selection if name in alone] if selection else list(alone)
    names = [name for name in selection if name not in alone]
    _refuse_unknown_tables(names, alone)
    assets = pipeline.assets(names) if names or not selection else []
    keys = sorted(key for key in pipeline.graph.asset_check_keys if key.asset_key in set(assets))
    if not keys and not tables:
        raise ConfigurationError(
            "nothing to check: declare checks in floe.yaml (checks: {TABLE: [...]}), or with floe_dagster.checks"
            if not selection
            else f"{', '.join(selection)}: no checks are declared"
        )
    if partition is not None:
        _refuse_unknown_partition(pipeline, [key.asset_key for key in keys], partition)
    run_id, found = _of_assets(pipeline, keys, partition) if keys else (None, [])
    lake = Lake(pipeline.artifacts)
    return CheckReport((*found, *(one for table in tables for one in _of_table(lake, table))), run_id)


def _refuse_unknown_partition(pipeline: Pipeline, assets: Sequence[AssetKey], partition: str) -> None:
    """Refuse a partition that none of the assets has: their whole tables would be checked."""
    definitions = [pipeline.graph.get(key).partitions_def for key in assets]
    with partition_loading_context(dynamic_partitions_store=pipeline.instance):
        if not any(definition is not None and definition.has_partition_key(partition) for definition in definitions):
            raise ConfigurationError(f"none of these assets has a partition {partition!r}; see: floe plan")


def _refuse_unknown_tables(names: Sequence[str], tables: Sequence[str]) -> None:
    """Refuse names of tables for which floe.yaml declares no checks; names of assets have no dots."""
    for name in names:
        if "." in name and not set(name) & set("*+:/"):
            near = get_close_matches(name, tables, n=1)
            hint = f"did you mean {near[0]}?" if near else f"assets are named like {name.replace('.', '/')}"
            raise ConfigurationError(f"floe.yaml declares no checks of a table {name!r} that no asset writes; {hint}")


def _tables_alone(pipeline: Pipeline) -> list[str]:
    """The tables with checks in floe.yaml that no asset of the project has as a check of its own."""
    from floe_dagster.maintenance import may_store_in, stored_assets

    resources = pipeline.definitions.resources or {}
    stored = stored_assets(pipeline.graph.assets_defs, pipeline.artifacts, resources)
    here = (asset for asset in stored if may_store_in(asset.manager, resources.get("lake")))
    taken = {asset.table.full_name.lower() for asset in here}
    return [table for table in pipeline.artifacts.checks if table.lower() not in taken]


def _of_assets(pipeline: Pipeline, keys: Sequence[AssetCheckKey], partition: str | None) -> tuple[str, list[Checked]]:
    run_id, tags = str(uuid.uuid4()), {PROCESS_TAG: this_process()}
    if partition is not None:
        tags[_PARTITION] = partition
    job = pipeline.job.get_subset(asset_selection=frozenset(), asset_check_selection=set(keys))
    try:
        result = job.execute_in_process(
            run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
            instance=pipeline.instance,
            raise_on_error=False,
            run_id=run_id,
            tags=tags,
        )
    except DagsterError as exc:
        raise ConfigurationError(f"Dagster refused the checks: {' '.join(str(exc).split())}") from exc
    found = {(one.asset or "", one.check): one for event in result.all_events for one in _evaluated(event)}
    errors = [
        sentence(event.step_failure_data.error)
        for event in result.all_events
        if event.event_type is DagsterEventType.STEP_FAILURE
    ]
    for key in keys:
        name = key.asset_key.to_user_string()
        if (name, key.name) not in found:
            message = f"could not be run: {redact('; '.join(errors) or 'it reported no result')}"
            found[name, key.name] = Checked(key.name, None, name, passed=False, severity="error", message=message)
    return run_id, [found[one] for one in sorted(found)]


def _evaluated(event: Any) -> Iterator[Checked]:
    if event.event_type is not DagsterEventType.ASSET_CHECK_EVALUATION:
        return
    check = event.asset_check_evaluation_data
    metadata = {name: value.value for name, value in check.metadata.items()}
    snapshot = metadata.get("floe/snapshot_id")
    yield Checked(
        check=check.check_name,
        table=metadata.get("floe/table"),
        asset=AssetKey(check.asset_key.path).to_user_string(),
        passed=check.passed,
        severity=check.severity.value.lower(),
        message=redact(check.description or ("passed" if check.passed else "no reason given")),
        rows=metadata.get("floe/rows_checked"),
        failing=metadata.get("floe/rows_failing"),
        snapshot_id=int(snapshot) if snapshot is not None else None,
        examples=metadata.get("floe/examples", ""),
    )


def _of_table(lake: Lake, table: str) -> Iterator[Checked]:
    for outcome in _outcomes(lake, table):
        examples = outcome.examples
        yield Checked(
            check=outcome.name,
            table=table,
            asset=None,
            passed=outcome.passed,
            severity=outcome.severity,
            message=redact(outcome.message),
            rows=outcome.rows,
            failing=outcome.failing,
            snapshot_id=outcome.snapshot_id,
            examples=markdown_table(examples, list(examples[0])) if examples else "",
        )


def _outcomes(lake: Lake, table: str) -> list[CheckOutcome]:
    return lake.check(TableIdentifier.from_string(table), lake.artifacts.checks[table])


def summary(report: CheckReport) -> str:
    """How many checks passed and failed."""
    warned = sum(not check.passed and not check.stops for check in report.checks)
    passed = sum(check.passed for check in report.checks)
    parts = [f"{counted(passed, 'check')} passed", f"{len(report.failed)} failed"]
    return ", ".join([*parts, f"{warned} with a warning"] if warned else parts)
