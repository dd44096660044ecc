"""Ten thousand partitions of twenty assets are planned in seconds, and shown as ranges."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from dagster import AssetMaterialization, BackfillPolicy, DagsterInstance, HourlyPartitionsDefinition, asset
from rich.console import Console

from floe_core.compiler import compile_project
from floe_dagster import create_definitions
from floe_runtime.cli.plan.text import print_plan
from floe_runtime.runs.described_plan import plan_with_effects
from floe_runtime.runs.pipeline import Pipeline
from floe_runtime.runs.planning import RunRequest

HOURS = HourlyPartitionsDefinition("2025-01-01-00:00", end_date="2026-02-21-16:00")


def hourly(number: int) -> Any:
    @asset(
        name=f"a{number:02}",
        key_prefix="s",
        partitions_def=HOURS,
        code_version="1",
        backfill_policy=BackfillPolicy.single_run(),
        deps=[["s", f"a{number - 1:02}"]] if number else [],
        metadata={"partition_expr": "at"},
    )
    def compute() -> pa.Table:
        return pa.table({"at": []})

    return compute


@pytest.mark.filterwarnings("ignore:.*is currently in (beta|preview)")
def test_ten_thousand_partitions_of_twenty_assets(
    new_project: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    artifacts = compile_project(new_project("name: shop\n")).artifacts
    artifacts.write()
    with DagsterInstance.ephemeral() as instance:
        assets = [hourly(number) for number in range(20)]
        pipeline = Pipeline(artifacts, create_definitions(assets, project=artifacts.root), instance)
        known = HOURS.get_partition_keys()
        assert len(known) == 10_000
        instance.report_runless_asset_event(AssetMaterialization(["s", "a00"], partition=known[0]))
        began = time.monotonic()
        plan = plan_with_effects(pipeline, RunRequest(missing=True))
        seconds = time.monotonic() - began
        print_plan(Console(width=100, color_system=None), plan, "shop")
    shown = capsys.readouterr().out
    assert "shop: 20 assets, 10,000 partitions 2025-01-01-00:00...2026-02-21-15:00, 2 runs" in shown
    assert "2025-01-01-01:00...2026-02-21-15:00 (9,999): never materialized" in shown
    assert len(shown) < 10_000, "ranges, not lists"
    assert seconds < 20
