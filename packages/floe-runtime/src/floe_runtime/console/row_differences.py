"""The rows in which tables differ, for a terminal of any width."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.padding import Padding
from rich.text import Text

from floe_core.formatting import counted, printable
from floe_core.security import redact
from floe_iceberg.inspection import partition_text
from floe_runtime.console.difference_texts import (
    SHOWN_COLUMNS,
    column_text,
    files_text,
    rows_text,
    totals_text,
    value_text,
)

if TYPE_CHECKING:
    from rich.console import Console

    from floe_iceberg.comparison import ChangedRow, TableComparison

__all__ = ["print_differences"]

_PARTITIONS = 20


def print_differences(out: Console, found: Sequence[TableComparison]) -> None:
    """Print each table that differs with its columns, partitions and examples; then the names of the others."""
    differing = [one for one in found if _is_shown(one)]
    for one in differing:
        for indent, line in _lines(one):
            out.print(Padding(line, (0, 0, 0, indent), expand=False))
    equal = [one.table for one in found if not _is_shown(one)]
    if equal:
        out.print(Text(f"no difference in {', '.join(map(printable, equal))}"))


def _is_shown(found: TableComparison) -> bool:
    """A sample without differences does not show that there are none."""
    return found.differs or found.sampled


def _lines(found: TableComparison) -> Iterator[tuple[int, Text]]:
    sampled = ("  in a sample", "yellow") if found.sampled else ""
    counts = rows_text(found.rows_added, found.rows_removed, found.rows_changed)
    yield 0, Text.assemble((printable(found.table), "bold"), f"  {counts} rows", sampled)
    totals = totals_text(found)
    if totals:
        yield 2, Text(totals, style="dim")
    for change in found.columns:
        yield 2, Text.assemble(("column ", "dim"), column_text(change))
    yield from _partitions(found)
    for row in found.examples.added:
        yield 2, Text.assemble(("+ ", "green"), _row(row))
    for row in found.examples.removed:
        yield 2, Text.assemble(("- ", "red"), _row(row))
    for changed in found.examples.changed:
        yield 2, Text.assemble(("~ ", "yellow"), _changed(changed))
    more = _more(found)
    if more:
        yield 2, Text(f"and {more}", style="dim")
    for line in (files_text(found), f"compared: {found.scope}", *found.notes):
        yield 2, Text(printable(redact(line)), style="dim")


def _partitions(found: TableComparison) -> Iterator[tuple[int, Text]]:
    shown = [one for one in found.partitions if one.partition][:_PARTITIONS]
    for one in shown:
        changed = None if found.rows_changed is None else one.rows_changed
        counts = rows_text(one.rows_added, one.rows_removed, changed)
        yield 2, Text.assemble(f"{printable(partition_text(one.partition))}  ", counts)
    more = found.partitions_total - len(shown)
    if shown and more:
        yield 2, Text(f"and {counted(more, 'more partition')}; --json lists {len(found.partitions):,}", style="dim")


def _row(row: Mapping[str, Any]) -> str:
    return _listed([f"{printable(name)}={value_text(value)}" for name, value in row.items()])


def _changed(row: ChangedRow) -> str:
    changes = [
        f"{printable(name)} {value_text(change.before)} -> {value_text(change.after)}"
        for name, change in row.values.items()
    ]
    changes += [f"{printable(name)} (not shown)" for name in row.hidden]
    key = _row(row.key)
    return f"{key}: {_listed(changes)}" if key else _listed(changes)


def _listed(parts: Sequence[str]) -> str:
    more = len(parts) - SHOWN_COLUMNS
    return ", ".join([*parts[:SHOWN_COLUMNS], *([f"and {counted(more, 'more column')}"] if more > 0 else [])])


def _more(found: TableComparison) -> str:
    """How many rows are not among the examples."""
    examples = found.examples
    parts = [
        f"{count - len(rows):,} more {word}"
        for count, rows, word in (
            (found.rows_added, examples.added, "added"),
            (found.rows_removed, examples.removed, "removed"),
            (found.rows_changed or 0, examples.changed, "changed"),
        )
        if rows and count > len(rows)
    ]
    return ", ".join(parts)
