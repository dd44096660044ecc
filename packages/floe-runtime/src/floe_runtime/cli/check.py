"""floe check: run the checks of assets and tables, without writing."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import click

from floe_runtime.cli.common import (
    branch_option,
    compile_here,
    console,
    environment_option,
    json_option,
    known_branch,
    observe,
    only_json,
    plain_warnings,
    print_error,
    print_json,
    project_option,
    tells_errors,
)

if TYPE_CHECKING:
    from rich.console import Console

    from floe_runtime.checking import CheckReport

__all__ = ["check"]


@click.command()
@click.argument("selection", nargs=-1)
@click.option("--partition", metavar="KEY", help="Check this partition of partitioned assets, not the whole table.")
@click.option("--examples", is_flag=True, help="Also print some of the rows that fail.")
@project_option
@environment_option
@branch_option
@json_option
@tells_errors
def check(
    selection: tuple[str, ...],
    partition: str | None,
    examples: bool,
    project: Path | None,
    environment: str | None,
    branch: str | None,
    as_json: bool,
) -> None:
    """Run the checks of assets and tables. Nothing is written to tables.

    Checks are declared in floe.yaml (checks: {TABLE: [...]}) and in the definitions (floe_dagster.checks, and Dagster's
    own asset checks). A SELECTION names assets as floe run does, or tables that no asset writes. The results are in
    Dagster's history.

    The exit code is 1 if a check failed or could not be run; a check with the severity warn does not count.
    """
    artifacts = known_branch(compile_here(project, environment, branch=branch, quiet=as_json))
    observe(artifacts)
    with only_json(as_json), plain_warnings(artifacts.root, quiet=as_json):
        from floe_iceberg import Lake
        from floe_runtime.checking import check_project
        from floe_runtime.runs.pipeline import open_pipeline

        with open_pipeline(artifacts) as pipeline:
            if pipeline.starts_spark:
                _ = Lake(artifacts).spark
            report = check_project(pipeline, selection, partition=partition)
    if as_json:
        checks = [dataclasses.asdict(one) for one in report.checks]
        error = f"{len(report.failed)} of {len(report.checks)} checks failed" if report.failed else None
        print_json({"ok": error is None, "error": error, "run_id": report.run_id, "checks": checks})
    else:
        _print(report, console(), examples=examples)
    if report.failed:
        raise click.exceptions.Exit(1)


def _print(report: CheckReport, out: Console, *, examples: bool) -> None:
    from rich.text import Text

    from floe_runtime.checking import summary
    from floe_runtime.console.text import sign

    for one in report.checks:
        colour = "green" if one.passed else "red" if one.stops else "yellow"
        shown = (f"  {sign(out, good=one.passed)} ", colour)
        out.print(Text.assemble(shown, f"check {one.check} of {one.asset or one.table}", (f"  {one.message}", "dim")))
        if examples and one.examples:
            for line in one.examples.splitlines():
                out.print(f"      {line}", style="dim", markup=False, soft_wrap=True)
    out.print(summary(report))
    if report.failed:
        names = ", ".join(f"{one.check} of {one.asset or one.table}" for one in report.failed)
        print_error(f"{len(report.failed)} of {len(report.checks)} checks failed: {names}")
