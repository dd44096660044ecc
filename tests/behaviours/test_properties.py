"""Schemas, data and evolutions that nobody thought of: made up at random, they survive both engines."""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.catalogs import CATALOGS, WITHOUT_SEAWEEDFS
from tests.engines import ArrowEngine, SparkEngine, rows_of

from floe_core.identifiers import TableIdentifier
from floe_iceberg import Lake

ROWS = 6
SETTINGS = settings(
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)

# Days and microseconds between the years 1600 and 2500: since the Gregorian calendar both engines count alike.
_DAYS = st.integers(-135_140, 193_579)
_MICROSECONDS = st.integers(-135_140 * 86_400_000_000, 193_579 * 86_400_000_000)

_PRIMITIVES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.bool_(), st.booleans()),
    (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.float32(), st.floats(width=32, allow_nan=False)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.decimal128(20, 4), st.decimals(-(10**15), 10**15, places=4)),
    (pa.string(), st.text(st.characters(codec="utf-8"), max_size=12)),
    (pa.binary(), st.binary(max_size=12)),
    (pa.date32(), _DAYS),
    (pa.timestamp("us", "UTC"), _MICROSECONDS),
    (pa.timestamp("us"), _MICROSECONDS),
]

Column = tuple[pa.DataType, st.SearchStrategy[Any]]


@pytest.fixture(scope="session", params=WITHOUT_SEAWEEDFS)
def catalog(request: pytest.FixtureRequest) -> Lake:
    opened: Lake = request.getfixturevalue(CATALOGS[request.param])
    return opened


def _nullable(column: Column) -> st.SearchStrategy[Any]:
    return st.none() | column[1]


def _list_of(column: Column) -> Column:
    return pa.list_(column[0]), st.lists(_nullable(column), max_size=3)


def _struct_of(columns: list[Column]) -> Column:
    names = [f"f{place}" for place in range(len(columns))]
    return (
        pa.struct([(name, column[0]) for name, column in zip(names, columns, strict=True)]),
        st.fixed_dictionaries({name: _nullable(column) for name, column in zip(names, columns, strict=True)}),
    )


def _map_of(column: Column) -> Column:
    items = st.dictionaries(st.text("abc", max_size=3), _nullable(column), max_size=3)
    return pa.map_(pa.string(), column[0]), items.map(lambda one: list(one.items()))


COLUMNS: st.SearchStrategy[Column] = st.recursive(
    st.sampled_from(_PRIMITIVES),
    lambda inner: st.one_of(
        inner.map(_list_of), inner.map(_map_of), st.lists(inner, min_size=1, max_size=3).map(_struct_of)
    ),
    max_leaves=4,
)


@st.composite
def tables(draw: st.DrawFn, columns: int = 8) -> pa.Table:
    """Some rows of some columns of some types, required ones among them."""
    made = {"n": pa.array(range(ROWS), pa.int64())}
    fields = [pa.field("n", pa.int64(), nullable=False)]
    for place in range(draw(st.integers(1, columns))):
        column = draw(COLUMNS)
        required = draw(st.booleans())
        values = column[1] if required else _nullable(column)
        made[f"c{place}"] = pa.array(draw(st.lists(values, min_size=ROWS, max_size=ROWS)), column[0])
        fields.append(pa.field(f"c{place}", column[0], nullable=not required))
    return pa.Table.from_arrays(list(made.values()), schema=pa.schema(fields))


def _new(namespace: str) -> TableIdentifier:
    return TableIdentifier(namespace=(namespace,), name=f"t{uuid.uuid4().hex[:12]}")


@settings(SETTINGS, max_examples=12)
@given(data=tables())
def test_data_survives_the_way_through_both_engines(catalog: Lake, namespace: str, data: pa.Table) -> None:
    """Arrow -> Iceberg -> Spark -> Iceberg -> Arrow."""
    arrow, spark = ArrowEngine(catalog), SparkEngine(catalog)
    by_arrow, by_spark = _new(namespace), _new(namespace)
    arrow.write(by_arrow, data, mode="append")
    catalog.write(catalog.read(by_arrow), by_spark, mode="append")
    assert rows_of(arrow.read(by_arrow)) == rows_of(data)
    assert rows_of(spark.read(by_arrow)) == rows_of(data)
    assert rows_of(arrow.read(by_spark)) == rows_of(data)
    # And back into the table that Arrow made: the types are the same in both.
    catalog.write(catalog.read(by_spark), by_arrow, mode="append")
    assert rows_of(arrow.read(by_arrow)) == sorted(rows_of(data) * 2, key=str)


_WIDER = {
    pa.int32(): pa.int64(),
    pa.float32(): pa.float64(),
    pa.decimal128(20, 4): pa.decimal128(30, 4),
}


@st.composite
def evolutions(draw: st.DrawFn) -> list[pa.Table]:
    """Data that changes step by step as additive evolution allows: columns come, stay away, become wider."""
    steps: list[pa.Table] = []
    known: dict[str, Column] = {}
    for step in range(draw(st.integers(2, 4))):
        for name, (kind, values) in list(known.items()):
            if kind in _WIDER and draw(st.booleans()):
                known[name] = (_WIDER[kind], values)
        for place in range(draw(st.integers(0 if known else 1, 2))):
            known[f"s{step}_{place}"] = draw(COLUMNS)
        arriving = [name for name in known if draw(st.integers(0, 4)) > 0]
        arriving = draw(st.permutations(arriving))
        columns = {"n": pa.array([step * 10 + place for place in range(3)], pa.int64())}
        for name in arriving:
            kind, values = known[name]
            columns[name] = pa.array(draw(st.lists(st.none() | values, min_size=3, max_size=3)), kind)
        steps.append(pa.table(columns))
    return steps


@pytest.mark.full  # hypothesis on Spark
@settings(SETTINGS, max_examples=25)
@given(steps=evolutions())
def test_old_data_stays_readable_whatever_is_added(catalog: Lake, namespace: str, steps: list[pa.Table]) -> None:
    arrow = ArrowEngine(catalog)
    table = _new(namespace)
    taken = []
    for step in steps:
        made = arrow.write(table, step, mode="append")
        taken.append((made.snapshot_id, rows_of(arrow.read(table))))
    names = arrow.read(table).column_names
    expected = [tuple(row.get(name) for name in names) for step in steps for row in step.to_pylist()]
    assert rows_of(arrow.read(table)) == sorted(expected, key=str)
    for snapshot_id, rows in taken:
        assert rows_of(arrow.read(table, snapshot_id=snapshot_id)) == rows
    assert len(catalog.tables.list_snapshots(table)) == len(steps)


@pytest.mark.full  # hypothesis on Spark
@settings(SETTINGS, max_examples=4)
@given(steps=evolutions())
def test_spark_reads_what_evolved_and_evolves_it_further(catalog: Lake, namespace: str, steps: list[pa.Table]) -> None:
    arrow, spark = ArrowEngine(catalog), SparkEngine(catalog)
    table = _new(namespace)
    for place, step in enumerate(steps):
        (arrow if place % 2 == 0 else spark).write(table, step, mode="append")
    assert rows_of(spark.read(table)) == rows_of(arrow.read(table))
    assert len(arrow.read(table)) == 3 * len(steps)
