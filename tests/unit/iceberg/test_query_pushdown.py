"""Conditions of a query that files are planned with: certain ones only, so that no row is ever lost."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.expressions import And, BooleanExpression
from pyiceberg.expressions import parser as language
from pyiceberg.expressions.visitors import bind
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from floe_core.compiler import compile_project
from floe_core.errors import QueryError
from floe_core.models import PartitionTransform, PartitionTransformType
from floe_iceberg import Lake
from floe_iceberg.query import duckdb_engine
from floe_iceberg.query.parsing import parse
from floe_iceberg.query.pushdown import row_filters

FIELDS = (
    ("id", LongType()),
    ("n", IntegerType()),
    ("City", StringType()),
    ("flag", BooleanType()),
    ("day", DateType()),
    ("local", TimestampType()),
    ("at", TimestamptzType()),
    ("price", DecimalType(6, 2)),
    ("ratio", DoubleType()),
    ("place", StructType(NestedField(90, "city", StringType()))),
)
SCHEMA = Schema(*(NestedField(number, name, kind) for number, (name, kind) in enumerate(FIELDS, start=1)))


def pushed(query: str) -> list[BooleanExpression | None]:
    """The condition on each table, in the order of the text."""
    parsed = parse(query, "duckdb")
    found = row_filters(parsed.tree, parsed.tables, dict.fromkeys(range(len(parsed.tables)), SCHEMA))
    places = sorted(range(len(parsed.tables)), key=lambda place: parsed.tables[place].start)
    return [found.get(place) for place in places]


def parts(condition: BooleanExpression) -> set[str]:
    """The conditions that AND connects, with their constants as values of the columns."""
    if isinstance(condition, And):
        return parts(condition.left) | parts(condition.right)
    return {str(bind(SCHEMA, condition, case_sensitive=True))}


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("id = 5", "id = 5"),
        ("-5 < ID", "id > -5"),
        ("city = 'Oslo'", "City = 'Oslo'"),
        ("o.City IN ('a', 'b')", "City IN ('a', 'b')"),
        ("n >= 2 AND (o.n <= 3)", "n >= 2 AND n <= 3"),
        ("id BETWEEN 1 AND 3", "id >= 1 AND id <= 3"),
        ("flag AND id = 1 OR n = 2", "(flag = true AND id = 1) OR n = 2"),
        ("day = '2026-01-31'", "day = '2026-01-31'"),
        ("day < DATE '2026-01-31'", "day < '2026-01-31'"),
        ("local >= '2026-01-31 12:00:00'", "local >= '2026-01-31T12:00:00'"),
        ("\"at\" >= '2026-01-31 12:00:00+02'", "at >= '2026-01-31T10:00:00+00:00'"),
        ("o.at < TIMESTAMP '2026-01-31 12:00:00.5'", "at < '2026-01-31T12:00:00.5+00:00'"),
        ("o.at < DATE '2026-01-31'", "at < '2026-01-31T00:00:00+00:00'"),
        ("price = 1.5", "price = 1.50"),
        ("price > -12", "price > -12.00"),
        ("n IS NULL", "n IS NULL"),
        ("n IS NOT NULL", "n IS NOT NULL"),
        ("random() > 0.5 AND id = 5", "id = 5"),
    ],
)
def test_comparisons_with_constants_are_pushed(condition: str, expected: str) -> None:
    (found,) = pushed(f"SELECT 1 FROM a.b o WHERE {condition}")
    assert found is not None
    assert parts(found) == parts(language.parse(expected))


def test_a_column_with_the_full_name_of_its_table_is_found() -> None:
    (found,) = pushed("SELECT 1 FROM A.b WHERE a.B.id = 5")
    assert found == language.parse("id = 5")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 1 FROM a.b WHERE ratio = 1.5",  # NaN and -0.0
        "SELECT 1 FROM a.b WHERE id = 1.5",
        "SELECT 1 FROM a.b WHERE id = '1'",
        "SELECT 1 FROM a.b WHERE n = 3000000000",
        "SELECT 1 FROM a.b WHERE id = n",
        "SELECT 1 FROM a.b WHERE id + 1 = 2",
        "SELECT 1 FROM a.b WHERE id <> 1",
        "SELECT 1 FROM a.b WHERE NOT id = 1",
        "SELECT 1 FROM a.b WHERE id IN (1, NULL)",
        "SELECT 1 FROM a.b WHERE id = NULL",
        "SELECT 1 FROM a.b WHERE id = 1 OR ratio = 2",
        "SELECT 1 FROM a.b WHERE id = 1 OR random() > 0.5",
        "SELECT 1 FROM a.b WHERE id BETWEEN SYMMETRIC 3 AND 1",
        "SELECT 1 FROM a.b WHERE price = 1.555",
        "SELECT 1 FROM a.b WHERE price = 1e2",
        "SELECT 1 FROM a.b WHERE price = 100000",
        "SELECT 1 FROM a.b WHERE day = '31.1.2026'",
        "SELECT 1 FROM a.b WHERE day = TIMESTAMP '2026-01-31 00:00:00'",
        "SELECT 1 FROM a.b WHERE local = '2026-01-31 12:00:00+02'",
        "SELECT 1 FROM a.b WHERE at = TIMESTAMP '2026-01-31 12:00:00+02'",
        "SELECT 1 FROM a.b WHERE city = DATE '2026-01-31'",
        "SELECT 1 FROM a.b WHERE local = TIMESTAMP(0) '2026-01-31 12:00:00.3'",  # which rounds it
        "SELECT 1 FROM a.b WHERE at > '0001-01-01 00:00:00+14'",
        "SELECT 1 FROM a.b WHERE place.city = 'Oslo'",
        "SELECT 1 FROM a.b WHERE b.place.city = 'Oslo'",
        "SELECT n + 1 AS id FROM a.b WHERE id = 1",  # a column or the alias
        "SELECT 1 FROM a.b AS x(id, n) WHERE id = 1",  # renamed
        "SELECT 1 FROM a.b TABLESAMPLE 10% WHERE id = 1",  # the sample is taken first
        "SELECT 1 FROM a.b WHERE id = 1 USING SAMPLE 5",
        "SELECT 1 FROM (SELECT * FROM a.b LIMIT 3) WHERE id = 1",
        "SELECT 1 FROM (a.b JOIN a.c USING (id)) WHERE id = 1",
        "SELECT 1 FROM a.b PIVOT (count(*) FOR n IN (1, 2)) WHERE id = 1",
        "SELECT id FROM a.b GROUP BY id HAVING id = 1",
        "SELECT id FROM a.b QUALIFY row_number() OVER (ORDER BY id) = 1",
        "SELECT 1 FROM a.b, a.c WHERE id = 1",  # of which one?
        "SELECT 1 FROM a.b x ASOF JOIN a.c y ON x.id >= y.id WHERE y.n = 1",  # decides which row is the nearest
        "SELECT 1 FROM a.b x POSITIONAL JOIN a.c y WHERE y.n = 1",
        "SELECT 1 FROM a.b x ANTI JOIN a.c y USING (id) WHERE x.n = 1",
        "SELECT 1 FROM a.b x LEFT JOIN a.c y ON x.id = y.id WHERE y.n IS NULL",  # the rows that have no partner
        "SELECT 1 FROM a.b x LEFT JOIN a.c y ON x.id = y.id AND x.n = 1",
        "SELECT 1 FROM a.b x FULL JOIN a.c y ON x.id = y.id WHERE x.n IS NULL OR y.n = 1",
    ],
)
def test_what_is_not_certain_is_left_to_the_engine(query: str) -> None:
    assert set(pushed(query)) == {None}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT 1 FROM a.b x LEFT JOIN a.c y ON x.id = y.id WHERE y.n = 1 AND x.n = 2", [2, 1]),
        ("SELECT 1 FROM a.b x JOIN a.b y ON x.id = y.id WHERE x.n = 1", [1, None]),
        ("SELECT 1 FROM a.b x WHERE x.n = 1 UNION ALL SELECT 1 FROM a.b WHERE n = 2", [1, 2]),
        ("WITH c AS (SELECT * FROM a.b WHERE n = 1) SELECT * FROM c WHERE id = 2", [1]),
        ("SELECT 1 FROM a.b x WHERE x.n = 1 AND id IN (SELECT id FROM a.c WHERE n = 2)", [1, 2]),
        ("SELECT 1 FROM a.b x WHERE EXISTS (SELECT 1 FROM a.c y WHERE y.id = x.id AND x.n = 1 AND y.n = 2)", [None, 2]),
    ],
)
def test_a_condition_is_pushed_to_its_own_table(query: str, expected: list[int | None]) -> None:
    assert pushed(query) == [None if n is None else language.parse(f"n = {n}") for n in expected]


# The same rows as without pushdown -----------------------------------------------------------------------------------

FIRST = datetime(2026, 1, 1, tzinfo=timezone.utc)
CITIES = ("Oslo", "", "Ærø", "oslo", None)
RATIOS = (1.5, -0.0, 0.0, math.nan, math.inf, None)
ROWS = [
    {
        "id": number,
        "n": None if number % 5 == 0 else number % 4,
        "City": CITIES[number % 5],
        "flag": (True, False, None)[number % 3],
        "day": None if number % 7 == 0 else date(2026, 1, 1 + number % 3),
        "local": datetime(2026, 1, 1 + number % 3, number % 24),
        "at": None if number == 11 else FIRST + timedelta(hours=5 * number),
        "price": None if number % 6 == 0 else Decimal(number * 25 - 200) / 100,
        "ratio": RATIOS[number % 6],
    }
    for number in range(24)
]
ARROW = pa.schema(
    [
        *(("id", pa.int64()), ("n", pa.int32()), ("City", pa.string()), ("flag", pa.bool_()), ("day", pa.date32())),
        *(("local", pa.timestamp("us")), ("at", pa.timestamp("us", "UTC")), ("price", pa.decimal128(6, 2))),
        ("ratio", pa.float64()),
    ]
)
CONSTANTS = {
    "id": ("0", "-1", "7", "23", "7.5", "1e1"),
    "n": ("0", "2", "3", "NULL"),
    "city": ("'Oslo'", "''", "'Ærø'", "'p'"),
    "day": ("'2026-01-02'", "DATE '2026-01-02'", "TIMESTAMP '2026-01-02 00:00:00'", "DATE '2025-12-31'"),
    "local": ("'2026-01-02 03:00:00'", "TIMESTAMP '2026-01-02 03:00:00'", "DATE '2026-01-02'"),
    "at": (
        "'2026-01-02T01:00:00+00:00'",
        "'2026-01-02 03:00:00+02'",
        "TIMESTAMP '2026-01-02 01:00:00'",
        "DATE '2026-01-03'",
    ),
    "price": ("0", "-1.75", "0.5", "1.255", "1e0"),
    "ratio": ("0.0", "1.5", "'nan'::DOUBLE", "-0.0", "5"),
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A table by day in many files, the same in one file, and an in-memory copy of the rows in `reference`."""
    root = tmp_path_factory.mktemp("pushdown")
    (root / "floe.yaml").write_text("name: shop")
    by_day = [PartitionTransform(source_column="at", transform_type=PartitionTransformType.DAY)]
    with Lake(compile_project(root).artifacts) as opened:
        for start in range(0, len(ROWS), 8):
            rows = pa.Table.from_pylist(ROWS[start : start + 8], ARROW)
            opened.tables.write_data("a.b", rows, mode="append", partition_by=by_day)
        opened.tables.write_data("a.c", pa.Table.from_pylist(ROWS[::2], ARROW), mode="append")
        yield opened


