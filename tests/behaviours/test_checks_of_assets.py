"""Checks of assets in runs: which rows they look at, what they record, and what they stop."""

import time
from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from dagster import AssetExecutionContext, AssetKey, BackfillPolicy, DagsterInstance, DailyPartitionsDefinition, asset
from tests.runs import QUIET, span

from floe_core.compiler import compile_project
from floe_core.errors import ConfigurationError, TableNotFoundError
from floe_dagster import checks, create_definitions
from floe_iceberg import IcebergTableManager

pytestmark = pytest.mark.filterwarnings("ignore:.*is currently in (beta|preview)", "ignore:asset .* sets no write_mode")

DAYS = DailyPartitionsDefinition("2026-01-01", end_date="2026-01-08")
PARTITIONED = {"partition_expr": "day", "floe/sensitive_columns": ["card"]}


@asset(key_prefix="b", partitions_def=DAYS, backfill_policy=BackfillPolicy.single_run(), metadata=PARTITIONED)
def orders(context: AssetExecutionContext) -> pa.Table:
    """Each day has one order more than the one before; the third day has one without an amount."""
    rows = [(key, number) for key in context.partition_keys for number in range(int(key[-2:]))]
    return pa.table(
        {
            "day": [date.fromisoformat(key) for key, _ in rows],
            "id": [int(key[-2:]) * 100 + number for key, number in rows],
            "amount": [None if (key[-2:], number) == ("03", 1) else 1.0 for key, number in rows],
            "card": ["4000"] * len(rows),
        }
    )


class Project:
    def __init__(self, root: Path, settings: str = "") -> None:
        (root / "floe.yaml").write_text(f"name: shop\n{settings}", encoding="utf-8")
        self.root, artifacts = root, compile_project(root).artifacts
        artifacts.write()
        self.tables = IcebergTableManager.open(artifacts)
        self.instance = DagsterInstance.ephemeral()

    def run(self, *found: Any, assets: Any = (orders,), atomic: Any = (), **arguments: Any) -> Any:
        definitions = create_definitions(assets, project=self.root, asset_checks=found, atomic=atomic)
        job = definitions.resolve_implicit_global_asset_job_def()
        return job.execute_in_process(instance=self.instance, run_config=QUIET, raise_on_error=False, **arguments)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def results(run: Any) -> dict[str, Any]:
    return {one.check_name: one for one in run.get_asset_check_evaluations()}


def numbers(evaluation: Any) -> dict[str, Any]:
    return {name: value.value for name, value in evaluation.metadata.items()}


def test_checks_look_at_the_partitions_of_the_run_and_name_them(project: Project) -> None:
    found = checks.of(
        orders,
        checks.not_null("amount"),
        checks.not_null("amount", name="whole", scope="table", severity="warn"),
        checks.row_count(change="60%"),
    )
    first = results(project.run(found, partition_key="2026-01-02"))
    assert all(one.passed for one in first.values())
    third = results(project.run(found, partition_key="2026-01-03"))
    assert (third["not_null_amount"].passed, third["row_count"].passed) == (False, True)
    told = numbers(third["not_null_amount"])
    assert (told["floe/rows_checked"], told["floe/rows_failing"], told["floe/partitions"]) == (3, 1, "2026-01-03")
    assert "4000" not in told["floe/examples"], "sensitive columns are not shown"
    assert "| day | id | amount |" in told["floe/examples"]
    assert numbers(third["whole"])["floe/rows_checked"] == 5
    assert third["whole"].severity is dg.AssetCheckSeverity.WARN
    jump = results(project.run(found, partition_key="2026-01-07"))["row_count"]
    assert not jump.passed
    assert "7 rows; 2 were there on average of the 2 before" in (jump.description or "")


def test_a_range_is_one_pass_with_the_failing_rows_of_each_partition(project: Project) -> None:
    run = project.run(checks.of(orders, checks.not_null("amount")), tags=span("2026-01-02", "2026-01-04"))
    told = numbers(results(run)["not_null_amount"])
    assert told["floe/rows_checked"] == 9
    assert told["floe/rows_failing_by_partition"] == {"2026-01-03": 1}


def test_floe_yaml_declares_checks_of_the_assets_of_its_tables(tmp_path: Path) -> None:
    project = Project(tmp_path, "checks: {b.orders: [{not_null: amount, blocking: true}]}\n")

    @asset(key_prefix="b", deps=[orders], metadata={"write_mode": "overwrite"})
    def report() -> pa.Table:
        return pa.table({"n": [1]})

    run = project.run(checks.of(orders, checks.unique("id")), assets=[orders, report], partition_key="2026-01-03")
    assert {name: one.passed for name, one in results(run).items()} == {"not_null_amount": False, "unique_id": True}
    assert not project.tables.table_exists("b.report"), "a blocking check stops what is downstream"
    with pytest.raises(ConfigurationError, match=r"not_null_amount in the definitions and another one in floe\.yaml"):
        project.run(checks.of(orders, checks.not_null("amount")))


