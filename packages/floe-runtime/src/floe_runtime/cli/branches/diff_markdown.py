"""The rows in which tables differ as Markdown, for a comment on a pull request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

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
    from floe_iceberg.comparison import ChangedRow, TableComparison

__all__ = ["markdown_lines"]

_PARTITIONS = 10
_HARMLESS = set(" .,:;=()'%…?+-")


def markdown_lines(found: Sequence[TableComparison], title: str) -> Iterator[str]:
    """A heading, a table of all tables, and for each that differs its columns, partitions and folded examples."""
    yield f"### {_plain(title)}"
    yield ""
    if not found:
        yield "No table was compared."
        return
    yield "| table | added | removed | changed | columns | compared |"
    yield "|---|---:|---:|---:|---|---|"
    for one in found:
        changed = "" if one.rows_changed is None else f"{one.rows_changed:,}"
        columns = "<br>".join(_code(column_text(change)) for change in one.columns)
        scope = "**a sample**" if one.sampled else "all rows"
        yield f"| {_code(one.table)} | {one.rows_added:,} | {one.rows_removed:,} | {changed} | {columns} | {scope} |"
    for one in found:
        if one.differs or one.sampled:
            yield from _details(one)


def _details(found: TableComparison) -> Iterator[str]:
    counts = rows_text(found.rows_added, found.rows_removed, found.rows_changed)
    yield ""
    yield f"<details><summary>{_code(found.table)}: {counts} rows</summary>"
    yield ""
    for line in (totals_text(found), files_text(found), f"compared: {found.scope}", *found.notes):
        if line:
            yield f"- {_plain(line)}"
    yield from _partitions(found)
    for word, rows, count in (
        ("Added", found.examples.added, found.rows_added),
        ("Removed", found.examples.removed, found.rows_removed),
    ):
        if rows:
            yield from _rows(f"{word}, {_some(len(rows), count)}", rows)
    if found.examples.changed:
        yield from _changed(found.examples.changed, found.rows_changed or 0)
    yield ""
    yield "</details>"


def _partitions(found: TableComparison) -> Iterator[str]:
    shown = [one for one in found.partitions if one.partition][:_PARTITIONS]
    if not shown:
        return
    yield ""
    yield "| partition | rows |"
    yield "|---|---|"
    for one in shown:
        changed = None if found.rows_changed is None else one.rows_changed
        counts = rows_text(one.rows_added, one.rows_removed, changed)
        yield f"| {_code(partition_text(one.partition))} | {_plain(counts)} |"
    more = found.partitions_total - len(shown)
    if more:
        yield f"| {counted(more, 'more partition')} | |"


def _rows(title: str, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    names = list(rows[0])[:SHOWN_COLUMNS]
    more = len(rows[0]) - len(names)
    without = f", without {counted(more, 'more column')}" if more else ""
    yield ""
    yield f"{title}{without}:"
    yield ""
    yield f"| {' | '.join(map(_code, names))} |"
    yield f"|{'---|' * len(names)}"
    for row in rows:
        yield f"| {' | '.join(_value(row[name]) for name in names)} |"


def _changed(rows: Sequence[ChangedRow], count: int) -> Iterator[str]:
    yield ""
    yield f"Changed, {_some(len(rows), count)}:"
    yield ""
    yield "| key | column | before | after |"
    yield "|---|---|---|---|"
    for row in rows:
        key = ", ".join(f"{name}={value_text(value)}" for name, value in row.key.items())
        for name, change in list(row.values.items())[:SHOWN_COLUMNS]:
            yield f"| {_code(key)} | {_code(name)} | {_value(change.before)} | {_value(change.after)} |"
        more = len(row.values) - SHOWN_COLUMNS
        if more > 0:
            yield f"| {_code(key)} | {counted(more, 'more column')} | | |"
        for name in row.hidden:
            yield f"| {_code(key)} | {_code(name)} | not shown | not shown |"


def _some(shown: int, count: int) -> str:
    return f"{shown:,} of {count:,}" if count > shown else f"{count:,}"


def _value(value: Any) -> str:
    return "NULL" if value is None else _code(value_text(value))


def _code(text: str) -> str:
    """Text as code that Markdown shows as it is, in a table too. GitHub links no names and addresses in code."""
    return f"<code>{_escaped(text)}</code>" if text else ""


def _plain(text: str) -> str:
    return _escaped(text)


def _escaped(text: str) -> str:
    """Text on one line. Characters that could be markup are entities, which Markdown shows as they are."""
    line = " ".join(printable(redact(text)).split())
    return "".join(letter if letter.isalnum() or letter in _HARMLESS else f"&#{ord(letter)};" for letter in line)
