"""Bronze: what the sources send, as they send it. Replace the two functions with your own sources."""

from dagster import AssetExecutionContext, BackfillPolicy, DailyPartitionsDefinition, asset
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from floe_dagster import LakeResource

days = DailyPartitionsDefinition(start_date="2026-01-01", end_date="2026-01-08")


@asset(
    key_prefix="bronze",
    group_name="bronze",
    partitions_def=days,
    backfill_policy=BackfillPolicy.single_run(),
    metadata={"partition_expr": "ordered_at"},  # the column of the partition: a run replaces exactly its days
)
def orders(context: AssetExecutionContext, lake: LakeResource) -> DataFrame:
    """One order a minute, its amount as text; every tenth is sent twice."""
    window = context.partition_time_window
    first, last = int(window.start.timestamp()) // 60, int(window.end.timestamp()) // 60
    sent = lake.spark.range(first, last).select(
        F.col("id").alias("order_id"),
        F.timestamp_seconds(F.col("id") * 60).alias("ordered_at"),
        (F.col("id") % 50).alias("customer_id"),
        (F.col("id") % 90 + 10).cast("string").alias("amount"),
    )
    return sent.unionAll(sent.where("order_id % 10 = 0"))


@asset(
    key_prefix="bronze", group_name="bronze", metadata={"write_mode": "overwrite", "floe/sensitive_columns": ["email"]}
)
def customers(lake: LakeResource) -> DataFrame:
    """Every customer."""
    return lake.spark.range(50).select(
        F.col("id").alias("customer_id"),
        F.concat(F.lit("customer"), F.col("id"), F.lit("@example.com")).alias("email"),
        F.element_at(F.array(*map(F.lit, ("CH", "DE", "FR"))), (F.col("id") % 3 + 1).cast("int")).alias("country"),
    )
