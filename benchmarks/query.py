"""Reading rows: floe read and floe sql beside DuckDB's own Iceberg reader, and beside Spark's shell."""

from __future__ import annotations

import itertools
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark

from benchmarks.measurement import Row, alternately, compare, compared
from benchmarks.peer_environment import DUCKDB, duckdb_python
from benchmarks.stream import BATCH_ROWS, SCHEMA, stream
from benchmarks.worker import ROOT, Worker
from floe_core.compiler import compile_project
from floe_core.models import PartitionTransform, PartitionTransformType
from floe_iceberg import Lake

__all__ = ["measure"]

ROWS = 3_000_000
TABLE = "bench.events"
BY_DAY = [PartitionTransform(source_column="at", transform_type=PartitionTransformType.DAY)]
_FLOE = str(Path(sys.executable).parent / "floe")
_DUCKDB = DUCKDB[0].replace("==", " ")
_TARGET = "at most 1.2"
# {table} is the name of the table, or what DuckDB's reader has in its place.
QUERIES = {
    "all rows by note": "SELECT substr(note, 1, 13) AS kind, count(*) AS n, avg(x) AS x FROM {table} GROUP BY 1",
    "one day of thirty": (
        "SELECT count(*) AS n, max(x) AS high FROM {table} "
        "WHERE \"at\" >= '2026-01-07 00:00:00+00' AND \"at\" < '2026-01-08 00:00:00+00'"
    ),
    "a join with itself": (
        "SELECT count(*) AS n FROM {table} a JOIN {table} b ON a.id = b.id + 1 WHERE a.x > 1e17 AND b.id < 1000000"
    ),
}
FIRST_ROWS = "SELECT * FROM {table} LIMIT 20"


def measure() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "floe.yaml").write_text("name: bench\n", encoding="utf-8")
        artifacts = compile_project(root).artifacts
        artifacts.write()
        with Lake(artifacts) as lake:
            data = itertools.islice(stream(sys.maxsize), ROWS // BATCH_ROWS)
            reader = pa.RecordBatchReader.from_batches(SCHEMA, data)
            lake.tables.write_data(TABLE, reader, mode="append", partition_by=BY_DAY)
            metadata = lake.tables.load_table(TABLE).metadata_location.removeprefix("file://")
            theirs = f"iceberg_scan('{metadata}')"
            command = [str(duckdb_python()), "-m", "benchmarks.iceberg_in_duckdb"]
            with Worker(*command, log=root / "duckdb.log") as peer:
                yield from _warm(lake, peer, theirs)
            yield from _cold(root, command, theirs)
            yield _beside_spark(root, lake)


def _warm(lake: Lake, peer: Worker, theirs: str) -> Iterator[Row]:
    """In processes that have run queries before."""

    def by_duckdb(query: str) -> float:
        seconds: float = peer.ask("query", query.format(table=theirs))[0]
        return seconds

    def timed(run: Callable[[], object]) -> float:
        started = time.perf_counter()
        run()
        return time.perf_counter() - started

    for words, query in QUERIES.items():
        text = query.format(table=TABLE)
        _check(lake.sql(text).to_arrow().num_rows, peer.ask("query", query.format(table=theirs))[1])
        runs = {
            "ours": lambda text=text: timed(lambda: lake.sql(text).to_arrow()),
            "theirs": lambda query=query: by_duckdb(query),
        }
        told = alternately(runs, times=9)
        yield compared(
            f"lake.sql, warm: {words}", told["ours"], f"{_DUCKDB} iceberg_scan", told["theirs"], target=_TARGET
        )

    def first_rows() -> object:
        return next(iter(lake.tables.scan(TABLE, limit=20).to_arrow_batch_reader()))

    told = alternately({"ours": lambda: timed(first_rows), "theirs": lambda: by_duckdb(FIRST_ROWS)}, times=9)
    yield compared("scan, warm: 20 rows", told["ours"], f"{_DUCKDB} iceberg_scan", told["theirs"], target=_TARGET)


def _cold(root: Path, command: Sequence[str], theirs: str) -> Iterator[Row]:
    """With the start of the process."""
    query = QUERIES["one day of thirty"]

    def floe(*arguments: str) -> Callable[[], object]:
        return lambda: subprocess.run([_FLOE, *arguments], cwd=root, check=True, capture_output=True)

    def duckdb(text: str) -> Callable[[], object]:
        asked = [*command, "query", text.format(table=theirs)]
        return lambda: subprocess.run(asked, cwd=ROOT, check=True, capture_output=True)

    ours = floe("sql", query.format(table=TABLE), "--json")
    yield compare("floe sql, cold: one day", ours, f"python, {_DUCKDB}", duckdb(query), times=7, target=_TARGET)
    ours = floe("read", TABLE, "--limit", "20", "--json")
    target = f"{_TARGET}; under 2 s"
    yield compare("floe read, cold: 20 rows", ours, f"python, {_DUCKDB}", duckdb(FIRST_ROWS), times=7, target=target)


def _beside_spark(root: Path, lake: Lake) -> Row:
    """Until the first row is printed."""
    shell = [*_spark_sql(lake), "-e", FIRST_ROWS.format(table=TABLE)]
    ours = [_FLOE, "sql", FIRST_ROWS.format(table=TABLE), "--output", "json"]
    runs = {"ours": lambda: _first_row(ours, root), "theirs": lambda: _first_row(shell, root)}
    told = alternately(runs, times=3)
    return compared("floe sql, cold: first row", told["ours"], "spark-sql", told["theirs"], target="at most 0.1")


def _spark_sql(lake: Lake) -> list[str]:
    """Spark's shell with the settings of the project's session."""
    from floe_core.config import resolve_model
    from floe_spark.jvm.session import catalog_conf, session_conf

    artifacts = lake.artifacts
    catalog = catalog_conf(lake.tables.catalog_plugin, lake.tables.storage_plugin)
    conf = session_conf(resolve_model(artifacts.spark, root=artifacts.root), catalog, root=artifacts.root)
    settings = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
    return [str(Path(sys.executable).parent / "spark-sql"), *settings]


def _first_row(command: Sequence[str], root: Path) -> float:
    """The seconds until a line with a row of the table."""
    started = time.perf_counter()
    # Spark's scripts look for PySpark with the first python3 on the PATH.
    environment = {**os.environ, "SPARK_HOME": str(Path(pyspark.__file__).parent)}
    with subprocess.Popen(
        command, cwd=root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "note number" in line:
                seconds = time.perf_counter() - started
                process.stdout.read()
                break
        else:
            raise RuntimeError(f"{shlex.join(command)} printed no row")
    return seconds


def _check(ours: int, theirs: Any) -> None:
    if ours != theirs:
        raise RuntimeError(f"Floe has {ours} rows, and DuckDB's reader {json.dumps(theirs)}")
