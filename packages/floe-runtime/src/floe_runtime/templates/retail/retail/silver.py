"""Silver: each order once, typed and joined; what cannot be counted is set aside with the reason."""

from dagster import AssetIn, BackfillPolicy, asset
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from .bronze import days

_CUSTOMERS = AssetIn(["bronze", "customers"])
_ORDERS = AssetIn(["bronze", "orders"])
_PRODUCTS = AssetIn(["bronze", "products"])


@asset(
    key_prefix="silver",
    group_name="silver",
    partitions_def=days,
    backfill_policy=BackfillPolicy.single_run(),
    metadata={"partition_expr": "ordered_at"},
    ins={"orders": _ORDERS, "customers": _CUSTOMERS, "products": _PRODUCTS},
)
def clean_orders(orders: DataFrame, customers: DataFrame, products: DataFrame) -> DataFrame:
    """Good orders, with what is known of their customers and products; a new column of the source comes along."""
    good = _judged(orders, customers).where(F.col("reason").isNull()).drop("reason")
    typed = good.withColumns({"quantity": _quantity(), "unit_price": _unit_price()}).dropDuplicates(["order_id"])
    return (
        typed.withColumn("revenue", (F.col("quantity") * F.col("unit_price")).cast("decimal(18,2)"))
        .join(F.broadcast(customers), "customer_id", "left")
        .join(F.broadcast(products.drop("list_price")), "product_id", "left")
    )


@asset(
    key_prefix="silver",
    group_name="silver",
    partitions_def=days,
    backfill_policy=BackfillPolicy.single_run(),
    metadata={"partition_expr": "ordered_at"},
    ins={"orders": _ORDERS, "customers": _CUSTOMERS},
)
def rejected_orders(orders: DataFrame, customers: DataFrame) -> DataFrame:
    """Bad orders as they came, and why they are not counted."""
    return _judged(orders, customers).where(F.col("reason").isNotNull()).dropDuplicates(["order_id"])


def _judged(orders: DataFrame, customers: DataFrame) -> DataFrame:
    """The orders with the reason why they cannot be counted, or NULL."""
    known = customers.select("customer_id", F.lit(True).alias("known"))
    reason = (
        F.when(_unit_price().isNull(), "price is not a number")
        .when(_quantity().isNull() | (_quantity() <= 0), "quantity is not positive")
        .when(F.col("known").isNull(), "customer is unknown")
    )
    return orders.join(F.broadcast(known), "customer_id", "left").withColumn("reason", reason).drop("known")


def _quantity() -> Column:
    return F.expr("try_cast(quantity AS INT)")


def _unit_price() -> Column:
    return F.expr("try_cast(unit_price AS DECIMAL(10,2))")
