"""An upsert by a key of two columns: Floe's MERGE beside PyIceberg's own upsert, where that survives.

python -m benchmarks.upsert FOLDER TABLE ROWS ROUND     PyIceberg's own, in a process with limits
"""

from __future__ import annotations

import json
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.measurement import Row, seconds_of
from benchmarks.worker import ROOT
from floe_core.compiler import compile_project
from floe_core.config import CompiledArtifacts
from floe_core.identifiers import TableIdentifier
from floe_core.models import WriteMode
from floe_iceberg import IcebergTableManager, Lake

__all__ = ["measure"]

THERE = 5_000_000
ROWS = 100_000
SURVIVED_ROWS = 1_000
KEYS = ["shop", "number"]
SHOPS = 100
TIME_LIMIT_SECONDS = 600
MEMORY_LIMIT_BYTES = 10 * 2**30
_READY = "ready\n"


def measure() -> Iterator[Row]:
    warnings.simplefilter("ignore")  # PyIceberg's, about a property that it does not know
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "floe.yaml").write_text("name: bench\n", encoding="utf-8")
        artifacts = compile_project(Path(folder)).artifacts
        artifacts.write()
        lake = Lake(artifacts)
        _merge(lake, _filled(lake.tables, "warm"), SURVIVED_ROWS, 0)
        for rows, times in ((ROWS, 3), (SURVIVED_ROWS, 3)):
            yield _compared(lake, Path(folder), rows, times)
        lake.spark.stop()


def _compared(lake: Lake, folder: Path, rows: int, times: int) -> Row:
    """In turns, until PyIceberg does not survive; then Floe alone."""
    ours, bare = _filled(lake.tables, f"ours_{rows}"), _filled(lake.tables, f"bare_{rows}")
    mine: list[float] = []
    theirs: list[float] = []
    died = ""
    for number in range(times):
        mine.append(_merge(lake, ours, rows, number))
        if not died:
            told = _bare(folder, bare, rows, number)
            if isinstance(told, str):
                died = told
            else:
                theirs.append(told)
    _check(lake.tables, ours, rows, times)
    if not died:
        _check(lake.tables, bare, rows, times)
    what = f"upsert {rows:,} rows, two keys, into {THERE:,}"
    seconds = statistics.median(mine)
    if died:
        return Row(what, seconds, f"pyiceberg Table.upsert: {died}", None, "", None)
    ratio = statistics.median(one / other for one, other in zip(mine, theirs, strict=True))
    return Row(what, seconds, "pyiceberg Table.upsert", statistics.median(theirs), "", ratio)


def _merge(lake: Lake, table: TableIdentifier, rows: int, number: int) -> float:
    data = _changed(rows, number)
    return seconds_of(lambda: lake.write(lake.spark.createDataFrame(data), table, mode=WriteMode.UPSERT, keys=KEYS))


def _bare(folder: Path, table: TableIdentifier, rows: int, number: int) -> float | str:
    """Seconds, or how it ended."""
    command = [sys.executable, "-m", "benchmarks.upsert", str(folder), str(table), str(rows), str(number)]
    started = time.perf_counter()
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=TIME_LIMIT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"did not survive: not done after {TIME_LIMIT_SECONDS} s"
    if not done.stdout.startswith(_READY):
        raise RuntimeError(f"{' '.join(command)} failed before the upsert:\n{done.stderr[-3000:]}")
    if done.returncode:
        said = done.stderr.strip().splitlines()[-1:]
        why = signal.Signals(-done.returncode).name if done.returncode < 0 else "".join(said)[:80]
        return f"did not survive: {why} after {time.perf_counter() - started:.0f} s"
    seconds: float = json.loads(done.stdout.removeprefix(_READY))
    return seconds


def _filled(manager: IcebergTableManager, name: str) -> TableIdentifier:
    table = TableIdentifier.from_string(f"bench.{name}")
    manager.write_data(table, _rows(range(THERE), 1), mode=WriteMode.APPEND)
    return table


def _changed(rows: int, number: int) -> pa.Table:
    """Half of them in the table, scattered over all of it, half of them new."""
    half = rows // 2
    there = range(number, THERE, THERE // half)
    first = THERE + number * half
    return pa.concat_tables([_rows(there, -1), _rows(range(first, first + half), -1)])


def _rows(places: range, sign: int) -> pa.Table:
    ids = pa.array(places, pa.int64())
    number = pc.divide(ids, SHOPS)
    return pa.table(
        {
            "shop": pc.subtract(ids, pc.multiply(number, SHOPS)),
            "number": number,
            "amount": pc.multiply(ids, sign),
            "note": pc.binary_join_element_wise("note number", ids.cast(pa.string()), "of many", " "),
        }
    )


def _check(manager: IcebergTableManager, table: TableIdentifier, rows: int, times: int) -> None:
    """Every row is there once, with the value it should have: the sum of the amounts tells."""
    changed = [_changed(rows, number) for number in range(times)]
    half = rows // 2
    there = [pc.sum(one["amount"][:half]).as_py() for one in changed]
    new = [pc.sum(one["amount"][half:]).as_py() for one in changed]
    wanted = (THERE + times * half, sum(range(THERE)) + 2 * sum(there) + sum(new))
    amounts = manager.scan(table, columns=["amount"]).to_arrow()["amount"]
    if (len(amounts), pc.sum(amounts).as_py()) != wanted:
        raise RuntimeError(f"'{table}' should have {wanted} as rows and sum, but has {len(amounts), pc.sum(amounts)}")


def main(folder: str, name: str, rows: str, number: str) -> None:
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))
    tables = Lake(CompiledArtifacts.load(Path(folder))).tables
    table = tables.load_table(TableIdentifier.from_string(name))
    data = _changed(int(rows), int(number))
    sys.stdout.write(_READY)
    sys.stdout.flush()
    sys.stdout.write(json.dumps(seconds_of(lambda: table.upsert(data, join_cols=KEYS))) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
