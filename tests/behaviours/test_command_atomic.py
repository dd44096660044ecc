"""`floe run --atomic`, `floe runs discard` and `floe undo` as users run them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests import commands
from tests.behaviours.test_json_documents import EXAMPLES, differences

from floe_runtime import connect

DEFINITIONS = """
import os
import dagster as dg
import pyarrow as pa
from floe_dagster import create_definitions

days = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-01-04")
amount = int(os.environ.get("AMOUNT", "5"))


@dg.asset(key_prefix="bronze", partitions_def=days, metadata={"partition_expr": "day", "floe/early_columns": True})
def orders(context: dg.AssetExecutionContext) -> pa.Table:
    context.log.warning(f"{context.partition_key} has arrived")
    day = pa.array([context.partition_key]).cast(pa.timestamp("us")).cast(pa.date32())
    more = {"tip": [0.5], "note": ["x"]} if "MORE" in os.environ else {}
    return pa.table({"day": day, "amount": [amount], **more})


@dg.asset(key_prefix="gold", ins={"orders": dg.AssetIn(["bronze", "orders"])}, metadata={"write_mode": "overwrite"})
def revenue(orders: pa.Table) -> pa.Table:
    return pa.table({"total": [sum(orders["amount"].to_pylist())]})


@dg.asset_check(asset=orders, blocking=True)
def positive(orders: pa.Table) -> dg.AssetCheckResult:
    bad = sum(amount <= 0 for amount in orders["amount"].to_pylist())
    return dg.AssetCheckResult(passed=not bad, description=os.environ.get("WHY"), metadata={"bad": bad})


