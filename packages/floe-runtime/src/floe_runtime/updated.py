"""The materializations of main, recorded in the history of a branch of the lake that shows them after an update."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from dagster import AssetKey, AssetMaterialization, AssetRecordsFilter, DagsterInstance

from floe_core.config import MAIN, CompiledArtifacts
from floe_runtime.runs.pipeline import open_history

__all__ = ["record_update"]

# A run of main may have recorded a commit so much later that the update before did not find it.
_LATE = timedelta(hours=1)
_PAGE = 1000


def record_update(artifacts: CompiledArtifacts, branch: str, since: datetime) -> int:
    """Record in the history of a branch what main's has recorded since its last update; returns how many.

    Without it, what main has gained would be missing on the branch, and be computed again. Does nothing if one of the
    histories is on another machine.

    Args:
        artifacts: The project.
        branch: The branch.
        since: What it has read of main until now.
    """
    recorded = 0
    with open_history(artifacts.on_branch(MAIN)) as main, open_history(artifacts.on_branch(branch)) as own:
        if main is None or own is None:
            return 0
        for key in main.all_asset_keys():
            for made, timestamp in reversed(list(_latest(main, key, since - _LATE))):
                if _recorded_at(own, key, made.partition) < timestamp:
                    own.report_runless_asset_event(made)
                    recorded += 1
    return recorded


def _latest(main: DagsterInstance, key: AssetKey, since: datetime) -> Iterator[tuple[AssetMaterialization, float]]:
    """The latest materialization of each partition, the newest first."""
    wanted, cursor, found = AssetRecordsFilter(asset_key=key, after_timestamp=since.timestamp()), None, set()
    while True:
        page = main.fetch_materializations(wanted, limit=_PAGE, cursor=cursor)
        for record in page.records:
            made = record.asset_materialization
            if made is not None and made.partition not in found:
                found.add(made.partition)
                yield made, record.timestamp
        if not page.has_more:
            return
        cursor = page.cursor


def _recorded_at(own: DagsterInstance, key: AssetKey, partition: str | None) -> float:
    partitions = None if partition is None else [partition]
    latest = own.fetch_materializations(AssetRecordsFilter(asset_key=key, asset_partitions=partitions), limit=1).records
    return latest[0].timestamp if latest else 0.0
