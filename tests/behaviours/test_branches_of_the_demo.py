"""Two branches of the demo at once, on Spark, while main moves: reviewed, published, refused, updated, published."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.full  # half a minute of Spark in a process of its own


def test_two_branches_of_the_demo_are_published_one_after_the_other(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.faults.branches_of_demo", str(tmp_path / "shop")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    sourced = {"bronze.orders", "silver.orders", "silver.rejected_orders"}
    gold = {"gold.customer_cohorts", "gold.daily_revenue", "gold.top_products"}
    behind = dict.fromkeys(sourced, "behind")
    assert seen["one before"] == seen["two before"] == {**behind, **dict.fromkeys(gold, "ready")}
    assert (seen["one diff"]["days"], seen["two diff"]["days"]) == (["2026-01-05"], ["2026-01-08"])
    assert all(
        added and removed
        for added, removed in (seen["one diff"][name] for name in sourced - {"silver.rejected_orders"})
    )
    assert seen["replayed"] == sorted(sourced)
    assert seen["two after"] == {**behind, **dict.fromkeys(gold, "conflict")}
    assert all(f"'{name}'" in seen["refused"] for name in gold)
    assert not any(f"'{name}'" in seen["refused"] for name in sourced)
    assert set(seen["two ready"].values()) == {"ready"}
    assert seen["figures"].endswith("all the same to the cent.")
    assert seen["missing"] == []
    assert (seen["refs"], seen["branches"], seen["homes"], seen["left behind"]) == ({}, [], [], [])
