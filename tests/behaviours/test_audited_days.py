"""Eight audited days as eight runs at the same time: each is published, and no reader sees what was not audited."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.faults.audited_job import DAYS, ROWS, at_once, run_day

from floe_core.errors import TableNotFoundError
from floe_iceberg import Lake
from floe_iceberg.snapshots import RUN_ID, ancestors_of, snapshot_info

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[2]


@contextmanager
def polling(lake: Lake, table: str) -> Iterator[list[Any]]:
    """Read the table all the while; collects states that no reader may see."""
    wrong: list[Any] = []
    ended, looks = threading.Event(), [0]

    def look() -> None:
        while not ended.is_set():
            try:
                rows = lake.tables.scan(table).to_arrow().to_pylist()
            except TableNotFoundError:
                time.sleep(0.05)
                continue
            looks[0] += 1
            by_day: dict[Any, int] = {}
            for row in rows:
                by_day[row["day"]] = by_day.get(row["day"], 0) + 1
            if any(row["n"] < 0 for row in rows) or set(by_day.values()) - {ROWS}:
                wrong.append(rows)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield wrong
    finally:
        ended.set()
        thread.join()
    assert looks[0] > 5


@pytest.mark.parametrize("engine", ["arrow", "spark"])
def test_eight_audited_days_are_published_at_once(lake: Lake, namespace: str, engine: str) -> None:
    folder, table = lake.artifacts.root, f"{namespace}.orders"
    lake.tables.create_namespace(namespace)
    with polling(lake, table) as wrong:
        told = _by_processes(folder, namespace) if engine == "arrow" else _by_spark(lake, folder, namespace)
    assert wrong == []
    assert [(one["day"], one["bad"], one["good"]) for one in told] == [(day, False, True) for day in DAYS], told
    rows = lake.tables.scan(table).to_arrow().to_pylist()
    assert sorted(row["id"] for row in rows) == sorted(int(day[-2:]) * 100 + n for day in DAYS for n in range(ROWS))
    loaded = lake.tables.load_table(table)
    mains = map(snapshot_info, ancestors_of(loaded.current_snapshot(), loaded.metadata))
    published = {one.summary.get(RUN_ID): one for one in mains}
    for one in told:
        total = published[one["run"]].summary["total-records"]
        assert int(total) == one["seen"], "the check saw what was published"


def _by_processes(folder: Path, namespace: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "tests.faults.audited_job", str(folder), namespace]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert ran.returncode == 0, ran.stderr[-3000:]
    told: list[dict[str, Any]] = json.loads(ran.stdout)
    return told


def _by_spark(lake: Lake, folder: Path, namespace: str) -> list[dict[str, Any]]:
    spark = lake.spark

    def frame(rows: pa.Table) -> Any:
        return spark.createDataFrame(rows.to_pylist(), "day date, id long, n long")

    return at_once(lambda day: run_day(lake, folder, namespace, day, frame))
