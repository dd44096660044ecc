"""0.0 and -0.0 are one value and two partitions, and NaN is no key: the same on both engines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from tests.engines import ArrowEngine, Engine, SparkEngine, transform

from floe_core.errors import FloeStorageError
from floe_core.identifiers import TableIdentifier
from floe_iceberg import Lake

ENGINES: list[type[ArrowEngine] | type[SparkEngine]] = [ArrowEngine, SparkEngine]
BY_X = [transform("identity", "x")]
BOTH = [0.0, -0.0, 1.0]
LAYOUTS: list[tuple[pa.DataType, list[Any]]] = [(pa.float64(), []), (pa.float32(), BY_X)]


@pytest.fixture(params=ENGINES, ids=lambda kind: kind.name)
def engine(request: pytest.FixtureRequest, lake: Lake) -> Engine:
    made: Engine = request.param(lake)
    return made


@pytest.fixture(params=ENGINES, ids=lambda kind: f"table of {kind.name}")
def writer(request: pytest.FixtureRequest, lake: Lake) -> Engine:
    """The engine that wrote the rows that are there before."""
    made: Engine = request.param(lake)
    return made


def data(x: Sequence[float | None], first: int = 1, kind: pa.DataType | None = None) -> pa.Table:
    """Rows with these values, numbered."""
    return pa.table({"x": pa.array(x, kind or pa.float64()), "v": list(range(first, first + len(x)))})


def shown(lake: Lake, table: TableIdentifier, **options: Any) -> list[tuple[str, int]]:
    """The rows by their number, zeros with their sign, if both engines read the same."""
    read = [
        [(str(row["x"]), row["v"]) for row in one(lake).read(table, **options).sort_by("v").to_pylist()]
        for one in ENGINES
    ]
    assert read[0] == read[1], "the engines read different rows"
    return read[0]


FILTERS = {
    "x = 0.0": [1, 2],
    "x != 0.0": [3, 4, 5],
    "x < 0.0": [4],
    "x <= 0.0": [1, 2, 4],
    "x > 0.0": [3],
    "x >= 0.0": [1, 2, 3],
    "x IN (0.0, 1.0)": [1, 2, 3],
    "x NOT IN (0.0, 1.0)": [4, 5],
    "NOT x = 0.0": [3, 4, 5],
}


@pytest.mark.parametrize(("kind", "partition_by"), LAYOUTS, ids=["flat", "by x"])
def test_a_filter_takes_both_zeros_for_one_value(
    lake: Lake, table: TableIdentifier, engine: Engine, kind: pa.DataType, partition_by: list[Any]
) -> None:
    engine.write(table, data([*BOTH, -1.0, math.nan, None], kind=kind), mode="append", partition_by=partition_by)
    assert [v for _, v in shown(lake, table, row_filter="x = 0")] == [1, 2]
    for words, expected in FILTERS.items():
        for said in (words, words.replace("0.0", "-0.0")):
            assert [v for _, v in shown(lake, table, row_filter=said)] == expected, said


@pytest.mark.parametrize(("zero", "kept"), [(0.0, ("-0.0", 2)), (-0.0, ("0.0", 1))], ids=str)
def test_a_dynamic_overwrite_replaces_the_partition_of_one_zero_and_keeps_that_of_the_other(
    lake: Lake, table: TableIdentifier, engine: Engine, writer: Engine, zero: float, kept: tuple[str, int]
) -> None:
    writer.write(table, data(BOTH), mode="append", partition_by=BY_X)
    engine.write(table, data([zero], first=4), mode="overwrite", dynamic_partitions=True)
    assert shown(lake, table) == [kept, ("1.0", 3), (str(zero), 4)]


@pytest.mark.full
def test_a_dynamic_overwrite_keeps_the_other_zero_in_files_of_an_older_spec(
    lake: Lake, table: TableIdentifier, engine: Engine
) -> None:
    engine.write(table, data(BOTH), mode="append")
    lake.tables.evolve_partitions(table, BY_X)
    engine.write(table, data([0.0], first=4), mode="overwrite", dynamic_partitions=True)
    assert shown(lake, table) == [("-0.0", 2), ("1.0", 3), ("0.0", 4)]


@pytest.mark.parametrize("partition_by", [[], BY_X], ids=["flat", "by x"])
def test_an_overwrite_by_filter_replaces_both_zeros_or_none(
    lake: Lake, table: TableIdentifier, engine: Engine, partition_by: list[Any]
) -> None:
    engine.write(table, data([*BOTH, -1.0]), mode="append", partition_by=partition_by)
    engine.write(table, data([-2.0], first=5), mode="overwrite", overwrite_filter="x < 0.0")
    assert shown(lake, table) == [("0.0", 1), ("-0.0", 2), ("1.0", 3), ("-2.0", 5)]
    engine.write(table, data([-0.0], first=6), mode="overwrite", overwrite_filter="x = 0.0")
    assert shown(lake, table) == [("1.0", 3), ("-2.0", 5), ("-0.0", 6)]


@pytest.mark.parametrize(("kind", "partition_by"), LAYOUTS, ids=["flat", "by x"])
def test_an_upsert_takes_both_zeros_for_one_key(
    lake: Lake, table: TableIdentifier, engine: Engine, kind: pa.DataType, partition_by: list[Any]
) -> None:
    engine.write(table, data([-0.0, 1.0], kind=kind), mode="append", partition_by=partition_by)
    engine.write(table, data([0.0], first=3, kind=kind), mode="upsert", keys=["x"])
    assert shown(lake, table) == [("1.0", 2), ("-0.0", 3)]
    with pytest.raises(FloeStorageError, match=r"1 key occurs more than once \(0.0\).*Nothing was written"):
        engine.write(table, data([0.0, -0.0], first=4, kind=kind), mode="upsert", keys=["x"])
    assert shown(lake, table) == [("1.0", 2), ("-0.0", 3)]


def test_an_upsert_refuses_nan_as_a_key(lake: Lake, table: TableIdentifier, engine: Engine) -> None:
    engine.write(table, data([math.nan, 1.0]), mode="append")
    for x, rows in (([math.nan, 2.0], "1 row has"), ([math.nan, math.nan], "2 rows have")):
        with pytest.raises(FloeStorageError, match=rf"by x: {rows} NaN as x\. .*Nothing was written"):
            engine.write(table, data(x, first=3), mode="upsert", keys=["x"])
    assert shown(lake, table) == [("nan", 1), ("1.0", 2)]


@pytest.mark.full
def test_composite_keys_follow_the_same_rule(lake: Lake, table: TableIdentifier) -> None:
    spark = SparkEngine(lake)

    def rows(x: Sequence[float], first: int) -> pa.Table:
        return data(x, first, pa.float32()).append_column("city", pa.array(["Oslo"] * len(x)))

    spark.write(table, rows([-0.0, 1.0], 1), mode="append")
    spark.write(table, rows([0.0], 3), mode="upsert", keys=["city", "x"])
    assert shown(lake, table) == [("1.0", 2), ("-0.0", 3)]
    with pytest.raises(FloeStorageError, match="1 row has NaN as city or X"):
        spark.write(table, rows([math.nan], 4), mode="upsert", keys=["city", "X"])
    with pytest.raises(FloeStorageError, match="1 key occurs more than once"):
        spark.write(table, rows([0.0, -0.0], 5), mode="upsert", keys=["city", "x"])


def test_many_rows_of_both_zeros_are_written_at_once(lake: Lake, table: TableIdentifier, engine: Engine) -> None:
    engine.write(table, data([0.0, -0.0] * 50), mode="append", partition_by=BY_X)
    assert [x for x, _ in shown(lake, table)] == ["0.0", "-0.0"] * 50
