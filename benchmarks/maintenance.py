"""A table of 5,000 small files: Floe's maintenance beside the bare procedures, scans before and after, bytes freed."""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pyarrow as pa

from benchmarks.measurement import Row, alternately, compared, seconds_of
from floe_core.compiler import compile_project
from floe_core.identifiers import TableIdentifier
from floe_core.models import PartitionTransform, PartitionTransformType
from floe_iceberg import Lake
from floe_iceberg.files import location_of
from floe_iceberg.maintenance import Maintenance, Outcome

__all__ = ["measure"]

PARTITIONS = 50
COMMITS = 100
ROWS_OF_A_FILE = 200
TIMES = 2
_PROJECT = """\
name: bench
maintenance:
  retry_window: 1s
  floor: {enterprise: 1s}
  expire: {older_than: 1s, keep_last: 1}
"""


def measure() -> Iterator[Row]:
    warnings.simplefilter("ignore")  # PyIceberg's, about a property that it does not know
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "floe.yaml").write_text(_PROJECT, encoding="utf-8")
        artifacts = compile_project(Path(folder)).artifacts
        artifacts.write()
        lake = Lake(artifacts)
        _ = lake.spark
        scans: list[tuple[float, float]] = []
        freed: list[tuple[int, int, int, int]] = []
        numbers = iter(range(100))

        def ours() -> float:
            table = _filled(lake, f"ours_{next(numbers)}")
            before, bytes_before, files_before = _scan(lake, table), *_on_disk(lake, table)
            seconds = seconds_of(lambda: _maintain(lake, table))
            after, bytes_after, files_after = _scan(lake, table), *_on_disk(lake, table)
            scans.append((before, after))
            freed.append((bytes_before, bytes_after, files_before, files_after))
            return seconds

        def bare() -> float:
            table = _filled(lake, f"bare_{next(numbers)}")
            return seconds_of(lambda: _procedures(lake, table))

        told = alternately({"ours": ours, "bare": bare}, times=TIMES)
        files = PARTITIONS * COMMITS
        yield compared(
            f"maintain {files:,} small files", told["ours"], "the bare procedures", told["bare"], target="<= 1.05"
        )
        yield compared(
            f"scan after: {freed[-1][3]:,} files, {freed[-1][1] / 1e6:.1f} MB on disk",
            [after for _, after in scans],
            f"before: {freed[-1][2]:,} files, {freed[-1][0] / 1e6:.1f} MB",
            [before for before, _ in scans],
            target="",
        )
        lake.spark.stop()


def _filled(lake: Lake, name: str) -> TableIdentifier:
    """Small files in every partition, as hourly appends leave them."""
    table = TableIdentifier(namespace=("bench",), name=name)
    by = [PartitionTransform(source_column="shop", transform_type=PartitionTransformType.IDENTITY)]
    rows = PARTITIONS * ROWS_OF_A_FILE
    for number in range(COMMITS):
        data = pa.table(
            {
                "shop": pa.array([place % PARTITIONS for place in range(rows)], pa.int64()),
                "amount": pa.array([(place * 7919 + number) % 100_003 for place in range(rows)], pa.int64()),
                "note": [f"{place * 31 + number:x}" for place in range(rows)],
            }
        )
        lake.tables.write_data(table, data, mode="append", partition_by=by)
    time.sleep(1.1)
    return table


def _maintain(lake: Lake, table: TableIdentifier) -> None:
    (outcome,) = Maintenance(lake).run([table])
    if outcome.outcome is not Outcome.DONE:
        raise RuntimeError(f"{outcome.outcome}: {outcome.reason}")


def _procedures(lake: Lake, table: TableIdentifier) -> None:
    """What somebody writes who knows them, in the same order."""
    moment = datetime.now(timezone.utc).isoformat(sep=" ", timespec="milliseconds")
    options = "map('min-input-files', '5', 'delete-file-threshold', '1', 'remove-dangling-deletes', 'true')"
    for call in (
        f"rewrite_data_files(table => '{table}', options => {options})",
        f"rewrite_manifests(table => '{table}')",
        f"expire_snapshots(table => '{table}', older_than => TIMESTAMP '{moment}', retain_last => 1)",
        f"remove_orphan_files(table => '{table}')",
    ):
        lake.spark.sql(f"CALL lake.system.{call}").collect()


def _scan(lake: Lake, table: TableIdentifier) -> float:
    def scan() -> None:
        found = lake.tables.scan(table).to_arrow().num_rows
        if found != PARTITIONS * COMMITS * ROWS_OF_A_FILE:
            raise RuntimeError(f"{found} rows")

    return seconds_of(scan)


def _on_disk(lake: Lake, table: TableIdentifier) -> tuple[int, int]:
    root = location_of(lake.tables.load_table(table))
    sizes = [one.stat().st_size for one in Path(root).rglob("*") if one.is_file()]
    return sum(sizes), len(sizes)
