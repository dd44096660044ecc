"""What must be true of a delivery; a check that blocks keeps an atomic run from being published."""

from dagster import AssetCheckResult, AssetIn, asset_check
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

_AT_MOST = 0.1


@asset_check(
    asset=["silver", "rejected_orders"], additional_ins={"orders": AssetIn(["silver", "orders"])}, blocking=True
)
def few_are_rejected(rejected_orders: DataFrame, orders: DataFrame) -> AssetCheckResult:
    """On no day, more than a tenth of the orders is rejected."""
    days = _per_day(rejected_orders, "rejected").join(_per_day(orders, "good"), "day", "left").na.fill(0)
    share = F.col("rejected") / (F.col("rejected") + F.col("good"))
    worst = days.select("day", share.alias("share")).orderBy(F.desc("share")).first()
    if worst is None:
        return AssetCheckResult(passed=True, description="no order is rejected")
    return AssetCheckResult(
        passed=worst["share"] <= _AT_MOST,
        description=f"{worst['share']:.1%} of the orders of {worst['day']} are rejected",
        metadata={"day": str(worst["day"]), "share": worst["share"]},
    )


def _per_day(orders: DataFrame, name: str) -> DataFrame:
    return orders.groupBy(F.to_date("ordered_at").alias("day")).agg(F.count("*").alias(name))
