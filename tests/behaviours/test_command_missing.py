"""`floe run --missing` as users run it, after tables were lost that Dagster's history still counts as materialized."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.runs import rows_of

from floe_core.compiler import compile_project
from floe_core.identifiers import TableIdentifier
from floe_iceberg import IcebergTableManager

FLOE = str(Path(sys.executable).parent / "floe")
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


def floe(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [FLOE, *arguments]
    return subprocess.run(
        command, cwd=cwd, env={**os.environ}, capture_output=True, text=True, timeout=300, check=False
    )


def report_of(*arguments: str, cwd: Path) -> dict[str, Any]:
    ran = floe(*arguments, "--json", cwd=cwd)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def amount(root: Path) -> list[int]:
    tables = IcebergTableManager.open(compile_project(root).artifacts)
    return [row["amount"] for row in rows_of(tables, "gold.total")]


def test_lost_tables_are_reported_and_recomputed(new_project: Any) -> None:
    root: Path = new_project("name: shop\n")
    (root / "definitions.py").write_text(DEFINITIONS)
    assert report_of("run", "--missing", cwd=root)["differences"] == []
    IcebergTableManager.open(compile_project(root).artifacts).drop_table(TableIdentifier.from_string("bronze.orders"))

    told = report_of("run", "--select", "bronze/orders", cwd=root)["differences"]  # the latest day creates it again
    assert [(one["table"], one["reason"], len(one["partitions"])) for one in told] == [
        ("bronze.orders", "recreated", 6)
    ]

    ran = floe("run", "--missing", cwd=root)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "warning: bronze.orders: the table was created again on " in ran.stderr
    assert "6 of 7 recorded partitions are not in it" in ran.stderr
    assert amount(root) == [7]

    (root / ".floe" / "catalog.db").unlink()
    found = report_of("run", "--missing", cwd=root)
    assert {(one["table"], one["reason"]) for one in found["differences"]} == {
        ("bronze.orders", "dropped"),
        ("gold.total", "dropped"),
    }
    assert amount(root) == [7]
    again = floe("run", "--missing", cwd=root)
    assert (again.returncode, again.stdout.strip()) == (0, "nothing is missing: everything was materialized before")
