"""Two assets: each becomes an Iceberg table, computed by polars without Java."""

import polars as pl
from dagster import AssetExecutionContext, AssetIn, BackfillPolicy, DailyPartitionsDefinition, asset

from floe_dagster import create_definitions

days = DailyPartitionsDefinition(start_date="2026-01-01", end_date="2026-01-08")


@asset(
    key_prefix="bronze",
    partitions_def=days,
    backfill_policy=BackfillPolicy.single_run(),
    metadata={"partition_expr": "measured_at"},
)
def measurements(context: AssetExecutionContext) -> pl.DataFrame:
    """One reading a minute for each of ten sensors; replace this with your own source."""
    window = context.partition_time_window
    start, end = int(window.start.timestamp()), int(window.end.timestamp())
    number = pl.int_range((end - start) // 60 * 10, eager=True).alias("number")
    return number.to_frame().select(
        (pl.col("number") % 10).alias("sensor"),
        pl.from_epoch(start + pl.col("number") // 10 * 60).dt.replace_time_zone("UTC").alias("measured_at"),
        ((pl.col("number") / 500).sin() * 10 + 20).alias("celsius"),
    )


@asset(
    key_prefix="gold", ins={"measurements": AssetIn(["bronze", "measurements"])}, metadata={"write_mode": "overwrite"}
)
def daily_averages(measurements: pl.LazyFrame) -> pl.LazyFrame:
    """The mean per day and sensor; the input holds all days."""
    day = pl.col("measured_at").dt.date().alias("day")
    return measurements.group_by(day, "sensor").agg(pl.col("celsius").mean(), pl.len().alias("readings"))


defs = create_definitions([measurements, daily_averages])
