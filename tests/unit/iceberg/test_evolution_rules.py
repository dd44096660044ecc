"""Every cell of docs/reference/schema-evolution.md: by the comparison of schemas, and those that change on tables."""

from __future__ import annotations

import uuid
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import date, datetime, time, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.lakes import open_manager

from floe_core.errors import SchemaEvolutionError
from floe_core.identifiers import TableIdentifier
from floe_iceberg import IcebergTableManager
from floe_iceberg.schema.changes import (
    AddColumn,
    ColumnChange,
    DropColumn,
    MakeOptional,
    MakeRequired,
    MoveColumn,
    RenameColumn,
    WidenColumn,
)
from floe_iceberg.schema.evolution import plan_change, to_iceberg_schema

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "schema-evolution.md"

VALUES: dict[str, tuple[pa.DataType, Any]] = {
    "boolean": (pa.bool_(), True),
    "int": (pa.int32(), 7),
    "long": (pa.int64(), 7),
    "float": (pa.float32(), 0.5),
    "double": (pa.float64(), 0.5),
    "decimal(9, 2)": (pa.decimal128(9, 2), Decimal("1.50")),
    "decimal(18, 2)": (pa.decimal128(18, 2), Decimal("1.50")),
    "decimal(18, 4)": (pa.decimal128(18, 4), Decimal("1.5000")),
    "string": (pa.string(), "x"),
    "binary": (pa.binary(), b"x"),
    "date": (pa.date32(), date(2026, 1, 1)),
    "time": (pa.time64("us"), time(12)),
    "timestamp": (pa.timestamp("us"), datetime(2026, 1, 1)),
    "timestamptz": (pa.timestamp("us", "UTC"), datetime(2026, 1, 1, tzinfo=timezone.utc)),
    "uuid": (pa.uuid(), uuid.UUID(int=1).bytes),
    "fixed[16]": (pa.binary(16), uuid.UUID(int=1).bytes),
}


def rows_of_page(heading: str) -> list[list[str]]:
    section = PAGE.read_text(encoding="utf-8").split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line] for line in lines]


HEADER, *MATRIX = rows_of_page("Types")
CELLS = [(line[0], kind, rule) for line in MATRIX for kind, rule in zip(HEADER[1:], line[1:], strict=True)]


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory) -> IcebergTableManager:
    root = tmp_path_factory.mktemp("lake")
    return open_manager(root)


@pytest.fixture
def table() -> TableIdentifier:
    return TableIdentifier(namespace=("rules",), name=f"t{uuid.uuid4().hex[:12]}")


def column(kind: str) -> pa.Table:
    arrow, value = VALUES[kind]
    return pa.table({"v": pa.array([value, None], arrow.storage_type if kind == "uuid" else arrow).cast(arrow)})


def test_the_page_knows_every_type() -> None:
    assert HEADER[1:] == [line[0] for line in MATRIX] == list(VALUES)


def rule_for(there: str, arriving: str) -> str:
    """What the comparison of schemas says about a cell."""
    table, data = (to_iceberg_schema(column(kind).schema) for kind in (there, arriving))
    try:
        change = plan_change(table, data, name="bronze.t", evolve=True)
    except SchemaEvolutionError as exc:
        return "no" if f"v: the table has {there}, the data has {arriving}" in str(exc) else str(exc)
    return "widens" if change else "same" if there == arriving else "fits"


def test_every_cell_of_the_page_is_what_the_comparison_of_schemas_says() -> None:
    assert [(there, arriving, rule_for(there, arriving)) for there, arriving, _ in CELLS] == CELLS


# One refusal stands for all: what is refused was decided by the comparison above.
ON_TABLES = [cell for cell in CELLS if cell[2] in ("fits", "widens")] + [
    ("long", "string", "no"),
    ("uuid",) * 2 + ("same",),
]


@pytest.mark.parametrize(("there", "arriving", "rule"), ON_TABLES)
def test_types(manager: IcebergTableManager, table: TableIdentifier, there: str, arriving: str, rule: str) -> None:
    manager.write_data(table, column(there), mode="append")
    if rule == "no":
        with pytest.raises(SchemaEvolutionError) as refusal:
            manager.write_data(table, column(arriving), mode="append")
        assert f"v: the table has {there}, the data has {arriving}" in str(refusal.value)
        assert len(manager.scan(table).to_arrow()) == 2
        return
    manager.write_data(table, column(arriving), mode="append")
    kind = str(manager.load_table(table).schema().find_type("v"))
    assert kind == (arriving if rule == "widens" else there)
    kept = [one for one in manager.scan(table).to_arrow()["v"].to_pylist() if one is not None]
    assert kept[0] == kept[1]
    with pytest.raises(SchemaEvolutionError) if rule == "widens" else nullcontext():
        manager.write_data(_again(manager, table, there), column(arriving), mode="append", evolve=False)


def _again(manager: IcebergTableManager, table: TableIdentifier, there: str) -> TableIdentifier:
    other = TableIdentifier(namespace=table.namespace, name=f"{table.name}_b")
    manager.write_data(other, column(there), mode="append")
    return other


@dataclass(frozen=True)
class Shape:
    """A table, the data that meets it, the columns and rows afterwards, and the explicit call for the same."""

    table: pa.Table
    data: pa.Table
    after: list[dict[str, Any]] | None
    change: ColumnChange | None = None
    required: tuple[str, ...] = ()


