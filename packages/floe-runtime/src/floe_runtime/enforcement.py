"""The policy enforcer of a project: that of its Dagster maintenance job."""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING

from floe_core.config import CompiledArtifacts

if TYPE_CHECKING:
    from floe_core.maintenance import PolicyEnforcer

__all__ = ["policy_enforcer"]


def policy_enforcer(artifacts: CompiledArtifacts) -> PolicyEnforcer | None:
    """The enforcer that the definitions pass to create_definitions; None without one, or without definitions.

    Definitions that cannot be imported are an error: their enforcer might refuse the maintenance.
    """
    # In the project's folder or installed, as for `floe run`; Dagster is imported only if the module exists.
    top = artifacts.pipeline.definitions.partition(".")[0]
    if PathFinder.find_spec(top, [str(artifacts.root), *sys.path]) is None:
        return None
    from floe_dagster.maintenance import enforcer_of
    from floe_runtime.runs.pipeline import load_definitions

    return enforcer_of(load_definitions(artifacts))
