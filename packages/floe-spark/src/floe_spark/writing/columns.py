"""The changes of a table's columns between two of its schemas."""

from __future__ import annotations

from pyiceberg.schema import Schema

__all__ = ["column_changes"]


def column_changes(before: Schema, after: Schema) -> str:
    """The columns that were renamed, dropped, added or given another type, by field id; empty if none was."""
    old, new = ({field.field_id: field for field in schema.fields} for schema in (before, after))
    changes = []
    for number, field in old.items():
        now = new.get(number)
        if now is None:
            changes.append(f"{field.name} was dropped")
        elif now.name != field.name:
            changes.append(f"{field.name} was renamed to {now.name}")
        elif now.field_type != field.field_type or now.required != field.required:
            changes.append(f"{field.name} was changed to {now.field_type}{' and is required' if now.required else ''}")
    changes += [f"{field.name} was added" for number, field in new.items() if number not in old]
    return ", ".join(changes)