def leaves(table: str) -> st.SearchStrategy[str]:
    def comparisons(column: str) -> st.SearchStrategy[str]:
        constant = st.sampled_from(CONSTANTS[column])
        name = f'{table}."{column}"' if column == "at" else f"{table}.{column}"
        return st.one_of(
            st.builds(
                lambda sign, value: f"{name} {sign} {value}",
                st.sampled_from(["=", "<", "<=", ">", ">=", "<>"]),
                constant,
            ),
            st.builds(lambda sign, value: f"{value} {sign} {name}", st.sampled_from(["=", "<", ">="]), constant),
            st.builds(lambda values: f"{name} IN ({', '.join(values)})", st.lists(constant, min_size=1, max_size=3)),
            st.builds(lambda low, high: f"{name} BETWEEN {low} AND {high}", constant, constant),
            st.sampled_from([f"{name} IS NULL", f"{name} IS NOT NULL"]),
        )

    return st.one_of(
        st.sampled_from([f"{table}.flag", f"NOT {table}.flag"]), st.sampled_from(sorted(CONSTANTS)).flatmap(comparisons)
    )


def conditions(*tables: str) -> st.SearchStrategy[str]:
    return st.recursive(
        st.one_of(*map(leaves, tables)),
        lambda inner: st.one_of(
            st.builds("({} AND {})".format, inner, inner),
            st.builds("({} OR {})".format, inner, inner),
            st.builds("(NOT {})".format, inner),
        ),
        max_leaves=4,
    )


