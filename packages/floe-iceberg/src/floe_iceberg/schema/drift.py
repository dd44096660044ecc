"""Drift: how a table differs from the schema somebody declared for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from floe_core.identifiers import TableIdentifier
from floe_core.models import SchemaDrift
from floe_iceberg.schema.evolution import fits, to_iceberg_schema

if TYPE_CHECKING:
    from floe_iceberg.manager import IcebergTableManager

__all__ = ["DriftDetector"]


class DriftDetector:
    """Compares the schema of a table with a declared one. It reads only.

    Args:
        manager: The manager of the tables.

    Example:
        >>> from floe_core import TableIdentifier
        >>> from floe_iceberg import DriftDetector
        >>> orders = TableIdentifier.from_string("bronze.orders")
        >>> _ = tables.create_table(orders, pa.schema([("id", pa.int64()), ("city", pa.string())]))
        >>> drift = DriftDetector(tables).detect(orders, pa.schema([("id", pa.int64()), ("phone", pa.string())]))
        >>> drift.added, drift.missing
        (('city',), ('phone',))
    """

    def __init__(self, manager: IcebergTableManager) -> None:
        self._manager = manager

    def detect(self, identifier: TableIdentifier, declared: Schema | pa.Schema) -> SchemaDrift:
        """What the table has more, less or otherwise than declared, nested columns by their dotted names."""
        wanted = _columns(to_iceberg_schema(declared) if isinstance(declared, pa.Schema) else declared)
        actual = _columns(self._manager.load_table(identifier).schema())
        widened, narrowed, changed, nullability = [], [], [], []
        for name in (name for name in wanted if name in actual):
            mine, theirs = wanted[name], actual[name]
            told = f"{name}: declared {mine.field_type}, the table has {theirs.field_type}"
            if mine.field_type.is_primitive and theirs.field_type.is_primitive and mine.field_type != theirs.field_type:
                if fits(mine.field_type, theirs.field_type):
                    widened.append(told)
                elif fits(theirs.field_type, mine.field_type):
                    narrowed.append(told)
                else:
                    changed.append(told)
            elif mine.field_type.is_primitive is not theirs.field_type.is_primitive:
                changed.append(told)
            if mine.required is not theirs.required:
                words = ("required", "optional") if mine.required else ("optional", "required")
                nullability.append(f"{name}: declared {words[0]}, the table has it {words[1]}")
        return SchemaDrift(
            added=tuple(name for name in actual if name not in wanted),
            missing=tuple(name for name in wanted if name not in actual),
            widened=tuple(widened),
            narrowed=tuple(narrowed),
            changed=tuple(changed),
            nullability=tuple(nullability),
        )


def _columns(schema: Schema) -> dict[str, NestedField]:
    return {name: schema.find_field(name) for name in schema.column_names}
