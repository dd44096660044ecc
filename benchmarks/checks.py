"""All rules on ten million rows, in Spark and in DuckDB, beside the same checks written by hand in Spark."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import functions as F  # noqa: N812

from benchmarks.measurement import Row, alternately, compared, seconds_of
from floe_core import TableCheck, compile_project
from floe_iceberg import Lake

__all__ = ["measure"]

ROWS = 10_000_000
TABLE, STORES = "bench.orders", "bench.stores"
STATUS = ("new", "paid", "sent")
CHECKS = (
    TableCheck(not_null=["id", "at"]),
    TableCheck(accepted_values={"column": "status", "values": STATUS}),
    TableCheck(range={"column": "amount", "min": 0, "max": 1000}),
    TableCheck(condition="amount >= discount"),
    TableCheck(freshness={"max_age": "36500d", "column": "at"}),
    TableCheck(row_count={"min": ROWS, "max": ROWS}),
    TableCheck(columns={"columns": {"id": "long", "status": "string"}}),
    TableCheck(unique="id"),
    TableCheck(references={"columns": "store", "table": STORES, "to": "id"}),
    TableCheck(sql={"name": "discounts", "query": "SELECT id FROM this WHERE discount > 0 AND status = 'new'"}),
)


def measure() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "floe.yaml").write_text("name: bench\n", encoding="utf-8")
        lake = Lake(compile_project(Path(folder)).artifacts)
        spark = lake.spark
        _fill(lake)
        runs = {
            "spark": lambda: seconds_of(lambda: _check(lake, "spark")),
            "by hand": lambda: seconds_of(lambda: _by_hand(lake)),
            "duckdb": lambda: seconds_of(lambda: _check(lake, "duckdb")),
        }
        measured = alternately(runs, times=7)
        beside = "the same by hand in Spark"
        what = f"{len(CHECKS)} checks of {ROWS:,} rows"
        yield compared(f"{what}, Spark", measured["spark"], beside, measured["by hand"], target="at most 1.1")
        yield compared(f"{what}, DuckDB", measured["duckdb"], beside, measured["by hand"], target="")
        spark.stop()


def _fill(lake: Lake) -> None:
    status = F.element_at(F.array(*map(F.lit, STATUS)), (F.col("id") % 3 + 1).cast("int"))
    orders = lake.spark.range(ROWS).select(
        "id",
        F.timestamp_seconds(F.lit(1_767_225_600) + F.col("id") % 1_209_600).alias("at"),
        status.alias("status"),
        (F.col("id") % 1000).cast("decimal(10,2)").alias("amount"),
        F.lit(0).cast("decimal(10,2)").alias("discount"),
        (F.col("id") % 100).alias("store"),
    )
    lake.write(orders, TABLE, mode="overwrite")
    lake.write(lake.spark.range(100), STORES, mode="overwrite")


def _check(lake: Lake, engine: str) -> None:
    outcomes = lake.check(TABLE, CHECKS, engine=engine)  # type: ignore[arg-type]
    failed = [outcome for outcome in outcomes if not outcome.passed]
    if failed:
        raise RuntimeError(f"checks failed: {failed}")


def _by_hand(lake: Lake) -> None:
    """One aggregation for everything about rows, and a query for uniqueness, for references and for the rest."""
    spark = lake.spark
    orders = spark.table(f"lake.{TABLE}")
    bad = {
        "nulls": F.col("id").isNull() | F.col("at").isNull(),
        "status": ~F.col("status").isin(*STATUS),
        "amount": (F.col("amount") < 0) | (F.col("amount") > 1000),
        "discount": F.col("amount") < F.col("discount"),
    }
    counted = [F.count_if(condition).alias(name) for name, condition in bad.items()]
    row = orders.agg(F.count("*").alias("n"), F.max("at").alias("newest"), *counted).collect()[0]
    repeated = orders.groupBy("id").count().where("count > 1").count()
    lost = orders.join(spark.table(f"lake.{STORES}").withColumnRenamed("id", "s"), F.col("store") == F.col("s"), "anti")
    found = [
        *(row[name] for name in bad),
        repeated,
        lost.count(),
        orders.where("discount > 0 AND status = 'new'").count(),
    ]
    if row["n"] != ROWS or any(found):
        raise RuntimeError(f"the data is not as it should be: {row}, {found}")
