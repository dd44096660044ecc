"""The schema that an asset declares in dagster/column_schema, compared with that of its table."""

from __future__ import annotations

import pytest
from dagster import MetadataValue, TableColumn, TableSchema
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    IcebergType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from floe_core.errors import SchemaEvolutionError
from floe_dagster.assets.declared_schema import declared_schema
from floe_iceberg.schema import plan_change


def changes(declared: str, in_table: IcebergType | None) -> list[str]:
    """The changes for a column of this declared type, in a table where it has that type, or is missing."""
    found = declared_schema({"dagster/column_schema": TableSchema([TableColumn("c", declared)])})
    assert found is not None
    column = [] if in_table is None else [NestedField(2, "C", in_table, required=False)]
    table = Schema(NestedField(1, "id", LongType(), required=False), *column)
    data, unknown = found.as_data_for(table)
    texts = plan_change(table, data, name="s.t", evolve=True).texts()
    return [*texts, *(f"+{name} {kind}" for name, kind in unknown.items())]


@pytest.mark.parametrize(
    ("declared", "in_table", "expected"),
    [
        ("long", LongType(), []),
        ("Int32", LongType(), []),
        ("bigint", LongType(), []),
        ("double precision", DoubleType(), []),
        ("float", DoubleType(), []),
        ("VARCHAR", StringType(), []),
        ("decimal(12, 2)", DecimalType(10, 2), ["C -> decimal(12, 2)"]),
        ("decimal(10,2)", DecimalType(12, 2), []),
        ("timestamp", TimestamptzType(), []),
        ("timestamp", TimestampType(), []),
        ("timestamp with time zone", TimestamptzType(), []),
        ("struct<a: int>", StructType(NestedField(3, "a", LongType())), []),
        ("anything", LongType(), []),
        ("int64", None, ["+c long"]),
        ("struct<a: int>", None, ["+c struct<a: int>"]),
    ],
)
def test_a_declared_type_is_compared_as_a_write_compares_it(
    declared: str, in_table: IcebergType | None, expected: list[str]
) -> None:
    assert changes(declared, in_table) == expected


@pytest.mark.parametrize(
    ("declared", "in_table"),
    [
        ("string", LongType()),
        ("timestamp", LongType()),
        ("timestamp_ntz", TimestamptzType()),
        ("decimal(12, 3)", DecimalType(10, 2)),
    ],
)
def test_a_declared_type_that_evolution_refuses_is_refused(declared: str, in_table: IcebergType) -> None:
    with pytest.raises(SchemaEvolutionError, match="C: the table has"):
        changes(declared, in_table)


def test_only_declared_columns_are_a_schema() -> None:
    assert declared_schema({}) is None
    assert declared_schema({"dagster/column_schema": "id long"}) is None
    columns = [TableColumn("id", description="the number"), TableColumn("note")]
    described = declared_schema({"dagster/column_schema": MetadataValue.table_schema(TableSchema(columns))})
    assert described is not None
    assert not described.has_types
