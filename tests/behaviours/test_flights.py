"""A month of real flights by local day, through `floe run`: each day's rows are what pandas counts."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from benchmarks.flights import PROJECT, daily_counts, expected_counts, run_days

# Clocks go forward on the tenth.
FIRST, LAST = "2013-03-01", "2013-03-31"


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_a_month_of_flights_in_one_run_has_the_daily_counts_of_pandas(tmp_path: Path) -> None:
    root = tmp_path / "flights"
    shutil.copytree(PROJECT, root, ignore=shutil.ignore_patterns(".floe"))
    assets = [f"{engine}/{table}" for engine in ("spark", "pandas") for table in ("flights", "days")]

    report = run_days(root, assets, FIRST, LAST)

    expected = expected_counts(FIRST, LAST)
    assert len(expected) == 31
    assert len(report["run_ids"]) == 1
    for asset in assets:
        assert daily_counts(root, asset.replace("/", ".")) == expected
    # A file for each hour that has flights, from both engines.
    files = {one["asset"]: one["files"] for one in report["materialized"]}
    assert files["spark/flights"] == files["pandas/flights"] <= 31 * 24
