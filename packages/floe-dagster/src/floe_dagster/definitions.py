"""Dagster definitions on the compiled lake."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any

from dagster import AssetKey, AssetsDefinition, Definitions, EnvVar, in_process_executor, mem_io_manager
from pyiceberg.table.refs import MAIN_BRANCH

from floe_core.compiler import SPEC_FILE, is_stale
from floe_core.config import CompiledArtifacts, contract_path, unreadable_contract
from floe_core.errors import ConfigurationError
from floe_core.maintenance import PolicyEnforcer
from floe_core.security import refuse_foreign_project
from floe_dagster.assets.arguments import refuse_unknown
from floe_dagster.assets.options import mistyped_options
from floe_dagster.assets.partitions import partitioning
from floe_dagster.atomic.groups import AtomicGroup
from floe_dagster.atomic.project import groups_of, with_groups
from floe_dagster.atomic.quarantine import carrying, moving_checks, refuse_tables_of_assets
from floe_dagster.checks.project import checks_in_floe_yaml
from floe_dagster.io_manager import IcebergIOManager
from floe_dagster.maintenance import MAINTENANCE_JOB, create_maintenance, may_store_in, stored_assets
from floe_dagster.resources import LakeResource
from floe_dagster.runs.owners import shared_table

__all__ = ["create_definitions", "create_iceberg_resources"]


def create_definitions(
    assets: Iterable[Any],
    *,
    project: Path | None = None,
    resources: Mapping[str, Any] | None = None,
    atomic: Iterable[AtomicGroup | AssetsDefinition] = (),
    enforcer: PolicyEnforcer | None = None,
    **others: Any,
) -> Definitions:
    """Create Definitions whose assets are stored in the lake of a project, with the job `floe_maintenance`.

    The project must be compiled, with `floe compile`.

    Args:
        assets: The assets, as `Definitions` takes them.
        project: The folder that holds floe.yaml. By default the current one, or the nearest parent that holds one.
        resources: Additional resources, or replacements of `io_manager` and `lake`.
        atomic: Groups of assets whose tables are published in one commit when all of a group have succeeded. Assets
            that are given instead of a group are one group, `atomic_run`. By default as `pipeline.publish` in
            floe.yaml says. On a branch of the lake there are no groups: it is published as a whole.
        enforcer: Validates the retention of each table. By default the floor in floe.yaml.
        others: Other arguments of `Definitions`. By default the executor runs all steps in one process, with one Spark.

    Example:
        >>> from pathlib import Path
        >>> from dagster import asset
        >>> from floe_core import compile_project
        >>> from floe_dagster import create_definitions
        >>> _ = Path("floe.yaml").write_text("name: shop")
        >>> _ = compile_project(Path()).artifacts.write()
        >>> @asset(key_prefix="bronze", metadata={"write_mode": "overwrite"})
        ... def orders() -> pa.Table:
        ...     return pa.table({"id": [1, 2, 3]})
        >>> definitions = create_definitions([orders])
        >>> definitions.resolve_implicit_global_asset_job_def().execute_in_process().success
        True
    """
    refuse_unknown("create_definitions", others, inspect.signature(Definitions).parameters)
    artifacts = CompiledArtifacts.load(_find(project), os.environ.get("FLOE_ENV") or None)
    artifacts.protect_secrets()  # Dagster stores what assets log, possibly before any connection is made
    if is_stale(artifacts):
        warnings.warn(f"{SPEC_FILE} changed after it was compiled; take it in with: floe compile", stacklevel=2)
    listed = list(assets)
    everything = {**create_iceberg_resources(artifacts), **(resources or {})}
    _check_tables(listed, artifacts, everything)
    others.setdefault("executor", in_process_executor)
    _add_maintenance(others, create_maintenance(artifacts, listed, resources=everything, enforcer=enforcer))
    here = [
        one for one in stored_assets(listed, artifacts, everything) if may_store_in(one.manager, everything.get("lake"))
    ]
    declared = checks_in_floe_yaml(artifacts, listed, here, others)
    if declared:
        others["asset_checks"] = [*(others.get("asset_checks") or ()), *declared]
    stored = list(stored_assets(listed, artifacts, everything))
    checking = [*listed, *(others.get("asset_checks") or ())]
    moving = moving_checks(spec for one in checking if isinstance(one, AssetsDefinition) for spec in one.check_specs)
    refuse_tables_of_assets(moving, {one.spec.key: one.table for one in here})
    groups = (
        []
        if artifacts.lake_branch is not None
        else groups_of(
            atomic,
            {one.spec.key: one.options.branch or one.manager.branch or MAIN_BRANCH for one in stored},
            publish=artifacts.pipeline.publish,
            audited=[*_audited(listed), *(key for key in moving if key not in _audited(listed))],
            checks=checking,
        )
    )
    if artifacts.lake_branch is not None:
        listed = carrying(listed, moving)
    if groups:
        checks = list(others.pop("asset_checks", None) or ())
        listed, others["asset_checks"] = with_groups(groups, listed, checks, everything)
    return Definitions(assets=listed, resources=everything, **others)


def create_iceberg_resources(artifacts: CompiledArtifacts) -> dict[str, Any]:
    """Create the resources `io_manager` and `lake`, and `mem_io_manager` for outputs that are not assets.

    Args:
        artifacts: The compiled project. It must be written, with `floe compile` or `artifacts.write()`.

    Example:
        >>> from pathlib import Path
        >>> from dagster import asset, materialize
        >>> from floe_core import compile_project
        >>> from floe_dagster import create_iceberg_resources
        >>> _ = Path("floe.yaml").write_text("name: shop")
        >>> artifacts = compile_project(Path()).artifacts
        >>> _ = artifacts.write()
        >>> @asset(key_prefix="bronze", metadata={"write_mode": "overwrite"})
        ... def orders() -> pa.Table:
        ...     return pa.table({"id": [1, 2, 3]})
        >>> materialize([orders], resources=create_iceberg_resources(artifacts)).success
        True
    """
    lake = LakeResource(project=str(artifacts.root), environment=artifacts.environment, branch=artifacts.lake_branch)
    return {"io_manager": IcebergIOManager(lake=lake), "lake": lake, "mem_io_manager": mem_io_manager}


def _audited(assets: Iterable[Any]) -> list[AssetKey]:
    """The assets with the option `floe/audit`."""
    return [
        spec.key
        for definition in assets
        if isinstance(definition, AssetsDefinition) and definition.is_executable
        for spec in definition.specs
        if spec.metadata.get("floe/audit")
    ]


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
    """Add the maintenance job and its schedule, unless the user has a job of that name."""
    jobs = list(others.get("jobs") or ())
    if all(job.name != MAINTENANCE_JOB for job in jobs):
        others["jobs"] = [*jobs, *(maintenance.jobs or ())]
        others["schedules"] = [*(others.get("schedules") or ()), *(maintenance.schedules or ())]


def _check_tables(assets: Iterable[Any], artifacts: CompiledArtifacts, resources: Mapping[str, Any]) -> None:
    """Refuse two assets on one table, which would overwrite each other; warn where the write mode is implicit."""
    owners: dict[tuple[Hashable, str], str] = {}
    for stored in stored_assets(assets, artifacts, resources):
        # Spark does not distinguish `Orders` from `orders`.
        other = owners.setdefault((_lake_of(stored.manager), stored.table.full_name.lower()), stored.name)
        if other != stored.name:
            raise shared_table(stored.table, other, stored.name)
        for key, option in mistyped_options(stored.spec.metadata).items():
            warnings.warn(
                f"asset {stored.name} has the metadata {key!r}, which Floe does not read; did you mean {option!r}?",
                stacklevel=3,
            )
        if stored.spec.partitions_def is not None:
            partitioning(stored.spec.partitions_def, stored.options.partition_expr, stored.name)
        elif stored.options.write_mode is None and stored.manager.default_write_mode is None:
            warnings.warn(
                f"asset {stored.name} sets no write_mode, so each materialization appends to '{stored.table}'; set "
                f'metadata={{"write_mode": "append"}} or "overwrite"',
                stacklevel=3,
            )


def _lake_of(manager: IcebergIOManager) -> Hashable:
    """The identity of a lake that is not open yet: its project and environment, or the object itself."""
    lake = manager.lake
    if manager.table_manager is None and isinstance(lake, LakeResource):
        return str(Path(_value(lake.project) or "").resolve()), _value(lake.environment)
    return id(lake if manager.table_manager is None else manager.table_manager)


def _value(setting: str | None) -> str | None:
    return setting.get_value() if isinstance(setting, EnvVar) else setting
