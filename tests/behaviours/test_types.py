"""One mapping of types for both engines: what one writes, the other reads, and the table has one type for it."""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping
from datetime import date, datetime, time, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo, IsNull
from pyiceberg.io.pyarrow import ArrowProjectionVisitor
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, NestedField, StructType
from tests.catalogs import CATALOGS, WITHOUT_SEAWEEDFS
from tests.engines import ArrowEngine, Engine, SparkEngine, rows_of, transform

from floe_core.errors import FloeError, SchemaEvolutionError
from floe_core.identifiers import TableIdentifier
from floe_iceberg import Lake

MOMENT = datetime(2026, 3, 29, 1, 30, 0, 123456, tzinfo=timezone.utc)
NAIVE = MOMENT.replace(tzinfo=None)
ONE, TWO = uuid.UUID(int=1), uuid.UUID(int=2**127)

# Arrow type, values, the type of the table's column.
COLUMNS: dict[str, tuple[pa.DataType, list[Any], str]] = {
    "boolean": (pa.bool_(), [True, False, None], "boolean"),
    "int": (pa.int32(), [-(2**31), 2**31 - 1, None], "int"),
    "long": (pa.int64(), [-(2**63), 2**63 - 1, None], "long"),
    "float": (pa.float32(), [1.5, -0.0, math.inf, -math.inf, None], "float"),
    "double": (pa.float64(), [1.1, -0.0, math.inf, -math.inf, 5e-324, None], "double"),
    "small decimal": (pa.decimal128(9, 2), [Decimal("-1234567.89"), Decimal("0.00"), None], "decimal(9, 2)"),
    "large decimal": (pa.decimal128(38, 10), [Decimal(10) ** 27, Decimal("-0.0000000001"), None], "decimal(38, 10)"),
    "string": (pa.string(), ["", "x", "Łódź ✓ 日本", "a\nb", "it's", None], "string"),
    "binary": (pa.binary(), [b"", b"\x00\xff", None], "binary"),
    "date": (pa.date32(), [date(1969, 12, 31), date(2026, 1, 1), date(9999, 12, 31), None], "date"),
    "timestamp": (pa.timestamp("us"), [NAIVE, datetime(1969, 12, 31, 23, 59, 59, 999999), None], "timestamp"),
    "timestamptz": (
        pa.timestamp("us", "UTC"),
        [MOMENT, datetime(1900, 1, 1, tzinfo=timezone.utc), None],
        "timestamptz",
    ),
    "struct": (
        pa.struct([("a", pa.int64()), ("b", pa.string())]),
        [{"a": 1, "b": "x"}, {"a": None, "b": ""}, None],
        "",
    ),
    "list": (pa.list_(pa.string()), [["a", None, ""], [], None], ""),
    "map": (pa.map_(pa.string(), pa.int64()), [[("k", 1), ("", None)], [], None], ""),
    "list of structs": (
        pa.list_(pa.struct([("at", pa.timestamp("us", "UTC")), ("n", pa.decimal128(10, 2))])),
        [[{"at": MOMENT, "n": Decimal("1.50")}, None], [], None],
        "",
    ),
    "map of lists": (pa.map_(pa.int64(), pa.list_(pa.float64())), [[(1, [0.5, None]), (2, [])], None], ""),
}


@pytest.fixture(scope="session", params=WITHOUT_SEAWEEDFS)
def catalog(request: pytest.FixtureRequest) -> Lake:
    opened: Lake = request.getfixturevalue(CATALOGS[request.param])
    return opened


@pytest.fixture(params=["arrow", "spark"])
def reader(request: pytest.FixtureRequest, catalog: Lake) -> Engine:
    return ArrowEngine(catalog) if request.param == "arrow" else SparkEngine(catalog)


def one_of_each(columns: Mapping[str, tuple[pa.DataType, list[Any]]]) -> pa.Table:
    """A table with a column for each kind; columns with fewer values end in NULL."""
    length = max(len(values) for _, values in columns.values())
    padded = {
        name: pa.array([*values, *[None] * (length - len(values))], kind) for name, (kind, values) in columns.items()
    }
    return pa.table({"row": pa.array(range(length), pa.int64()), **padded})


def columns_of(data: pa.Table) -> dict[str, list[Any]]:
    """The values by column, in the order of the rows."""
    found: dict[str, list[Any]] = data.sort_by("row").to_pydict()
    return found


