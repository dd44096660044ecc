"""The quarantine of the asset that a step of an atomic run writes, and what is recorded of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from dagster import AssetKey, MetadataValue

from floe_core.config import TableCheck, quarantine_of
from floe_core.identifiers import TableIdentifier
from floe_dagster.runs.steps import partition_label
from floe_dagster.runs.transaction import current_run
from floe_iceberg.quarantine import MovedRows, Quarantine
from floe_iceberg.snapshots import LakeBranch

__all__ = ["MOVING", "moved_metadata", "quarantine_in", "quarantine_of_asset"]

# The metadata of an asset on a branch of the lake: the checks that move its rows.
MOVING = "floe-quarantine"
_TABLE, _ROWS, _SNAPSHOT = "floe/quarantine_table", "floe/rows_quarantined", "floe/quarantine_snapshot_id"


def quarantine_of_asset(
    key: AssetKey,
    table: TableIdentifier,
    partitions: Sequence[str],
    *,
    at_branch: LakeBranch | None,
    metadata: Mapping[str, Any],
    run_id: str,
) -> Quarantine | None:
    """Where the rows of an asset go that break its checks; None if no check moves rows, or nothing is published.

    Args:
        key: The asset.
        table: Its table.
        partitions: The partitions that are written.
        at_branch: The branch of the lake that is written to.
        metadata: The metadata of the asset.
        run_id: The run of Dagster.
    """
    run, label = current_run(), partition_label(partitions)
    if run is not None:
        checks: Sequence[TableCheck] = run.quarantine.get(key, ())
        target = quarantine_of(checks, table)
        return None if target is None else Quarantine(target, checks, run.run_id, label, run.keep)
    if at_branch is None or MOVING not in metadata:
        return None
    checks = tuple(TableCheck.model_validate_json(one) for one in json.loads(metadata[MOVING]))
    target = quarantine_of(checks, table)
    return None if target is None else Quarantine(target, checks, run_id, label)


def moved_metadata(moved: MovedRows) -> dict[str, Any]:
    """What is recorded of the rows that a write has moved."""
    snapshot = {} if moved.snapshot_id is None else {_SNAPSHOT: MetadataValue.text(str(moved.snapshot_id))}
    return {_TABLE: MetadataValue.text(str(moved.table)), _ROWS: MetadataValue.int(moved.rows), **snapshot}


def quarantine_in(metadata: Mapping[str, Any]) -> tuple[TableIdentifier, int] | None:
    """The quarantine table that a write has changed, and the snapshot, by what is recorded of it."""
    if _SNAPSHOT not in metadata:
        return None
    return TableIdentifier.from_string(str(metadata[_TABLE].value)), int(str(metadata[_SNAPSHOT].value))
