"""What a notebook shows of results: HTML tables, in which every text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from datetime import datetime
from html import escape
from typing import Any, SupportsIndex, TypeVar, overload

from floe_core.formatting import counted, human_bytes, moment_text, printable

__all__ = ["Listing", "cell_text", "facts_html", "heading_html", "table_html"]

T = TypeVar("T")

_SHOWN = 100
_CELL = "text-align:left;vertical-align:top;white-space:pre-wrap"


class Listing(tuple[T, ...]):
    """Records of one kind; a notebook shows them as a table.

    The class of the records may name its `notebook_fields`; by default all fields are shown. A field that no record
    fills is left out.

    Example:
        >>> from dataclasses import dataclass
        >>> from floe_core.notebooks import Listing
        >>> @dataclass
        ... class City:
        ...     name: str
        ...     people: int
        >>> cities = Listing([City("Oslo", 1_000_000)])
        >>> "<td style=" in cities._repr_html_() and "1,000,000" in cities._repr_html_()
        True
    """

    __slots__ = ()

    @overload
    def __getitem__(self, place: SupportsIndex, /) -> T: ...

    @overload
    def __getitem__(self, place: slice, /) -> Listing[T]: ...

    def __getitem__(self, place: SupportsIndex | slice, /) -> T | Listing[T]:
        """One record, or a listing of some."""
        if isinstance(place, slice):
            return Listing(super().__getitem__(place))
        return super().__getitem__(place)

    def _repr_html_(self) -> str:
        shown = self[:_SHOWN]
        html = table_html([(name.replace("_", " "), _texts(name, shown)) for name in _fields(shown)])
        more = counted(len(self) - len(shown), "more row")
        return html if len(shown) == len(self) else f"{html}<p>and {more}</p>"


def _fields(records: Sequence[Any]) -> list[str]:
    if not records:
        return []
    first = records[0]
    names = getattr(first, "notebook_fields", None) or [field.name for field in fields(first)]
    return [name for name in names if any(getattr(one, name) not in (None, "", (), {}) for one in records)]


def _texts(name: str, records: Sequence[Any]) -> list[str]:
    return [cell_text(name, getattr(one, name)) for one in records]


def table_html(columns: Sequence[tuple[str, Sequence[str]]]) -> str:
    """A table from its columns: the name of each, and its texts."""
    if not columns:
        return "<p>none</p>"
    head = "".join(f'<th style="{_CELL}">{_escaped(name)}</th>' for name, _ in columns)
    rows = zip(*(texts for _, texts in columns), strict=True)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(text: str) -> str:
    return f'<td style="{_CELL}">{_escaped(text)}</td>'


def facts_html(title: str, facts: Iterable[tuple[str, object]]) -> str:
    """A title, and below it one line for each fact."""
    lines = "".join(
        f'<tr><th style="{_CELL}">{_escaped(name)}</th>{_cell(cell_text(name, value))}</tr>' for name, value in facts
    )
    return f"{heading_html(title)}<table><tbody>{lines}</tbody></table>"


def heading_html(title: str) -> str:
    """A title; nothing if it is empty."""
    return f"<p><b>{_escaped(title)}</b></p>" if title else ""


def cell_text(name: str, value: object) -> str:
    """A value of the field `name`, as people read it: ids and years without separators, counts with them."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        if name.startswith("bytes"):
            return human_bytes(value)
        return str(value) if name == "id" or name.endswith("_id") else f"{value:,}"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, datetime):
        return moment_text(value)
    if isinstance(value, dict):
        return "/".join(f"{key}={'null' if one is None else one}" for key, one in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(cell_text(name, one) for one in value)
    return str(value)


def _escaped(text: str) -> str:
    return escape(printable(text))
