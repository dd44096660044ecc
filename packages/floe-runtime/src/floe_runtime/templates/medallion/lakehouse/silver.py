"""Silver: each order and each customer once, with the right types."""

from dagster import AssetIn, BackfillPolicy, asset
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from .bronze import days


@asset(
    key=["silver", "orders"],
    group_name="silver",
    partitions_def=days,
    backfill_policy=BackfillPolicy.single_run(),
    ins={"orders": AssetIn(["bronze", "orders"])},
    metadata={"partition_expr": "ordered_at"},
)
def silver_orders(orders: DataFrame) -> DataFrame:
    """Each order of the run's days once."""
    return orders.dropDuplicates(["order_id"]).withColumn("amount", F.col("amount").cast("decimal(10,2)"))


@asset(
    key=["silver", "customers"],
    group_name="silver",
    ins={"customers": AssetIn(["bronze", "customers"])},
    # A known customer is updated, a new one is added, and one that is no longer sent stays.
    metadata={"write_mode": "upsert", "upsert_keys": ["customer_id"], "floe/sensitive_columns": ["email"]},
)
def silver_customers(customers: DataFrame) -> DataFrame:
    """Every customer ever sent."""
    return customers.withColumn("email", F.lower("email"))
