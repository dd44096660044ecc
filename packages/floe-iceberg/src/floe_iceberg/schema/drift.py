"""Drift: the differences between a table's schema and a declared one."""

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
            expected, stored = wanted[name], actual[name]
            difference = f"{name}: declared {expected.field_type}, the table has {stored.field_type}"
            if (
                expected.field_type.is_primitive
                and stored.field_type.is_primitive
                and expected.field_type != stored.field_type
            ):
                if fits(expected.field_type, stored.field_type):
                    widened.append(difference)
                elif fits(stored.field_type, expected.field_type):
                    narrowed.append(difference)
                else:
                    changed.append(difference)
            elif expected.field_type.is_primitive is not stored.field_type.is_primitive:
                changed.append(difference)
            if expected.required is not stored.required:
                declared_as, stored_as = ("required", "optional") if expected.required else ("optional", "required")
                nullability.append(f"{name}: declared {declared_as}, the table has it {stored_as}")
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
