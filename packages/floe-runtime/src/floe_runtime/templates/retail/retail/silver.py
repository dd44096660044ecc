"""Silver: each order once, typed and joined; what cannot be counted is set aside with the reason."""

from dagster import AssetIn, BackfillPolicy, asset
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from .bronze import days

_CUSTOMERS = AssetIn(["bronze", "customers"])
_ORDERS = AssetIn(["bronze", "orders"])
_PRODUCTS = AssetIn(["bronze", "products"])


@asset(
    key=["silver", "orders"],
    group_name="silver",
    partitions_def=days,
    backfill_policy=BackfillPolicy.single_run(),
    metadata={"partition_expr": "ordered_at"},
    ins={"orders": _ORDERS, "customers": _CUSTOMERS, "products": _PRODUCTS},
)
def silver_orders(orders: DataFrame, customers: DataFrame, products: DataFrame) -> DataFrame:
    """Good orders with their revenue, customer and product; new columns of the source are kept."""
    # Duplicates are equal in every column.
    good = _judged(orders.distinct(), customers).where(F.col("reason").isNull())
    typed = good.withColumns({"quantity": _quantity(), "unit_price": _unit_price()})
    return (
        typed.withColumn("revenue", (F.col("quantity") * F.col("unit_price")).cast("decimal(18,2)"))
        .join(F.broadcast(products), "product_id", "left")
        .select(*orders.columns, "revenue", "product", "category", "country", "signed_up_on")
    )


@asset(
    key=["silver", "rejected_orders"],
    group_name="silver",
    partitions_def=days,
    backfill_policy=BackfillPolicy.single_run(),
    metadata={"partition_expr": "ordered_at"},
    ins={"orders": _ORDERS, "customers": _CUSTOMERS},
)
def rejected_orders(orders: DataFrame, customers: DataFrame) -> DataFrame:
    """Bad orders as they were sent, and why they are not counted."""
    bad = _judged(orders, customers).where(F.col("reason").isNotNull())
    return bad.select(*orders.columns, "reason").distinct()


def _judged(orders: DataFrame, customers: DataFrame) -> DataFrame:
    """The orders with their customers and the reason why they cannot be counted, NULL for good ones."""
    reason = (
        F.when(_unit_price().isNull(), "price is not a number")
        .when(_quantity().isNull() | (_quantity() <= 0), "quantity is not positive")
        .when(F.col("signed_up_on").isNull(), "customer is unknown")
    )
    return orders.join(F.broadcast(customers), "customer_id", "left").withColumn("reason", reason)


def _quantity() -> Column:
    return F.expr("try_cast(quantity AS INT)")


def _unit_price() -> Column:
    return F.expr("try_cast(unit_price AS DECIMAL(10,2))")
