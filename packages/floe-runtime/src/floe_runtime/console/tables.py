"""Tables of columns that fit the console."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from floe_core.formatting import printable

__all__ = ["columns_table", "fitted_table", "headed_table"]


class _Head(box.Box):
    """A line below the names of the columns; of hyphens, and nothing else, where the output has no other characters."""

    def substitute(self, options: ConsoleOptions, safe: bool = True) -> box.Box:
        return _PLAIN_HEAD if options.ascii_only else super().substitute(options, safe)


_HEAD = _Head(str(box.SIMPLE_HEAD))
_PLAIN_HEAD = box.Box(str(box.SIMPLE_HEAD).replace("─", "-"), ascii=True)


class _Headed(Table):
    """A table with a blank line above its head on a terminal only: of a pipe, the first line is the head."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rendered = iter(super().__rich_console__(console, options))
        if not options.is_terminal:
            for segment in rendered:
                if isinstance(segment, Segment) and segment.text == "\n":
                    break
        yield from rendered


def headed_table() -> Table:
    """A table without columns, whose head is underlined."""
    return _Headed(header_style="bold", box=_HEAD, pad_edge=False, collapse_padding=True)


def columns_table(columns: Mapping[str, Sequence[str | Text]], *, numbers: Collection[str] = ()) -> Table:
    """A table from its columns by name; those in `numbers` are right-aligned."""
    table = headed_table()
    for name in columns:
        if name in numbers:
            table.add_column(name, justify="right", no_wrap=True)
        else:
            table.add_column(name, overflow="fold")
    for row in zip(*columns.values(), strict=True):
        table.add_row(*(Text(printable(cell).replace("\n", "\\n")) if isinstance(cell, str) else cell for cell in row))
    return table


def fitted_table(
    columns: Mapping[str, Sequence[str | Text]],
    console: Console,
    *,
    numbers: Collection[str] = (),
    optional: Sequence[str] = (),
    elsewhere: str = "--json has them",
) -> RenderableType:
    """A table that fits the console: columns in `optional` are dropped in this order until it does.

    A line below the table names the dropped columns, and where they are (`elsewhere`, which may be empty).
    """
    kept = dict(columns)
    table = columns_table(kept, numbers=numbers)
    unlimited = console.options.update(max_width=10_000)
    for name in optional:
        if console.measure(table, options=unlimited).maximum <= console.width:
            break
        del kept[name]
        table = columns_table(kept, numbers=numbers)
    dropped = ", ".join(name for name in columns if name not in kept)
    if not dropped:
        return table
    place = f" ({elsewhere})" if elsewhere else ""
    return Group(table, Text(f"not shown at this width: {dropped}{place}"))
