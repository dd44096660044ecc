"""How past runs ended: stopped with Ctrl-C, killed, or not at all yet."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import pytest
from dagster import DagsterInstance, asset
from tests.commands import floe

from floe_core.compiler import compile_project
from floe_dagster import create_definitions
from floe_runtime.runs.history import RunDetails, details_of, find_run, past_runs
from floe_runtime.runs.pipeline import Pipeline, open_history
from floe_runtime.runs.planning import RunRequest, plan_run
from floe_runtime.runs.processes import has_ended, this_process
from floe_runtime.runs.runner import RunInterruptedError, run_batches

pytestmark = pytest.mark.filterwarnings("ignore:.*is currently in (beta|preview)")


@asset(key_prefix="s", metadata={"write_mode": "overwrite"})
def first() -> pl.DataFrame:
    return pl.DataFrame({"id": [1]})


@asset(key_prefix="s", deps=[first], metadata={"write_mode": "overwrite"})
def second() -> pl.DataFrame:
    raise KeyboardInterrupt


@pytest.fixture
def stopped(new_project: Callable[[str], Path]) -> Iterator[tuple[DagsterInstance, Path]]:
    artifacts = compile_project(new_project("name: shop\n")).artifacts
    artifacts.write()
    with DagsterInstance.local_temp() as instance:
        pipeline = Pipeline(artifacts, create_definitions([first, second], project=artifacts.root), instance)
        with pytest.raises(RunInterruptedError):
            run_batches(pipeline, plan_run(pipeline, RunRequest()).batches, lambda _event: None)
        yield instance, artifacts.root


def test_a_run_that_was_interrupted_is_canceled_and_not_failed(stopped: tuple[DagsterInstance, Path]) -> None:
    instance, root = stopped
    (run,) = past_runs(instance, limit=2)
    assert run.status == "canceled"
    assert past_runs(instance, limit=2, status="canceled") == [run]
    assert past_runs(instance, limit=2, status="failure") == []
    details = details_of(instance, run, root)
    assert (details.in_progress, details.failed) == (("s/second",), ())
    assert [one.asset for one in details.materialized] == ["s/first"]


KILLED = """
import os, signal
import dagster as dg
import polars as pl
from floe_dagster import create_definitions


@dg.asset(key_prefix="s", metadata={"write_mode": "overwrite"})
def orders() -> pl.DataFrame:
    os.kill(os.getpid(), signal.SIGKILL)


defs = create_definitions([orders])
"""


def test_a_run_whose_process_was_killed_is_lost(new_project: Callable[[str], Path]) -> None:
    root = new_project("name: shop\n")
    (root / "definitions.py").write_text(KILLED)
    assert floe("run", cwd=root).returncode != 0

    def seen() -> RunDetails:
        with open_history(compile_project(root).artifacts) as instance:
            assert instance is not None
            run = find_run(instance, None)
            assert past_runs(instance, limit=2, status="lost") == [run]
            assert past_runs(instance, limit=2, status="started") == []
            return details_of(instance, run, root)

    details = seen()
    assert details.run.status == "lost"
    assert details.in_progress == ("s/orders",)
    assert seen().run.seconds == details.run.seconds, "it does not grow"
    shown = floe("runs", "show", cwd=root).stdout
    assert "its process is gone and recorded no end" in shown
    assert "in progress when it ended: s/orders" in shown


def test_a_process_is_known_by_its_host_id_and_start() -> None:
    host, pid, start = this_process().split(" ", 2)
    assert not has_ended(this_process())
    assert not has_ended(f"{host} {pid}"), "its start is not known"
    assert not has_ended(f"elsewhere {pid} 1")
    assert not has_ended("")
    assert has_ended(f"{host} {pid} {start}1"), "a later process with the same id"
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    assert has_ended(f"{host} {int(ended.stdout)} {start}")
    assert int(pid) == os.getpid()
