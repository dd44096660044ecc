"""An atomic group and an audited asset in Dagster's web UI: failed checks, and what is materialized once published."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver

from floe_core.compiler import compile_project
from floe_iceberg import IcebergTableManager
from tests.ui.dev_server import DevServer, floe_dev
from tests.ui.page import Page

pytestmark = [pytest.mark.full, pytest.mark.timeout(1200)]

DEFINITIONS = """
from pathlib import Path

import dagster as dg
import pyarrow as pa
from floe_dagster import AtomicGroup, checks, create_definitions


@dg.asset(key_prefix="bronze", metadata={"write_mode": "overwrite"})
def orders() -> pa.Table:
    return pa.table({"amount": [int(Path("amount.txt").read_text())]})


@dg.asset(key_prefix="gold", ins={"orders": dg.AssetIn(["bronze", "orders"])}, metadata={"write_mode": "overwrite"})
def revenue(orders: pa.Table) -> pa.Table:
    return pa.table({"total": [sum(orders["amount"].to_pylist())]})


@dg.asset_check(asset=orders, blocking=True)
def positive(orders: pa.Table) -> dg.AssetCheckResult:
    lowest = min(orders["amount"].to_pylist())
    return dg.AssetCheckResult(passed=lowest > 0, metadata={"lowest": lowest})


@dg.asset(key_prefix="silver", metadata={"write_mode": "overwrite", "floe/audit": True})
def visits() -> pa.Table:
    return pa.table({"visitor": [1], "pages": [int(Path("amount.txt").read_text())]})


nightly = AtomicGroup("nightly", [orders, revenue])
of_visits = checks.of(visits, checks.value_range("pages", min=0), checks.unique("visitor"), blocking=True)
defs = create_definitions([orders, revenue, visits], asset_checks=[positive, of_visits], atomic=[nightly])
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("atomic")
    (root / "floe.yaml").write_text("name: shop\n", encoding="utf-8")
    (root / "definitions.py").write_text(DEFINITIONS, encoding="utf-8")
    (root / "amount.txt").write_text("5", encoding="utf-8")
    return root


@pytest.fixture(scope="module")
def shop_server(shop: Path) -> Iterator[DevServer]:
    with floe_dev(shop) as running:
        running.ask("mutation {setNuxSeen}")
        yield running


def test_a_failed_check_publishes_nothing_and_the_corrected_run_everything(
    shop: Path, shop_server: DevServer, browser: webdriver.Chrome
) -> None:
    page, tables = Page(browser, shop_server.address), IcebergTableManager.open(compile_project(shop).artifacts)

    def materialize_all(state: str) -> str:
        before = shop_server.runs()
        page.open("/asset-groups")
        page.click("Materialize all")
        return shop_server.wait_for_run(before, state=state)

    def total() -> list[int]:
        return list(tables.scan("gold.revenue").to_arrow()["total"].to_pylist())

    def snapshot(name: str) -> str:
        head = tables.current_snapshot(name)
        assert head is not None
        return str(head.snapshot_id)

    materialize_all("SUCCESS")
    first = {name: snapshot(name) for name in ("bronze.orders", "gold.revenue", "silver.visits")}
    assert total() == [5]

    (shop / "amount.txt").write_text("-1", encoding="utf-8")
    failed = materialize_all("FAILURE")
    assert {name: snapshot(name) for name in first} == first
    page.open("/assets/bronze/orders?view=checks")
    page.until(lambda: any("positive" in text for text in page.texts("//body")))
    page.until(lambda: any("Failed" in text for text in page.texts("//body")))
    page.keep("the_failed_check_of_an_atomic_group")
    page.open("/assets/silver/visits?view=checks")
    page.until(lambda: any("range_pages" in text for text in page.texts("//body")))
    page.until(lambda: any("Failed" in text for text in page.texts("//body")))
    page.keep("the_failed_check_of_an_audit")
    page.open("/assets/gold/revenue?view=events")
    assert page.metadata("floe/snapshot_id") == first["gold.revenue"]
    page.open(f"/runs/{failed}")
    page.until(lambda: any("nightly.orders_positive" in text or "positive" in text for text in page.texts("//body")))
    page.keep("the_steps_of_an_atomic_group")

    (shop / "amount.txt").write_text("7", encoding="utf-8")
    materialize_all("SUCCESS")
    assert total() == [7]
    for name in first:
        page.open(f"/assets/{name.replace('.', '/')}?view=events")
        assert page.metadata("floe/snapshot_id") == snapshot(name) != first[name]
        assert page.metadata("floe/branch") == "main"
    page.keep("the_materialization_of_an_atomic_group")
