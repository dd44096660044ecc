"""What an overwrite replaces, by the metadata of the table: no data file is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from floe_core.identifiers import ColumnRange, ColumnValues, Condition, TableSlice
from floe_iceberg.expressions import slice_filter

__all__ = ["ReplacedRows", "replaced_rows"]

# Slices of more parts are replaced by the smallest one around them: each file is compared with each part.
_PARTS = 100


@dataclass(frozen=True)
class ReplacedRows:
    """The rows and files that an overwrite replaces.

    Attributes:
        rows: Their rows; at most so many if not `exact`.
        files: The data files that are removed; the rows of others in them are written again.
        bytes: The size of these files.
        exact: The files hold rows of the slice only, and no row of them is deleted.
    """

    rows: int
    files: int
    bytes: int
    exact: bool


def replaced_rows(table: Table, within: TableSlice | None = None, *, branch: str = MAIN_BRANCH) -> ReplacedRows:
    """The rows and files that an overwrite of a slice, or of the whole table, replaces.

    Args:
        table: The table.
        within: The slice. By default the whole table.
        branch: The branch to write to.
    """
    head = table.snapshot_by_name(branch)
    if head is None:
        return ReplacedRows(0, 0, 0, exact=True)
    if within is None:
        totals = head.summary.additional_properties if head.summary is not None else {}
        counts = [totals.get(f"total-{name}", "") for name in ("records", "data-files", "files-size", "delete-files")]
        if all(count.isdecimal() for count in counts):
            rows, files, size, deletes = map(int, counts)
            return ReplacedRows(rows, files, size, exact=not deletes)
    wide = within is not None and len(within.parts) > _PARTS
    around = _around(within.parts) if wide and within is not None else within
    condition = AlwaysTrue() if around is None else slice_filter(around, table.schema())
    tasks = list(table.scan(row_filter=condition, snapshot_id=head.snapshot_id).plan_files())
    return ReplacedRows(
        rows=sum(task.file.record_count for task in tasks),
        files=len(tasks),
        bytes=sum(task.file.file_size_in_bytes for task in tasks),
        exact=not tasks or (not wide and all(_is_inside(task.residual) and not task.delete_files for task in tasks)),
    )


def _is_inside(residual: object) -> bool:
    """Whether the partition of a file proves that all its rows are in the slice, as the write itself decides it."""
    return isinstance(residual, AlwaysTrue)


def _around(parts: Sequence[Sequence[Condition]]) -> TableSlice:
    """The smallest slice of one part around these: from the first window to the last, with all values."""
    conditions: list[Condition] = []
    for column in zip(*parts, strict=True):
        windows = [condition for condition in column if isinstance(condition, ColumnRange)]
        values = [value for condition in column if isinstance(condition, ColumnValues) for value in condition.values]
        if values:
            conditions.append(ColumnValues(column=column[0].column, values=tuple(sorted(set(values)))))
        else:
            start, end = min(window.start for window in windows), max(window.end for window in windows)
            conditions.append(windows[0].model_copy(update={"start": start, "end": end}))
    return TableSlice(parts=(tuple(conditions),))
