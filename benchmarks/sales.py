"""The rows and assets of the Dagster benchmark, the same for Floe and for its peer, whose environment has no Floe."""

import time
from collections.abc import Callable, Mapping
from datetime import date, timedelta
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from dagster import AssetExecutionContext, AssetsDefinition, DagsterInstance, DailyPartitionsDefinition, asset
from dagster import materialize as dagster_materialize
from pyiceberg.table import Table

__all__ = [
    "DAYS",
    "ROWS",
    "ROWS_A_DAY",
    "SCHEMA",
    "daily",
    "day",
    "days",
    "look_at",
    "materialize",
    "unpartitioned",
]

ROWS = 1_000_000
ROWS_A_DAY = 100_000
FIRST = date(2026, 1, 1)
DAYS = tuple((FIRST + timedelta(days=number)).isoformat() for number in range(30))
_PARTITIONS = DailyPartitionsDefinition(DAYS[0], end_date=(FIRST + timedelta(days=len(DAYS))).isoformat())
# The peer takes no timestamps with a zone as partitions.
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("at", pa.timestamp("us")),
        ("shop", pa.int32()),
        ("amount", pa.float64()),
        ("product", pa.string()),
        ("note", pa.string()),
    ]
)
_DAY = 86_400_000_000
_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


@cache
def day(key: str) -> pa.Table:
    """The rows of one day."""
    number = (date.fromisoformat(key) - date(1970, 1, 1)).days
    ids = pa.array(range(number * ROWS_A_DAY, (number + 1) * ROWS_A_DAY), pa.int64())
    scattered = pc.bit_wise_and(pc.multiply(ids, 0x9E3779B97F4A7C1), (1 << 62) - 1)
    return pa.table(
        [
            ids,
            pc.add(_rest(scattered, _DAY), number * _DAY).cast(pa.timestamp("us")),
            _rest(scattered, 200).cast(pa.int32()),
            pc.divide(_rest(scattered, 1_000_000).cast(pa.float64()), 7.0),
            pc.binary_join_element_wise("product", _rest(ids, 5_000).cast(pa.string()), " "),
            pc.binary_join_element_wise("note number", ids.cast(pa.string()), "of many", " "),
        ],
        schema=SCHEMA,
    )


def _rest(values: pa.Array, divisor: int) -> pa.Array:
    return pc.subtract(values, pc.multiply(pc.divide(values, divisor), divisor))


def days(keys: Any) -> pa.Table:
    return pa.concat_tables(day(key) for key in keys)


def unpartitioned(name: str) -> AssetsDefinition:
    """A million rows that replace the table."""

    @asset(name=name, key_prefix="bench", metadata={"write_mode": "overwrite"})
    def rows() -> pa.Table:
        return days(DAYS[: ROWS // ROWS_A_DAY])

    return rows


def daily(name: str, value: Callable[..., Any] = days, **settings: Any) -> AssetsDefinition:
    """The days that the run asks for."""

    def rows(context: AssetExecutionContext) -> Any:
        return value(context.partition_keys)

    metadata = {"partition_expr": "at"}
    made: AssetsDefinition = asset(
        name=name, key_prefix="bench", partitions_def=_PARTITIONS, metadata=metadata, **settings
    )(rows)
    return made


def materialize(one: AssetsDefinition, resources: Mapping[str, Any], **run: Any) -> float:
    """Seconds for one run in this process."""
    with DagsterInstance.ephemeral() as instance:
        started = time.perf_counter()
        done = dagster_materialize([one], resources=resources, instance=instance, run_config=_QUIET, **run)
        if not done.success:
            raise RuntimeError(f"{one.key} failed")
        return time.perf_counter() - started


def look_at(table: Table) -> dict[str, Any]:
    """What a table holds, to see that what was timed is what was meant."""
    files = [task.file.file_path for task in table.scan().plan_files()]
    codec = pq.read_metadata(files[0].removeprefix("file://")).row_group(0).column(0).compression
    return {
        "rows": table.scan().count(),
        "snapshots": len(table.snapshots()),
        "files": len(files),
        "codec": codec,
    }