def test_checks_of_an_atomic_run_look_at_what_would_be_published(project: Project) -> None:
    found = checks.of(orders, checks.not_null("amount"), blocking=True)
    assert not project.run(found, atomic=[orders], partition_key="2026-01-03").success
    with pytest.raises(TableNotFoundError, match="is not published yet"):
        project.tables.scan("b.orders")
    run = project.run(found, atomic=[orders], partition_key="2026-01-02")
    assert results(run)["not_null_amount"].passed
    assert project.tables.scan("b.orders").count() == 2


def test_queries_of_an_atomic_run_do_not_read_main_of_what_it_has_written(project: Project) -> None:
    main = checks.sql("main", "SELECT this.id FROM this JOIN b.orders AS o USING (id) WHERE o.amount > 100")
    aside = checks.sql("aside", "SELECT id FROM this WHERE id NOT IN (SELECT id FROM b.known)")
    project.tables.write_data("b.known", pa.table({"id": [200, 201, 100, 101]}), mode="append")
    assert project.run(atomic=[orders], partition_key="2026-01-01").success
    run = project.run(checks.of(orders, main, aside), atomic=[orders], partition_key="2026-01-02")
    told = results(run)
    assert told["aside"].passed
    assert "the query names b.orders, which this run has written" in (told["main"].description or "")


@pytest.mark.parametrize("kind", [pa.Table, pd.DataFrame, pl.DataFrame, pl.LazyFrame, pa.RecordBatchReader])
def test_functions_get_the_rows_of_their_scope_in_their_type(project: Project, kind: Any) -> None:
    seen: dict[str, Any] = {}

    def slice_only(rows: Any) -> bool:
        seen["slice"] = rows
        return True

    def all_rows(rows: Any) -> dg.AssetCheckResult:
        seen["table"] = len(
            rows.read_all() if kind is pa.RecordBatchReader else list(rows.collect() if kind is pl.LazyFrame else rows)
        )
        return dg.AssetCheckResult(passed=False, severity=dg.AssetCheckSeverity.WARN, metadata={"n": 3})

    for function in (slice_only, all_rows):
        function.__annotations__["rows"] = kind
    found = checks.of(orders, checks.function(slice_only), checks.function(all_rows, scope="table"))
    run = project.run(found, partition_key="2026-01-02")
    assert isinstance(seen["slice"], kind)
    told = results(run)
    assert (told["slice_only"].passed, told["all_rows"].passed) == (True, False)
    assert numbers(told["all_rows"])["floe/numbers"] == {"n": 3}


def test_a_function_that_raises_or_returns_something_else_has_not_passed(project: Project) -> None:
    def raises(rows: pa.Table) -> bool:
        raise ValueError(f"{rows.num_rows} rows")

    def text(rows: pa.Table) -> Any:
        return "yes"

    def nothing(rows: pa.Table) -> Any:
        return None

    found = checks.of(orders, *(checks.function(one, severity="warn") for one in (raises, text, nothing)))
    told = results(project.run(found, partition_key="2026-01-02"))
    error = (False, dg.AssetCheckSeverity.ERROR)
    assert {name: (one.passed, one.severity) for name, one in told.items()} == dict.fromkeys(
        ("raises", "text", "nothing"), error
    )
    assert told["raises"].description == "raised ValueError: 2 rows"
    assert "returned str; a check returns True, False or an AssetCheckResult" in (told["text"].description or "")


def test_checks_that_take_too_long_fail_the_step(project: Project) -> None:
    def slow(rows: pa.Table) -> bool:
        time.sleep(30)
        return True

    run = project.run(checks.of(orders, checks.function(slow), timeout=0.3), partition_key="2026-01-02")
    assert not run.success
    assert results(run) == {}


def test_a_check_on_a_missing_column_names_it(project: Project) -> None:
    told = results(project.run(checks.of(orders, checks.not_null("amuont")), partition_key="2026-01-02"))
    assert "there is no column 'amuont'; did you mean 'amount'?" in (told["not_null_amuont"].description or "")


def test_what_cannot_be_a_check_is_refused_when_it_is_defined(project: Project) -> None:
    with pytest.raises(ConfigurationError, match="two checks called not_null_id"):
        checks.of(orders, checks.not_null("id"), checks.not_null("id"))
    with pytest.raises(ConfigurationError, match="needs at least one check"):
        checks.of(orders)
    with pytest.raises(ConfigurationError, match="give min, max or both"):
        checks.value_range("id")
    with pytest.raises(ConfigurationError, match="a function of one parameter"):
        checks.function(print)
    by_key = checks.of(AssetKey(["b", "orders"]), checks.not_null("id"))
    assert {key.name for key in by_key.check_keys} == {"not_null_id"}
    again = checks.of("b/orders", checks.unique("id"))
    assert all(one.passed for one in results(project.run(by_key, again, partition_key="2026-01-02")).values())
