"""Columns that a schema does not have, with the most similar name; and columns that may be NULL."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, StructType

__all__ = ["no_column", "with_optional_columns"]


def with_optional_columns(schema: Schema) -> Schema:
    """The schema with columns that may be NULL at every level, as Spark creates tables."""
    made = _optional(schema.as_struct())
    assert isinstance(made, StructType)  # noqa: S101 - a struct stays one
    return Schema(*made.fields)


def _optional(kind: IcebergType) -> IcebergType:
    if isinstance(kind, StructType):
        return StructType(
            *(
                field.model_copy(update={"required": False, "field_type": _optional(field.field_type)})
                for field in kind.fields
            )
        )
    if isinstance(kind, ListType):
        return kind.model_copy(update={"element_required": False, "element_type": _optional(kind.element_type)})
    if isinstance(kind, MapType):
        return kind.model_copy(update={"value_required": False, "value_type": _optional(kind.value_type)})
    return kind


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
