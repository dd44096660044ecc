"""`since`: how far an asset has consumed a table.

The cursor is stored in the consumer's own table, whose snapshots name their inputs: rows and cursor are one commit.
A tag on the source table keeps the consumed snapshot from expiring, and is the fallback if that history has expired.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Snapshot
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from floe_core.errors import ConcurrencyConflictError, ConfigurationError, TableNotFoundError
from floe_core.identifiers import TableIdentifier
from floe_core.models import SnapshotInfo
from floe_iceberg import IcebergTableManager
from floe_iceberg.snapshots import CURSOR_PREFIX, ancestors_of, inputs_of, summary_of, undone_in

__all__ = ["Consumer", "advance", "consumed_until", "cursor_tag", "refuse_concurrent_consumer"]

_ATTEMPTS = 10
_HOW_TO_RESTART = (
    "Materialize {asset} once without since and with write_mode overwrite, or drop its table to consume all rows again"
)


@dataclass(frozen=True)
class Consumer:
    """The asset that reads incrementally, and the table and branch it is stored in."""

    asset: str
    table: TableIdentifier
    branch: str


def cursor_tag(asset: str) -> str:
    """The tag that marks what an asset has consumed: readable, and unique by the hash of its key."""
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", asset)[:80]
    return f"{CURSOR_PREFIX}{readable}-{hashlib.sha256(asset.encode()).hexdigest()[:8]}"


def consumed_until(
    tables: IcebergTableManager, source: TableIdentifier, consumer: Consumer, *, branch: str = MAIN_BRANCH
) -> int | None:
    """The snapshot of `source` that the consumer read last; None if it must start with all rows.

    Args:
        tables: The tables of both.
        source: The table that is read.
        consumer: The asset that reads it.
        branch: The branch of the source that is read.
    """
    table = tables.find_table(consumer.table)
    if table is None:
        return None
    try:
        table = tables.as_shown(table, consumer.table)
    except TableNotFoundError:
        return None  # the branch of the lake does not have it
    consumed, is_complete = _in_history(table, source, consumer.branch)
    if consumed is None and not is_complete:
        ref = tables.load_table(source).metadata.refs.get(cursor_tag(consumer.asset))
        consumed = ref.snapshot_id if ref is not None else None
    if consumed is not None:
        _refuse_gaps(tables.as_shown(tables.load_table(source), source), source, consumed, consumer.asset, branch)
    return consumed


def _in_history(table: Table, source: TableIdentifier, branch: str) -> tuple[int | None, bool]:
    """The snapshot of `source` that the newest write to the table consumed, and whether its history is complete.

    A branch that the table does not have yet begins at main's head.
    """
    head = table.snapshot_by_name(branch if branch in table.metadata.refs else MAIN_BRANCH)
    history = list(ancestors_of(head, table.metadata))
    undone = undone_in(history)
    for snapshot in history:
        consumed = inputs_of(summary_of(snapshot)).get(str(source))
        if consumed is not None and snapshot.snapshot_id not in undone:
            return consumed, True
    return None, not history or history[-1].parent_snapshot_id is None


def refuse_concurrent_consumer(
    sources: Mapping[TableIdentifier, int | None], consumer: str, branch: str
) -> Callable[[Table], None]:
    """A check of the consumer's table: no other run has consumed these sources since they were read."""

    def check(table: Table) -> None:
        for source, since in sources.items():
            consumed, is_complete = _in_history(table, source, branch)
            if consumed != since and (consumed is not None or is_complete):
                raise ConcurrencyConflictError(
                    f"another run of {consumer} consumed what is new in '{source}' meanwhile; nothing was written: run "
                    f"it again, and it gets what is new by then"
                )

    return check


def _refuse_gaps(table: Table, source: TableIdentifier, since: int, asset: str, branch: str) -> None:
    """Refuse unless every snapshot after `since` is still there and none of them replaced rows."""
    between: list[Snapshot] = []
    for snapshot in ancestors_of(table.snapshot_by_name(branch), table.metadata):
        if snapshot.snapshot_id == since:
            break
        between.append(snapshot)
    else:
        raise ConfigurationError(
            f"what was appended to '{source}' after snapshot {since}, which {asset} consumed last, cannot be told any "
            f"more: snapshots since then have expired, or the table was rolled back. "
            f"{_HOW_TO_RESTART.format(asset=asset)}; then let snapshots live longer than the time between two runs"
        )
    replaced = [snap for snap in between if snap.summary is None or snap.summary.operation is Operation.OVERWRITE]
    if replaced:
        raise ConfigurationError(
            f"{len(replaced)} of {len(between)} writes to '{source}' since {asset} consumed it put rows in the place "
            f"of others (the first: snapshot {replaced[-1].snapshot_id}), and since tells only what is added. "
            f"{_HOW_TO_RESTART.format(asset=asset)}; or let '{source}' be appended to only (write_mode append)"
        )


def advance(tables: IcebergTableManager, sources: Iterable[TableIdentifier], asset: str, written: SnapshotInfo) -> None:
    """Move the cursor tags to the snapshots that the write consumed: the next run starts after them."""
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
