"""Inside a run: steps, tracing, cursors, table owners and descriptions of materializations."""

from floe_dagster.runs.lake_branch import BRANCH_TAG, keep_history_of
from floe_dagster.runs.steps import labelled, partition_label

__all__ = ["BRANCH_TAG", "keep_history_of", "labelled", "partition_label"]
