"""Definitions, runs and serialized values."""

from __future__ import annotations

import importlib.util
from typing import Any

from dagster import InputContext, OutputContext

from floe_core.engines import incompatible, private_names, require_members

with private_names("dagster", "assets are stored in their tables, once for each run and partition"):
    from dagster._check import CheckError
    from dagster._core.definitions.assets.graph.asset_graph import AssetGraph
    from dagster._core.definitions.node_definition import NodeDefinition
    from dagster._core.execution.build_resources import wrap_resources_for_execution
    from dagster._core.execution.plan.outputs import StepOutputHandle
    from dagster._core.execution.stats import StepEventStatus
    from dagster._core.storage.dagster_run import IN_PROGRESS_RUN_STATUSES
with private_names("dagster", "what Dagster stores holds no secret"):
    from dagster._serdes import pack_value, unpack_value

__all__ = [
    "IN_PROGRESS_RUN_STATUSES",
    "NO_COMPUTE_LOGS",
    "AssetGraph",
    "CheckError",
    "NodeDefinition",
    "StepEventStatus",
    "io_manager_of",
    "pack_value",
    "step_context_of",
    "unpack_value",
    "wrap_resources_for_execution",
]

# The module of NoOpComputeLogManager, which dagster.yaml names.
NO_COMPUTE_LOGS = "dagster._core.storage.noop_compute_log_manager"

for _context in (InputContext, OutputContext):
    require_members("dagster", _context, "_step_context", promise="a retry of a run repeats no write")
if importlib.util.find_spec(NO_COMPUTE_LOGS) is None:
    raise incompatible("dagster", f"there is no module {NO_COMPUTE_LOGS}", "what assets print goes to the terminal")


def step_context_of(context: InputContext | OutputContext) -> Any:
    """The current step, or None. The public property raises or warns where there is none."""
    return context._step_context


def io_manager_of(step: Any, output_name: str) -> Any:
    """The IO manager of an output of the current step."""
    return step.get_io_manager(StepOutputHandle(step.step.key, output_name))
