"""What a comparison of rows says, as texts that the terminal and Markdown share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from floe_core.formatting import counted, printable
from floe_core.security import redact

if TYPE_CHECKING:
    from floe_iceberg.comparison import TableComparison
    from floe_iceberg.inspection import ColumnChange

__all__ = ["SHOWN_COLUMNS", "column_text", "files_text", "rows_text", "totals_text", "value_text"]

SHOWN_COLUMNS = 12  # of an example
_LONGEST = 60  # characters of a value


def value_text(value: Any) -> str:
    """A value on one line, cut if it is long; a text that reads like NULL is quoted."""
    if value is None:
        return "NULL"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if value in ("NULL", ""):
        text = f"'{value}'"
    text = printable(redact(text)).replace("\n", "\\n")
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def rows_text(added: int, removed: int, changed: int | None) -> str:
    """Rows as +1 -2 ~3."""
    counts = f"+{added:,} -{removed:,}"
    return counts if changed is None else f"{counts} ~{changed:,}"


def totals_text(found: TableComparison) -> str:
    """The rows of both snapshots, where they are known without a scan."""
    if found.rows_before is None or found.rows_after is None:
        return ""
    return f"{found.rows_before:,} rows before, {found.rows_after:,} after"


def column_text(change: ColumnChange) -> str:
    """A column that differs, in a few words."""
    column = printable(change.column)
    if change.change == "added":
        return f"added {column} ({change.after})"
    if change.change == "dropped":
        return f"dropped {column} ({change.before})"
    return f"{change.change} of {column}: {printable(change.before or '-')} -> {printable(change.after or '-')}"


def files_text(found: TableComparison) -> str:
    """The files that only one snapshot has."""
    return ", ".join(_files(found)) or "no file differs"


def _files(found: TableComparison) -> Iterator[str]:
    files = found.files
    for number, word, what in (
        (files.data_files_added, "data file", "added"),
        (files.data_files_removed, "data file", "removed"),
        (files.delete_files_added, "delete file", "added"),
        (files.delete_files_removed, "delete file", "removed"),
    ):
        if number:
            yield f"{counted(number, word)} {what}"
