"""Definitions, runs and serialized values."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from dagster import DagsterInstance, InputContext, OpExecutionContext, OutputContext

from floe_core.engines import incompatible, private_names, require_members

with private_names("dagster", "assets are stored in their tables, once for each run and partition"):
    from dagster._check import CheckError
    from dagster._core.definitions.assets.graph.asset_graph import AssetGraph
    from dagster._core.definitions.node_definition import NodeDefinition
    from dagster._core.errors import DagsterAssetCheckFailedError
    from dagster._core.execution.build_resources import wrap_resources_for_execution
    from dagster._core.execution.plan.outputs import StepOutputHandle
    from dagster._core.execution.stats import StepEventStatus
    from dagster._core.storage.asset_check_execution_record import (
        AssetCheckExecutionRecord,
        AssetCheckExecutionRecordStatus,
    )
    from dagster._core.storage.dagster_run import IN_PROGRESS_RUN_STATUSES
with private_names("dagster", "what Dagster stores holds no secret"):
    from dagster._serdes import pack_value, unpack_value

__all__ = [
    "IN_PROGRESS_RUN_STATUSES",
    "NO_COMPUTE_LOGS",
    "AssetCheckExecutionRecord",
    "AssetCheckExecutionRecordStatus",
    "AssetGraph",
    "CheckError",
    "DagsterAssetCheckFailedError",
    "NodeDefinition",
    "StepEventStatus",
    "ephemeral_instance",
    "io_manager_of",
    "pack_value",
    "step_context_of",
    "step_of_op",
    "unpack_value",
    "wrap_resources_for_execution",
]

# The module of NoOpComputeLogManager, which dagster.yaml names.
NO_COMPUTE_LOGS = "dagster._core.storage.noop_compute_log_manager"

for _context in (InputContext, OutputContext):
    require_members("dagster", _context, "_step_context", promise="a retry of a run repeats no write")
require_members(
    "dagster", OpExecutionContext, "get_step_execution_context", promise="a retry of a run repeats no write"
)
if importlib.util.find_spec(NO_COMPUTE_LOGS) is None:
    raise incompatible("dagster", f"there is no module {NO_COMPUTE_LOGS}", "what assets print goes to the terminal")


# What is known of assets and partitions: everything of the storage that a run reads, and does not write of itself.
_HISTORY = re.compile(
    r"get_asset_records|get_latest_(materialization|storage|tags|asset_partition|asset_check)\w*|has_asset_key"
    r"|all_asset_keys|get_asset_keys|get_materialized_partitions|get_asset_check_\w+|get_updated_data_version\w*"
    r"|fetch_(materializations|failed_materializations|observations)|\w*dynamic_partition\w*"
)


# Instances that no step uses now, by the real one: creating one takes as long as the rest of a short step.
_IDLE: WeakKeyDictionary[DagsterInstance, list[DagsterInstance]] = WeakKeyDictionary()


@contextmanager
def ephemeral_instance(real: DagsterInstance, *, keep: bool) -> Iterator[DagsterInstance]:
    """An instance that forgets its runs, and knows the assets and the partitions of the real one.

    Args:
        real: The real instance.
        keep: Whether a later step may use it, once its run is deleted. Dagster keeps what checks of that run found.
    """
    try:
        folder: str | None = str(Path(real.storage_directory()).parent)
    except Exception:  # noqa: BLE001 - an instance without a folder
        folder = None
    kept: list[DagsterInstance] = _IDLE.setdefault(real, [])
    instance = kept.pop() if kept else _made(real, folder)
    try:
        yield instance
    except BaseException:
        instance.dispose()
        raise
    if keep:
        kept.append(instance)
    else:
        instance.dispose()


def _made(real: DagsterInstance, folder: str | None) -> DagsterInstance:
    instance = DagsterInstance.ephemeral(tempdir=folder)
    ours, theirs = instance.event_log_storage, real.event_log_storage
    for name in dir(theirs):
        if _HISTORY.fullmatch(name) and callable(getattr(type(theirs), name)):
            setattr(ours, name, getattr(theirs, name))
    return instance


def step_context_of(context: InputContext | OutputContext) -> Any:
    """The current step, or None. The public property raises or warns where there is none."""
    return context._step_context


def step_of_op(context: OpExecutionContext) -> Any:
    """The current step of an op."""
    return context.get_step_execution_context()


def io_manager_of(step: Any, output_name: str) -> Any:
    """The IO manager of an output of the current step."""
    return step.get_io_manager(StepOutputHandle(step.step.key, output_name))
