"""floe run."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from floe_runtime.cli.common import (
    InterruptionError,
    RefusedError,
    branch_option,
    compile_here,
    console,
    environment_option,
    json_option,
    observe,
    only_json,
    plain_warnings,
    print_error,
    print_json,
    print_warning,
    project_option,
    stops_before,
    tells_errors,
)
from floe_runtime.cli.plan.options import place_options, publish_options, request_options, requested
from floe_runtime.cli.run.report import (
    action_text,
    command_for_the_rest,
    grouped,
    interruption_sentence,
    print_interruption,
    title_of,
    unpublished_interruption,
    unpublished_text,
)

if TYPE_CHECKING:
    from dagster import AssetKey
    from rich.console import Console

    from floe_core.config import CompiledArtifacts, Publish
    from floe_dagster.differences import Difference
    from floe_runtime.runs.batches import Batch
    from floe_runtime.runs.interruption import Interruption
    from floe_runtime.runs.pipeline import Pipeline
    from floe_runtime.runs.planning import RunPlan, RunRequest
    from floe_runtime.runs.runner import LogLine, RunInterruptedError, RunReport

__all__ = ["run"]


@click.command()
@request_options
@publish_options
@click.option("-v", "--verbose", is_flag=True, help="Also print what assets log with context.log, at any level.")
@click.option("-q", "--quiet", is_flag=True, help="Print only errors, losses and the result.")
@click.option(
    "--log-format",
    type=click.Choice(["console", "json"]),
    help="The format of log events, in place of observability.log_format.",
)
@project_option
@environment_option
@branch_option
@json_option
@tells_errors
def run(
    selection: tuple[str, ...],
    select: tuple[str, ...],
    partition: tuple[str, ...],
    partition_range: str | None,
    with_unpartitioned: bool,
    missing: bool,
    atomic: bool,
    one_by_one: bool,
    verbose: bool,
    quiet: bool,
    log_format: str | None,
    project: Path | None,
    environment: str | None,
    branch: str | None,
    as_json: bool,
) -> None:
    """Materialize the assets of the project.

    Without options: every asset; assets partitioned by time for the latest complete partition, other partitioned
    assets for every partition. With --partition or --partition-range: the assets that have these partitions.

    A SELECTION is a name (bronze/orders, bronze/*), tag:NAME, tag:NAME=VALUE, group:NAME, kind:NAME or owner:NAME. With
    + before or after it, everything upstream or downstream of it is selected as well; with 1+ so many levels. Several
    are added up; and, or, not and parentheses combine them. floe plan shows what would run, and why.

    Dagster's history is compared with the tables: materializations that a table no longer holds are reported,
    and --missing recomputes them.

    Spark starts if the project imports PySpark, or when an asset asks for it; other projects run without Java.

    With --atomic, or publish: run in floe.yaml, the assets are written to a branch of their tables and published
    together at the end; if one of them or a blocking check fails, no reader sees anything of the run.

    With --branch, or branch: in floe.yaml, the assets are written to a branch of the lake, and read main as it was when
    the branch was created; see floe branches.

    If an asset fails, the assets that depend on it are skipped, and the log of the run with the traceback is written
    to .floe/logs. Ctrl-C reports what was written before, and exits with 130.
    """
    from floe_runtime.runs.planning import refuse_atomic_branch, when_published

    if verbose and quiet:
        raise click.UsageError("-v and -q are mutually exclusive.")
    request = requested(selection, select, partition, partition_range, with_unpartitioned, missing)
    with stops_before("written"):
        artifacts = compile_here(project, environment, branch=branch, quiet=quiet)
        observe(artifacts, log_format=log_format)
    where = place_options(project, environment, branch)
    publish = when_published(atomic, one_by_one)
    refuse_atomic_branch(artifacts, publish)
    command = _Run(artifacts, request, where, publish=publish, as_json=as_json, verbose=verbose, quiet=quiet)
    with only_json(as_json):
        outcome = command.execute()
    command.report(outcome)


@dataclasses.dataclass(frozen=True)
class _Outcome:
    """What a run did; `interruption` if Ctrl-C stopped it, and `rest` is the command for what it did not write."""

    plan: RunPlan
    report: RunReport
    failure: str | None = None
    differences: tuple[Difference, ...] = ()
    interruption: Interruption | None = None
    rest: str = ""


class _Run:
    """One run of the command: the plan, its execution and the report."""

    def __init__(
        self,
        artifacts: CompiledArtifacts,
        request: RunRequest,
        where: Sequence[str],
        *,
        publish: Publish | None,
        as_json: bool,
        verbose: bool,
        quiet: bool,
    ) -> None:
        self._artifacts = artifacts
        self._publish = publish
        self._request = request
        self._where = where
        self._as_json = as_json
        self._verbose = verbose
        self._quiet = quiet
        self._out = console(quiet=as_json)

    def execute(self) -> _Outcome:
        """Plan the run, print the plan and execute it."""
        from floe_runtime.runs.pipeline import open_pipeline
        from floe_runtime.runs.planning import plan_run, refuse_not_atomic
        from floe_runtime.runs.runner import RunFailedError, RunInterruptedError, RunReport

        with plain_warnings(self._artifacts.root, quiet=self._quiet), ExitStack() as opened:
            with stops_before("written"):
                pipeline = opened.enter_context(open_pipeline(self._artifacts, publish=self._publish))
                plan = plan_run(pipeline, self._request)
                if plan.refused is not None:
                    raise RefusedError(plan.refused)
                if self._publish is not None:
                    refuse_not_atomic(pipeline, plan)
                self._announce(pipeline, plan)
            report = RunReport()
            try:
                report = self._materialize(pipeline, plan)
                remaining = () if self._request.missing else tuple(_remaining(pipeline, plan.selected))
            except RunFailedError as exc:
                rest = self._rest(pipeline, plan, exc.batches)
                return _Outcome(plan, exc.report, str(exc), plan.differences, rest=rest)
            except RunInterruptedError as exc:
                return self._interrupted(pipeline, plan, exc)
            except KeyboardInterrupt:  # before the first run or after the last one
                from floe_runtime.runs.interruption import Interruption

                return _Outcome(plan, report, interruption=Interruption(""))
            return _Outcome(plan, report, differences=plan.differences or remaining)

    def _interrupted(self, pipeline: Pipeline, plan: RunPlan, stopped: RunInterruptedError) -> _Outcome:
        """The outcome of a run that Ctrl-C stopped, by what its tables hold."""
        from floe_runtime.runs.interruption import examine, remaining
        from floe_runtime.runs.runner import RunReport

        found = examine(pipeline, stopped)
        report = stopped.report + RunReport((stopped.run_id,), found.written)
        rest = self._rest(pipeline, plan, remaining(stopped, found))
        return _Outcome(plan, report, differences=plan.differences, interruption=found, rest=rest)

    def _rest(self, pipeline: Pipeline, plan: RunPlan, batches: Sequence[Batch]) -> str:
        """The command that runs what is left."""
        from floe_runtime.runs.batches import rest_of
        from floe_runtime.runs.interruption import appending

        publish = {"run": ["--atomic"], "one-by-one": ["--one-by-one"]}.get(self._publish or "", [])
        rest = rest_of(plan, batches, appending(pipeline))
        return command_for_the_rest(plan, rest, self._request, [*publish, *self._where])

    def _announce(self, pipeline: Pipeline, plan: RunPlan) -> None:
        """Print what the run is about to do, before anything starts."""
        if not self._quiet and not self._as_json and plan.batches:
            from floe_dagster.planned_writes import new_tables
            from floe_runtime.cli.plan.text import summary_lines
            from floe_runtime.runs.described_plan import describe

            keys = [asset.key for asset in plan.assets]
            created = new_tables(pipeline.definitions, keys, pipeline.instance)
            for line in summary_lines(describe(pipeline, plan), self._name, created):
                self._out.print(line)
        for difference in plan.differences:
            print_warning(f"{difference.message}; {action_text(difference)}")

    def _materialize(self, pipeline: Pipeline, plan: RunPlan) -> RunReport:
        from floe_iceberg import Lake
        from floe_runtime.console import progress
        from floe_runtime.runs.runner import RunReport, run_batches

        if not plan.batches:
            return RunReport()
        shown = self._silent() if self._quiet else self._out
        if pipeline.starts_spark:
            began = time.monotonic()
            with shown.status("starting Spark (the first start on a machine fetches its jars)"):
                _ = Lake(self._artifacts).spark
            shown.print(f"  Spark started in {time.monotonic() - began:.1f} s", style="dim")
        order = [asset.name for asset in plan.assets]
        with progress(shown, title_of(self._name, plan), order=order, keep=False) as watch:
            return run_batches(pipeline, plan.batches, watch, listen=self._listener())

    @property
    def _name(self) -> str:
        """The project, and the branch of the lake that is written to."""
        branch = self._artifacts.lake_branch
        return f"{self._artifacts.name} at branch {branch}" if branch else self._artifacts.name

    def _silent(self) -> Console:
        from rich.console import Console

        return Console(quiet=True)

    def _listener(self) -> Callable[[LogLine], None]:
        from floe_runtime.console import log_printer

        listen = log_printer(self._out, verbose=self._verbose)
        if not self._quiet:
            return listen
        return lambda line: listen(line) if line.level >= logging.ERROR else None

    def report(self, outcome: _Outcome) -> None:
        """Print what was written, and exit with the code of the outcome."""
        stopped, failure = outcome.interruption, outcome.failure
        code = 130 if stopped is not None else 0 if failure is None else 1
        if self._as_json:
            self._print_document(outcome)
        else:
            self._print_result(outcome)
            if stopped is not None:
                print_interruption(stopped)
                print_error(self._sentence(outcome, stopped))
            elif failure is not None:
                _print_failure(failure, outcome.report)
                if outcome.rest:
                    click.echo(f"run the rest with: {outcome.rest}", err=True)
        if stopped is not None:
            raise InterruptionError(self._sentence(outcome, stopped))
        if code:
            raise click.exceptions.Exit(code)

    def _sentence(self, outcome: _Outcome, stopped: Interruption) -> str:
        if self._publish is not None and stopped.run_id:
            return unpublished_interruption(stopped)
        return interruption_sentence(stopped, outcome.report, outcome.rest)

    def _print_document(self, outcome: _Outcome) -> None:
        from floe_runtime.cli.common import document

        stopped = outcome.interruption
        error = outcome.failure if stopped is None else self._sentence(outcome, stopped)
        left_out = [dataclasses.asdict(asset) for asset in outcome.plan.left_out]
        print_json(
            {
                "ok": error is None,
                "error": error,
                **dataclasses.asdict(outcome.report),
                "differences": [dataclasses.asdict(difference) for difference in outcome.differences],
                **({"left_out": left_out} if left_out else {}),
                **({"interrupted": document(stopped), "problems": []} if stopped is not None else {}),
            }
        )

    def _print_result(self, outcome: _Outcome) -> None:
        from floe_core.formatting import counted
        from floe_runtime.console import check_lines, report_table, schema_lines

        if not outcome.plan.batches:
            from floe_runtime.runs.described_plan import NOTHING_MISSING

            self._out.print("nothing is recomputed; see the warnings" if outcome.differences else NOTHING_MISSING)
        if outcome.report.materialized:
            self._out.print(report_table(outcome.report, self._out))
            for line in schema_lines(outcome.report):
                self._out.print(line, soft_wrap=True)
            if self._publish is not None and outcome.failure is None:
                self._out.print(f"published {self._how()}: {counted(len(outcome.report.materialized), 'table')}")
        for line in check_lines(outcome.report, self._out):
            self._out.print(line)
        branch = self._artifacts.lake_branch
        if branch and outcome.report.materialized and outcome.failure is None:
            self._out.print(f"main is unchanged; review it with: floe branches diff {branch}", soft_wrap=True)

    def _how(self) -> str:
        """How the tables were published."""
        from floe_iceberg import Lake

        together = self._publish == "run" or Lake(self._artifacts).tables.refuses_many_tables is None
        return "in one commit" if together else "one by one"


def _print_failure(message: str, report: RunReport) -> None:
    """Print each error with the line of the user's code, then the skipped assets and the path of the log."""
    from floe_runtime.console import failure_lines

    if not report.failed:
        print_error(message)
    for failure in report.failed:
        print_error(str(failure))
        for line in failure_lines(failure):
            click.echo(f"  {line}", err=True)
    if report.skipped:
        click.echo(f"skipped because of it: {grouped(report.skipped)}", err=True)
    if report.unpublished:
        click.echo(unpublished_text(report.run_ids[-1], report.unpublished), err=True)
    log = f"; log with the traceback: {report.log}" if report.log else ""
    click.echo(f"run {report.run_ids[-1]}{log}", err=True)


def _remaining(pipeline: Pipeline, assets: Sequence[AssetKey]) -> list[Difference]:
    """The differences after a run, with a warning each; the run succeeded, so nothing here may fail it."""
    from floe_dagster.differences import find_differences

    try:
        differences = find_differences(pipeline.definitions, assets, pipeline.instance, quick=True)
    except Exception as exc:  # noqa: BLE001 - the run succeeded, whatever fails here
        print_warning(f"the tables could not be compared with Dagster's history: {type(exc).__name__}: {exc}")
        return []
    for difference in differences:
        hint = "; recompute it with: floe run --missing" if difference.recompute else ""
        print_warning(f"{difference.message}{hint}")
    return differences