@pytest.mark.every_catalog
def test_values_of_every_type_are_the_same_in_both_engines(
    engine: Engine, reader: Engine, table: TableIdentifier
) -> None:
    data = one_of_each({name: (kind, values) for name, (kind, values, _) in COLUMNS.items()})
    engine.write(table, data, mode="append")
    assert columns_of(reader.read(table)) == columns_of(data)
    schema = reader.lake.tables.load_table(table).schema()
    expected = {name: stored for name, (_, _, stored) in COLUMNS.items() if stored}
    assert {name: str(schema.find_type(name)) for name in expected} == expected
    engine.write(table, data, mode="overwrite")  # a table made by the one takes the other's data without a change
    reader.write(table, data, mode="append")
    assert columns_of(engine.read(table)) == columns_of(pa.concat_tables([data, data]))
    assert len(engine.lake.tables.load_table(table).schemas()) == 1


def test_not_a_number_stays_what_it_is(engine: Engine, reader: Engine, table: TableIdentifier) -> None:
    engine.write(table, pa.table({"n": [1, 2], "x": [math.nan, None]}), mode="append")
    found = {row["n"]: row["x"] for row in reader.read(table).to_pylist()}
    assert math.isnan(found[1])
    assert found[2] is None


@pytest.mark.parametrize("kind", ["uuid", "fixed"])
def test_what_spark_has_no_type_for_is_read_and_written_by_it_all_the_same(
    catalog: Lake, table: TableIdentifier, kind: str
) -> None:
    arrow, spark = ArrowEngine(catalog), SparkEngine(catalog)
    stored = pa.uuid() if kind == "uuid" else pa.binary(16)
    data = pa.table({"n": [1, 2, 3], "v": pa.array([ONE.bytes, TWO.bytes, None], pa.binary(16)).cast(stored)})
    arrow.write(table, data, mode="append")
    assert str(catalog.tables.load_table(table).schema().find_type("v")) == ("uuid" if kind == "uuid" else "fixed[16]")
    as_spark_sees: list[Any] = [str(ONE), str(TWO), None] if kind == "uuid" else [ONE.bytes, TWO.bytes, None]
    assert [row["v"] for row in sorted(spark.read(table).to_pylist(), key=lambda row: row["n"])] == as_spark_sees
    spark.write(table, pa.table({"n": [4, 5], "v": as_spark_sees[:2]}), mode="append")
    back = sorted(arrow.read(table).to_pylist(), key=lambda row: row["n"])
    assert [row["v"] for row in back[3:]] == [row["v"] for row in back[:2]]
    assert len(catalog.tables.load_table(table).schemas()) == 1


def test_a_time_of_day_is_for_arrow_alone(catalog: Lake, table: TableIdentifier) -> None:
    arrow = ArrowEngine(catalog)
    data = pa.table({"v": pa.array([time(23, 59, 59, 999999), None], pa.time64("us"))})
    arrow.write(table, data, mode="append")
    assert rows_of(arrow.read(table)) == rows_of(data)


# Arrow's many types for one thing, the type the table gets, and the values it keeps.
CONVERTED: dict[str, tuple[pa.Array, str, list[Any]]] = {
    "int8": (pa.array([-128, 127], pa.int8()), "int", [-128, 127]),
    "uint16": (pa.array([65535], pa.uint16()), "int", [65535]),
    "uint32": (pa.array([2**32 - 1], pa.uint32()), "long", [2**32 - 1]),
    "uint64": (pa.array([2**63 - 1], pa.uint64()), "long", [2**63 - 1]),
    "float16": (pa.array([0.5], pa.float16()), "float", [0.5]),
    "large_string": (pa.array(["x"], pa.large_string()), "string", ["x"]),
    "string_view": (pa.array(["x", None], pa.string_view()), "string", ["x", None]),
    "binary_view": (pa.array([b"x"], pa.binary_view()), "binary", [b"x"]),
    "dictionary": (pa.array(["x", "y", "x", None]).dictionary_encode(), "string", ["x", "y", "x", None]),
    "run-end encoded": (pa.compute.run_end_encode(pa.array([1, 1, 2])), "long", [1, 1, 2]),
    "decimal256": (pa.array([Decimal("1.50")], pa.decimal256(38, 2)), "decimal(38, 2)", [Decimal("1.50")]),
    "date64": (pa.array([date(2026, 1, 1)], pa.date64()), "date", [date(2026, 1, 1)]),
    "seconds": (
        pa.array([NAIVE.replace(microsecond=0)], pa.timestamp("s")),
        "timestamp",
        [NAIVE.replace(microsecond=0)],
    ),
    "another zone": (pa.array([MOMENT], pa.timestamp("us", "Europe/Oslo")), "timestamptz", [MOMENT]),
    "whole microseconds": (pa.array([NAIVE], pa.timestamp("us")).cast(pa.timestamp("ns")), "timestamp", [NAIVE]),
    "fixed-size list": (pa.array([[1, 2], None], pa.list_(pa.int64(), 2)), "", [[1, 2], None]),
    "large list": (pa.array([["a"], []], pa.large_list(pa.string())), "", [["a"], []]),
    "dictionary in a list": (
        pa.array([["a", "a"], ["b"]], pa.list_(pa.dictionary(pa.int32(), pa.string()))),
        "",
        [["a", "a"], ["b"]],
    ),
}


