"""Two assets: each becomes an Iceberg table, computed by Spark."""

from dagster import AssetExecutionContext, AssetIn, BackfillPolicy, DailyPartitionsDefinition, asset
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from floe_dagster import LakeResource, create_definitions

days = DailyPartitionsDefinition(start_date="2026-01-01", end_date="2026-01-08")


@asset(
    key_prefix="bronze",
    partitions_def=days,
    backfill_policy=BackfillPolicy.single_run(),
    metadata={"partition_expr": "measured_at"},
)
def measurements(context: AssetExecutionContext, lake: LakeResource) -> DataFrame:
    """One reading a minute for each of ten sensors; replace this with your own source."""
    window = context.partition_time_window
    start, end = int(window.start.timestamp()), int(window.end.timestamp())
    return lake.spark.range((end - start) // 60 * 10).select(
        (F.col("id") % 10).alias("sensor"),
        F.timestamp_seconds(F.lit(start) + F.floor(F.col("id") / 10) * 60).alias("measured_at"),
        (F.sin(F.col("id") / 500) * 10 + 20).alias("celsius"),
    )


@asset(
    key_prefix="gold", ins={"measurements": AssetIn(["bronze", "measurements"])}, metadata={"write_mode": "overwrite"}
)
def daily_averages(measurements: DataFrame) -> DataFrame:
    """The mean per day and sensor; the input holds all days."""
    day = F.to_date("measured_at").alias("day")
    return measurements.groupBy(day, "sensor").agg(F.avg("celsius").alias("celsius"), F.count("*").alias("readings"))


defs = create_definitions([measurements, daily_averages])
