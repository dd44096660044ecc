"""The assets that a step reads, before any of them is loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dagster import AssetKey

__all__ = ["StepInput", "step_inputs"]


@dataclass(frozen=True)
class StepInput:
    """An asset that the step loads, and the IO manager that loads it."""

    key: AssetKey
    manager: Any
    upstream: Mapping[str, Any]  # the metadata of the asset
    own: Mapping[str, Any]  # the metadata of the input


def step_inputs(step: Any) -> Iterator[StepInput]:
    """The assets whose values the step loads; those that only order the steps are not among them."""
    layer, managers = step.job_def.asset_layer, step.scoped_resources_builder.resource_instance_dict
    for one in step.step.step_inputs:
        key = layer.get_asset_key_for_node_input(step.node_handle, one.name)
        definition = step.op_def.input_def_named(one.name)
        if key is None or not layer.has(key) or definition.dagster_type.is_nothing:
            continue
        node = layer.get(key)
        manager = managers.get(definition.input_manager_key or node.io_manager_key)
        yield StepInput(key, manager, node.metadata, definition.metadata or {})