def test_arrow_types_that_lose_nothing_are_converted(catalog: Lake, table: TableIdentifier) -> None:
    length = max(len(values) for values, _, _ in CONVERTED.values())
    nulls = {name: [None] * (length - len(kept)) for name, (_, _, kept) in CONVERTED.items()}
    data = {name: filled(values, length) for name, (values, _, _) in CONVERTED.items()}
    arrow = ArrowEngine(catalog)
    for _ in range(2):  # into a new table, and into one that is there
        arrow.write(table, pa.table(data), mode="append")
    expected = {name: [*kept, *nulls[name]] * 2 for name, (_, _, kept) in CONVERTED.items()}
    assert arrow.read(table).to_pydict() == expected
    assert SparkEngine(catalog).read(table).to_pydict() == expected
    schema, types = catalog.tables.load_table(table).schema(), {name: one for name, (_, one, _) in CONVERTED.items()}
    assert {name: str(schema.find_type(name)) for name, one in types.items() if one} == {
        name: one for name, one in types.items() if one
    }


def filled(values: pa.Array, length: int) -> pa.Array:
    """An array of this length, with NULL at its end."""
    if pa.types.is_run_end_encoded(values.type):  # which Arrow cannot concatenate
        return pa.compute.run_end_encode(filled(pa.compute.run_end_decode(values), length))
    return pa.concat_arrays([values, pa.nulls(length - len(values), values.type)])


