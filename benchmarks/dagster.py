"""Dagster assets through Floe beside the same assets through dagster-iceberg, each side in its own environment."""

from __future__ import annotations

import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.measurement import Row, alternately, compared
from benchmarks.peer_environment import PEER, peer_python
from benchmarks.sales import DAYS, ROWS, ROWS_A_DAY
from benchmarks.worker import ROOT, Worker
from floe_core.compiler import compile_project

__all__ = ["measure"]

BACKFILL_ROWS = len(DAYS) * ROWS_A_DAY
_PEER = PEER[0].replace("==", " ")
_numbers = itertools.count()


def measure() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        ours, peer = _commands(Path(folder))
        logs = Path(folder)
        with Worker(*ours, log=logs / "ours.log") as ours_warm, Worker(*peer, log=logs / "peer.log") as peer_warm:
            yield from _writes(ours_warm, peer_warm)
            yield from _backfills(ours_warm, peer_warm)
        yield _launched(ours, peer)


def _commands(folder: Path) -> tuple[list[str], list[str]]:
    ours, peer = folder / "ours", folder / "peer"
    ours.mkdir()
    (ours / "floe.yaml").write_text("name: bench\n", encoding="utf-8")
    compile_project(ours).artifacts.write()
    (peer / "warehouse").mkdir(parents=True)
    return (
        [sys.executable, "-m", "benchmarks.ours", str(ours)],
        [str(peer_python()), "-m", "benchmarks.peer", str(peer)],
    )


def _writes(ours: Worker, peer: Worker) -> Iterator[Row]:
    """One run in a process that is warm, of an asset without partitions."""

    def timed(worker: Worker, table: str) -> float:
        seconds: float = worker.ask("write", table)
        _check(worker.ask("look", table), ROWS)
        return seconds

    first = alternately({"ours": lambda: timed(ours, _new_name()), "peer": lambda: timed(peer, _new_name())}, times=9)
    again = alternately({"ours": lambda: timed(ours, "again"), "peer": lambda: timed(peer, "again")}, times=9)
    for words, told in (("write", first), ("overwrite", again)):
        what = f"{words} {ROWS:,} rows, zstd"
        yield compared(what, told["ours"], f"{_PEER}, zstd", told["peer"], target="at most 1.05")


def _backfills(ours: Worker, peer: Worker) -> Iterator[Row]:
    """Thirty days in a process that is warm: one run and one snapshot, or a run for each day."""

    def timed(worker: Worker, order: str, snapshots: int) -> float:
        table = _new_name()
        seconds: float = worker.ask(order, table)
        _check(worker.ask("look", table), BACKFILL_ROWS, snapshots)
        return seconds

    def day_by_day() -> float:
        return timed(peer, "backfill", len(DAYS))

    arrow = {
        "a table": lambda: timed(ours, "backfill", 1),
        "a stream": lambda: timed(ours, "backfill_as_stream", 1),
        "day by day": day_by_day,
    }
    told = alternately(arrow, times=5)
    theirs = told.pop("day by day")
    what, beside = f"{len(DAYS)} days, {BACKFILL_ROWS:,} rows, one run", f"{_PEER}, day by day"
    for value, seconds in told.items():
        yield compared(f"{what}: {value}", seconds, beside, theirs, target="at most 0.5")
    # For the record, and last: a JVM is busy with itself for a while after its first runs.
    ours.ask("prepare_spark")
    told = alternately({"ours": lambda: timed(ours, "backfill_with_spark", 1), "peer": day_by_day}, times=3)
    yield compared(f"{what}: a Spark frame", told["ours"], beside, told["peer"], target="")
    yield _replaced_days(ours, peer)


def _replaced_days(ours: Worker, peer: Worker) -> Row:
    """One day of a table with thirty: a Spark frame through Floe, an Arrow table through the peer."""
    mine, theirs = _new_name(), _new_name()
    ours.ask("backfill_with_spark", mine)
    peer.ask("backfill", theirs)
    told = alternately(
        {
            "ours": lambda: float(ours.ask("replace_day_with_spark", mine)),
            "peer": lambda: float(peer.ask("backfill", theirs, DAYS[0])),
        },
        times=9,
    )
    _check(ours.ask("look", mine), BACKFILL_ROWS, 11)
    what = f"replace one of {len(DAYS)} days, {ROWS_A_DAY:,} rows: a Spark frame"
    return compared(what, told["ours"], f"{_PEER}, an Arrow table", told["peer"], target="")


def _launched(ours: list[str], peer: list[str]) -> Row:
    """The same with the start of each run's process; nothing but what the process itself does is counted."""
    theirs, one_run = 0.0, []
    table = _new_name()
    for number, key in enumerate(DAYS):
        if number % 10 == 0:
            mine = _new_name()
            one_run.append(_process([*ours, "backfill", mine])[0])
            _check(_process([*ours, "look", mine])[1], BACKFILL_ROWS, 1)
        theirs += _process([*peer, "backfill", table, key])[0]
    _check(_process([*peer, "look", table])[1], BACKFILL_ROWS, len(DAYS))
    seconds = statistics.median(one_run)
    what = f"{len(DAYS)} days, {BACKFILL_ROWS:,} rows, one launched run"
    return Row(what, seconds, f"{_PEER}, {len(DAYS)} launched runs", theirs, "at most 0.2", seconds / theirs)


def _process(command: list[str]) -> tuple[float, Any]:
    started = time.perf_counter()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
    return time.perf_counter() - started, json.loads(done.stdout)


def _check(seen: dict[str, Any], rows: int, snapshots: int | None = None) -> None:
    """All rows are there, compressed alike on both sides, in as many snapshots as told."""
    wanted = {"rows": rows, "codec": "ZSTD", **({"snapshots": snapshots} if snapshots is not None else {})}
    if wanted.items() - seen.items():
        raise RuntimeError(f"the table should have {wanted}, but has {seen}")


def _new_name() -> str:
    return f"t{next(_numbers)}"
