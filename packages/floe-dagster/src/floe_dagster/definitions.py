"""Dagster definitions on the lake that was compiled."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any

from dagster import Definitions, EnvVar, in_process_executor, mem_io_manager

from floe_core.compiler import SPEC_FILE, is_stale
from floe_core.config import CompiledArtifacts, contract_path, unreadable_contract
from floe_core.errors import ConfigurationError
from floe_core.maintenance import PolicyEnforcer
from floe_core.security import refuse_foreign_project
from floe_dagster.assets.arguments import refuse_unknown
from floe_dagster.assets.partitions import partitioning
from floe_dagster.io_manager import IcebergIOManager
from floe_dagster.maintenance import MAINTENANCE_JOB, create_maintenance, stored_assets
from floe_dagster.resources import LakeResource
from floe_dagster.runs.owners import shared_table

__all__ = ["create_definitions", "create_iceberg_resources"]


def create_definitions(
    assets: Iterable[Any],
    *,
    project: Path | None = None,
    resources: Mapping[str, Any] | None = None,
    enforcer: PolicyEnforcer | None = None,
    **others: Any,
) -> Definitions:
    """Definitions whose assets are tables of the project's lake, with the job `floe_maintenance` to maintain them.

    Args:
        assets: What `Definitions(assets=…)` takes.
        project: The folder of floe.yaml; without it, the current one or the nearest above.
        resources: More resources, or others in place of `io_manager` and `lake`.
        enforcer: Who agrees to how short maintenance keeps history; by default the floor of floe.yaml.
        others: Anything else `Definitions` takes. Without an executor, steps run in one process and share one Spark.
    """
    refuse_unknown("create_definitions", others, inspect.signature(Definitions).parameters)
    artifacts = CompiledArtifacts.load(_find(project), os.environ.get("FLOE_ENV") or None)
    artifacts.protect_secrets()  # what assets log is stored by Dagster, maybe before anything connects
    if is_stale(artifacts):
        warnings.warn(f"{SPEC_FILE} changed after it was compiled; take it in with: floe compile", stacklevel=2)
    listed = list(assets)
    everything = {**create_iceberg_resources(artifacts), **(resources or {})}
    _check_tables(listed, artifacts, everything)
    others.setdefault("executor", in_process_executor)
    _add_maintenance(others, create_maintenance(artifacts, listed, resources=everything, enforcer=enforcer))
    return Definitions(assets=listed, resources=everything, **others)


def create_iceberg_resources(artifacts: CompiledArtifacts) -> dict[str, Any]:
    """`io_manager` and `lake` for Definitions of your own, and `mem_io_manager` for outputs that are no assets."""
    lake = LakeResource(project=str(artifacts.root), environment=artifacts.environment)
    return {"io_manager": IcebergIOManager(lake=lake), "lake": lake, "mem_io_manager": mem_io_manager}


def _find(project: Path | None) -> Path:
    """The nearest folder with a compiled contract, or with a floe.yaml to compile."""
    environment = os.environ.get("FLOE_ENV") or None
    here = (project or Path.cwd()).resolve()
    for folder in (here,) if project else (here, *here.parents):
        if (folder / SPEC_FILE).is_file() or _has_contract(folder, environment):
            refuse_foreign_project(folder, SPEC_FILE)
            return folder
    raise ConfigurationError(f"no {SPEC_FILE} in {here} or above; create a project with: floe init NAME")


def _has_contract(folder: Path, environment: str | None) -> bool:
    path = contract_path(folder, environment)
    try:
        return path.is_file()
    except PermissionError as exc:
        raise unreadable_contract(path) from exc


def _add_maintenance(others: dict[str, Any], maintenance: Definitions) -> None:
    """Beside the user's own jobs and schedules, unless one of these jobs has the name."""
    jobs = list(others.get("jobs") or ())
    if all(one.name != MAINTENANCE_JOB for one in jobs):
        others["jobs"] = [*jobs, *(maintenance.jobs or ())]
        others["schedules"] = [*(others.get("schedules") or ()), *(maintenance.schedules or ())]


def _check_tables(assets: Iterable[Any], artifacts: CompiledArtifacts, resources: Mapping[str, Any]) -> None:
    """Two assets on one table would overwrite each other; an unsaid write mode may surprise."""
    owners: dict[tuple[Hashable, str], str] = {}
    for one in stored_assets(assets, artifacts, resources):
        # Spark does not tell `Orders` from `orders`.
        other = owners.setdefault((_lake_of(one.manager), one.table.full_name.lower()), one.name)
        if other != one.name:
            raise shared_table(one.table, other, one.name)
        if one.spec.partitions_def is not None:
            partitioning(one.spec.partitions_def, one.options.partition_expr, one.name)
        elif one.options.write_mode is None and one.manager.default_write_mode is None:
            warnings.warn(
                f"asset {one.name} says no write_mode, so each materialization appends to '{one.table}'; say "
                f'metadata={{"write_mode": "append"}} or "overwrite"',
                stacklevel=3,
            )


def _lake_of(manager: IcebergIOManager) -> Hashable:
    """What distinguishes lakes that are not opened yet, as the IO manager does: one project and environment is one."""
    lake = manager.lake
    if manager.table_manager is None and isinstance(lake, LakeResource):
        return str(Path(_value(lake.project) or "").resolve()), _value(lake.environment)
    return id(lake if manager.table_manager is None else manager.table_manager)


def _value(said: str | None) -> str | None:
    return said.get_value() if isinstance(said, EnvVar) else said