def _t(**columns: Any) -> pa.Table:
    return pa.table(columns)


_STRUCT = pa.struct([("a", pa.int64())])
_WIDER_STRUCT = pa.struct([("a", pa.int64()), ("b", pa.string())])

SHAPES: dict[str, Shape] = {
    "has a new column": Shape(
        _t(a=[1]), _t(a=[2], b=["x"]), [{"a": 1, "b": None}, {"a": 2, "b": "x"}], AddColumn("b", pa.string())
    ),
    "has a new field in a struct": Shape(
        _t(s=pa.array([{"a": 1}], _STRUCT)),
        _t(s=pa.array([{"a": 2, "b": "x"}], _WIDER_STRUCT)),
        [{"s": {"a": 1, "b": None}}, {"s": {"a": 2, "b": "x"}}],
        AddColumn("s.b", pa.string()),
    ),
    "has a new field in a struct in a list": Shape(
        _t(s=pa.array([[{"a": 1}]], pa.list_(_STRUCT))),
        _t(s=pa.array([[{"a": 2, "b": "x"}]], pa.list_(_WIDER_STRUCT))),
        [{"s": [{"a": 1, "b": None}]}, {"s": [{"a": 2, "b": "x"}]}],
        AddColumn("s.element.b", pa.string()),
    ),
    "has a wider element in a list": Shape(
        _t(s=pa.array([[1]], pa.list_(pa.int32()))),
        _t(s=pa.array([[2**40]], pa.list_(pa.int64()))),
        [{"s": [1]}, {"s": [2**40]}],
        WidenColumn("s.element", pa.int64()),
    ),
    "has a wider value in a map": Shape(
        _t(s=pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32()))),
        _t(s=pa.array([[("k", 2**40)]], pa.map_(pa.string(), pa.int64()))),
        [{"s": [("k", 1)]}, {"s": [("k", 2**40)]}],
        WidenColumn("s.value", pa.int64()),
    ),
    "has another key in a map": Shape(
        _t(s=pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64()))),
        _t(s=pa.array([[(1, 1)]], pa.map_(pa.int64(), pa.int64()))),
        None,
    ),
    "lacks an optional column": Shape(_t(a=[1], b=["x"]), _t(a=[2]), [{"a": 1, "b": "x"}, {"a": 2, "b": None}]),
    "lacks a required column": Shape(_t(a=[1], b=["x"]), _t(a=[2]), None, MakeOptional("b"), required=("b",)),
    "holds NULL for a required column": Shape(
        _t(a=[1], b=["x"]),
        _t(a=[2], b=pa.array([None], pa.string())),
        [{"a": 1, "b": "x"}, {"a": 2, "b": None}],
        MakeOptional("b"),
        required=("b",),
    ),
    "has the columns in another order": Shape(
        _t(a=[1], b=["x"]), _t(b=["y"], a=[2]), [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}], MoveColumn("b")
    ),
    "has a name in another case": Shape(_t(a=[1]), _t(A=[2]), [{"a": 1}, {"a": 2}], RenameColumn("a", "A")),
    "has a column under another name": Shape(
        _t(a=[1]), _t(z=[2]), [{"a": 1, "z": None}, {"a": None, "z": 2}], RenameColumn("a", "z")
    ),
    "must not have a column any longer": Shape(
        _t(a=[1], b=["x"]), _t(a=[2]), [{"a": 1, "b": "x"}, {"a": 2, "b": None}], DropColumn("b")
    ),
    "must never be NULL": Shape(_t(a=[1]), _t(a=[2]), [{"a": 1}, {"a": 2}], MakeRequired("a")),
}
_, *RULES = rows_of_page("Shapes")


def test_the_page_knows_every_shape() -> None:
    assert [rule[0] for rule in RULES] == list(SHAPES)


def _create(manager: IcebergTableManager, table: TableIdentifier, shape: Shape) -> None:
    schema = pa.schema([one.with_nullable(one.name not in shape.required) for one in shape.table.schema])
    manager.write_data(table, shape.table.cast(schema), mode="append")


@pytest.mark.parametrize(("situation", "by_itself", "call"), RULES)
def test_shapes(
    manager: IcebergTableManager, table: TableIdentifier, situation: str, by_itself: str, call: str
) -> None:
    shape = SHAPES[situation]
    _create(manager, table, shape)
    assert (shape.after is None) == (by_itself == "no")
    if shape.after is None:
        with pytest.raises(SchemaEvolutionError):
            manager.write_data(table, shape.data, mode="append")
    else:
        manager.write_data(table, shape.data, mode="append")
        found = sorted(manager.scan(table).to_arrow().to_pylist(), key=str)
        assert found == sorted(shape.after, key=str)
        if "optional" in by_itself:
            assert not manager.load_table(table).schema().fields[-1].required

    assert (shape.change is None) == (call in ("-", "no"))
    if shape.change is not None:
        other = TableIdentifier(namespace=table.namespace, name=f"{table.name}_b")
        _create(manager, other, shape)
        assert call.startswith(type(shape.change).__name__)
        if call.endswith("with consent"):
            with pytest.raises(SchemaEvolutionError, match="allow_incompatible_changes"):
                manager.evolve_schema(other, shape.change)
        manager.evolve_schema(other, shape.change, allow_incompatible_changes=call.endswith("with consent"))
        assert len(manager.scan(other).to_arrow()) == 1
