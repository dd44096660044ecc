"""floe plan, and what it has in common with floe run: the options that say what to run, and the plan as text."""

from floe_runtime.cli.plan.command import plan

__all__ = ["plan"]
