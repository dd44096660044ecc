"""A run that fails names the user's file and line, what was skipped, and where its log is."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from floe_core.compiler import compile_project
from floe_runtime.cli.run import _print_failure
from floe_runtime.console import log_printer
from floe_runtime.runs.failures import KEPT_LOGS, write_log
from floe_runtime.runs.pipeline import Pipeline, open_pipeline
from floe_runtime.runs.planning import batches
from floe_runtime.runs.runner import LogLine, RunFailedError, Skipped, run_batches

ASSETS = """
import pyarrow as pa
from functools import partial

from dagster import AssetCheckResult, Out, StaticPartitionsDefinition
from dagster import asset, asset_check, graph_asset, mem_io_manager, op
from floe_dagster import create_definitions

append = {"metadata": {"write_mode": "append"}}

def parse(row):
    return int(row)

@asset(**append)
def orders(context) -> pa.Table:
    context.log.info("3 orders found")
    context.log.warning("the source is an hour old")
    return pa.table({"n": [1, 2, 3]})

@asset(key_prefix="sales", **append)
def refunds(context) -> pa.Table:
    context.log.warning("none yet")
    return pa.table({"n": [0]})

@asset(**append)
def totals(orders: pa.Table) -> pa.Table:
    return pa.table({"n": [parse(row) for row in ["1", "two"]]})

@asset(**append)
def report(totals: pa.Table) -> pa.Table:
    return totals

@asset(**append)
def chart(report: pa.Table) -> pa.Table:
    return report

@asset(**append)
def wrong() -> pa.Table:
    return "no table"

cities = {"partitions_def": StaticPartitionsDefinition(["oslo", "rome", "bonn"])}

@asset(**cities, metadata={"partition_expr": "city"})
def visits(context) -> pa.Table:
    if context.partition_key == "rome":
        raise LookupError("rome is closed")
    return pa.table({"city": [context.partition_key]})

@asset_check(asset=orders)
def enough() -> AssetCheckResult:
    return AssetCheckResult(passed=False, description="3 orders are too few")

@op(out=Out(io_manager_key="mem"))
def fetched():
    return pa.table({"n": [1]})

@op
def cleaned(fetched):
    return fetched

@graph_asset(metadata={"write_mode": "append"})
def prices():
    return cleaned(fetched())

@asset(deps=[prices], metadata={"write_mode": "append"})
def offers() -> pa.Table:
    raise LookupError("no offers")

half = asset(name="half", metadata={"write_mode": "append"})(partial(lambda result: result, "no table"))

