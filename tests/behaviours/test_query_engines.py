"""One query means the same to DuckDB and to Spark: the same rows over columns, joins, windows and snapshots."""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest
from tests.query_corpus import QUERIES, fill

from floe_core.errors import FloeError
from floe_iceberg import Lake


def plain(value: Any) -> Any:
    """A value as both engines show it: numbers by value, floats to nine digits, times in ISO 8601."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | Decimal):
        return str(Decimal(value).normalize() + 0)
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else f"{value + 0.0:.9g}"
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return tuple(plain(item) for item in value) if isinstance(value, tuple) else value


def rows(lake: Lake, query: str, engine: Any) -> list[str] | str:
    """The rows as text, sorted unless the query sorts them; or why it was refused."""
    try:
        with lake.sql(query, engine=engine) as result:
            found = [str([plain(value) for value in row.values()]) for row in result.to_arrow().to_pylist()]
    except FloeError as exc:
        return f"{type(exc).__name__}: {exc}"
    return found if "ORDER BY" in query.rpartition(")")[2] else sorted(found)


def differences(duckdb: list[str] | str, spark: list[str] | str) -> Iterator[str]:
    if isinstance(duckdb, str) or isinstance(spark, str):
        yield f"duckdb: {duckdb}"
        yield f"spark:  {spark}"
        return
    if len(duckdb) != len(spark):
        yield f"duckdb has {len(duckdb)} rows, spark {len(spark)}"
    for place, (one, other) in enumerate(zip(duckdb, spark, strict=False)):
        if one != other:
            yield f"row {place}: duckdb {one}"
            yield f"row {place}: spark  {other}"
            return


@pytest.fixture(scope="module")
def words(lake: Lake) -> dict[str, str]:
    return fill(lake, "query_corpus")


def test_both_engines_give_the_same_rows(lake: Lake, words: dict[str, str]) -> None:
    assert len(QUERIES) >= 60

    def compared(name: str) -> list[str]:
        query = QUERIES[name].format(**words)
        found = [rows(lake, query, engine) for engine in ("duckdb", "spark")]
        return [f"{name}: {query}", *told] if (told := list(differences(*found))) else []

    with ThreadPoolExecutor(4) as pool:
        different = [lines for lines in pool.map(compared, QUERIES) if lines]
    assert not different, "\n".join(line for lines in different for line in lines)


@pytest.mark.parametrize(
    ("query", "line", "column", "said"),
    [
        ("SELECT amuont FROM {ns}.orders VERSION AS OF 'closed' AS o", 1, 8, "amount"),
        ("SELECT o.order_id FROM {ns}.orders VERSION AS OF 'closed' AS o\nWHERE o.nope = 1", 2, 7, "nope"),
        ("SELECT nofunction(1)", 1, 8, "nofunction"),
        ("SELECT * FROM {ns}.ordres", 1, 15, "did you mean query_corpus.orders"),
        ("SELECT * FROM {ns}.orders WHERE order_id = CAST('x' AS INT)", None, None, "x"),
    ],
)
def test_an_error_of_spark_is_explained_at_its_place(
    lake: Lake, words: dict[str, str], query: str, line: int | None, column: int | None, said: str
) -> None:
    with pytest.raises(FloeError, match=said) as raised:
        lake.sql(query.format(**words), engine="spark").to_arrow()
    place = "" if line is None else f"line {line}, column {column}: "
    assert str(raised.value).startswith(place)
    assert "SQLSTATE" not in str(raised.value)


def test_spark_has_metadata_tables_and_computes_as_many_rows_as_are_read(lake: Lake, words: dict[str, str]) -> None:
    with lake.sql("SELECT * FROM {ns}.orders.snapshots".format(**words), engine="spark") as result:
        assert "snapshot_id" in result.columns
        assert sum(batch.num_rows for batch in result.batches(limit=2)) == 2
