"""Inside a run: steps, tracing, cursors, table owners and descriptions of materializations."""

from floe_dagster.runs.steps import partition_label

__all__ = ["partition_label"]
