"""Checks of tables in DuckDB, and what they say of tables and checks that do not fit together."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from tests.check_cases import CASES, ORDERS, STORES, Case

from floe_core import TableCheck, TableSlice, compile_project
from floe_core.errors import ConfigurationError, TableNotFoundError
from floe_iceberg import AddColumn, Lake, RenameColumn
from floe_iceberg.checks import CheckedRows, CheckOutcome, run_checks
from floe_iceberg.checks.sql_text import SqlText

FIRST = datetime(2026, 1, 1, tzinfo=timezone.utc)
FIRST_DAY = TableSlice.of_windows("at", [(FIRST, FIRST + timedelta(days=1))])


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    (tmp_path / "floe.yaml").write_text("name: shop\n", encoding="utf-8")
    with Lake(compile_project(tmp_path).artifacts) as opened:
        opened.tables.write_data("silver.orders", ORDERS, mode="overwrite")
        opened.tables.write_data("silver.stores", STORES, mode="overwrite")
        yield opened


def checked(lake: Lake, *checks: TableCheck, within: TableSlice | None = None) -> list[CheckOutcome]:
    return lake.check("silver.orders", checks, within=within, engine="duckdb")


def test_each_rule_counts_the_rows_that_break_it_in_the_table_and_in_a_slice(lake: Lake) -> None:
    checks = [case.check(number) for number, case in enumerate(CASES)]
    for outcome, case in zip(checked(lake, *checks), CASES, strict=True):
        assert outcome.failing == case.failing, (case.rule, outcome)
        assert case.message in outcome.message, outcome
        assert outcome.passed == (not case.failing and "freshness" not in case.rule)
    for outcome, case in zip(checked(lake, *checks, within=FIRST_DAY), CASES, strict=True):
        assert outcome.failing == case.failing_first_day, (case.rule, outcome)


def test_a_check_of_the_whole_table_looks_beyond_the_slice(lake: Lake) -> None:
    (whole,) = checked(lake, TableCheck(not_null="id", scope="table"), within=FIRST_DAY)
    assert (whole.failing, whole.rows, whole.scope) == (1, 4, "table")


def test_failing_rows_are_shown_and_counted_for_each_column_and_partition(lake: Lake) -> None:
    days = [(FIRST + timedelta(days=day), FIRST + timedelta(days=day + 1)) for day in (0, 1)]
    parts = {f"{start:%Y-%m-%d}": TableSlice.of_windows("at", [(start, end)]) for start, end in days}
    table = lake.tables.load_table("silver.orders")
    head = table.current_snapshot()
    assert head is not None
    identifier = lake.tables.find_tables()[0]
    rows = CheckedRows(identifier, table, head.snapshot_id, TableSlice.of_windows("at", days), parts)
    outcome, dates = run_checks(
        lake,
        [TableCheck(not_null=["id", "ratio"]), TableCheck(freshness={"max_age": "1d", "column": "at"})],
        rows,
        other=lambda _: rows,
        engine="duckdb",
        hidden=frozenset({"status", "address"}),
        now=FIRST + timedelta(days=1, hours=3),
    )
    assert outcome.partitions == {"2026-01-02": 2}
    assert outcome.numbers == {"columns": {"id": 1, "ratio": 1}}
    assert {tuple(row) for row in outcome.examples} == {("id", "amount", "at", "seen", "day", "ratio", "store", "paid")}
    assert dates.passed, "the newest of both partitions counts"


def test_row_counts_are_compared_with_the_history_by_metadata(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lake, "sql", None)
    half = TableCheck(row_count={"change": "50%"})
    assert checked(lake, half)[0].message == "4 rows; there is nothing to compare with"
    lake.tables.write_data("silver.orders", ORDERS.slice(0, 1), mode="overwrite")
    fewer = checked(lake, half)[0]
    assert (fewer.passed, fewer.rows) == (False, 1)
    assert "1 row; 4 were there on average of the 1 before, and at most 50% of difference is expected" in fewer.message
    assert checked(lake, TableCheck(freshness={"max_age": "1h"}))[0].passed


def test_declared_columns_are_compared_by_metadata(lake: Lake) -> None:
    declared = {"id": "long", "amount": "decimal(10,2)", "status": "int", "gone": "date"}
    (outcome,) = checked(lake, TableCheck(columns={"columns": declared}))
    assert outcome.message == "status is string and not int; gone is missing"
    (exact,) = checked(lake, TableCheck(columns={"columns": {"id": "long"}, "exact": True}))
    assert "amount is not declared" in exact.message


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"not_null": "amuont"}, "there is no column 'amuont'; did you mean 'amount'?"),
        (
            {"range": {"column": "amount", "min": "abc"}},
            "'abc' is no value of column 'amount', which is decimal(10, 2)",
        ),
        ({"range": {"column": "id", "min": 1.5}}, "1.5 is no value of column 'id', which is long"),
        ({"range": {"column": "id", "min": "1.5"}}, "'1.5' is no value of column 'id', which is long"),
        ({"accepted_values": {"column": "id", "values": [True]}}, "True is no value of column 'id'"),
        ({"accepted_values": {"column": "address", "values": ["x"]}}, "which is not compared with values"),
        ({"condition": "amuont > 1"}, "there is no column 'amuont'"),
        ({"condition": "amount >"}, "could not be run"),
        ({"sql": {"name": "x", "query": "DROP TABLE silver.orders"}}, "could not be run"),
        ({"references": {"columns": "store", "table": "silver.nope", "to": "id"}}, "'silver.nope' not found"),
        ({"references": {"columns": "store", "table": "silver.stores", "to": "nr"}}, "no column 'nr'; there: id"),
        ({"freshness": {"max_age": "1d", "column": "id"}}, "freshness needs a timestamp or a date"),
    ],
)
def test_a_check_that_cannot_be_run_has_not_passed_and_others_are(
    lake: Lake, rule: dict[str, object], message: str
) -> None:
    wrong, right = checked(lake, TableCheck(name="wrong", severity="warn", **rule), TableCheck(not_null="at"))
    assert (wrong.passed, wrong.severity, right.passed) == (False, "error", True)
    assert message in wrong.message
    assert lake.tables.scan("silver.orders").to_arrow().num_rows == 4


def test_a_table_without_rows_breaks_no_rule_about_rows_and_is_not_fresh(lake: Lake) -> None:
    lake.tables.create_table("silver.empty", pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))]))
    checks = [
        TableCheck(not_null="id"),
        TableCheck(unique="id"),
        TableCheck(row_count={"min": 1}),
        TableCheck(freshness={"max_age": "1d", "column": "at"}),
    ]
    outcomes = lake.check("silver.empty", checks, engine="duckdb")
    assert [outcome.passed for outcome in outcomes] == [True, True, False, False]
    assert [outcome.message for outcome in outcomes[2:]] == ["no rows; at least 1 are expected", "there are no rows"]


def test_an_earlier_state_is_checked_as_it_was(lake: Lake) -> None:
    (first, *_) = lake.tables.list_snapshots("silver.orders")
    lake.tables.write_data("silver.orders", ORDERS.slice(3), mode="overwrite")
    now = lake.check("silver.orders", [TableCheck(not_null="id")], engine="duckdb")
    then = lake.check("silver.orders", [TableCheck(not_null="id")], revision=first.snapshot_id, engine="duckdb")
    assert (now[0].passed, then[0].passed) == (True, False)


def test_what_is_not_there_or_not_meant_is_an_error(lake: Lake) -> None:
    with pytest.raises(TableNotFoundError):
        lake.check("silver.nope", [TableCheck(not_null="id")])
    with pytest.raises(ConfigurationError, match="two checks called not_null_id"):
        lake.check("silver.orders", [TableCheck(not_null="id")] * 2)
    with pytest.raises(ConfigurationError, match="engine is 'pandas'"):
        lake.check("silver.orders", [TableCheck(not_null="id")], engine="pandas")  # type: ignore[arg-type]


# Rows that are few, hidden, of other times ---------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(case.rule))
def test_each_rule_has_an_outcome_without_rows_and_with_nothing_but_null(lake: Lake, case: Case) -> None:
    nulls = pa.Table.from_pylist([dict.fromkeys(ORDERS.column_names)], schema=ORDERS.schema)
    lake.tables.write_data("silver.orders", nulls, mode="overwrite")
    everything = lake.check("silver.orders", [case.check(0)], engine="duckdb")
    nothing = checked(lake, case.check(0), within=FIRST_DAY)
    for outcome, rows in ((everything[0], 1), (nothing[0], 0)):
        assert "could not be run" not in outcome.message
        assert outcome.rows in (rows, None)


def test_dates_of_the_future_are_not_fresh(lake: Lake) -> None:
    later = datetime.now(timezone.utc) + timedelta(days=900)
    lake.tables.write_data("silver.seen", pa.table({"at": pa.array([later], pa.timestamp("us", "UTC"))}), mode="append")
    (outcome,) = lake.check("silver.seen", [TableCheck(freshness={"max_age": "1d", "column": "at"})], engine="duckdb")
    assert (outcome.passed, "which is in the future" in outcome.message) == (False, True)


def test_a_write_without_rows_does_not_make_a_table_fresh(lake: Lake) -> None:
    before = lake.tables.load_table("silver.orders").current_snapshot()
    lake.tables.write_data("silver.orders", ORDERS.slice(0, 0), mode="append")
    (outcome,) = checked(lake, TableCheck(freshness={"max_age": "1d"}))
    assert before is not None
    newest = datetime.fromtimestamp(before.timestamp_ms / 1000, timezone.utc)
    assert outcome.numbers["newest"] == newest.isoformat()


def test_an_earlier_state_has_the_columns_of_its_time(lake: Lake) -> None:
    (first, *_) = lake.tables.list_snapshots("silver.orders")
    lake.tables.evolve_schema("silver.orders", RenameColumn("id", "number"), AddColumn("note", pa.string()))
    lake.tables.write_data("silver.orders", ORDERS.rename_columns(["number", *ORDERS.column_names[1:]]), mode="append")
    old, new = TableCheck(not_null="id"), TableCheck(not_null="number")
    then = lake.check("silver.orders", [old, new], revision=first.snapshot_id, engine="duckdb")
    assert [outcome.failing for outcome in then] == [1, None]
    now = lake.check("silver.orders", [old, new, TableCheck(columns={"columns": {"note": "string"}})], engine="duckdb")
    assert [outcome.passed for outcome in now] == [False, False, True]
    assert now[1].failing == 2


def test_sensitive_columns_are_shown_under_no_name_and_in_no_error(lake: Lake) -> None:
    table = lake.tables.load_table("silver.orders")
    head = table.current_snapshot()
    assert head is not None
    rows = CheckedRows(lake.tables.find_tables()[0], table, head.snapshot_id)
    queries = [
        TableCheck(sql={"name": "renamed", "query": "SELECT id, upper(status) AS other FROM this"}),
        TableCheck(sql={"name": "cast", "query": "SELECT * FROM this WHERE CAST(status AS INTEGER) > 1"}),
    ]
    found = run_checks(lake, queries, rows, other=lambda _: rows, engine="duckdb", hidden=frozenset({"status"}))
    assert {tuple(row) for row in found[0].examples} == {("id",)}
    assert "could not be run" in found[1].message
    assert "paid" not in found[1].message
    assert "lost" not in found[1].message


def test_a_text_reaches_spark_as_it_is() -> None:
    """Spark puts the value of a variable in the place of ${name}, also inside of a literal."""
    assert "${" not in SqlText("spark").text("${x}")
    assert SqlText("duckdb").text("${x}") == "'${x}'"
