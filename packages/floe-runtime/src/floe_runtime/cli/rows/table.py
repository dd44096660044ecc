"""Rows as a table for people: as many columns as fit, a few rows, and what was left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from floe_core.formatting import counted
from floe_iceberg.reading import shown_values

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

__all__ = ["COUNTED", "print_table"]

# How many rows beyond those shown are counted.
COUNTED = 10_000
_WIDEST = 40
_LISTED = 10
_PADDING = 2


def print_table(
    out: Console, schema: pa.Schema, batches: Iterator[pa.RecordBatch], *, limit: int, total: int | None, fewer: str
) -> None:
    """Print the first rows, how many more there are, and the columns that did not fit.

    Args:
        batches: The rows, at most `limit` + `COUNTED` + 1 of them.
        limit: How many are shown.
        total: How many there are, if that is known.
        fewer: How to choose columns.
    """
    shown, more = _first(schema, batches, limit)
    cells = [shown_values(column.combine_chunks()) for column in shown.columns]
    names = [name if name.isprintable() else ascii(name)[1:-1] for name in schema.names]
    kept = _fitting(out, names, cells)
    if shown.num_rows == 1 and kept < len(names):
        _print_record(out, names, cells)
        kept = len(names)
    elif shown.num_rows or names:
        _print_columns(out, schema, names[:kept], cells[:kept])
    _print_rest(out, shown.num_rows, more, total, names[kept:], fewer)


def _first(schema: pa.Schema, batches: Iterator[pa.RecordBatch], limit: int) -> tuple[pa.Table, int]:
    """The rows that are shown, and how many came after them."""
    kept, rows, more = [], 0, 0
    for batch in batches:
        taken = batch.slice(0, limit - rows)
        kept.append(taken)
        rows += taken.num_rows
        more += batch.num_rows - taken.num_rows
        if more > COUNTED:
            break
    return pa.Table.from_batches(kept, schema=schema), more


def _fitting(out: Console, names: Sequence[str], cells: Sequence[Sequence[str | None]]) -> int:
    """How many of the columns fit next to each other; at least one."""
    used, kept = 2, 0  # an empty edge on each side
    for name, column in zip(names, cells, strict=True):
        used += _width(name, column) + (_PADDING if kept else 0)
        if used > out.width and kept:
            break
        kept += 1
    return kept


def _width(name: str, column: Sequence[str | None]) -> int:
    from rich.cells import cell_len

    return min(_WIDEST, max([cell_len(name), *(4 if cell is None else cell_len(cell) for cell in column)]))


def _print_columns(
    out: Console, schema: pa.Schema, names: Sequence[str], cells: Sequence[Sequence[str | None]]
) -> None:
    from rich.text import Text

    from floe_runtime.console import headed_table

    table = headed_table()
    for place, name in enumerate(names):
        right = _is_number(schema.field(place).type)
        table.add_column(Text(_cut(name)), justify="right" if right else "left", no_wrap=True)
    for row in zip(*cells, strict=True):
        table.add_row(*(_cell(cell) for cell in row))
    out.print(table)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _cell(cell: str | None) -> Text:
    from rich.text import Text

    return Text("NULL", style="dim") if cell is None else Text(_cut(cell))


def _cut(text: str) -> str:
    """At most the widest that a column gets."""
    from rich.cells import cell_len, set_cell_size

    return text if cell_len(text) <= _WIDEST else f"{set_cell_size(text, _WIDEST - 3)}..."


def _print_record(out: Console, names: Sequence[str], cells: Sequence[Sequence[str | None]]) -> None:
    """One row with many columns: a line for each."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, style="bold")
    grid.add_column(overflow="fold")
    for name, column in zip(names, cells, strict=True):
        value = column[0]
        grid.add_row(Text(_cut(name)), Text("NULL", style="dim") if value is None else Text(value))
    out.print(grid)


def _print_rest(out: Console, shown: int, more: int, total: int | None, hidden: Sequence[str], fewer: str) -> None:
    left = more if total is None else total - shown
    if left > 0:
        number = f"more than {COUNTED:,} more rows" if total is None and more > COUNTED else counted(left, "more row")
        how = "--limit shows more, --output csv prints all"
        out.print(f"and {number}; {how}", markup=False)
    else:
        out.print(counted(shown, "row"), markup=False)
    if hidden:
        listed = ", ".join(hidden[:_LISTED]) + (", ..." if len(hidden) > _LISTED else "")
        out.print(f"and {counted(len(hidden), 'more column')}: {listed}; {fewer}", markup=False)
