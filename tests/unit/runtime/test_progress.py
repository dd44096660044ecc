"""What a run shows of its progress, on wide, narrow and no terminals."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from rich.console import Console
from rich.text import Text
from tests.lakes import open_manager

from floe_core.models import WriteMode
from floe_core.observability import WriteProgress, followed, writes_in_progress
from floe_iceberg import WriteRequest
from floe_iceberg.arguments import identifier_of
from floe_iceberg.snapshots import ASSET, write_summary
from floe_runtime.console import check_lines
from floe_runtime.console.progress import _Board, progress, remaining_seconds
from floe_runtime.dev.landing import asset_graph_path
from floe_runtime.runs.runner import CheckResult, Materialized, RunReport, StepEvent

MADE = Materialized("bronze/orders", "bronze.orders", "", 1_200_000, 0, 3, 0, 34_500_000, 1, "", False)


def drawn(width: int, *events: StepEvent, order: tuple[str, ...] = ()) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, no_color=True, legacy_windows=False)
    board = _Board(console, "shop", order)
    for event in events:
        board.watch(event)
    with console.capture() as captured:
        console.print(board)
    return Text.from_ansi(captured.get()).plain


def test_a_running_asset_shows_rows_bytes_and_the_remaining_time() -> None:
    events = [
        StepEvent("bronze/orders", "planned", usual_seconds=30.0),
        StepEvent("gold/total", "planned"),
        StepEvent("bronze/orders", "started"),
    ]
    assert "0.0 s  about 30 s left" in drawn(80, *events)
    with followed(lambda: WriteProgress("bronze/orders", 1_200_000, 34_500_000)):
        text = drawn(80, *events)
    assert "bronze/orders  0.0 s  about 30 s left  1,200,000 rows  34.5 MB" in text
    assert writes_in_progress() == []
    done = StepEvent("bronze/orders", "done", 12.34, MADE)
    assert "✓  bronze/orders  12.3 s  1,200,000 rows  34.5 MB" in drawn(80, *events, done)


def test_assets_are_shown_in_the_order_of_the_plan() -> None:
    events = [StepEvent(name, "planned") for name in ("gold/total", "silver/orders", "bronze/orders")]
    lines = drawn(80, *events, order=("bronze/orders", "silver/orders")).splitlines()
    assert [line.strip() for line in lines] == ["shop", "bronze/orders", "silver/orders", "gold/total"]


@pytest.mark.parametrize("width", [20, 40, 60])
def test_a_line_fits_a_narrow_terminal(width: int) -> None:
    long = "silver/" + "orders_of_the_last_years" * 2
    events = [StepEvent(name, state) for name in ("gold/total", long) for state in ("planned", "started")]
    with followed(lambda: WriteProgress(long, 1_200_000, 34_500_000)):
        lines = drawn(width, *events).splitlines()
    assert len(lines) == 3
    assert "0.0 s" in lines[2]
    assert max(map(len, lines)) <= width


def test_an_encoding_without_the_signs_gets_words() -> None:
    console = Console(file=io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="backslashreplace"), width=60)
    checks = tuple(CheckResult("gold/total", "not_empty", passed, "ERROR", "") for passed in (True, False))
    with console.capture() as captured, progress(console, "shop") as watch:
        for state in ("done", "failed"):
            watch(StepEvent("bronze/orders", state, 12.34, MADE if state == "done" else None))
        for line in check_lines(RunReport(checks=checks), console):
            console.print(line)
    assert [line.rstrip() for line in captured.get().splitlines()] == [
        "  ok bronze/orders  12.3 s  1,200,000 rows  34.5 MB",
        "  x bronze/orders",
        "  ok check not_empty of gold/total",
        "  x check not_empty of gold/total",
    ]


def test_a_pipe_gets_one_line_per_finished_asset() -> None:
    console = Console(file=io.StringIO(), width=60)
    with console.capture() as captured, progress(console, "shop") as watch:
        for state in ("planned", "started", "done"):
            watch(StepEvent("bronze/orders", state, 12.34, MADE if state == "done" else None))
        watch(StepEvent("gold/total", "failed"))
    assert [line.rstrip() for line in captured.get().splitlines()] == [
        "  ✓ bronze/orders  12.3 s  1,200,000 rows  34.5 MB",
        "  ✗ gold/total",
    ]


@pytest.mark.parametrize(
    ("elapsed", "usual", "share", "left"),
    [(10, None, 0.25, 30), (10, 12, 0.25, 30), (10, 12, None, 2), (10, 8, None, None), (10, None, 0.01, None)],
)
def test_the_remaining_time_is_told_only_if_it_is_known(
    elapsed: float, usual: float | None, share: float | None, left: float | None
) -> None:
    assert remaining_seconds(elapsed, usual, share) == left


def test_an_arrow_write_says_how_far_it_is(tmp_path: Path) -> None:
    seen: list[WriteProgress] = []
    schema = pa.schema([("id", pa.int64())])

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(3):
            yield pa.record_batch({"id": [number]}, schema)
            seen.extend(writes_in_progress())

    tables = open_manager(tmp_path)
    summary = write_summary("w", {ASSET: "bronze/orders"})
    request = WriteRequest(identifier_of("bronze.orders"), WriteMode.APPEND, "w", summary)
    tables.write(request, pa.RecordBatchReader.from_batches(schema, batches()))
    assert [(write.asset, write.rows, write.share) for write in seen] == [("bronze/orders", n, None) for n in (1, 2, 3)]
    assert writes_in_progress() == []


def test_small_asset_graphs_open_with_their_groups() -> None:
    assert asset_graph_path(["default"], 3) == "/asset-groups"
    assert (
        asset_graph_path(["silver", "bronze"], 3) == "/asset-groups?expanded=global@global:bronze,global@global:silver"
    )
    assert asset_graph_path(["silver", "bronze"], 300) == "/asset-groups"
