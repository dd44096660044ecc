"""A stream of any length is written in the same memory, and the rows of Spark do not pass through this process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from floe_core.identifiers import TableIdentifier
from floe_iceberg import Lake

ROOT = Path(__file__).parents[2]


def _reset_peak() -> int:
    """The resident bytes of this process, from which its peak is counted again."""
    pa.default_memory_pool().release_unused()  # memory that is free already would hide growth
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return _peak()


def _peak() -> int:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def _stream(folder: Path, size: int) -> dict[str, Any]:
    folder.mkdir()
    command = [sys.executable, "-m", "benchmarks.stream", str(folder), str(size)]
    found: dict[str, Any] = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)
    return found


@pytest.mark.full
def test_a_stream_into_partitions_takes_no_more_memory_the_longer_it_is(tmp_path: Path) -> None:
    short = _stream(tmp_path / "short", 500_000_000)
    long = _stream(tmp_path / "long", 2_000_000_000)
    assert short["snapshots"] == long["snapshots"] == 1
    assert long["rows"] > 3.5 * short["rows"]
    assert long["peak_bytes"] < 1_000_000_000
    assert long["peak_bytes"] < 1.25 * short["peak_bytes"]


_LAZY = """
import resource, sys
from pathlib import Path
import polars as pl
from tests.lakes import open_manager
tables = open_manager(Path(sys.argv[1]))
made = tables.write_data("bench.lazy", pl.scan_parquet(sys.argv[2]), mode="append")
print(made.count("added-records"), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


@pytest.mark.full
def test_a_lazy_frame_is_not_collected_as_a_whole(tmp_path: Path) -> None:
    columns, rows, pieces = 12, 500_000, 40
    zeros = pa.table({f"c{number}": pa.nulls(rows, pa.int64()).fill_null(0) for number in range(columns)})
    with pq.ParquetWriter(tmp_path / "zeros.parquet", zeros.schema) as writer:
        for _ in range(pieces):
            writer.write_table(zeros)
    (tmp_path / "lake").mkdir()
    command = [sys.executable, "-c", _LAZY, str(tmp_path / "lake"), str(tmp_path / "zeros.parquet")]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    written, peak = map(int, done.stdout.split())
    assert written == rows * pieces
    assert peak < columns * rows * pieces * 8 * 0.75, f"{peak / 1e6:.0f} MB"


@pytest.mark.full
def test_rows_that_spark_appends_do_not_pass_through_the_python_process(lake: Lake, table: TableIdentifier) -> None:
    rows, width = 20_000, 10_000
    frame = lake.spark.range(rows).withColumn("note", F.rpad(F.col("id").cast("string"), width, "x"))
    lake.write(frame.limit(1), table, mode="append")
    before = _reset_peak()
    lake.write(frame, table, mode="append")
    grown = _peak() - before
    assert lake.tables.scan(table).count() == rows + 1
    assert grown < rows * width / 5, f"{grown / 1e6:.0f} MB"
