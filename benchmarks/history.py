"""What an append costs on a table with a long history, beside parsing and writing its metadata file once."""

from __future__ import annotations

import gc
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from pyiceberg.serializers import FromInputFile, ToOutputFile

from benchmarks.measurement import Row, alternately, compared
from floe_core.compiler import compile_project
from floe_iceberg import IcebergTableManager, Lake

__all__ = ["measure"]

COMMITS = (200, 800, 5_000)
ROW = pa.table({"n": [1]})


def measure() -> Iterator[Row]:
    for commits in COMMITS:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "floe.yaml").write_text("name: bench\n", encoding="utf-8")
            yield _append(Lake(compile_project(Path(folder)).artifacts).tables, commits)


def _append(tables: IcebergTableManager, commits: int) -> Row:
    tables.write_data("bench.t", ROW, mode="append")
    location = tables.load_table("bench.t").metadata_location
    _lengthen(Path(location.removeprefix("file://")), commits)
    table = tables.load_table("bench.t")
    copy = f"{table.location()}/copy.json"

    def parse_and_dump() -> None:
        metadata = FromInputFile.table_metadata(table.io.new_input(location))
        ToOutputFile.table_metadata(metadata, table.io.new_output(copy), overwrite=True)

    runs = {
        "ours": lambda: _cpu_seconds_of(lambda: tables.write_data("bench.t", ROW, mode="append")),
        "theirs": lambda: _cpu_seconds_of(parse_and_dump),
    }
    measured = alternately(runs, times=9)
    return compared(
        f"append one row after {commits:,} commits, CPU",
        measured["ours"],
        "parse and dump its metadata once",
        measured["theirs"],
        target="at most 2.00" if commits == COMMITS[-1] else "",
    )


def _lengthen(file: Path, commits: int) -> None:
    """Give the table a history of this many commits, each like the one that it has."""
    metadata = json.loads(file.read_text(encoding="utf-8"))
    (model,) = metadata["snapshots"]
    began = model["timestamp-ms"] - commits
    metadata["snapshots"] = [
        {
            **model,
            "snapshot-id": number,
            "sequence-number": number,
            "timestamp-ms": began + number,
            "summary": {**model["summary"], "floe.write-id": f"write-{number}"},
            **({"parent-snapshot-id": number - 1} if number > 1 else {}),
        }
        for number in range(1, commits + 1)
    ]
    metadata["snapshot-log"] = [
        {"snapshot-id": number, "timestamp-ms": began + number} for number in range(1, commits + 1)
    ]
    metadata["last-sequence-number"] = metadata["current-snapshot-id"] = commits
    metadata["refs"]["main"]["snapshot-id"] = commits
    file.write_text(json.dumps(metadata), encoding="utf-8")


def _cpu_seconds_of(call: Callable[[], object]) -> float:
    gc.collect()  # what the other one left behind
    started = time.process_time()
    call()
    return time.process_time() - started
