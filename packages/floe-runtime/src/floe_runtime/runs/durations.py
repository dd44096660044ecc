"""How long assets usually take, from the history of runs."""

from __future__ import annotations

from dagster import AssetKey, DagsterInstance

__all__ = ["RANGE_END", "RANGE_START", "usual_seconds"]

# The tags of a run over several partitions.
RANGE_START = "dagster/asset_partition_range_start"
RANGE_END = "dagster/asset_partition_range_end"


def usual_seconds(instance: DagsterInstance, asset: str, *, before: str) -> float | None:
    """How long the latest materialization took; None if there was none, or if it was of several partitions.

    Args:
        instance: The history of runs.
        asset: The asset.
        before: The run that is under way, which does not count.
    """
    latest = instance.get_latest_materialization_event(AssetKey.from_user_string(asset))
    if latest is None or latest.run_id == before or latest.step_key is None:
        return None
    run = instance.get_run_by_id(latest.run_id)
    if run is None or RANGE_START in run.tags:
        return None
    for step in instance.get_run_step_stats(latest.run_id, [latest.step_key]):
        if step.start_time is not None and step.end_time is not None:
            return step.end_time - step.start_time
    return None