defs = create_definitions([orders, revenue], asset_checks=[positive])
"""
DAY = ("--partition", "2026-01-01", "--with-unpartitioned")


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "floe.yaml").write_text("name: shop\n", encoding="utf-8")
    (tmp_path / "definitions.py").write_text(DEFINITIONS, encoding="utf-8")
    return tmp_path


def floe(shop: Path, *arguments: str, code: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    ran = commands.floe(*arguments, cwd=shop, **environment)
    assert ran.returncode == code, ran.stdout + ran.stderr
    return ran


def document(shop: Path, *arguments: str, code: int = 0, **environment: str) -> Any:
    return json.loads(floe(shop, *arguments, "--json", code=code, **environment).stdout)


def totals(shop: Path) -> list[int]:
    return [row["total"] for row in document(shop, "read", "gold.revenue")["rows"]]


def test_a_bad_delivery_is_stopped_with_nothing_visible_and_discarded(shop: Path) -> None:
    ran = floe(shop, "run", "--atomic", *DAY)
    assert "2026-01-01 has arrived" in ran.stdout + ran.stderr
    assert totals(shop) == [5]
    bad = floe(shop, "run", "--atomic", "--partition", "2026-01-02", "--with-unpartitioned", code=1, AMOUNT="-1")
    assert "error: check positive of bronze/orders failed: bad = 1\n" in bad.stderr
    assert "error: check positive of bronze/orders failed: bad = 1\n" in floe(shop, "runs", "show").stderr
    assert "not published: bronze/orders; no reader of main sees anything of this run" in bad.stderr
    assert totals(shop) == [5]
    run_id = document(shop, "runs", "list", "--limit", "1")["runs"][0]["run_id"]
    branch = document(shop, "read", "bronze.orders", "--ref", f"floe-run-{run_id}")
    assert len(branch["rows"]) == 2
    shown, (left,) = floe(shop, "runs", "show").stdout, document(shop, "runs", "show")["unpublished"]
    assert "it published no table" in shown
    assert (left["asset"], left["rows"]) == ("bronze/orders", 1)
    assert f"--ref floe-run-{run_id}; remove it with: floe runs discard {run_id[:8]}\n" in shown
    floe(shop, "runs", "discard", run_id[:8], code=3)
    removed = document(shop, "runs", "discard", run_id[:8], "--yes")
    assert list(differences(EXAMPLES["floe runs discard"], removed)) == []
    assert removed["tables"] == ["bronze.orders"]
    assert floe(shop, "runs", "discard", run_id[:8], "--yes").stdout.strip().endswith("nothing that is not published")
    assert f"branch floe-run-{run_id} is gone: it was discarded, or has expired" in floe(shop, "runs", "show").stdout


@pytest.mark.full
def test_tables_of_a_first_run_that_failed_are_absent_from_lists_and_plans(shop: Path) -> None:
    floe(shop, "run", "--atomic", *DAY, code=1, AMOUNT="-1")
    assert document(shop, "tables", "list")["tables"] == []
    assert document(shop, "plan", *DAY)["creates"] == ["bronze.orders", "gold.revenue"]
    floe(shop, "run", *DAY)
    assert totals(shop) == [5]


def test_what_an_atomic_run_cannot_be_is_refused_before_it_starts(shop: Path) -> None:
    several = floe(shop, "run", "--atomic", "--partition-range", "2026-01-01...2026-01-03", code=1)
    assert "an atomic run is one run of Dagster, and this takes 3" in several.stderr
    definitions = (shop / "definitions.py").read_text(encoding="utf-8")
    alone = "from floe_dagster import IcebergIOManager, LakeResource\n" + definitions.replace(
        "defs = create_definitions([orders, revenue], asset_checks=[positive])",
        'io = IcebergIOManager(lake=LakeResource(project="."))\n'
        'defs = dg.Definitions(assets=[orders, revenue], resources={"io_manager": io})',
    )
    (shop / "definitions.py").write_text(alone, encoding="utf-8")
    refused = floe(shop, "run", "--atomic", *DAY, code=1)
    assert "bronze/orders, gold/revenue would not be published with the others" in refused.stderr
    assert document(shop, "tables", "list")["tables"] == []


@pytest.mark.full
def test_a_plan_refuses_what_an_atomic_run_would(shop: Path) -> None:
    days = ("--partition-range", "2026-01-01...2026-01-03")
    because = "an atomic run is one run of Dagster, and this takes 3"
    assert floe(shop, "plan", *days).stdout
    for option in ("--atomic", "--one-by-one"):
        assert f"refused: {because}" in floe(shop, "plan", *days, option, code=3).stdout
    markdown = floe(shop, "plan", *days, "--atomic", "--markdown", code=3).stdout
    assert because in markdown.partition("**Refused**")[2]
    planned = document(shop, "plan", *days, "--atomic", code=3)
    assert planned["error"] == planned["refused"]
    assert planned["error"].startswith(because)
    with connect(shop) as lake:
        assert because in str(lake.plan(partition_range=days[1], atomic=True).refusal)
        assert lake.plan(partition_range=days[1]).refusal is None
    possible = floe(shop, "plan", "--atomic", *DAY).stdout
    assert "creates bronze.orders, gold.revenue" in possible
    assert possible.endswith("  floe run --atomic --partition 2026-01-01 --with-unpartitioned\n")


@pytest.mark.full
def test_inputs_that_dagster_completes_by_the_names_around_them_are_followed(shop: Path) -> None:
    """The parameter `orders` of an asset below `bronze` is bronze/orders, and its step waits for that one."""
    definitions = (shop / "definitions.py").read_text(encoding="utf-8")
    short = definitions.replace(
        'key_prefix="gold", ins={"orders": dg.AssetIn(["bronze", "orders"])}', 'key_prefix="bronze"'
    )
    assert short != definitions
    (shop / "definitions.py").write_text(short, encoding="utf-8")
    assert "published in one commit: 2 tables" in floe(shop, "run", "--one-by-one", *DAY).stdout, "this catalog can"
    assert document(shop, "read", "bronze.revenue")["rows"] == [{"total": 5}]


@pytest.mark.full
@pytest.mark.parametrize("atomic", [["--atomic"], []])
def test_a_change_of_the_schema_is_printed_with_the_run(shop: Path, atomic: list[str]) -> None:
    assert "schema of" not in floe(shop, "run", *atomic, *DAY).stdout, "the tables are new"
    changed = floe(shop, "run", *atomic, "--partition", "2026-01-02", MORE="1").stdout
    for printed in (changed, floe(shop, "runs", "show").stdout):
        assert "schema of bronze.orders: +tip double, +note string\n" in printed


@pytest.mark.parametrize("atomic", [["--atomic"], []])
def test_a_blocking_check_fails_with_its_description(shop: Path, atomic: list[str]) -> None:
    ran = floe(shop, "run", *atomic, *DAY, code=1, AMOUNT="-1", WHY="an amount is negative")
    expected = {"asset": "check positive of bronze/orders", "error": "an amount is negative"}
    assert f"error: {expected['asset']} failed: {expected['error']}\n" in ran.stderr
    (failure,) = document(shop, "runs", "show")["failed"]
    assert {**failure, **expected} == failure


@pytest.mark.full
@pytest.mark.parametrize("publish", ["run", "one-by-one"])
def test_a_project_may_publish_every_run_as_a_whole(shop: Path, publish: str) -> None:
    (shop / "floe.yaml").write_text(f"name: shop\npipeline: {{publish: {publish}}}\n", encoding="utf-8")
    report = document(shop, "run", *DAY)
    assert sorted(made["asset"] for made in report["materialized"]) == ["bronze/orders", "gold/revenue"]
    assert report["unpublished"] == []
    failed = document(shop, "run", "--partition", "2026-01-02", "--with-unpartitioned", code=1, AMOUNT="-1")
    assert [made["asset"] for made in failed["unpublished"]] == ["bronze/orders"]
    assert failed["materialized"] == []
    assert totals(shop) == [5]
    assert [made["asset"] for made in document(shop, "run", "gold/revenue")["materialized"]] == ["gold/revenue"]


def test_a_run_is_undone_and_comes_back(shop: Path) -> None:
    for day in ("2026-01-01", "2026-01-02"):
        floe(shop, "run", "--partition", day, "--with-unpartitioned")
    latest, first = (run["run_id"] for run in document(shop, "runs", "list")["runs"])
    assert totals(shop) == [10]
    stopped = document(shop, "undo", first, "--dry-run", code=3)
    assert list(differences(EXAMPLES["floe undo"], {**stopped, "ok": True, "error": None})) == []
    assert [later["table"] for later in stopped["later"]] == ["gold.revenue"]
    shown = floe(shop, "undo", latest[:8], "--dry-run").stdout
    assert "bronze.orders: back to snapshot" in shown
    floe(shop, "undo", latest[:8], code=3)
    done = document(shop, "undo", latest[:8], "--yes")
    assert (done["undone"], totals(shop)) == (True, [5])
    missing = document(shop, "plan", "--missing")
    assert {one["asset"] for one in missing["assets"]} == {"bronze/orders", "gold/revenue"}
    again = floe(shop, "undo", latest[:8], "--yes", code=1)
    assert "was undone already; to restore what it wrote: floe undo" in again.stderr
    shown = floe(shop, "undo", latest[:8], "--restore", "--dry-run").stdout
    planned = document(shop, "undo", latest[:8], "--restore", "--dry-run")
    assert (planned["restored"], totals(shop)) == ([], [5]), "nothing was restored"
    orders = planned["tables"][0]
    assert list(differences(done["tables"][0], {**orders, "undone": [1]})) == []
    assert f"bronze.orders: from snapshot {orders['head']} to {orders['to']}, from 1 row to 2 rows\n" in shown
    back = document(shop, "undo", latest[:8], "--restore", "--yes")
    assert back["tables"] == planned["tables"]
    assert (back["restored"], totals(shop)) == (["bronze.orders", "gold.revenue"], [10])
    floe(shop, "undo", first, "--with-later", "--yes")
    assert document(shop, "tables", "list")["tables"][0]["rows"] == 1


@pytest.mark.full
def test_undoing_says_which_rows_go_come_back_and_stay(shop: Path) -> None:
    def plan_of(*arguments: str, amount: str = "5") -> str:
        floe(shop, "run", *arguments, AMOUNT=amount)
        floe(shop, "run", "--partition", "2026-01-02", "bronze/orders")
        runs = [run["run_id"] for run in document(shop, "runs", "list")["runs"]]
        return floe(shop, "undo", runs[1], "--dry-run").stdout

    day = ("--partition", "2026-01-01", "bronze/orders")
    first = plan_of(*day)
    assert "bronze.orders: takes out 1 row that the run wrote; later writes of other rows stay" in first
    again = plan_of(*day, amount="7")
    whole = "takes out 1 row that the run wrote and puts back 1 row that the run replaced; later writes of other rows"
    assert f"bronze.orders: {whole} stay" in again
    only = floe(shop, "run", "gold/revenue", "--json").stdout
    undone = floe(shop, "undo", json.loads(only)["run_ids"][0], "--dry-run").stdout
    assert "gold.revenue: takes out its 1 row; the run created the table, which counts as absent afterwards" in undone


@pytest.mark.full
@pytest.mark.parametrize("atomic", [["--atomic"], []])
def test_a_run_that_was_undone_is_marked(shop: Path, atomic: list[str]) -> None:
    for day in ("2026-01-01", "2026-01-02"):
        floe(shop, "run", *atomic, "--partition", day, "--with-unpartitioned")

    def marks() -> list[bool]:
        return [run["undone"] for run in document(shop, "runs", "list")["runs"]]

    latest, first = (run["run_id"] for run in document(shop, "runs", "list")["runs"])
    assert marks() == [False, False]
    assert "undone" not in floe(shop, "runs", "list").stdout
    floe(shop, "undo", latest, "--yes")
    assert marks() == [True, False]
    assert "success, undone" in floe(shop, "runs", "list").stdout
    assert f"run {latest}: success, undone\n" in floe(shop, "runs", "show", latest).stdout
    with connect(shop) as lake:
        assert [run.undone for run in lake.runs()] == [True, False]
        assert lake.show_run(first).run.undone is False
    floe(shop, "undo", latest, "--restore", "--yes")
    assert marks() == [False, False]
    floe(shop, "undo", first, "--with-later", "--yes")
    assert marks() == [False, True], "the later run keeps its own day"
    floe(shop, "run", *atomic, *DAY)
    assert marks() == [False, False, True]


@pytest.mark.full
def test_runs_are_listed_although_the_tables_cannot_be_read(shop: Path) -> None:
    floe(shop, "run", *DAY)
    (shop / ".floe" / "catalog.db").write_bytes(b"this is no database")
    listed = floe(shop, "runs", "list", "--json")
    assert json.loads(listed.stdout)["runs"][0]["undone"] is None
    assert "warning: runs that were undone are not marked: " in listed.stderr
    assert "success" in floe(shop, "runs", "show").stdout
    with connect(shop) as lake:
        assert [run.undone for run in lake.runs()] == [None]


def test_a_run_that_is_not_there_or_not_named_is_refused(shop: Path) -> None:
    assert "no runs yet" in floe(shop, "undo", "abc", code=1).stderr
    floe(shop, "run", *DAY)
    assert "there is no run 'zzz'" in floe(shop, "undo", "zzz", code=1).stderr
    other = "00000000-0000-0000-0000-000000000000"
    assert f"no table has a snapshot of run {other}" in floe(shop, "undo", other, code=1).stderr
    assert "--restore goes without" in floe(shop, "undo", "zzz", "--restore", "--with-later", code=2).stderr
