"""The schema that an asset declares in its metadata, `dagster/column_schema`, as an Iceberg schema.

Dagster takes any text as a type. Names of Iceberg, SQL, Spark, pandas and polars are known here; a column of another
type keeps the type that the table has.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dagster import MetadataValue, TableColumn, TableSchema
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

__all__ = ["DeclaredSchema", "declared_columns", "declared_schema"]

_KEY = "dagster/column_schema"
_DEFAULT = "string"  # the type that Dagster gives a column without one

_TYPES: Mapping[str, IcebergType] = {
    **dict.fromkeys(("boolean", "bool"), BooleanType()),
    **dict.fromkeys(("int", "integer", "int8", "int16", "int32", "short", "smallint", "tinyint"), IntegerType()),
    **dict.fromkeys(("long", "bigint", "int64"), LongType()),
    **dict.fromkeys(("float", "float32", "real"), FloatType()),
    **dict.fromkeys(("double", "double precision", "float64"), DoubleType()),
    **dict.fromkeys(("string", "str", "varchar", "text", "utf8", "large_string"), StringType()),
    **dict.fromkeys(("date", "date32"), DateType()),
    **dict.fromkeys(("timestamptz", "timestamp with time zone", "timestamp_ltz"), TimestamptzType()),
    **dict.fromkeys(("timestamp_ntz", "timestamp without time zone"), TimestampType()),
    **dict.fromkeys(("binary", "bytes", "bytea"), BinaryType()),
    "time": TimeType(),
    "uuid": UUIDType(),
}
# Iceberg's `timestamp` has no time zone and Spark's has one: the column of the table decides.
_EITHER_TIMESTAMP = ("timestamp", "datetime", "datetime64[ns]", "datetime64[us]")
_DECIMAL = re.compile(r"(?:decimal|numeric)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")


@dataclass(frozen=True)
class DeclaredSchema:
    """A declared schema.

    Attributes:
        columns: The declared columns by name, with their types as text.
        has_types: Whether any column has a type that is not Dagster's default. Without, the columns may merely be
            described, and a conflict of types proves nothing.
    """

    columns: Mapping[str, TableColumn]
    has_types: bool

    def as_data_for(self, table: Schema) -> tuple[Schema, dict[str, str]]:
        """The schema of data with these columns, and the new columns whose type is not known here, with that text.

        A column of unknown type has the type that the table has. Whether a column has NULL is decided by the data.
        """
        existing = {field.name.lower(): field for field in table.fields}
        fields: list[NestedField] = []
        unknown: dict[str, str] = {}
        for number, column in enumerate(self.columns.values(), start=1):
            known = existing.get(column.name.lower())
            kind = _type_of(column.type, known.field_type if known is not None else None)
            if kind is None:
                unknown[column.name] = column.type
            else:
                required = known.required if known is not None else not column.constraints.nullable
                fields.append(NestedField(number, column.name, kind, required=required))
        return Schema(*fields), unknown


def declared_columns(metadata: Mapping[str, Any]) -> dict[str, TableColumn]:
    """The columns that the metadata of an asset declares, by their names in lower case; empty if it declares none."""
    schema = metadata.get(_KEY)
    schema = schema.value if isinstance(schema, MetadataValue) else schema
    return {column.name.lower(): column for column in schema.columns} if isinstance(schema, TableSchema) else {}


def declared_schema(metadata: Mapping[str, Any]) -> DeclaredSchema | None:
    """The schema that the metadata of an asset declares; None if it declares none."""
    columns = declared_columns(metadata)
    return DeclaredSchema(columns, any(column.type != _DEFAULT for column in columns.values())) if columns else None


def _type_of(text: str, in_table: IcebergType | None) -> IcebergType | None:
    """The type that a text names; that of the table if the text names none, or names either kind of timestamp."""
    name = " ".join(text.lower().split())
    if name in _TYPES:
        return _TYPES[name]
    decimal = _DECIMAL.fullmatch(name)
    if decimal is not None and 0 < int(decimal[1]) <= 38:
        return DecimalType(int(decimal[1]), int(decimal[2] or 0))
    if name in _EITHER_TIMESTAMP and not isinstance(in_table, TimestampType | TimestamptzType | None):
        return TimestamptzType()  # a conflict with any other type, whichever of the two is meant
    return in_table