defs = create_definitions(
    [orders, refunds, totals, report, chart, wrong, visits, prices, offers, half],
    asset_checks=[enough],
    resources={"mem": mem_io_manager},
)
"""


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    root = tmp_path_factory.mktemp("failures")
    (root / "floe.yaml").write_text("name: shop\n", encoding="utf-8")
    (root / "definitions.py").write_text(ASSETS, encoding="utf-8")
    artifacts = compile_project(root).artifacts
    artifacts.write()
    with open_pipeline(artifacts) as opened:
        yield opened


def failure_of(pipeline: Pipeline, names: list[str], keys: list[str], **options: Any) -> RunFailedError:
    chosen = batches(pipeline.graph, pipeline.assets(names), keys, pipeline.instance)
    with pytest.raises(RunFailedError) as raised:
        run_batches(pipeline, chosen, lambda _event: None, **options)
    return raised.value


@pytest.fixture(scope="module")
def failed(pipeline: Pipeline) -> tuple[RunFailedError, list[LogLine]]:
    heard: list[LogLine] = []
    return failure_of(pipeline, ["orders", "totals", "report", "chart"], [], listen=heard.append), heard


def test_a_failing_asset_names_the_file_the_line_and_the_source(
    failed: tuple[RunFailedError, list[LogLine]],
) -> None:
    error, _heard = failed
    assert str(error) == "totals failed: ValueError: invalid literal for int() with base 10: 'two'"
    (failure,) = error.report.failed
    assert failure.place is not None
    line = ASSETS.splitlines().index("    return int(row)") + 1
    assert (failure.place.file, failure.place.line) == ("definitions.py", line)
    assert (failure.place.function, failure.place.source) == ("parse", "return int(row)")


def test_the_assets_below_a_failing_one_are_listed_as_skipped(failed: tuple[RunFailedError, list[LogLine]]) -> None:
    assert failed[0].report.skipped == (Skipped("report"), Skipped("chart"))


def test_the_log_of_a_failed_run_holds_the_traceback_and_what_was_logged(
    pipeline: Pipeline, failed: tuple[RunFailedError, list[LogLine]]
) -> None:
    report = failed[0].report
    assert report.log == f".floe/logs/run-{report.run_ids[0]}.log"
    text = (pipeline.artifacts.root / report.log).read_text(encoding="utf-8")
    assert "INFO orders 3 orders found" in text
    assert 'definitions.py", line' in text
    assert "ValueError: invalid literal" in text


def test_what_assets_log_is_heard_and_nothing_else(failed: tuple[RunFailedError, list[LogLine]]) -> None:
    assert [(one.source, one.message) for one in failed[1]] == [
        ("orders", "3 orders found"),
        ("orders", "the source is an hour old"),
    ]


def test_a_log_line_has_the_key_of_its_asset_and_not_the_name_of_the_step(pipeline: Pipeline) -> None:
    heard: list[LogLine] = []
    chosen = batches(pipeline.graph, pipeline.assets(["sales/refunds"]), [], pipeline.instance)
    run_batches(pipeline, chosen, lambda _event: None, listen=heard.append)
    assert [(one.source, one.message) for one in heard] == [("sales/refunds", "none yet")]


def test_a_write_that_fails_names_where_the_asset_is_defined(pipeline: Pipeline) -> None:
    error = failure_of(pipeline, ["wrong"], [])
    (failure,) = error.report.failed
    assert failure.place is None
    assert failure.defined is not None
    assert (failure.defined.file, failure.defined.function) == ("definitions.py", "wrong")


def test_partitions_that_were_not_begun_are_listed_as_skipped(pipeline: Pipeline) -> None:
    error = failure_of(pipeline, ["visits"], ["oslo", "rome", "bonn"])
    assert [one.partitions for one in error.report.materialized] == ["oslo"]
    assert error.report.skipped == (Skipped("visits", "bonn"),)


def test_only_the_latest_logs_are_kept(pipeline: Pipeline) -> None:
    for number in range(KEPT_LOGS + 3):
        write_log(pipeline, f"{number:03}")
    found = sorted(path.name for path in (pipeline.artifacts.root / ".floe" / "logs").glob("run-*.log"))
    assert len(found) == KEPT_LOGS
    assert f"run-{KEPT_LOGS + 2:03}.log" in found


def test_the_terminal_shows_the_line_the_skipped_assets_the_run_and_its_log(
    failed: tuple[RunFailedError, list[LogLine]], capsys: pytest.CaptureFixture[str]
) -> None:
    error, _heard = failed
    _print_failure(str(error), error.report)
    line = ASSETS.splitlines().index("    return int(row)") + 1
    run_id = error.report.run_ids[0]
    assert capsys.readouterr().err.splitlines() == [
        "error: totals failed: ValueError: invalid literal for int() with base 10: 'two'",
        f"  definitions.py:{line}, in parse",
        "    return int(row)",
        "skipped because of it: report, chart",
        f"run {run_id}; log with the traceback: .floe/logs/run-{run_id}.log",
    ]


@pytest.mark.parametrize(("verbose", "levels"), [(True, ["info", "warning"]), (False, ["warning"])])
def test_verbose_prints_what_assets_log_at_any_level(
    failed: tuple[RunFailedError, list[LogLine]], verbose: bool, levels: list[str]
) -> None:
    out = Console(file=StringIO(), width=80)
    listen = log_printer(out, verbose=verbose)
    for line in failed[1]:
        listen(line)
    printed = out.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert [line.split()[0] for line in printed] == levels


def test_a_check_that_failed_is_told_although_the_written_asset_could_not_be_described(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> None:
        raise RuntimeError("the catalog is away")

    monkeypatch.setattr("floe_dagster.io_manager.describe", away)
    report = failure_of(pipeline, ["orders"], []).report
    assert [str(one) for one in report.failed] == ["check enough of orders failed: 3 orders are too few"]
    assert [one.asset for one in report.materialized] == ["orders"]


def test_a_check_that_failed_is_told_although_nothing_could_be_printed(pipeline: Pipeline) -> None:
    def closed(_event: object) -> None:
        raise BrokenPipeError

    chosen = batches(pipeline.graph, pipeline.assets(["orders"]), [], pipeline.instance)
    with pytest.raises(RunFailedError, match="check enough of orders failed"):
        run_batches(pipeline, chosen, closed, listen=closed)


def test_an_asset_of_several_steps_that_was_written_was_not_skipped(pipeline: Pipeline) -> None:
    report = failure_of(pipeline, ["prices", "offers"], []).report
    assert ([one.asset for one in report.materialized], report.skipped) == (["prices"], ())


def test_the_asset_of_a_partial_fails_with_its_own_error(pipeline: Pipeline) -> None:
    (failure,) = failure_of(pipeline, ["half"], []).report.failed
    assert (failure.asset, failure.defined) == ("half", None)
