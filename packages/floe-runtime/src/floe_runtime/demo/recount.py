"""The demo's figures recomputed from the raw orders with PyIceberg and Arrow: no Spark, no shared code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import DataScan

from floe_core.identifiers import TableIdentifier
from floe_iceberg import IcebergTableManager

__all__ = ["Difference", "Figures", "compare", "recompute", "recorded"]

Value = date | str | int | Decimal | None
# table -> key of a row -> the values of that row by column.
Figures = dict[str, dict[tuple[Value, ...], dict[str, Value]]]

_KEYS = {
    "gold.daily_revenue": ("day",),
    "gold.top_products": ("rank",),
    "gold.customer_cohorts": ("signed_up_in",),
}
# The top products that the project computes as Floe ships it.
TOP = 20


@dataclass(frozen=True)
class Difference:
    """A figure on which the pipeline and the recomputation disagree."""

    figure: str
    recorded: Value
    recomputed: Value

    def __str__(self) -> str:
        return f"{self.figure} is {self.recorded}, recomputed {self.recomputed}"


def recorded(tables: IcebergTableManager, days: Sequence[date]) -> Figures:
    """The figures as the pipeline wrote them."""
    figures: Figures = {"silver.orders": {}, "silver.rejected_orders": {}}
    for day in days:
        orders = _scan(tables, "silver.orders", day, "quantity", "revenue").to_arrow()
        figures["silver.orders"][(day,)] = _totals(orders.rename_columns({"quantity": "items"}))
        rejected = _scan(tables, "silver.rejected_orders", day, "reason").to_arrow()
        figures["silver.rejected_orders"].update(_rejections(day, rejected["reason"]))
    for name, key in _KEYS.items():
        rows = _scan(tables, name).to_arrow().to_pylist()
        figures[name] = {
            tuple(row[column] for column in key): {column: row[column] for column in row if column not in key}
            for row in rows
        }
        # Duplicate rows share a key: only the count shows them.
        figures[name][()] = {"rows": len(rows)}
    return figures


def recompute(tables: IcebergTableManager, days: Sequence[date], *, top: int = TOP) -> Figures:
    """The figures computed from the raw orders, with one day in memory at a time."""
    customers = {row["customer_id"]: row for row in _scan(tables, "bronze.customers").to_arrow().to_pylist()}
    products = {row["product_id"]: row for row in _scan(tables, "bronze.products").to_arrow().to_pylist()}
    figures: Figures = {"gold.daily_revenue": {}, "silver.orders": {}, "silver.rejected_orders": {}}
    by_product, by_customer = [], []
    for number, day in enumerate(days):
        raw = _scan(tables, "bronze.orders", day).to_arrow()
        judged = _judged(_each_once(raw), pa.array(customers, pa.int64()))
        figures["silver.rejected_orders"].update(_rejections(day, judged["reason"]))
        good = judged.filter(pc.is_null(judged["reason"]))
        figures["silver.orders"][(day,)] = totals = _totals(good)
        if good.num_rows:
            figures["gold.daily_revenue"][(day,)] = totals
        sums = [("orders", "sum"), ("items", "sum"), ("revenue", "sum")]
        by_product.append(_renamed(good.group_by("product_id").aggregate(sums)))
        week = pa.repeat(pa.scalar(number // 7, pa.int8()), good.num_rows)
        by_customer.append(_renamed(good.append_column("week", week).group_by(["customer_id", "week"]).aggregate(sums)))
    figures["gold.top_products"] = _top_products(pa.concat_tables(by_product), products, top)
    figures["gold.customer_cohorts"] = _cohorts(pa.concat_tables(by_customer), customers)
    for name in _KEYS:
        figures[name][()] = {"rows": len(figures[name])}
    return figures


def compare(written: Figures, expected: Figures) -> list[Difference]:
    """Every figure that differs; a row on one side only differs in all its columns."""
    differences = []
    for table, rows in expected.items():
        stored = written[table]
        for key in sorted(rows.keys() | stored.keys(), key=str):
            ours, theirs = rows.get(key, {}), stored.get(key, {})
            label = " ".join([table, *(str(part) for part in key)])
            differences += [
                Difference(f"{label} {column}", theirs.get(column), ours.get(column))
                for column in {**theirs, **ours}
                if theirs.get(column) != ours.get(column)
            ]
    return differences


def _scan(tables: IcebergTableManager, name: str, day: date | None = None, *columns: str) -> DataScan:
    table = tables.load_table(TableIdentifier.from_string(name))
    fields = columns or ("*",)
    return table.scan(selected_fields=fields) if day is None else table.scan(_on(day), fields)


def _on(day: date) -> str:
    start, end = (f"'{moment.isoformat()}T00:00:00+00:00'" for moment in (day, day + timedelta(days=1)))
    return f"ordered_at >= {start} AND ordered_at < {end}"


def _each_once(orders: pa.Table) -> pa.Table:
    """The first row of each order number."""
    numbered = pa.table({"order_id": orders["order_id"], "row": pa.array(range(orders.num_rows), pa.int64())})
    return orders.take(numbered.group_by("order_id").aggregate([("row", "min")])["row_min"])


def _judged(orders: pa.Table, customers: pa.Array) -> pa.Table:
    """The orders with parsed numbers, and the reason for rejection, NULL for good ones."""
    price = _parsed(orders["unit_price"], r"^\d+\.\d\d$", pa.decimal128(10, 2))
    quantity = _parsed(orders["quantity"], r"^-?\d+$", pa.int64())
    reason = pc.case_when(
        pc.make_struct(
            pc.is_null(price),
            pc.fill_null(pc.less_equal(quantity, 0), True),
            pc.invert(pc.is_in(orders["customer_id"], value_set=customers)),
        ),
        "price is not a number",
        "quantity is not positive",
        "customer is unknown",
    )
    return pa.table(
        {
            "customer_id": orders["customer_id"],
            "product_id": orders["product_id"],
            "orders": pa.repeat(pa.scalar(1, pa.int64()), orders.num_rows),
            "items": quantity,
            "revenue": pc.multiply(price, pc.cast(quantity, pa.decimal128(19, 0))),
            "reason": reason,
        }
    )


def _parsed(text: pa.ChunkedArray, pattern: str, kind: pa.DataType) -> pa.ChunkedArray:
    """The numbers in a column of text; NULL where there is none."""
    return pc.cast(pc.if_else(pc.match_substring_regex(text, pattern), text, None), kind)


def _totals(orders: pa.Table) -> dict[str, Value]:
    return {
        "orders": orders.num_rows,
        "items": pc.sum(orders["items"]).as_py(),
        "revenue": pc.sum(orders["revenue"]).as_py(),
    }


def _rejections(day: date, reasons: pa.ChunkedArray) -> Iterator[tuple[tuple[Value, ...], dict[str, Value]]]:
    for row in pc.value_counts(pc.drop_null(reasons)).to_pylist():
        yield (day, row["values"]), {"orders": row["counts"]}


def _renamed(sums: pa.Table) -> pa.Table:
    return sums.rename_columns([name.removesuffix("_sum") for name in sums.column_names])


def _top_products(
    sold: pa.Table, products: Mapping[int, dict[str, Any]], top: int
) -> dict[tuple[Value, ...], dict[str, Value]]:
    totals = _renamed(sold.group_by("product_id").aggregate([("items", "sum"), ("revenue", "sum")])).to_pylist()
    best = sorted(totals, key=lambda row: (-row["revenue"], row["product_id"]))[:top]
    return {
        (rank,): {
            **row,
            "product": products[row["product_id"]]["product"],
            "category": products[row["product_id"]]["category"],
        }
        for rank, row in enumerate(best, start=1)
    }


def _cohorts(bought: pa.Table, customers: Mapping[int, dict[str, Any]]) -> dict[tuple[Value, ...], dict[str, Value]]:
    totals = bought.group_by("customer_id").aggregate(
        [("week", "count_distinct"), ("orders", "sum"), ("revenue", "sum")]
    )
    cohorts: dict[tuple[Value, ...], dict[str, Any]] = {}
    for row in totals.to_pylist():
        month = customers[row["customer_id"]]["signed_up_on"].replace(day=1)
        empty = {"customers": 0, "came_back": 0, "orders": 0, "revenue": Decimal(0)}
        cohort = cohorts.setdefault((month,), empty)
        cohort["customers"] += 1
        cohort["came_back"] += row["week_count_distinct"] == 2
        cohort["orders"] += row["orders_sum"]
        cohort["revenue"] += row["revenue_sum"]
    return dict(cohorts)
