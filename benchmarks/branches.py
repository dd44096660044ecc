"""Beginning a branch of the lake in a table with many files, beside one commit to the same table."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from benchmarks.measurement import Row, alternately, compared, seconds_of
from floe_core.compiler import compile_project
from floe_core.identifiers import TableIdentifier
from floe_iceberg import IcebergTableManager, Lake
from floe_iceberg.snapshots import LakeBranch
from floe_iceberg.transactions import NewTable

__all__ = ["measure"]

FILES = 100_000
TABLE = TableIdentifier.from_string("bench.events")
_ROW = pa.table({"n": [1]})


def measure() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "floe.yaml").write_text("name: bench\n", encoding="utf-8")
        with Lake(compile_project(Path(folder)).artifacts) as lake:
            tables = lake.tables
            tables.write_data(TABLE, _ROW, mode="append")
            _fill(tables.load_table(TABLE))
            names = (f"trial{number}" for number in itertools.count())
            runs = {
                "branch": lambda: seconds_of(lambda: lake.branches.create(next(names))),
                "begun": lambda: _begun(lake, next(names)),
                "commit": lambda: seconds_of(lambda: tables.write_data(TABLE, _ROW, mode="append")),
            }
            measured = alternately(runs, times=7)
        beside = f"an append of one row to {FILES:,} files"
        for what, name in (("create a branch of the lake", "branch"), ("begin it in the table", "begun")):
            yield compared(what, measured[name], beside, measured["commit"], target="as one commit")


def _begun(lake: Lake, name: str) -> float:
    """The seconds until the table has the branch; the branch of the lake is there before the clock starts."""
    branch, tables = lake.branches.open(name), lake.tables
    return seconds_of(lambda: _begin(tables, branch))


def _begin(tables: IcebergTableManager, branch: LakeBranch) -> None:
    table = tables.load_table(TABLE)
    tables.begin_branch(branch, TABLE, table, NewTable(table.schema()))


def _fill(table: Table) -> None:
    """Add files that no query reads: only their entries in manifests count here."""
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        for number in range(FILES):
            file = DataFile.from_args(
                content=DataFileContent.DATA,
                file_path=f"{table.location()}/data/{number}.parquet",
                file_format=FileFormat.PARQUET,
                partition=Record(),
                record_count=1,
                file_size_in_bytes=500,
                column_sizes={},
                value_counts={},
                null_value_counts={},
                nan_value_counts={},
                lower_bounds={},
                upper_bounds={},
            )
            file.spec_id = 0
            append.append_data_file(file)
