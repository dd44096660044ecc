"""Gold: the figures of the shop, recomputed from all days in each run."""

from dagster import AssetIn, asset
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

_ORDERS = {"orders": AssetIn(["silver", "orders"])}
_OVERWRITE = {"write_mode": "overwrite"}


@asset(key_prefix="gold", group_name="gold", ins=_ORDERS, metadata=_OVERWRITE)
def daily_revenue(orders: DataFrame) -> DataFrame:
    """Orders, items and revenue of each day."""
    return orders.groupBy(F.to_date("ordered_at").alias("day")).agg(
        F.count("*").alias("orders"),
        F.sum("quantity").alias("items"),
        F.sum("revenue").cast("decimal(18,2)").alias("revenue"),
    )


@asset(key_prefix="gold", group_name="gold", ins=_ORDERS, metadata=_OVERWRITE)
def top_products(orders: DataFrame) -> DataFrame:
    """The twenty products that bring in the most."""
    sold = orders.groupBy("product_id", "product", "category").agg(
        F.sum("quantity").alias("items"),
        F.sum("revenue").cast("decimal(18,2)").alias("revenue"),
    )
    rank = F.row_number().over(Window.orderBy(F.desc("revenue"), "product_id"))
    return sold.select(rank.alias("rank"), "*").where(F.col("rank") <= 20)


@asset(key_prefix="gold", group_name="gold", ins=_ORDERS, metadata=_OVERWRITE)
def customer_cohorts(orders: DataFrame) -> DataFrame:
    """Customers by the month they signed up: how many bought, how many came back in the second week."""
    second_week = F.col("ordered_at") >= F.lit("2026-01-08").cast("timestamp")
    customers = orders.groupBy("customer_id", F.trunc("signed_up_on", "month").alias("signed_up_in")).agg(
        F.bool_or(second_week).alias("in_second_week"),
        F.bool_or(~second_week).alias("in_first_week"),
        F.count("*").alias("orders"),
        F.sum("revenue").alias("revenue"),
    )
    return customers.groupBy("signed_up_in").agg(
        F.count("*").alias("customers"),
        F.count_if(F.col("in_first_week") & F.col("in_second_week")).alias("came_back"),
        F.sum("orders").alias("orders"),
        F.sum("revenue").cast("decimal(18,2)").alias("revenue"),
    )
