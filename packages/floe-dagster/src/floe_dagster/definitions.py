"""Dagster definitions on the lake that was compiled."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dagster import AssetKey, AssetsDefinition, Definitions, in_process_executor, mem_io_manager

from floe_core.artifacts import CompiledArtifacts, contract_path
from floe_core.compiler import SPEC_FILE, is_stale
from floe_core.errors import ConfigurationError
from floe_dagster.assets import table_of
from floe_dagster.io_manager import IcebergIOManager
from floe_dagster.options import output_options
from floe_dagster.partitions import partitioning
from floe_dagster.resources import LakeResource

__all__ = ["create_definitions", "create_iceberg_resources"]


def create_definitions(
    assets: Iterable[Any],
    *,
    project: Path | None = None,
    resources: Mapping[str, Any] | None = None,
    **others: Any,
) -> Definitions:
    """Definitions whose assets are tables of the project's lake.

    Args:
        assets: What `Definitions(assets=…)` takes.
        project: The folder of floe.yaml; without it, the current one or the nearest above.
        resources: More resources, or others in place of `io_manager` and `lake`.
        others: Anything else `Definitions` takes. Without an executor, steps run in one process and share one Spark.
    """
    artifacts = CompiledArtifacts.load(_find(project), os.environ.get("FLOE_ENV") or None)
    if is_stale(artifacts):
        warnings.warn(f"{SPEC_FILE} changed after it was compiled; take it in with: floe compile", stacklevel=2)
    listed = list(assets)
    everything = {**create_iceberg_resources(artifacts), **(resources or {})}
    _check_tables(listed, artifacts, everything)
    others.setdefault("executor", in_process_executor)
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
        if contract_path(folder, environment).is_file() or (folder / SPEC_FILE).is_file():
            return folder
    raise ConfigurationError(f"no {SPEC_FILE} in {here} or above; create a project with: floe init NAME")


def _check_tables(assets: Iterable[Any], artifacts: CompiledArtifacts, resources: Mapping[str, Any]) -> None:
    """Two assets on one table would overwrite each other; an unsaid write mode may surprise."""
    owners: dict[str, str] = {}
    for definition in assets:
        if not isinstance(definition, AssetsDefinition) or not definition.is_executable:
            continue
        for spec in definition.specs:
            manager = resources.get(definition.get_io_manager_key_for_asset_key(spec.key))
            if not isinstance(manager, IcebergIOManager) or not _stores(definition, spec.key):
                continue
            name = spec.key.to_user_string()
            options = output_options(spec.metadata, name)
            namespace = manager.default_namespace or artifacts.tables.default_namespace
            table = table_of(spec.key.path, options, namespace)
            # Spark does not tell `Orders` from `orders`.
            other = owners.setdefault(table.full_name.lower(), name)
            if other != name:
                raise ConfigurationError(
                    f"assets {other} and {name} would both be stored in table '{table}'; rename one of them, or give "
                    f"it another table with metadata floe/table"
                )
            if spec.partitions_def is not None:
                partitioning(spec.partitions_def, options.partition_expr, name)
            elif options.write_mode is None and manager.default_write_mode is None:
                warnings.warn(
                    f"asset {name} says no write_mode, so each materialization appends to '{table}'; say "
                    f'metadata={{"write_mode": "append"}} or "overwrite"',
                    stacklevel=4,
                )


def _stores(definition: AssetsDefinition, key: AssetKey) -> bool:
    """Does the asset return anything? One that is annotated with None does what it does by itself."""
    output = definition.get_output_name_for_asset_key(key)
    return not definition.node_def.output_def_named(output).dagster_type.is_nothing
