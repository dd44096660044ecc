"""What Ctrl-C leaves: written, in progress or not started, by the tables and not by the events alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from dagster import DagsterInstance, DailyPartitionsDefinition, asset
from tests.commands import floe
from tests.terminals import in_a_terminal

from floe_core.compiler import compile_project
from floe_dagster import create_definitions, io_manager
from floe_iceberg import IcebergTableManager
from floe_runtime.cli.run.report import grouped
from floe_runtime.runs.interruption import Interruption, StoppedWrite, examine
from floe_runtime.runs.pipeline import Pipeline
from floe_runtime.runs.planning import RunRequest, plan_run
from floe_runtime.runs.runner import RunInterruptedError, Skipped, run_batches

pytestmark = pytest.mark.filterwarnings("ignore:.*is currently in (beta|preview)")

DAYS = DailyPartitionsDefinition("2026-01-01", end_date="2026-01-05")


def made(name: str, upstream: str = "", *, interrupted: bool = False) -> Any:
    @asset(name=name, deps=[upstream] if upstream else [], metadata={"write_mode": "overwrite"})
    def compute() -> pd.DataFrame:
        if interrupted:
            raise KeyboardInterrupt
        return pd.DataFrame({"id": [1, 2]})

    return compute


def daily(name: str, upstream: str = "", *, stops_at: str = "") -> Any:
    """An asset of one run for each day."""

    @asset(name=name, partitions_def=DAYS, deps=[upstream] if upstream else [], metadata={"partition_expr": "day"})
    def compute(context) -> pd.DataFrame:  # type: ignore[no-untyped-def]  # Dagster reads annotations of a context
        if context.partition_key == stops_at:
            raise KeyboardInterrupt
        return pd.DataFrame({"day": [pd.Timestamp(context.partition_key).date()]})

    return compute


@pytest.fixture
def run(new_project: Callable[[str], Path]) -> Iterator[Callable[..., Interruption]]:
    artifacts = compile_project(new_project("name: shop\n")).artifacts
    artifacts.write()
    with DagsterInstance.local_temp() as instance:  # in memory, a reader beside the run would lock it

        def stop(*assets: Any) -> Interruption:
            pipeline = Pipeline(artifacts, create_definitions(assets, project=artifacts.root), instance)
            with pytest.raises(RunInterruptedError) as stopped:
                run_batches(pipeline, plan_run(pipeline, RunRequest(missing=True)).batches, lambda _event: None)
            return examine(pipeline, stopped.value)

        yield stop


def test_what_was_written_is_told_from_what_was_not(run: Callable[..., Interruption]) -> None:
    found = run(made("first"), made("second", "first", interrupted=True), made("third", "second"))
    (written,) = found.written
    assert (written.asset, written.table, written.rows) == ("first", "public.first", 2)
    assert found.in_progress == (StoppedWrite("second", "public.second", "absent"),)
    assert found.not_started == (Skipped("third"),)


def test_a_write_that_was_committed_is_complete_although_dagster_did_not_record_it(
    run: Callable[..., Interruption], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_arguments: Any, **_named: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(io_manager, "describe", interrupt)  # after the commit, before the event
    found = run(made("first"))
    (written,) = found.written
    assert (written.asset, written.rows, written.files) == ("first", 2, 1)
    assert (found.in_progress, found.not_started) == ((), ())


def test_runs_that_did_not_start_are_one_line_for_each_asset(run: Callable[..., Interruption]) -> None:
    found = run(daily("days", stops_at="2026-01-02"), daily("sums", "days"))
    assert [(one.asset, one.partitions, one.outcome) for one in found.in_progress] == [("days", "2026-01-02", "absent")]
    assert found.not_started == (
        Skipped("sums", "2026-01-02"),
        Skipped("days", "2026-01-03...2026-01-04 (2)"),
        Skipped("sums", "2026-01-03...2026-01-04 (2)"),
    )
    assert grouped(found.not_started) == (
        "sums (2026-01-02, 2026-01-03...2026-01-04 (2)); days (2026-01-03...2026-01-04 (2))"
    )


@pytest.mark.parametrize("command", ["plan", "run"])
def test_before_a_plan_was_printed_nothing_was_written(new_project: Callable[[str], Path], command: str) -> None:
    root = new_project("name: shop\n")
    (root / "definitions.py").write_text("raise KeyboardInterrupt\n")
    ran = floe(command, cwd=root)
    assert (ran.returncode, ran.stderr.strip()) == (130, "interrupted; nothing was written")


def test_ctrl_d_at_a_question_changes_nothing(new_project: Callable[[str], Path]) -> None:
    root = new_project("name: shop\n")
    tables = IcebergTableManager.open(compile_project(root).artifacts)
    tables.create_table("bronze.orders", pa.schema({"id": pa.int64()}))
    code, shown = in_a_terminal("tables", "drop", "bronze.orders", cwd=root, answers={"type bronze.orders": "\x04"})
    assert (code, shown.strip().splitlines()[-1]) == (130, "interrupted; nothing was changed"), shown
    assert tables.table_exists("bronze.orders")
