"""The policy enforcer of a project: the one that its Dagster job of maintenance asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floe_core.artifacts import CompiledArtifacts

if TYPE_CHECKING:
    from floe_core.governance import PolicyEnforcer

__all__ = ["policy_enforcer"]


def policy_enforcer(artifacts: CompiledArtifacts) -> PolicyEnforcer | None:
    """The enforcer that the definitions pass to create_definitions; None without one, or without definitions.

    Definitions that cannot be imported are an error: what they would not allow must not be done.
    """
    module = artifacts.root.joinpath(*artifacts.pipeline.definitions.split("."))
    if not module.with_suffix(".py").is_file() and not module.is_dir():
        return None
    from floe_dagster.maintenance import enforcer_of
    from floe_runtime.pipeline import load_definitions

    return enforcer_of(load_definitions(artifacts))
