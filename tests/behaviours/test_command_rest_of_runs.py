"""The command that is printed for what a failed or interrupted run left."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
from dagster import AssetKey
from tests.commands import floe

from floe_runtime.cli.run.report import command_for_the_rest, interruption_sentence
from floe_runtime.runs.batches import Batch, rest_of, without
from floe_runtime.runs.interruption import Interruption
from floe_runtime.runs.planning import PlannedAsset, RunPlan, RunRequest
from floe_runtime.runs.runner import RunReport

A, B, C = (AssetKey([name]) for name in "abc")
DAYS = ("K", "L", "M")
DEFINITIONS = """
import os
import dagster as dg
import pyarrow as pa
from floe_dagster import create_definitions

days = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-01-05")
MODE = {"write_mode": os.environ["MODE"]} if "MODE" in os.environ else {}


@dg.asset(key_prefix="bronze", partitions_def=days, metadata={"partition_expr": "day", **MODE})
def orders(context: dg.AssetExecutionContext) -> pa.Table:
    day = pa.array([context.partition_key]).cast(pa.timestamp("us")).cast(pa.date32())
    return pa.table({"day": day})


@dg.asset(key_prefix="silver", partitions_def=days, deps=[orders], metadata={"partition_expr": "day"})
def clean(context: dg.AssetExecutionContext) -> pa.Table:
    if context.partition_key == os.environ.get("BAD"):
        raise KeyboardInterrupt if os.environ.get("CTRL_C") else ValueError("the file is damaged")
    day = pa.array([context.partition_key]).cast(pa.timestamp("us")).cast(pa.date32())
    return pa.table({"day": day})


@dg.asset(key_prefix="gold", deps=[clean], metadata={"write_mode": "overwrite"})
def days_seen() -> pa.Table:
    return pa.table({"n": [1]})


defs = create_definitions([orders, clean, days_seen])
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "floe.yaml").write_text("name: shop\n", encoding="utf-8")
    (tmp_path / "definitions.py").write_text(DEFINITIONS, encoding="utf-8")
    return tmp_path


def rest(ran: subprocess.CompletedProcess[str]) -> str:
    """The command that is printed last."""
    _, found, command = ran.stderr.rstrip("\n").rpartition("run the rest with: ")
    assert found, ran.stderr
    return command


RANGE = ("--partition-range", "2026-01-01...2026-01-03", "--with-unpartitioned")


@pytest.mark.parametrize("stop", [{}, {"CTRL_C": "1"}])
def test_a_range_goes_on_from_the_partition_that_failed(shop: Path, stop: dict[str, str]) -> None:
    ran = floe("run", *RANGE, cwd=shop, BAD="2026-01-02", **stop)
    assert ran.returncode == (130 if stop else 1)
    assert rest(ran) == "floe run --partition-range 2026-01-02...2026-01-03 --with-unpartitioned"
    done = floe(*shlex.split(rest(ran))[1:], cwd=shop)
    assert done.returncode == 0, done.stderr
    assert len(floe("read", "silver.clean", "--output", "csv", cwd=shop).stdout.split()) == 1 + 3


def test_an_asset_that_appends_is_not_run_again_for_the_partition_that_failed(shop: Path) -> None:
    ran = floe("run", *RANGE, cwd=shop, BAD="2026-01-02", MODE="append")
    first, second = rest(ran).split(" && ")
    assert first == "floe run silver/clean --partition 2026-01-02"
    assert second == "floe run --partition 2026-01-03 --with-unpartitioned"
    for command in (first, second):
        assert floe(*shlex.split(command)[1:], cwd=shop, MODE="append").returncode == 0
    assert len(floe("read", "bronze.orders", "--output", "csv", cwd=shop).stdout.split()) == 1 + 3


def test_partitions_that_were_named_are_named_again(shop: Path) -> None:
    keys = ("--partition", "2026-01-01", "--partition", "2026-01-02", "--partition", "2026-01-04")
    ran = floe("run", "silver/clean", *keys, "--project", str(shop), cwd=shop, BAD="2026-01-02")
    place = f"--project {shop}"
    assert rest(ran) == f"floe run silver/clean --partition 2026-01-02 --partition 2026-01-04 {place}"
    one = floe("run", "--partition", "2026-01-02", cwd=shop, BAD="2026-01-02")
    assert rest(one) == "floe run silver/clean --partition 2026-01-02"
    whole = floe("run", "--atomic", "--partition", "2026-01-02", cwd=shop, BAD="2026-01-02")
    assert rest(whole) == "floe run --partition 2026-01-02 --atomic"


def plan(*batches: Batch, partitioned: tuple[AssetKey, ...] = (A, B)) -> RunPlan:
    assets = tuple(PlannedAsset(key, DAYS if key in partitioned else (), (), 1) for key in (A, B, C))
    return RunPlan((A, B, C), batches, assets, DAYS)


@pytest.mark.parametrize(
    ("request_", "left", "command"),
    [
        (RunRequest(missing=True), [Batch((A,))], "floe run --missing"),
        (RunRequest(), [Batch((C,))], "floe run c"),
        (RunRequest(("kind:x",)), [Batch((A, B, C), ("M",))], "floe run kind:x --partition M --with-unpartitioned"),
        (RunRequest(partitions=DAYS), [Batch((A,), ("K", "L"))], "floe run a --partition K --partition L"),
        (RunRequest(partition_range="K...M"), [Batch((A,), ("K", "L"))], "floe run a --partition-range K...L"),
        (RunRequest(partition_range="K...M"), [Batch((A,), ("K", "M"))], "floe run a --partition K --partition M"),
        (RunRequest(partition_range="K...M"), [], ""),
    ],
)
def test_the_options_select_what_is_left_and_nothing_else(
    request_: RunRequest, left: list[Batch], command: str
) -> None:
    assert command_for_the_rest(plan(), left, request_, ["--env", "prod"]) == (command and f"{command} --env prod")


def test_what_is_left_is_put_together_unless_rows_would_be_appended_again() -> None:
    stages = plan(*(Batch((key,), (day,)) for key in (A, B) for day in DAYS))
    left = without(stages.batches[1:], ["a"])
    assert [(batch.assets, batch.keys) for batch in left][:2] == [((A,), ("M",)), ((B,), ("K",))]
    assert rest_of(stages, left, lambda _assets: ()) == [Batch((A, B), DAYS)]
    assert rest_of(stages, left, lambda assets: assets) == [Batch((A,), ("M",)), Batch((B,), DAYS)]
    assert rest_of(stages, left[1:], lambda _assets: pytest.fail("nothing is repeated")) == [Batch((B,), DAYS)]


def test_an_interruption_says_what_is_complete_and_how_to_go_on() -> None:
    sentence = interruption_sentence(Interruption("run"), RunReport(("run",)), "floe run a")
    assert sentence.endswith("what is listed as written is complete; run the rest with: floe run a")
    assert interruption_sentence(Interruption("run"), RunReport(("run",)), "").endswith("is complete")
