"""`floe check` as users run it, and the same from Python."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests import commands
from tests.behaviours.test_json_documents import EXAMPLES, differences

from floe_runtime import connect

DEFINITIONS = """
import dagster as dg
import pyarrow as pa
from floe_dagster import checks, create_definitions

days = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-01-04")


@dg.asset(key_prefix="bronze", partitions_def=days, metadata={"partition_expr": "day"})
def orders(context: dg.AssetExecutionContext) -> pa.Table:
    day = pa.array([context.partition_key]).cast(pa.timestamp("us")).cast(pa.date32())
    return pa.table({"day": day, "amount": pa.array([None if context.partition_key[-1] == "2" else 5], pa.int64())})


@dg.asset_check(asset=orders)
def of_dagster(orders: pa.Table) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=True, description=f"{orders.num_rows} rows")


defs = create_definitions([orders], asset_checks=[of_dagster, checks.of(orders, checks.not_null("amount"))])
"""
SETTINGS = """name: shop
checks:
  bronze.orders:
    - range: {column: amount, max: 3}
      severity: warn
  other.things:
    - unique: id
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "floe.yaml").write_text(SETTINGS, encoding="utf-8")
    (tmp_path / "definitions.py").write_text(DEFINITIONS, encoding="utf-8")
    return tmp_path


def floe(shop: Path, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    ran = commands.floe(*arguments, cwd=shop)
    assert ran.returncode == code, ran.stdout + ran.stderr
    return ran


def document(shop: Path, *arguments: str, code: int = 0) -> Any:
    return json.loads(floe(shop, *arguments, "--json", code=code).stdout)


def test_checks_of_assets_and_tables_are_run_without_writing(shop: Path) -> None:
    assert "Table 'bronze.orders' not found" in floe(shop, "check", "bronze/orders", code=1).stdout
    for day in ("2026-01-01", "2026-01-02"):
        floe(shop, "run", "--partition", day, code=1 if day.endswith("2") else 0)
    before = document(shop, "tables", "history", "bronze.orders")["snapshots"]
    with connect(shop) as lake:
        lake.tables.write_data("other.things", pa.table({"id": [1, 1]}), mode="append")
        report = lake.run_checks("other.things")
        assert [one.message for one in report.failed] == ["1 row repeats the id of another row"]
        assert "unique_id" in report._repr_html_()
    all_of_them = document(shop, "check", code=1)
    assert list(differences(EXAMPLES["floe check"], all_of_them)) == []
    assert {(one["table"], one["check"]): (one["passed"], one["severity"]) for one in all_of_them["checks"]} == {
        ("bronze.orders", "not_null_amount"): (False, "error"),
        ("bronze.orders", "range_amount"): (False, "warn"),
        (None, "of_dagster"): (True, "error"),
        ("other.things", "unique_id"): (False, "error"),
    }
    assert document(shop, "tables", "history", "bronze.orders")["snapshots"] == before
    shown = floe(shop, "check", "--partition", "2026-01-01", "bronze/orders", "--examples")
    assert "0 of 1 rows have no amount" in shown.stdout
    assert "| 2026-01-01 | 5 |" in shown.stdout, "the row that the warning is about"
    assert "2 checks passed, 0 failed, 1 with a warning" in shown.stdout
    failed = floe(shop, "check", "bronze/orders", code=1)
    assert "error: 1 of 3 checks failed: not_null_amount of bronze/orders" in failed.stderr


def test_what_has_no_checks_is_named(shop: Path) -> None:
    assert "did you mean other.things?" in floe(shop, "check", "other.thing", code=1).stderr
    wrong = floe(shop, "check", "bronze/orders", "--partition", "2026-1-1", code=1)
    assert "none of these assets has a partition '2026-1-1'" in wrong.stderr
    assert "no asset silver/orders" in floe(shop, "check", "silver/orders", code=1).stderr
    assert (
        "floe.yaml declares no checks of a table 'bronze.orders'" in floe(shop, "check", "bronze.orders", code=1).stderr
    )
    (shop / "floe.yaml").write_text("name: shop\n", encoding="utf-8")
    bare = DEFINITIONS.replace(', asset_checks=[of_dagster, checks.of(orders, checks.not_null("amount"))]', "")
    (shop / "definitions.py").write_text(bare, encoding="utf-8")
    assert "nothing to check: declare checks" in floe(shop, "check", code=1).stderr
