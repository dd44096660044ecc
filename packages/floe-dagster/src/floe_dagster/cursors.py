"""`since`: how far an asset has consumed a table.

The truth is in the consumer's own table, whose snapshots say what they were made from: rows and cursor are one commit.
A tag on the table that is consumed keeps the snapshot from expiring, and stands in where that history is gone.
"""

from __future__ import annotations

import hashlib
import re

from dagster import InputContext
from pyiceberg.table.snapshots import ancestors_of
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from floe_core.errors import ConcurrencyConflictError, ConfigurationError
from floe_core.identifiers import TableIdentifier
from floe_core.models import SnapshotInfo
from floe_dagster.assets import table_of
from floe_dagster.options import output_options
from floe_dagster.steps import inputs_of, step_of
from floe_iceberg import IcebergTableManager
from floe_iceberg.snapshots import snapshot_info

__all__ = ["advance", "consumed_until", "cursor_tag"]

_PREFIX = "floe-cursor-"
_ATTEMPTS = 10


def cursor_tag(asset: str) -> str:
    """The tag that holds what an asset has consumed: readable, and no other asset's."""
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", asset)[:80]
    return f"{_PREFIX}{readable}-{hashlib.sha256(asset.encode()).hexdigest()[:8]}"


def consumed_until(
    tables: IcebergTableManager, source: TableIdentifier, context: InputContext, default_namespace: str
) -> int | None:
    """The snapshot of `source` that the asset at work consumed last; None if it must begin with all rows."""
    consumer, written = _consumer(context, default_namespace)
    found = _consumed(tables, source, consumer, written)
    if found is not None:
        _refuse_gap(tables, source, found, consumer)
    return found


def _consumed(
    tables: IcebergTableManager, source: TableIdentifier, consumer: str, written: TableIdentifier
) -> int | None:
    table = tables.find_table(written)
    if table is None:
        return None
    for snapshot in ancestors_of(table.current_snapshot(), table.metadata):
        info = snapshot_info(snapshot)
        found = inputs_of(info.summary).get(str(source))
        if info.summary.get("floe.asset") == consumer and found is not None:
            return found
    ref = tables.load_table(source).metadata.refs.get(cursor_tag(consumer))
    return ref.snapshot_id if ref is not None else None


def _refuse_gap(tables: IcebergTableManager, source: TableIdentifier, since: int, asset: str) -> None:
    """What was appended can be told only by the snapshots that appended it: they must all be there."""
    table = tables.load_table(source)
    if since not in {one.snapshot_id for one in ancestors_of(table.current_snapshot(), table.metadata)}:
        raise ConfigurationError(
            f"what was appended to '{source}' after snapshot {since}, which {asset} consumed last, cannot be told any "
            f"more: snapshots since then have expired, or the table was rolled back. Materialize {asset} once without "
            f"since and with write_mode overwrite, or drop its table to consume all rows anew; then let snapshots live "
            f"longer than the time between two runs"
        )


def advance(tables: IcebergTableManager, sources: list[TableIdentifier], asset: str, written: SnapshotInfo) -> None:
    """Keep the snapshots that the write was made from: the next run begins after them."""
    inputs = inputs_of(written.summary)
    for source in sources:
        if str(source) in inputs:
            for attempt in Retrying(
                retry=retry_if_exception_type(ConcurrencyConflictError),
                stop=stop_after_attempt(_ATTEMPTS),
                wait=wait_random_exponential(multiplier=0.05, max=2),
                reraise=True,
            ):
                with attempt:
                    tables.move_tag(source, cursor_tag(asset), inputs[str(source)])


def _consumer(context: InputContext, default_namespace: str) -> tuple[str, TableIdentifier]:
    """The asset that the step makes, and its table: rows and cursor must come in one commit."""
    step = step_of(context)
    keys = sorted(step.get_output_asset_keys()) if step is not None else []
    if len(keys) != 1 or len(step.step.step_outputs) != 1:
        raise ConfigurationError(
            f"input {context.name!r}: since is for a step that makes one asset, which keeps what was consumed; this "
            f"one makes {len(keys)}"
        )
    node = step.job_def.asset_layer.get(keys[0])
    asset = keys[0].to_user_string()
    if node.partitions_def is not None:
        raise ConfigurationError(
            f"input {context.name!r}: since is for unpartitioned assets, and {asset} is partitioned: it would not be "
            f"certain which partition gets what was appended"
        )
    return asset, table_of(keys[0].path, output_options(node.metadata, asset), default_namespace)
