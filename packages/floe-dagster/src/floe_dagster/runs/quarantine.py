"""The quarantine of the asset that a step of an atomic run writes, and what is recorded of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dagster import AssetKey, MetadataValue

from floe_core.config import quarantine_of
from floe_core.identifiers import TableIdentifier
from floe_dagster.runs.steps import partition_label
from floe_dagster.runs.transaction import current_run
from floe_iceberg.quarantine import MovedRows, Quarantine

__all__ = ["moved_metadata", "quarantine_in", "quarantine_of_asset"]

_TABLE, _ROWS, _SNAPSHOT = "floe/quarantine_table", "floe/rows_quarantined", "floe/quarantine_snapshot_id"


def quarantine_of_asset(key: AssetKey, table: TableIdentifier, partitions: Sequence[str]) -> Quarantine | None:
    """Where the rows of an asset go that break its checks; None outside of an atomic run, or if no check moves rows.

    Args:
        key: The asset.
        table: Its table.
        partitions: The partitions that are written.
    """
    run = current_run()
    checks = run.quarantine.get(key, ()) if run is not None else ()
    target = quarantine_of(checks, table)
    if run is None or target is None:
        return None
    return Quarantine(target, checks, run.run_id, partition_label(partitions), run.keep)


def moved_metadata(moved: MovedRows) -> dict[str, Any]:
    """What is recorded of the rows that a write has moved."""
    snapshot = {} if moved.snapshot_id is None else {_SNAPSHOT: MetadataValue.text(str(moved.snapshot_id))}
    return {_TABLE: MetadataValue.text(str(moved.table)), _ROWS: MetadataValue.int(moved.rows), **snapshot}


def quarantine_in(metadata: Mapping[str, Any]) -> tuple[TableIdentifier, int] | None:
    """The quarantine table that a write has changed, and the snapshot, by what is recorded of it."""
    if _SNAPSHOT not in metadata:
        return None
    return TableIdentifier.from_string(str(metadata[_TABLE].value)), int(str(metadata[_SNAPSHOT].value))
