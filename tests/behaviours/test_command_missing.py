"""`floe run --missing` as users run it, after tables were lost that Dagster's history still counts as materialized."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests import commands
from tests.runs import rows_of

from floe_core.compiler import compile_project
from floe_core.identifiers import TableIdentifier
from floe_iceberg import IcebergTableManager

DEFINITIONS = """
import pandas as pd
from dagster import AssetIn, BackfillPolicy, DailyPartitionsDefinition, asset
from floe_dagster import create_definitions

days = DailyPartitionsDefinition("2026-01-01", end_date="2026-01-08")


@asset(
    key_prefix="bronze",
    partitions_def=days,
    backfill_policy=BackfillPolicy.single_run(),
    metadata={"partition_expr": "day"},
)
def orders(context) -> pd.DataFrame:
    return pd.DataFrame({"day": pd.to_datetime(list(context.partition_keys)).date, "amount": 1})


@asset(key_prefix="gold", ins={"orders": AssetIn(["bronze", "orders"])}, metadata={"write_mode": "overwrite"})
def total(orders: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"amount": [orders["amount"].sum()]})


defs = create_definitions([orders, total])
"""


def floe(*arguments: str, cwd: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    ran = commands.floe(*arguments, cwd=cwd)
    assert ran.returncode == code, ran.stdout + ran.stderr
    return ran


def differences(ran: subprocess.CompletedProcess[str]) -> list[tuple[str, str, int]]:
    return [(one["table"], one["reason"], len(one["partitions"])) for one in json.loads(ran.stdout)["differences"]]


def warnings(ran: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in ran.stderr.splitlines() if line.startswith("warning: ")]


@pytest.mark.full
def test_lost_tables_are_reported_and_recomputed(new_project: Any) -> None:
    root: Path = new_project("name: shop\n")
    (root / "definitions.py").write_text(DEFINITIONS)
    filled = floe("run", "--missing", "--json", cwd=root)
    assert (differences(filled), warnings(filled)) == ([], [])
    (root / ".floe" / "catalog.db").unlink()

    latest = floe("run", "--select", "bronze/orders", "--json", cwd=root)  # creates the table again, with one day
    assert differences(latest) == [("bronze.orders", "recreated", 6)]
    (told,) = warnings(latest)
    assert told.endswith("recompute it with: floe run --missing")

    ran = floe("run", "--missing", "--json", cwd=root)
    assert differences(ran) == [("bronze.orders", "recreated", 6), ("gold.total", "dropped", 0)]
    first, second = warnings(ran)
    assert first.startswith("warning: bronze.orders: the table was created again on ")
    assert first.endswith("6 of 7 recorded partitions are not in it; it is recomputed")
    assert second.startswith("warning: gold.total: the catalog has no such table")
    tables = IcebergTableManager.open(compile_project(root).artifacts)
    assert rows_of(tables, "gold.total") == [{"amount": 7}]

    again = floe("run", "--missing", cwd=root)
    assert again.stdout.strip() == "nothing is missing: everything was materialized before"
    assert again.stderr == ""


APPENDS = """
import pandas as pd
from dagster import AssetIn, asset
from floe_dagster import create_definitions


@asset(key_prefix="bronze", metadata={"write_mode": "overwrite"})
def orders() -> pd.DataFrame:
    return pd.DataFrame({"amount": [1, 2]})


@asset(key_prefix="gold", ins={"orders": AssetIn(["bronze", "orders"])}, metadata={"write_mode": "append"})
def totals(orders: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"amount": [orders["amount"].sum()]})


defs = create_definitions([orders, totals])
"""


def test_a_recomputation_that_would_append_a_second_time_exits_with_3(new_project: Any) -> None:
    root: Path = new_project("name: shop\n")
    (root / "definitions.py").write_text(APPENDS)
    floe("run", cwd=root)
    tables = IcebergTableManager.open(compile_project(root).artifacts)
    tables.drop_table(TableIdentifier.from_string("bronze.orders"))
    refused = floe("run", "--missing", cwd=root, code=3)
    assert "gold/totals (gold.totals)" in refused.stderr
    assert "Nothing was run" in refused.stderr
    assert not tables.table_exists(TableIdentifier.from_string("bronze.orders"))
    assert rows_of(tables, "gold.totals") == [{"amount": 3}]
