"""The text of a query: places in it as lines and columns, and replacements that keep track of them."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from floe_core.errors import QueryError, QueryRefusedError

__all__ = ["Replacement", "Rewritten", "character_of", "offset_of", "problem", "refusal", "rewrite"]

_Kind = TypeVar("_Kind", bound=QueryError)

# The part of a long line that an error shows.
_SHOWN = 56


def problem(text: str, offset: int | None, message: str) -> QueryError:
    """The error for something wrong at this character of the query; None if the place is not known."""
    return _error(QueryError, text, offset, message)


def refusal(text: str, offset: int | None, message: str) -> QueryRefusedError:
    """The error for a statement that is not run, because of what is at this character."""
    return _error(QueryRefusedError, text, offset, message)


def _error(kind: type[_Kind], text: str, offset: int | None, message: str) -> _Kind:
    if offset is None:
        return kind(message)
    offset = min(max(offset, 0), len(text))
    line = text.count("\n", 0, offset) + 1
    start = text.rfind("\n", 0, offset) + 1
    column = offset - start + 1
    end = text.find("\n", start)
    shown = _pointed(text[start : len(text) if end < 0 else end], column - 1)
    return kind(f"line {line}, column {column}: {message}\n{shown}", line=line, column=column)


def _pointed(line: str, place: int) -> str:
    """The line, or the part of it around a character, with a caret below that character."""
    first = max(0, min(place - _SHOWN // 2, len(line) - _SHOWN))
    shown = "".join(character if character.isprintable() else " " for character in line[first : first + _SHOWN])
    shown = f"...{shown[3:]}" if first > 0 else shown
    before = shown[: place - first]
    shown = f"{shown[:-3]}..." if first + _SHOWN < len(line) else shown
    width = sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in before)
    return f"  {shown.rstrip()}\n  {' ' * width}^"


@dataclass(frozen=True)
class Replacement:
    """New text for the characters from `start` up to, not including, `end`."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Rewritten:
    """A query with replacements, which knows where each character was."""

    text: str
    _replaced: tuple[Replacement, ...]

    def original(self, offset: int) -> int:
        """The place in the original of a character here; the start of what was replaced, for one in a replacement."""
        grown = 0
        for one in self._replaced:
            if offset < one.start + grown:
                break
            if offset < one.start + grown + len(one.text):
                return one.start
            grown += len(one.text) - (one.end - one.start)
        return offset - grown


def rewrite(text: str, replacements: Iterable[Replacement]) -> Rewritten:
    """Apply replacements that do not overlap."""
    ordered = tuple(sorted(replacements, key=lambda one: one.start))
    parts, position = [], 0
    for one in ordered:
        parts += [text[position : one.start], one.text]
        position = one.end
    return Rewritten("".join([*parts, text[position:]]), ordered)


def offset_of(text: str, line: int, column: int) -> int:
    """The character at a line and column, both from 1."""
    return sum(len(one) + 1 for one in text.split("\n")[: line - 1]) + column - 1


def character_of(text: str, byte: int) -> int:
    """The character at an offset in bytes, as DuckDB reports places."""
    return len(text.encode()[:byte].decode(errors="ignore"))
