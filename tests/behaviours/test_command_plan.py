"""floe plan, and what floe run prints before, while and after it runs, through the real entry point; without a JVM."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from tests.commands import FLOE, floe
from tests.runs import rows_of

from floe_core.compiler import compile_project
from floe_iceberg import IcebergTableManager

DEFINITIONS = """
import time
from pathlib import Path
import pandas as pd
from dagster import AssetIn, BackfillPolicy, DailyPartitionsDefinition, asset
from floe_dagster import create_definitions

print("an import that prints")
days = DailyPartitionsDefinition("2026-01-01", end_date="2026-01-04")


@asset(
    key_prefix="bronze",
    partitions_def=days,
    backfill_policy=BackfillPolicy.single_run(),
    metadata={"partition_expr": "day"},
    tags={"nightly": ""},
)
def orders(context) -> pd.DataFrame:
    context.log.warning("a warning of the asset")
    return pd.DataFrame({"day": pd.to_datetime(list(context.partition_keys)).date, "amount": 1})


@asset(key_prefix="gold", ins={"orders": AssetIn(["bronze", "orders"])}, metadata={"write_mode": "overwrite"})
def total(orders: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"amount": [orders["amount"].sum()]})


@asset(key_prefix="gold", deps=[total], metadata={"write_mode": "overwrite"})
def slow() -> pd.DataFrame:
    if Path("wait").exists():
        Path("computing").touch()
        time.sleep(60)
    return pd.DataFrame({"id": [1]})


defs = create_definitions([orders, total, slow])
"""


@pytest.fixture
def root(new_project: Any) -> Path:
    folder: Path = new_project(
        "name: shop\nobservability: {log_level: info}\nenvironments: {prod: {protected: true}}\n"
    )
    (folder / "definitions.py").write_text(DEFINITIONS)
    return folder


def lake(root: Path) -> IcebergTableManager:
    return IcebergTableManager.open(compile_project(root).artifacts)


def test_a_plan_is_shown_and_then_run(root: Path) -> None:
    planned = floe("plan", "--missing", cwd=root)
    assert planned.returncode == 0, planned.stderr
    assert "shop: 3 assets, 3 partitions 2026-01-01...2026-01-03, 1 run" in planned.stdout
    assert "+ bronze/orders creates bronze.orders" in planned.stdout
    assert "2026-01-01...2026-01-03 (3): never materialized" in planned.stdout
    assert "run it with:\n  floe run --missing\n" in planned.stdout
    assert lake(root).find_tables() == []

    told = floe("plan", "tag:nightly", "--partition", "2026-01-02", "--json", cwd=root)
    document = json.loads(told.stdout)
    (asset,) = document["assets"]
    assert (document["ok"], document["runs"], document["creates"]) == (True, 1, ["bronze.orders"])
    assert asset["partition_ranges"] == [{"first": "2026-01-02", "last": "2026-01-02", "count": 1}]
    assert [reason["reason"] for reason in asset["reasons"]] == ["requested", "never materialized"]

    ran = floe("run", "--partition", "2026-01-02", cwd=root)
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert lines[1] == "shop: 1 asset, partition 2026-01-02, 1 run"
    assert "  left out, not partitioned: gold/total, gold/slow; --with-unpartitioned includes them" in lines
    assert "warning bronze/orders: a warning of the asset" in ran.stdout

    again = floe("plan", "--markdown", cwd=root)
    assert "| `bronze/orders` | 2026-01-03: requested, never materialized | adds to bronze.orders |" in again.stdout


def test_a_refusal_exits_with_3(root: Path) -> None:
    assert floe("run", "bronze/orders", "--partition", "2026-01-01", "-q", cwd=root).returncode == 0
    text = (root / "definitions.py").read_text()
    (root / "definitions.py").write_text(
        text.replace("def orders(context)", "def others(context)")
        .replace('"partition_expr": "day"', '"partition_expr": "day", "floe/table": "orders"')
        .replace("[orders, total, slow]", "[others]")
    )
    refused = floe("plan", cwd=root)
    assert refused.returncode == 3
    assert "! bronze/others -> bronze.orders" in refused.stdout
    assert "refused: 1 asset of 1" in refused.stdout
    told = floe("plan", "--json", "--env", "prod", cwd=root)
    document = json.loads(told.stdout)
    assert (told.returncode, document["ok"], document["protected"]) == (3, False, True)
    document = json.loads(floe("plan", "--json", cwd=root).stdout)
    assert (document["ok"], document["error"]) == (False, "bronze/others would be refused")
    assert "belongs to asset bronze/orders" in document["assets"][0]["write"]["refused"][0]


def test_quiet_is_the_result_and_logs_have_the_format_that_was_asked_for(root: Path) -> None:
    quiet = floe("run", "bronze/orders", "--partition", "2026-01-01", "-q", "--log-format", "json", cwd=root)
    assert quiet.returncode == 0, quiet.stderr
    assert "bronze.orders" in quiet.stdout
    assert "a warning" not in quiet.stdout
    assert "1 run" not in quiet.stdout
    events = [json.loads(line) for line in quiet.stderr.splitlines()]
    assert {"iceberg.overwrite"} <= {event["event"] for event in events}
    assert floe("run", "-q", "-v", cwd=root).returncode == 2


@pytest.mark.full  # a process from nothing; what is reported: tests/unit/runtime/test_interruption.py
def test_ctrl_c_reports_what_was_written(root: Path) -> None:
    (root / "wait").touch()
    process = subprocess.Popen(
        [FLOE, "run", "--json"],
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while not (root / "computing").exists() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    document = json.loads(out)
    assert document["ok"] is False
    assert "was interrupted" in document["error"]
    assert {one["table"] for one in document["materialized"]} == {"bronze.orders", "gold.total"}
    assert [(one["asset"], one["outcome"]) for one in document["interrupted"]["in_progress"]] == [
        ("gold/slow", "absent")
    ]
    tables = lake(root)
    assert rows_of(tables, "gold.total") == [{"amount": 1}]
    assert not tables.table_exists("gold.slow")
