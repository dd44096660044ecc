"""Which data a table takes in, which change it needs for that, and what is refused."""

from __future__ import annotations

import pyarrow as pa
import pytest

from floe_core.errors import SchemaEvolutionError
from floe_iceberg.schema.evolution import plan_change, to_iceberg_schema


def change(table: pa.Schema, data: pa.Schema, *, evolve: bool = True) -> str:
    return str(plan_change(to_iceberg_schema(table), to_iceberg_schema(data), name="bronze.orders", evolve=evolve))


def one(kind: pa.DataType, *, nullable: bool = True, name: str = "a") -> pa.Schema:
    return pa.schema([pa.field(name, kind, nullable)])


@pytest.mark.parametrize(
    ("table", "data", "expected"),
    [
        (pa.int32(), pa.int32(), ""),
        (pa.int32(), pa.int64(), "a -> long"),
        (pa.int64(), pa.int32(), ""),
        (pa.float32(), pa.float64(), "a -> double"),
        (pa.float64(), pa.float32(), ""),
        (pa.decimal128(5, 2), pa.decimal128(9, 2), "a -> decimal(9, 2)"),
        (pa.decimal128(9, 2), pa.decimal128(5, 2), ""),
        (
            pa.struct([("x", pa.int32())]),
            pa.struct([("x", pa.int64()), ("y", pa.string())]),
            "+a.y string, a.x -> long",
        ),
        (pa.list_(pa.int32()), pa.list_(pa.int64()), "a.element -> long"),
        (pa.map_(pa.string(), pa.int32()), pa.map_(pa.string(), pa.int64()), "a.value -> long"),
        (
            pa.list_(pa.struct([("x", pa.int32())])),
            pa.list_(pa.struct([("x", pa.int32()), ("y", pa.string())])),
            "+a.element.y string",
        ),
    ],
)
def test_compatible_data_changes_the_table_just_as_much_as_needed(
    table: pa.DataType, data: pa.DataType, expected: str
) -> None:
    assert change(one(table), one(data)) == expected


@pytest.mark.parametrize(
    ("table", "data"),
    [
        (pa.int64(), pa.string()),
        (pa.string(), pa.int64()),
        (pa.int64(), pa.float64()),
        (pa.float64(), pa.int64()),
        (pa.date32(), pa.timestamp("us")),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.decimal128(9, 2), pa.decimal128(9, 3)),
        (pa.struct([("x", pa.int32())]), pa.int32()),
        (pa.map_(pa.int32(), pa.string()), pa.map_(pa.string(), pa.string())),
    ],
)
def test_anything_else_is_refused_and_named(table: pa.DataType, data: pa.DataType) -> None:
    with pytest.raises(
        SchemaEvolutionError, match=r"^Schema mismatch: column 'a' has incompatible type\. a: the table"
    ):
        change(one(table), one(data))


def test_a_required_column_becomes_optional_for_data_that_may_be_null() -> None:
    assert change(one(pa.int32(), nullable=False), one(pa.int32())) == "a may be null"


def test_a_required_column_that_is_missing_is_refused_and_an_optional_one_is_not() -> None:
    table = pa.schema([pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.int32()), pa.field("c", pa.int32())])
    assert change(table, pa.schema([pa.field("a", pa.int32(), nullable=False)])) == ""
    with pytest.raises(SchemaEvolutionError, match="a: is required and missing"):
        change(table, pa.schema([("b", pa.int32())]))


def test_names_that_differ_in_case_are_one_column() -> None:
    assert change(one(pa.int32(), name="Amount"), one(pa.int32(), name="amount")) == ""


def test_with_evolution_off_every_change_is_refused() -> None:
    with pytest.raises(SchemaEvolutionError, match=r"evolution is off: a -> long; nothing was written"):
        change(one(pa.int32()), one(pa.int64()), evolve=False)
    assert change(one(pa.int32()), one(pa.int32()), evolve=False) == ""


def test_types_iceberg_does_not_have_are_all_named() -> None:
    with pytest.raises(SchemaEvolutionError, match=r"a \(duration\[us\]\), b \(null\)"):
        to_iceberg_schema(pa.schema([("a", pa.duration("us")), ("b", pa.null()), ("c", pa.int32())]))


def test_field_ids_are_given_in_order_nested_fields_included() -> None:
    schema = to_iceberg_schema(pa.schema([("a", pa.struct([("x", pa.int32())])), ("b", pa.int32())]))
    assert (schema.find_field("a").field_id, schema.find_field("a.x").field_id, schema.find_field("b").field_id) == (
        1,
        2,
        3,
    )
