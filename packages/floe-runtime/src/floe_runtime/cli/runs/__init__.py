"""floe runs and floe undo: past runs, what they wrote, and taking it back."""

from floe_runtime.cli.runs.command import runs

__all__ = ["runs"]
