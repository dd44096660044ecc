"""What happens in a run: steps, tracing, cursors, descriptions and differences."""

from floe_dagster.runs.steps import partition_label

__all__ = ["partition_label"]
