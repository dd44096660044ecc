"""Errors of DuckDB as errors of the query, at their place in the text that the user wrote."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable
from typing import Any

from sqlglot import exp

from floe_core.errors import FloeError, FloeStorageError
from floe_iceberg.query.parsing import ParsedQuery
from floe_iceberg.query.text import Rewritten, character_of, problem, refusal

__all__ = ["query_failure", "reported"]

_NO_COLUMN = re.compile(r'does not have a column named "(?P<name>[^"]+)"')
# Advice that a query cannot follow.
_SETTING = re.compile(r",? or SET \w+ ?= ?\w+ to [^.]*")
_LISTED = 20  # columns
# What says that the files, not the query, are at fault.
_OF_FILES = ("IO", "Serialization", "HTTP", "Missing Extension")
_MEMORY = "the query needs more memory than DuckDB may take, half of this machine's: select fewer columns or rows"


def reported(exc: Exception) -> dict[str, Any]:
    """An error of DuckDB as data: `exception_type`, `exception_message`, and `position` in bytes."""
    text = str(exc)
    start = text.find('{"exception_type"')
    if start >= 0:
        try:
            data, _ = json.JSONDecoder().raw_decode(text[start:])
        except ValueError:
            data = None
        if isinstance(data, dict):
            return data
    kind, separator, message = text.partition(" Error: ")
    return {"exception_type": kind, "exception_message": message} if separator else {"exception_message": text}


def query_failure(
    error: dict[str, Any], query: ParsedQuery, rewritten: Rewritten, columns: Iterable[str], *, offset: int = 0
) -> FloeError:
    """The error to raise for what DuckDB reported.

    Args:
        columns: The names of the columns of the tables, for suggestions.
        offset: The length of what was in front of the query when DuckDB reported the place.
    """
    kind = str(error.get("exception_type", ""))
    message = _one_line(str(error.get("exception_message", "")))
    place = _place(error, rewritten, offset)
    if kind == "Permission":
        return refusal(query.text, place, f"only tables of the lake are read: {message}")
    if kind == "Out of Memory":
        return FloeStorageError(f"{_MEMORY} ({message})")
    if kind in _OF_FILES:
        return FloeStorageError(f"DuckDB cannot read the files of the query: {message}")
    if kind in ("INTERNAL", "FATAL"):
        return FloeStorageError(f"DuckDB failed: {message}. Try --engine spark")
    missing = _missing_column(error, message)
    if missing is not None:
        place = place if place is not None else _column_place(query, missing)
        return problem(query.text, place, _no_column(missing, columns))
    hint = " (DuckDB's functions; for Spark's: --engine spark)" if "Function with name" in message else ""
    return problem(query.text, place, f"{message}{hint}")


def _one_line(message: str) -> str:
    """The message without DuckDB's own picture of the query, and without its list of all similar functions."""
    told = message.split("\n\nLINE ")[0].split("\n\tCandidate functions")[0]
    return _SETTING.sub("", " ".join(told.split())).rstrip(".")


def _place(error: dict[str, Any], rewritten: Rewritten, offset: int) -> int | None:
    try:
        byte = int(error["position"]) - offset
    except (KeyError, ValueError):
        return None
    return rewritten.original(character_of(rewritten.text, byte)) if byte >= 0 else None


def _missing_column(error: dict[str, Any], message: str) -> str | None:
    if error.get("error_subtype") == "COLUMN_NOT_FOUND" and error.get("name"):
        return str(error["name"])
    match = _NO_COLUMN.search(message)
    return match["name"] if match else None


def _column_place(query: ParsedQuery, name: str) -> int | None:
    last = name.rpartition(".")[2].casefold()
    for column in query.tree.find_all(exp.Column):
        parts = column.parts
        if str(parts[-1].name).casefold() == last and "start" in parts[0].meta:
            return int(parts[0].meta["start"])
    return None


def _no_column(name: str, columns: Iterable[str]) -> str:
    known = {column.casefold(): column for column in columns}
    near = difflib.get_close_matches(name.casefold(), list(known), n=2)
    hint = f"; did you mean {' or '.join(repr(known[one]) for one in near)}?" if near else ""
    there = f" (there: {', '.join(known.values())})" if known and not near and len(known) <= _LISTED else ""
    return f"there is no column {name!r}{hint}{there}"
