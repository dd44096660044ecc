"""Gold: the figures, recomputed from all days in each run."""

from dagster import AssetIn, asset
from pyspark.sql import DataFrame
from pyspark.sql import functions as F


@asset(
    key_prefix="gold",
    group_name="gold",
    ins={"orders": AssetIn(["silver", "orders"]), "customers": AssetIn(["silver", "customers"])},
    # The table keeps its columns: a change of them is refused until it is made on purpose.
    metadata={"write_mode": "overwrite", "floe/schema_evolution_enabled": False},
)
def daily_revenue(orders: DataFrame, customers: DataFrame) -> DataFrame:
    """The orders and the revenue of each day and country."""
    return (
        orders.join(customers, "customer_id")
        .groupBy(F.to_date("ordered_at").alias("day"), "country")
        .agg(F.count("*").alias("orders"), F.sum("amount").cast("decimal(18,2)").alias("revenue"))
    )
