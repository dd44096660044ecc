"""floe branches: work aside, review it, publish it."""

from floe_runtime.cli.branches.command import branches

__all__ = ["branches"]