QUERIES = st.one_of(
    conditions("x").map("SELECT x.id FROM a.b x WHERE {}".format),
    st.builds(
        "SELECT x.id, y.id FROM a.b x {} a.c y ON x.id = y.id WHERE {}".format,
        st.sampled_from(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]),
        conditions("x", "y"),
    ),
    st.builds(
        "SELECT x.id, y.id FROM a.b x, a.b y WHERE x.id = y.id + 1 AND {} AND {}".format,
        conditions("x"),
        conditions("y"),
    ),
)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(query=QUERIES, as_arrow=st.booleans())
def test_no_row_is_lost_and_none_is_added(lake: Lake, query: str, as_arrow: bool) -> None:
    """Also where DuckDB lets Arrow filter, which it does for datasets."""
    with pytest.MonkeyPatch.context() as patch:
        if as_arrow:
            patch.setattr(duckdb_engine, "split", lambda _session, tasks, *_rest: ([], list(tasks)))
        assert found(lake, query) == expected(query)


def found(lake: Lake, query: str) -> list[Any] | str:
    try:
        return sorted(map(str, lake.sql(query).to_arrow().to_pylist()))
    except QueryError:
        return "refused"


def expected(query: str) -> list[Any] | str:
    """By DuckDB alone, on the same rows in memory."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("CREATE SCHEMA a")
        for name, rows in (("b", ROWS), ("c", ROWS[::2])):
            connection.register(f"rows_{name}", pa.Table.from_pylist(rows, ARROW))
            connection.execute(f"CREATE TABLE a.{name} AS SELECT * FROM rows_{name}")
        try:
            return sorted(map(str, connection.sql(query).to_arrow_table().to_pylist()))
        except duckdb.Error:
            return "refused"


EDGES = [
    f"{column} {sign} {value}"
    for column, values in {
        "day": ("'0001-01-01'", "'9999-12-31'"),
        "local": ("'0001-01-01 00:00:00'", "'9999-12-31 23:59:59.999999'"),
    }.items()
    for value in values
    for sign in ("<", "<=", "=", ">=", ">", "<>")
]


@pytest.mark.parametrize("transform", ["day", "month", "year"])
def test_the_first_and_the_last_moment_of_the_calendar_are_limits_too(lake: Lake, transform: str) -> None:
    rows = pa.Table.from_pylist(ROWS, ARROW)
    for column in ("day", "local"):
        table = f"edges.{column}_{transform}"
        by = [PartitionTransform(source_column=column, transform_type=PartitionTransformType(transform))]
        lake.tables.write_data(table, rows, mode="append", partition_by=by)
        for condition in (one for one in EDGES if one.startswith(column)):
            wanted = expected(f"SELECT id FROM a.b WHERE {condition}")
            assert found(lake, f"SELECT id FROM {table} WHERE {condition}") == wanted
            read = lake.tables.scan(table, row_filter=condition.replace(" 00", "T00").replace(" 23", "T23"))
            assert sorted(str({"id": one}) for one in read.to_arrow()["id"].to_pylist()) == wanted


def test_files_that_a_condition_excludes_are_not_read(lake: Lake) -> None:
    """Otherwise the tests above would pass without any pushdown."""
    table = lake.tables.load_table("a.b")
    parsed = parse("SELECT 1 FROM a.b WHERE \"at\" < '2026-01-02' AND id < 4", "duckdb")
    condition = row_filters(parsed.tree, parsed.tables, {0: table.schema()})[0]
    every, planned = (list(scan.plan_files()) for scan in (table.scan(), table.scan(row_filter=condition)))
    assert len(planned) == 1 < len(every)