REFUSED: dict[str, tuple[pa.Array, str]] = {
    "too large for a long": (pa.array([2**64 - 1], pa.uint64()), "column 'v' holds a value that int64 cannot"),
    "no type": (pa.nulls(2), "'v' holds only NULL and has no type"),
    "a duration": (pa.array([1], pa.duration("s")), r"Iceberg has no type for v"),
    "39 digits": (pa.array([Decimal(1)], pa.decimal256(39, 0)), "Iceberg has no type for v"),
    "nanoseconds": (
        pa.array([1, 1000, None, 1001], pa.timestamp("ns")),
        "column 'v' holds 2 values finer than a microsecond.*truncate_nanoseconds",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_arrow_types_that_would_lose_something_are_refused(catalog: Lake, table: TableIdentifier, kind: str) -> None:
    values, words = REFUSED[kind]
    with pytest.raises(SchemaEvolutionError, match=words):
        ArrowEngine(catalog).write(table, pa.table({"v": values}), mode="append")
    assert not catalog.tables.table_exists(table)


def test_nanoseconds_are_cut_off_and_counted_when_asked_for(catalog: Lake, table: TableIdentifier) -> None:
    values = pa.array([1, 1000, None, 1001], pa.timestamp("ns"))
    made = ArrowEngine(catalog).write(table, pa.table({"v": values}), mode="append", truncate_nanoseconds=True)
    assert made.summary["floe.truncated-nanoseconds"] == "2"
    start = datetime(1970, 1, 1)
    assert rows_of(ArrowEngine(catalog).read(table)) == rows_of(
        pa.table({"v": pa.array([start, start.replace(microsecond=1), None, start.replace(microsecond=1)])})
    )


ODD_NAMES = ["with space", "a.b", "日本", "select", "1st", "x-y", "quote'd", "back`tick"]


def test_columns_may_have_any_name(engine: Engine, reader: Engine, table: TableIdentifier) -> None:
    inner = pa.StructArray.from_arrays([pa.array([1, 2])] * len(ODD_NAMES), names=ODD_NAMES)
    data = pa.table({**{name: [name, None] for name in ODD_NAMES}, "inside": inner})
    engine.write(table, data, mode="append")
    found = reader.read(table)
    assert found.column_names == [*ODD_NAMES, "inside"]
    assert rows_of(found) == rows_of(data)


def test_names_that_differ_only_in_case_are_refused(engine: Engine, table: TableIdentifier) -> None:
    data = pa.table([pa.array([1]), pa.array([2])], names=["id", "ID"])
    with pytest.raises((SchemaEvolutionError, FloeError), match="more than one column 'id'"):
        ArrowEngine(engine.lake).write(table, data, mode="append")
    assert not engine.lake.tables.table_exists(table)


def test_a_thousand_columns(engine: Engine, reader: Engine, table: TableIdentifier) -> None:
    data = pa.table({f"c{number}": pa.array([number, None], pa.int64()) for number in range(1000)})
    engine.write(table, data, mode="append")
    assert reader.read(table).to_pylist() == data.to_pylist()


def test_partitions_of_nothing_and_of_odd_texts(engine: Engine, reader: Engine, table: TableIdentifier) -> None:
    cities = [None, "", "Łódź", "a/b", "x=y", "..", "50%", " "]
    data = pa.table({"city": cities, "n": list(range(len(cities)))})
    engine.write(table, data, mode="append", partition_by=[transform("identity", "city")])
    assert rows_of(reader.read(table)) == rows_of(data)
    equal: Any = EqualTo
    missing: Any = IsNull
    for place, city in enumerate(cities):
        found = reader.read(table, row_filter=missing("city") if city is None else equal("city", city))
        assert found["n"].to_pylist() == [place]


NESTED_NULLS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "list of structs": (
        pa.list_(pa.struct([("a", pa.int64())])),
        [None, [], [None], [{"a": None}], [{"a": 1}, {"a": 2}]],
    ),
    "map of structs": (
        pa.map_(pa.string(), pa.struct([("a", pa.int64())])),
        [None, [], [("k", None)], [("k", {"a": None})], [("k", {"a": 1})]],
    ),
    "lists in lists": (
        pa.list_(pa.list_(pa.struct([("a", pa.int64())]))),
        [None, [], [None, []], [[{"a": 1}], [None]]],
    ),
    "a list in a struct": (
        pa.struct([("l", pa.list_(pa.struct([("a", pa.int64())])))]),
        [None, {"l": None}, {"l": []}, {"l": [{"a": 1}]}],
    ),
}


def test_null_and_empty_are_two_things_also_in_files_that_are_rewritten(
    engine: Engine, reader: Engine, table: TableIdentifier
) -> None:
    data = one_of_each(NESTED_NULLS)
    engine.write(table, data, mode="append")
    other = pa.table({"row": [100], **{name: pa.nulls(1, kind) for name, (kind, _) in NESTED_NULLS.items()}})
    engine.write(table, other, mode="append")
    # The first file holds neighbours of the row that is replaced, and is written again.
    engine.write(table, other.set_column(0, "row", pa.array([3])), mode="overwrite", overwrite_filter="row = 3")
    replaced = data.filter(pa.compute.field("row") != 3)
    expected = pa.concat_tables([replaced, other, other.set_column(0, "row", pa.array([3]))])
    assert columns_of(reader.read(table)) == columns_of(expected)


def test_pyiceberg_still_needs_its_mending() -> None:
    """When this fails, PyIceberg keeps NULL lists of structs: floe_iceberg/_pyiceberg/nested_nulls.py can go."""
    unmended: Any = ArrowProjectionVisitor.__mro__[1]
    assert unmended.__module__ == "pyiceberg.io.pyarrow"
    kind = ListType(2, StructType(NestedField(3, "a", LongType(), required=False)), element_required=False)
    values = pa.array([None], pa.large_list(pa.struct([("a", pa.int64())])))
    visitor = unmended(Schema(NestedField(1, "v", kind, required=False)))
    assert visitor.list(kind, values, values.values).to_pylist() == [[]]
