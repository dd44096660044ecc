"""Incremental scans: the rows appended to a table between two of its snapshots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import AlwaysFalse, BooleanExpression
from pyiceberg.table import IncrementalAppendScan, Table
from pyiceberg.table.snapshots import Operation, Snapshot

from floe_core.errors import ConfigurationError
from floe_core.identifiers import TableIdentifier
from floe_core.observability import warn
from floe_iceberg.expressions.filters import condition_of
from floe_iceberg.reading.scans import selected
from floe_iceberg.reading.streaming import stream
from floe_iceberg.reading.traced_reads import CountedReads
from floe_iceberg.snapshots.refs import known_snapshot
from floe_iceberg.snapshots.snapshots import ancestors_of

__all__ = ["refuse_past", "scan_appends"]


def scan_appends(
    table: Table,
    identifier: TableIdentifier,
    *,
    since: int,
    until: int | None = None,
    columns: Sequence[str] | None = None,
    row_filter: str | BooleanExpression | None = None,
) -> IncrementalAppendScan:
    """A scan of the rows appended after snapshot `since`, up to and including `until` or the head.

    PyIceberg accepts an expired `since` as long as its child exists. Floe does not: whether it works would depend on
    when expiry ran last, and by which engine.
    """
    condition = condition_of(row_filter, table.schema(), identifier)
    names = selected(columns, table.schema(), identifier)
    begin = table.snapshot_by_id(since)
    if begin is None:
        raise ConfigurationError(f"table '{identifier}' no longer has snapshot {since}; {_full_refresh(table)}")
    end = known_snapshot(table, identifier, until)
    between = _between(table, identifier, begin, end)
    _warn(identifier, _left_out(between), begin, end)
    # PyIceberg refuses to scan from a snapshot to itself; a scan that matches no row has the same result.
    planned = table.incremental_append_scan(
        from_snapshot_id_exclusive=since if between else begin.parent_snapshot_id,
        to_snapshot_id_inclusive=end.snapshot_id,
        row_filter=condition if between else AlwaysFalse(),
        selected_fields=names,
    )
    return _CountedChanges.of(planned, str(identifier), row_filter)


class _Appends(IncrementalAppendScan):
    """PyIceberg's scan, read in bounded memory."""

    def to_arrow_batch_reader(self) -> pa.RecordBatchReader:
        return stream(self, self.plan_files())


class _CountedChanges(CountedReads, _Appends):
    """A scan whose reads are spans."""

    _span_name = "iceberg.scan_changes"

    def _facts(self) -> dict[str, Any]:
        return {**super()._facts(), "since": self.from_snapshot_id, "until": self.to_snapshot_id}


def refuse_past(moments: Mapping[str, object]) -> None:
    """Refuse time travel together with `since`, which reads up to the current head."""
    given = [name for name, value in moments.items() if value is not None]
    if given:
        raise ConfigurationError(f"since and {' and '.join(given)} are mutually exclusive: set one of them")


def _left_out(snapshots: Sequence[Snapshot]) -> list[Snapshot]:
    """The snapshots that replaced or deleted rows: an append scan does not report their changes."""
    reported = (Operation.APPEND, Operation.REPLACE)  # REPLACE, a compaction, changes files and no rows
    return [item for item in snapshots if item.summary is None or item.summary.operation not in reported]


def _between(table: Table, identifier: TableIdentifier, begin: Snapshot, end: Snapshot) -> list[Snapshot]:
    """The snapshots after `begin` up to `end`, oldest first."""
    found: list[Snapshot] = []
    for snapshot in ancestors_of(end, table.metadata):
        if snapshot.snapshot_id == begin.snapshot_id:
            return found[::-1]
        found.append(snapshot)
    raise ConfigurationError(
        f"snapshot {begin.snapshot_id} of '{identifier}' is not an ancestor of {end.snapshot_id}: they are in the "
        f"wrong order or on different branches, the table was rolled back, or snapshots in between have expired; "
        f"{_full_refresh(table)}"
    )


def _full_refresh(table: Table) -> str:
    head = table.current_snapshot()
    if head is None:
        return "it holds no rows: start again after its next write"
    return (
        f"a full refresh is needed: read all of it once with scan(snapshot_id={head.snapshot_id}), then continue "
        f"with since={head.snapshot_id}"
    )


def _warn(identifier: TableIdentifier, snapshots: list[Snapshot], begin: Snapshot, end: Snapshot) -> None:
    if snapshots:
        warn(
            f"{len(snapshots)} snapshot(s) in between replaced or deleted rows, which are not in the result",
            table=str(identifier),
            since=begin.snapshot_id,
            until=end.snapshot_id,
            first_left_out=snapshots[0].snapshot_id,
        )
