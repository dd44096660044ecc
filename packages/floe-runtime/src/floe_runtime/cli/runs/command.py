"""floe runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from floe_runtime.cli.common import (
    Verbs,
    branch_option,
    compile_here,
    confirm,
    console,
    document,
    known_branch,
    only_json,
    print_error,
    print_json,
    print_warning,
    project_options,
    yes_option,
)

if TYPE_CHECKING:
    from dagster import DagsterInstance
    from rich.console import Console

    from floe_core.config import CompiledArtifacts
    from floe_runtime.runs.history import PastRun, RunDetails

__all__ = ["runs"]

_COLOURS = {"success": "green", "failure": "red", "canceled": "yellow", "lost": "red"}

_MEANING_OF_LOST = (
    "its process is gone and recorded no end: it was killed, or the machine stopped. "
    "A write that was in progress is complete or absent"
)


def _status(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    from difflib import get_close_matches

    from floe_runtime.runs.history import STATUSES

    if value.lower() not in STATUSES:
        near = get_close_matches(value.lower(), STATUSES, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise click.BadParameter(f"{value!r} is no status; they are {', '.join(STATUSES)}.{hint}")
    return value.lower()


@click.group(cls=Verbs)
def runs() -> None:
    """Show past runs of the project: what they wrote, and why they failed; discard what was not published."""


@runs.command("list")
@click.option(
    "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many runs to show, the latest."
)
@click.option("--status", metavar="STATUS", callback=_status, help="Only runs with this status, such as failure.")
@click.option("--asset", metavar="NAME", help="Only runs that were to materialize this asset.")
@branch_option
@project_options
def list_(
    limit: int,
    status: str | None,
    asset: str | None,
    branch: str | None,
    project: Path | None,
    environment: str | None,
    as_json: bool,
) -> None:
    """List runs, the latest first, of floe run, floe dev and schedules; times are in UTC."""
    from floe_runtime.runs.history import NO_RUNS, past_runs, similar_assets

    found: list[PastRun] = []
    near: list[str] = []
    with _history(project, environment, branch, as_json) as (artifacts, instance):
        if instance is not None:
            found = past_runs(instance, limit=limit + 1, status=status, asset=asset)
            near = similar_assets(instance, asset) if asset is not None and not found else []
    if near:
        print_warning(f"no run has the asset {asset!r}. Did you mean {' or '.join(near)}?")
    more, shown = len(found) > limit, _marked(artifacts, found[:limit])
    if as_json:
        print_json({"ok": True, "runs": document(shown), "more": more})
    elif found:
        _print_runs(console(), shown)
        if more:
            click.echo("and older runs; --limit sets how many are shown")
    elif status or asset:
        wanted = [f"status {status}"] * bool(status) + [f"asset {asset}"] * bool(asset)
        click.echo(f"no run with {' and '.join(wanted)}")
    else:
        click.echo(NO_RUNS)


@runs.command()
@click.argument("run", metavar="[RUN]", required=False)
@click.option("--logs", is_flag=True, help="Also print everything that Dagster recorded of the run.")
@branch_option
@project_options
def show(
    run: str | None, logs: bool, branch: str | None, project: Path | None, environment: str | None, as_json: bool
) -> None:
    """Show a run: status, duration, what it wrote, errors and its log.

    RUN is the id of a run, or its beginning; by default the latest run.
    """
    from floe_core.errors import ConfigurationError
    from floe_core.security import redact
    from floe_runtime.runs.failures import log_lines
    from floe_runtime.runs.history import NO_RUNS, details_of, find_run

    with _history(project, environment, branch, as_json) as (artifacts, instance):
        if instance is None:
            raise ConfigurationError(NO_RUNS)
        details = details_of(instance, find_run(instance, run), artifacts.root)
        details = replace(details, run=_marked(artifacts, [details.run])[0])
        left = None if as_json else _left(artifacts, details)
        lines = [redact(line).rstrip("\n") for line in log_lines(instance, details.run.run_id)] if logs else []
    if as_json:
        shown = document(details)
        print_json({"ok": True, **shown.pop("run"), **shown, **({"lines": lines} if logs else {})})
        return
    _print_details(console(), details)
    if left is not None:
        click.echo(left)
    for line in lines:
        click.echo(line)


@runs.command()
@click.argument("run")
@yes_option
@project_options
def discard(run: str, yes: bool, project: Path | None, environment: str | None, as_json: bool) -> None:
    """Remove what an atomic run that was not published left: its branches, and the tables that it created.

    RUN is the id of a run, or its beginning. Without this, expiry removes the branches after 7 days.
    """
    from floe_iceberg.snapshots import StagingBranch, run_branch, unpublished_by
    from floe_runtime.cli.runs.undo import run_id_of
    from floe_runtime.cli.tables.opened import open_catalog

    with only_json(as_json), open_catalog(project, environment) as (artifacts, tables):
        run_id = run_id_of(artifacts, run)
        branch, found = run_branch(run_id), []
        for name in tables.find_tables():
            table = tables.find_table(name)
            if table is not None and (branch in table.metadata.refs or unpublished_by(table.properties) == run_id):
                found.append(name)
        if found:
            listed = ", ".join(map(str, found))
            confirm(artifacts, yes, f"discard what run {run_id[:8]} wrote to {listed}", as_json=as_json)
        removed = [str(name) for name in found if tables.abandon_branch(name, StagingBranch.of_run(run_id))]
    if as_json:
        print_json({"ok": True, "run_id": run_id, "tables": removed})
    elif removed:
        click.echo(f"discarded what run {run_id[:8]} wrote and did not publish: {', '.join(removed)}")
    else:
        click.echo(f"run {run_id[:8]} left nothing that is not published")


@contextmanager
def _history(
    project: Path | None, environment: str | None, branch: str | None, as_json: bool
) -> Iterator[tuple[CompiledArtifacts, DagsterInstance | None]]:
    from floe_runtime.runs.pipeline import open_history

    artifacts = known_branch(compile_here(project, environment, branch=branch))
    with only_json(as_json), open_history(artifacts) as instance:
        yield artifacts, instance


def _print_runs(out: Console, found: list[PastRun]) -> None:
    from rich.text import Text

    from floe_core.formatting import moment_text
    from floe_runtime.console import fitted_table

    columns: dict[str, list[str | Text]] = {
        "run": [run.run_id[:8] for run in found],
        "status": [Text(run.outcome, style=_COLOURS.get(run.status, "")) for run in found],
        "started": [moment_text(run.started) for run in found],
        "seconds": [_seconds(run) for run in found],
        "assets": [_few(run, 3 if out.width >= 100 else 1) for run in found],
        "partitions": [run.partitions or "-" for run in found],
    }
    if not any(run.partitions for run in found):
        del columns["partitions"]
    optional = [name for name in ("seconds", "partitions") if name in columns]
    out.print(fitted_table(columns, out, numbers=("run", "started", "seconds"), optional=optional))


def _seconds(run: PastRun) -> str:
    return "-" if run.seconds is None else f"{run.seconds:,.1f}"


def _few(run: PastRun, count: int) -> str:
    """The first assets of a run; the job of a run without assets."""
    if not run.assets:
        return f"job {run.job}"
    more = f" and {len(run.assets) - count} more" if len(run.assets) > count else ""
    return f"{', '.join(run.assets[:count])}{more}"


def _marked(artifacts: CompiledArtifacts, runs: list[PastRun]) -> list[PastRun]:
    """The runs, marked if they were undone; as they are if the tables cannot be asked."""
    from floe_core.errors import FloeError
    from floe_iceberg import IcebergTableManager
    from floe_runtime.run_outcomes import mark_undone

    if not runs:
        return runs
    try:
        with closing(IcebergTableManager.open(artifacts)) as tables:
            return mark_undone(tables, runs)
    except FloeError as exc:
        print_warning(f"runs that were undone are not marked: {exc}")
        return runs


def _left(artifacts: CompiledArtifacts, details: RunDetails) -> str | None:
    """What an atomic run did not publish, and whether it is still there; None if there is no such thing."""
    from floe_core.errors import FloeError
    from floe_core.security import redact
    from floe_iceberg import IcebergTableManager
    from floe_runtime.cli.run.report import unpublished_text
    from floe_runtime.run_outcomes import still_on_branch

    if not details.unpublished:
        return None
    run_id, assets = details.run.run_id, ", ".join(made.asset for made in details.unpublished)
    try:
        with closing(IcebergTableManager.open(artifacts)) as tables:
            there = still_on_branch(tables, run_id, details.unpublished)
    except FloeError as exc:
        return (
            f"not published: {assets}; whether it is still on branch floe-run-{run_id} is unknown: {redact(str(exc))}"
        )
    if there:
        return unpublished_text(run_id, there)
    return f"not published: {assets}; branch floe-run-{run_id} is gone: it was discarded, or has expired"


def _print_details(out: Console, details: RunDetails) -> None:
    from floe_core.formatting import moment_text
    from floe_runtime.console import check_lines, failure_lines, report_table, schema_lines
    from floe_runtime.runs.history import LOST
    from floe_runtime.runs.runner import RunReport

    run = details.run
    out.print(f"run {run.run_id}: {run.outcome}", style=_COLOURS.get(run.status, ""), soft_wrap=True)
    took = f", {_seconds(run)} s" if run.seconds is not None else ""
    click.echo(f"started {moment_text(run.started)} UTC{took}")
    click.echo(f"assets: {', '.join(run.assets) or f'none, job {run.job}'}")
    if run.partitions:
        click.echo(f"partitions: {run.partitions}")
    if run.status == LOST:
        click.echo(_MEANING_OF_LOST)
    report = RunReport(materialized=details.materialized, checks=details.checks)
    if details.materialized:
        out.print(report_table(report, out, elsewhere="--json has them"))
        for line in schema_lines(report):
            out.print(line, soft_wrap=True)
    else:
        click.echo("it published no table" if details.unpublished else "it wrote no table")
    if details.in_progress:
        click.echo(
            f"in progress{'' if run.status == 'started' else ' when it ended'}: {', '.join(details.in_progress)}"
        )
    for line in check_lines(report, out):
        out.print(line)
    for failure in details.failed:
        print_error(str(failure))
        for text in failure_lines(failure):
            click.echo(f"  {text}", err=True)
    if details.log:
        click.echo(f"log: {details.log}")
    elif details.failed:
        click.echo(f"to see its log: floe runs show {run.run_id[:8]} --logs")
