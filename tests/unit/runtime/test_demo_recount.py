"""The demo's second computation: right on orders that are counted by hand, and it notices every wrong figure."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from tests.lakes import open_manager

from floe_iceberg import IcebergTableManager
from floe_runtime.demo.recount import Figures, compare, recompute, recorded

# Orders come on the first day and on the last, which is in the second week.
DAYS = tuple(date(2026, 1, 1) + timedelta(days=number) for number in range(8))
AT = [datetime(one.year, one.month, one.day, 12, tzinfo=timezone.utc) for one in (DAYS[0], DAYS[-1])]

# order, day, customer, product, quantity, price
ORDERS = [
    (1, 0, 10, 100, "2", "1.50"),
    (1, 0, 10, 100, "2", "1.50"),  # sent again
    (2, 0, 11, 101, "1", "4.00"),
    (3, 0, 11, 100, "0", "1.50"),
    (4, 0, 99, 100, "1", "1.50"),
    (5, 0, 10, 100, "1", "n/a"),
    (6, 1, 10, 101, "3", "4.00"),
]
EXPECTED: Figures = {
    "silver.orders": {
        **{(day,): {"orders": 0, "items": None, "revenue": None} for day in DAYS},
        (DAYS[0],): {"orders": 2, "items": 3, "revenue": Decimal("7.00")},
        (DAYS[-1],): {"orders": 1, "items": 3, "revenue": Decimal("12.00")},
    },
    "silver.rejected_orders": {
        (DAYS[0], "price is not a number"): {"orders": 1},
        (DAYS[0], "quantity is not positive"): {"orders": 1},
        (DAYS[0], "customer is unknown"): {"orders": 1},
    },
    "gold.daily_revenue": {
        (): {"rows": 2},
        (DAYS[0],): {"orders": 2, "items": 3, "revenue": Decimal("7.00")},
        (DAYS[-1],): {"orders": 1, "items": 3, "revenue": Decimal("12.00")},
    },
    "gold.top_products": {
        (): {"rows": 2},
        (1,): {"product_id": 101, "items": 4, "revenue": Decimal("16.00"), "product": "spade", "category": "garden"},
        (2,): {"product_id": 100, "items": 2, "revenue": Decimal("3.00"), "product": "novel", "category": "books"},
    },
    "gold.customer_cohorts": {
        (): {"rows": 2},
        (date(2025, 3, 1),): {"customers": 1, "came_back": 1, "orders": 2, "revenue": Decimal("15.00")},
        (date(2025, 4, 1),): {"customers": 1, "came_back": 0, "orders": 1, "revenue": Decimal("4.00")},
    },
}


def orders() -> pa.Table:
    names = ["order_id", "day", "customer_id", "product_id", "quantity", "unit_price"]
    raw = pa.table(dict(zip(names, map(list, zip(*ORDERS, strict=True)), strict=True)))
    return raw.set_column(1, "ordered_at", pa.array([AT[day] for day in raw["day"].to_pylist()]))


@pytest.fixture
def tables(tmp_path: Path) -> IcebergTableManager:
    """The raw orders, and what a pipeline that makes no mistake writes."""
    made = open_manager(tmp_path)
    sold = pa.table(
        {
            "ordered_at": [AT[0], AT[0], AT[1]],
            "quantity": [2, 1, 3],
            "revenue": pa.array([Decimal(one) for one in ("3.00", "4.00", "12.00")], pa.decimal128(38, 2)),
        }
    )
    reasons = [key[1] for key in EXPECTED["silver.rejected_orders"]]
    gold = {
        name: pa.Table.from_pylist([{**dict(zip(keys, key, strict=True)), **row} for key, row in rows.items() if key])
        for name, keys, rows in (
            ("gold.daily_revenue", ("day",), EXPECTED["gold.daily_revenue"]),
            ("gold.top_products", ("rank",), EXPECTED["gold.top_products"]),
            ("gold.customer_cohorts", ("signed_up_in",), EXPECTED["gold.customer_cohorts"]),
        )
    }
    content = {
        "bronze.orders": orders(),
        "bronze.customers": pa.table(
            {"customer_id": [10, 11], "signed_up_on": [date(2025, 3, 5), date(2025, 4, 30)]},
        ),
        "bronze.products": pa.table(
            {"product_id": [100, 101], "product": ["novel", "spade"], "category": ["books", "garden"]}
        ),
        "silver.orders": sold,
        "silver.rejected_orders": pa.table({"ordered_at": [AT[0]] * 3, "reason": reasons}),
        **gold,
    }
    for name, data in content.items():
        made.write_data(name, data, mode="append")
    return made


def test_the_figures_are_those_counted_by_hand(tables: IcebergTableManager) -> None:
    assert recompute(tables, DAYS) == EXPECTED


def test_a_pipeline_without_a_mistake_has_no_differences(tables: IcebergTableManager) -> None:
    assert compare(recorded(tables, DAYS), recompute(tables, DAYS)) == []


def test_rows_that_are_there_twice_are_noticed(tables: IcebergTableManager) -> None:
    for name in ("silver.orders", "gold.daily_revenue"):
        tables.write_data(name, tables.scan(name).to_arrow(), mode="append")

    differences = [str(one) for one in compare(recorded(tables, DAYS), recompute(tables, DAYS))]

    assert "silver.orders 2026-01-01 revenue is 14.00, recomputed 7.00" in differences
    assert "gold.daily_revenue rows is 4, recomputed 2" in differences


def test_a_row_that_is_missing_differs_in_all_its_columns(tables: IcebergTableManager) -> None:
    tables.write_data(
        "gold.top_products", tables.scan("gold.top_products", row_filter="rank = 1").to_arrow(), "overwrite"
    )

    differences = [str(one) for one in compare(recorded(tables, DAYS), recompute(tables, DAYS))]

    assert "gold.top_products 2 product is None, recomputed novel" in differences
    assert sum(one.startswith("gold.top_products 2 ") for one in differences) == 5
