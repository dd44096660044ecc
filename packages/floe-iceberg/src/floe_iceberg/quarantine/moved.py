"""What a run has moved to a quarantine table, by the snapshots and the rows of its branch."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import In
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from floe_core.formatting import counted
from floe_core.identifiers import TableIdentifier
from floe_iceberg.checks import CheckOutcome
from floe_iceberg.manager import IcebergTableManager
from floe_iceberg.quarantine.division import FAILED_CHECKS
from floe_iceberg.quarantine.target import COUNTS, MARKS, WRITE
from floe_iceberg.snapshots import MOVED_FROM, ancestors_of, summary_of

__all__ = ["MovedRows", "moved_rows", "with_moved_rows"]

_EXAMPLES = 5


@dataclass(frozen=True)
class MovedRows:
    """The rows that writes have moved to a quarantine table.

    Attributes:
        table: The quarantine table.
        snapshot_id: The snapshot with the rows; None if no row was moved or replaced.
        rows: How many rows were moved.
        checks: How many of them break each check.
        writes: The writes that they were taken from.
    """

    table: TableIdentifier
    snapshot_id: int | None = None
    rows: int = 0
    checks: Mapping[str, int] = field(default_factory=dict)
    writes: Collection[str] = ()


def moved_rows(
    tables: IcebergTableManager, quarantine: TableIdentifier, branch: str, *, write_id: str | None = None
) -> MovedRows:
    """What the writes of a run have moved, by the summaries of its snapshots.

    Args:
        tables: The manager of the tables.
        quarantine: The quarantine table.
        branch: The branch of the run.
        write_id: Only this write.
    """
    table = tables.find_table(quarantine)
    if table is None:
        return MovedRows(quarantine)
    newest: dict[str, Snapshot] = {}
    for snapshot in _of_run(table, branch, is_published=write_id is not None):
        source = summary_of(snapshot).get(MOVED_FROM)
        if source is not None and write_id in (None, source):
            newest.setdefault(source, snapshot)  # an earlier attempt of the same write was replaced
    rows, checks = 0, Counter[str]()
    for snapshot in newest.values():
        found = json.loads(summary_of(snapshot)[COUNTS])
        rows += found["rows"]
        checks.update(found["checks"])
    latest = next(iter(newest.values()), None)
    return MovedRows(quarantine, None if latest is None else latest.snapshot_id, rows, dict(checks), tuple(newest))


def _of_run(table: Table, branch: str, *, is_published: bool) -> list[Snapshot]:
    """The snapshots of the branch, newest first, that main does not have; or those of main, if it may be published."""
    head = table.snapshot_by_name(branch)
    main = ancestors_of(table.current_snapshot(), table.metadata)
    if head is None:
        return list(main) if is_published else []
    mains = {snapshot.snapshot_id for snapshot in main}
    return [one for one in ancestors_of(head, table.metadata) if one.snapshot_id not in mains]


def with_moved_rows(
    tables: IcebergTableManager, outcome: CheckOutcome, moved: MovedRows, *, hidden: Collection[str] = ()
) -> CheckOutcome:
    """The outcome of a check on what would be published, with the rows that were moved because of it.

    Args:
        tables: The manager of the tables.
        outcome: The outcome.
        moved: What the run has moved.
        hidden: Columns that are never shown, in lower case.
    """
    rows = moved.checks.get(outcome.name, 0)
    verb = "was" if rows == 1 else "were"
    message = f"{outcome.message}; {counted(rows, 'row')} {verb} moved to '{moved.table}'"
    if outcome.failing:
        message += (
            ". Quarantine moves rows that a run writes; these were in the table before: correct or delete them first"
        )
    examples = outcome.examples or _examples(tables, moved, outcome.name, hidden)
    return replace(outcome, message=message, examples=examples, quarantined=rows, quarantine=str(moved.table))


def _examples(
    tables: IcebergTableManager, moved: MovedRows, check: str, hidden: Collection[str]
) -> list[dict[str, Any]]:
    """Some of the rows that were moved because of a check, in bounded memory."""
    table = tables.find_table(moved.table)
    if table is None or moved.snapshot_id is None or not moved.checks.get(check):
        return []
    shown = [one.name for one in table.schema().fields if one.name.lower() not in hidden and one.name not in MARKS]
    among: Any = In
    rows = tables.scan(
        moved.table, columns=shown, row_filter=among(WRITE, set(moved.writes)), snapshot_id=moved.snapshot_id
    )
    found: list[dict[str, Any]] = []
    for batch in rows.to_arrow_batch_reader():
        names = batch.column(FAILED_CHECKS).to_pylist()
        places = [place for place, text in enumerate(names) if check in text.split(", ")]
        found += batch.take(pa.array(places[: _EXAMPLES - len(found)], pa.int64())).to_pylist()
        if len(found) >= _EXAMPLES:
            break
    return found
