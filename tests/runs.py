"""Run Dagster assets in this process, and look at what they left."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dagster import DagsterInstance, Definitions, ExecuteInProcessResult
from pyiceberg.table import Table

from floe_core.config.artifacts import CompiledArtifacts
from floe_core.identifiers import TableIdentifier
from floe_dagster import IcebergIOManager, LakeResource, create_definitions
from floe_iceberg import IcebergTableManager

__all__ = ["QUIET", "files_of", "metadata_of", "rows_of", "run", "run_alone", "span"]

QUIET: dict[str, Any] = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


def run(
    assets: Iterable[Any], project: CompiledArtifacts, instance: DagsterInstance, **arguments: Any
) -> ExecuteInProcessResult:
    """Materialize assets in a project of Floe."""
    return _execute(create_definitions(list(assets), project=project.root), instance, **arguments)


def run_alone(
    assets: Iterable[Any],
    project: CompiledArtifacts,
    instance: DagsterInstance,
    *,
    manager: dict[str, Any],
    **named: Any,
) -> ExecuteInProcessResult:
    """Materialize assets in a project of somebody else, whose one resource is an IO manager with these settings."""
    lake = LakeResource(project=str(project.root))
    alone = Definitions(assets=list(assets), resources={"io_manager": IcebergIOManager(lake=lake, **manager)})
    return _execute(alone, instance, **named)


def _execute(
    definitions: Definitions, instance: DagsterInstance, *, config: dict[str, Any] | None = None, **arguments: Any
) -> ExecuteInProcessResult:
    job = definitions.resolve_implicit_global_asset_job_def()
    return job.execute_in_process(instance=instance, run_config={**QUIET, **(config or {})}, **arguments)


def span(first: str, last: str) -> dict[str, str]:
    """The tags of one run over a range of partitions."""
    return {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}


def metadata_of(result: ExecuteInProcessResult, name: str) -> dict[str, Any]:
    """The metadata of the one materialization of an asset, by the last part of its key."""
    made = [event.materialization for event in result.get_asset_materialization_events()]
    (one,) = [each for each in made if each.asset_key.path[-1] == name]
    return {key: value.value for key, value in one.metadata.items()}


def rows_of(tables: IcebergTableManager, name: str, **options: Any) -> list[dict[str, Any]]:
    """All rows of a table, in some order that is always the same."""
    found: list[dict[str, Any]] = tables.scan(TableIdentifier.from_string(name), **options).to_arrow().to_pylist()
    return sorted(found, key=str)


def files_of(table: Table) -> set[str]:
    """The data files of a table as it is now."""
    return {task.file.file_path for task in table.refresh().scan().plan_files()}
