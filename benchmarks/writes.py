"""What Floe's promises cost over bare Spark."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from benchmarks.measurement import Row, compare
from floe_core.compiler import compile_project
from floe_core.identifiers import TableIdentifier, TableSlice
from floe_core.models import PartitionTransform, PartitionTransformType, WriteMode
from floe_iceberg import Lake

__all__ = ["measure"]

ROWS = 1_000_000
MANY_ROWS = 10_000_000
START = datetime(2026, 1, 1, tzinfo=timezone.utc)
DAYS = 14
BY_DAY = [PartitionTransform(source_column="at", transform_type=PartitionTransformType.DAY)]


def measure() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "floe.yaml").write_text("name: bench\n", encoding="utf-8")
        lake = Lake(compile_project(Path(folder)).artifacts)
        spark = lake.spark
        yield _append(lake)
        yield _overwrite(lake)
        spark.stop()


def _orders(lake: Lake, rows: int = ROWS) -> DataFrame:
    at = F.timestamp_seconds(F.lit(int(START.timestamp())) + (F.col("id") * 7919) % (DAYS * 86400))
    return lake.spark.range(rows).select(
        "id", at.alias("at"), (F.col("id") % 1000).alias("product"), F.rand(1).alias("x")
    )


def _append(lake: Lake) -> Row:
    lake.write(_orders(lake), "bench.ours", mode=WriteMode.APPEND)
    lake.write(_orders(lake), "bench.bare", mode=WriteMode.APPEND)
    return compare(
        f"append {MANY_ROWS:,} rows",
        lambda: lake.write(_orders(lake, MANY_ROWS), "bench.ours", mode=WriteMode.APPEND),
        "DataFrame.writeTo().append()",
        lambda: _orders(lake, MANY_ROWS).writeTo("lake.bench.bare").append(),
        times=15,
        target="at most 1.05",
    )


def _overwrite(lake: Lake) -> Row:
    for name in ("days_ours", "days_bare"):
        lake.write(
            _orders(lake), TableIdentifier.from_string(f"bench.{name}"), mode=WriteMode.APPEND, partition_by=BY_DAY
        )
    window = TableSlice.of_windows("at", [(START, START + timedelta(days=DAYS))])
    condition = F.expr("at >= TIMESTAMP '2026-01-01' AND at < TIMESTAMP '2026-01-15'")
    return compare(
        f"replace {DAYS} days, {ROWS:,} rows",
        lambda: lake.write(_orders(lake), "bench.days_ours", mode=WriteMode.OVERWRITE, slice=window),
        "DataFrame.writeTo().overwrite()",
        lambda: _orders(lake).writeTo("lake.bench.days_bare").overwrite(condition),
        times=5,
        target="near 1",
    )
