"""Checks in Spark: the same outcomes as in DuckDB, and tables with delete files."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from tests.check_cases import CASES, ORDERS, STORES

from floe_core import TableCheck, TableSlice
from floe_iceberg import Lake

FIRST = datetime(2026, 1, 1, tzinfo=timezone.utc)
FIRST_DAY = TableSlice.of_windows("at", [(FIRST, FIRST + timedelta(days=1))])


@pytest.fixture
def orders(lake: Lake, namespace: str) -> str:
    lake.tables.write_data(f"{namespace}.orders", ORDERS, mode="overwrite")
    lake.tables.write_data(f"{namespace}.stores", STORES, mode="overwrite")
    return f"{namespace}.orders"


@pytest.mark.parametrize("within", [None, FIRST_DAY], ids=["table", "slice"])
def test_both_engines_find_the_same(lake: Lake, orders: str, namespace: str, within: TableSlice | None) -> None:
    checks = [case.check(number) for number, case in enumerate(CASES)]
    checks = [
        check.model_copy(
            update={"references": check.references.model_copy(update={"table": f"{namespace}.stores"})}
            if check.references is not None
            else {}
        )
        for check in checks
    ]
    spark, duck = (lake.check(orders, checks, within=within, engine=engine) for engine in ("spark", "duckdb"))
    for one, other, case in zip(spark, duck, CASES, strict=True):
        expected = case.failing if within is None else case.failing_first_day
        assert (one.failing, one.rows, one.passed) == (expected, other.rows, other.passed), (case.rule, one)
        assert one.message.replace("s ago", "") == other.message.replace("s ago", "")
        assert sorted(map(str, one.examples)) == sorted(map(str, other.examples))


def test_rows_that_delete_files_hide_are_not_checked(lake: Lake, orders: str) -> None:
    lake.spark.sql(f"ALTER TABLE lake.{orders} SET TBLPROPERTIES ('write.delete.mode'='merge-on-read')")
    lake.spark.sql(f"DELETE FROM lake.{orders} WHERE status = 'lost'")
    checks = [TableCheck(row_count={"min": 3, "max": 3}), TableCheck(not_null="id"), TableCheck(unique="id")]
    for engine in ("spark", "duckdb"):
        outcomes = lake.check(orders, checks, engine=engine)
        assert [outcome.passed for outcome in outcomes] == [True, True, False]
        assert outcomes[0].rows == 3
