"""Bronze: what the source sends, as it sends it."""

from dagster import AssetExecutionContext, BackfillPolicy, DailyPartitionsDefinition, asset
from pyspark.sql import DataFrame

from floe_dagster import LakeResource

from .source import END, START, read_source

days = DailyPartitionsDefinition(start_date=START, end_date=END)


@asset(
    key_prefix="bronze",
    group_name="bronze",
    partitions_def=days,
    backfill_policy=BackfillPolicy.single_run(),
    metadata={"partition_expr": "ordered_at"},
)
def orders(context: AssetExecutionContext, lake: LakeResource) -> DataFrame:
    """Raw orders: numbers as text, some sent twice, some wrong."""
    window = context.partition_time_window
    return read_source().send_orders(lake.spark, window.start, window.end)


@asset(key_prefix="bronze", group_name="bronze", metadata={"write_mode": "overwrite"})
def customers(lake: LakeResource) -> DataFrame:
    """Every customer the shop has."""
    return read_source().send_customers(lake.spark)


@asset(key_prefix="bronze", group_name="bronze", metadata={"write_mode": "overwrite"})
def products(lake: LakeResource) -> DataFrame:
    """Every product the shop sells."""
    return read_source().send_products(lake.spark)
