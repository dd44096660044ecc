"""The demo in Dagster's web UI, as a person with a browser meets it."""

from __future__ import annotations

from collections import Counter

import pytest

from floe_core.identifiers import TableIdentifier
from floe_iceberg import IcebergTableManager
from tests.ui.dev_server import DevServer
from tests.ui.page import Page

pytestmark = [pytest.mark.full, pytest.mark.timeout(1200)]

GROUPS = {
    "bronze": ["customers", "orders", "products"],
    "silver": ["orders", "rejected_orders"],
    "gold": ["customer_cohorts", "daily_revenue", "top_products"],
}
EXPANDED = ",".join(f"global@global:{name}" for name in GROUPS)
NODES = "//*[local-name()='foreignObject']//*[contains(@class, 'assetNodeContainer')]"


def is_filled(node: str) -> bool:
    return "Materialized" in node or "100% filled" in node


def snapshot_id(tables: IcebergTableManager, name: str) -> str:
    """The snapshot of a table as PyIceberg reads it, in the form the page shows."""
    snapshot = tables.load_table(TableIdentifier.from_string(name)).current_snapshot()
    assert snapshot is not None
    return str(snapshot.snapshot_id)


def rows(tables: IcebergTableManager, name: str) -> set[str]:
    """The rows of a table as PyIceberg reads them, each as one line."""
    found = tables.load_table(TableIdentifier.from_string(name)).scan().to_arrow().to_pylist()
    return {" ".join(str(value) for value in row.values()) for row in found}


def test_the_asset_graph_shows_every_asset_of_the_demo(page: Page, server: DevServer) -> None:
    assert server.assets() == {f"{group}/{name}" for group, names in GROUPS.items() for name in names}
    page.open(f"/asset-groups?expanded={EXPANDED}")
    page.click("Hide navigation")
    page.open(f"/asset-groups?expanded={EXPANDED}")  # now with room for the details of each asset
    expected = Counter(name for names in GROUPS.values() for name in names)
    page.until(lambda: Counter(text.splitlines()[0] for text in page.texts(NODES) if is_filled(text)) == expected)


def test_a_click_materializes_an_asset_and_its_page_tells_what_was_written(
    page: Page, server: DevServer, tables: IcebergTableManager
) -> None:
    before, runs = snapshot_id(tables, "gold.daily_revenue"), server.runs()
    page.open("/assets/gold/daily_revenue?view=events")
    assert page.metadata("floe/snapshot_id") == before  # what `floe run` wrote is in the same history
    page.click("Materialize")
    server.wait_for_run(runs)
    page.open("/assets/gold/daily_revenue?view=events")
    assert page.metadata("floe/snapshot_id") == snapshot_id(tables, "gold.daily_revenue") != before
    assert page.metadata("dagster/row_count") == "14"
    assert {"day", "orders", "items", "revenue"} <= set(page.metadata("dagster/column_schema").split())
    header, *shown = page.metadata("floe/preview").splitlines()
    assert header == "day orders items revenue"
    assert shown
    assert set(shown) <= rows(tables, "gold.daily_revenue")
    page.show("floe/snapshot_id")
    page.keep("the_metadata_of_a_materialization")
    page.show("floe/preview")


def test_a_partition_chosen_in_the_dialog_is_materialized(
    page: Page, server: DevServer, tables: IcebergTableManager
) -> None:
    before, runs = snapshot_id(tables, "bronze.orders"), server.runs()
    page.open("/assets/bronze/orders")
    page.click("Materialize…")
    page.click_in_dialog("Latest")
    page.keep("the_dialog_of_a_partitioned_asset")
    page.click_in_dialog("Launch 1 run")
    server.wait_for_run(runs)
    page.open("/assets/bronze/orders?view=events")
    assert page.metadata("floe/partitions") == "2026-01-14"
    assert page.metadata("floe/snapshot_id") == snapshot_id(tables, "bronze.orders") != before
