"""Counts, sizes, times and foreign text, for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

__all__ = ["counted", "human_bytes", "markdown_table", "moment_text", "printable"]

_CELL = 60  # characters of a value in a Markdown table


def counted(number: int, word: str) -> str:
    """2 tables, 1 table, no tables."""
    return f"{f'{number:,}' if number else 'no'} {word}{'' if number == 1 else 's'}"


def human_bytes(count: float) -> str:
    """1,234,567 as 1.2 MB."""
    for unit in ("B", "kB", "MB"):
        if count < (999.5 if unit == "B" else 999.95):
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def moment_text(moment: datetime | None) -> str:
    """A time in UTC, to the second."""
    return "-" if moment is None else f"{moment.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S}"


def printable(text: str) -> str:
    """The text with control characters as escapes, which a terminal would obey; lines stay lines."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter == "\n" else _escape(letter) for letter in text)


def _escape(letter: str) -> str:
    return letter.encode("unicode_escape").decode()


def markdown_table(rows: Sequence[Mapping[str, Any]], shown: Sequence[str]) -> str:
    """These columns of rows as a Markdown table; empty without rows."""
    if not rows:
        return ""
    lines = [
        _line(shown),
        _line("---" for _ in shown),
        *(_line(_cell(row.get(name)) for name in shown) for row in rows),
    ]
    return "\n".join(lines)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    text = text if len(text) <= _CELL else f"{text[: _CELL - 1]}…"
    return " ".join(text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").split())
