"""Errors for columns that a schema does not have, with the most similar name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from pyiceberg.schema import Schema

__all__ = ["no_column"]


def no_column(names: Iterable[str], schema: Schema) -> str | None:
    """The error text for names that the schema does not have: `no column 'nots'; did you mean 'note'? (there: …)`.

    None if it has them all.
    """
    known = schema.column_names
    unknown = [name for name in names if name not in known]
    if not unknown:
        return None
    there = ", ".join(field.name for field in schema.fields)
    close = [near for name in unknown for near in _nearest(name, known)]
    meant = f"; did you mean {', '.join(map(repr, close))}?" if close else ""
    return f"no column {', '.join(map(repr, unknown))}{meant} (there: {there})"


def _nearest(name: str, known: Iterable[str]) -> list[str]:
    by_lower = {column.lower(): column for column in known}
    return [by_lower[near] for near in difflib.get_close_matches(name.lower(), list(by_lower), n=1)]
