"""floe plan."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from floe_runtime.cli.common import (
    branch_option,
    compile_here,
    console,
    known_branch,
    observe,
    only_json,
    plain_warnings,
    print_json,
    project_options,
    stops_before,
)
from floe_runtime.cli.plan.options import place_options, publish_options, request_options, requested

if TYPE_CHECKING:
    from floe_core.config import CompiledArtifacts, Publish
    from floe_runtime.runs.described_plan import DescribedPlan
    from floe_runtime.runs.planning import RunRequest

__all__ = ["plan"]


@click.command()
@request_options
@publish_options
@click.option("--markdown", is_flag=True, help="Print Markdown, for a pull request.")
@branch_option
@project_options
def plan(
    selection: tuple[str, ...],
    select: tuple[str, ...],
    partition: tuple[str, ...],
    partition_range: str | None,
    with_unpartitioned: bool,
    missing: bool,
    atomic: bool,
    one_by_one: bool,
    markdown: bool,
    branch: str | None,
    project: Path | None,
    environment: str | None,
    as_json: bool,
) -> None:
    """Show what floe run would do with the same arguments, and why. Nothing is run or written; Spark is not started.

    For each asset: its partitions with the reasons, the table that is created, changes of the schema if the asset
    declares one, and the rows and files that are replaced.

    A SELECTION is a name (bronze/orders, bronze/*), tag:NAME, tag:NAME=VALUE, group:NAME, kind:NAME or owner:NAME. With
    + before or after it, everything upstream or downstream of it is selected as well; with 1+ so many levels. Several
    are added up; and, or, not and parentheses combine them.

    Exit code 3: something would be refused.
    """
    from floe_runtime.cli.plan.document import plan_document
    from floe_runtime.cli.plan.markdown import markdown_lines
    from floe_runtime.cli.plan.text import print_plan
    from floe_runtime.runs.planning import refuse_atomic_branch, when_published

    if markdown and as_json:
        raise click.UsageError("--markdown and --json are mutually exclusive.")
    request = requested(selection, select, partition, partition_range, with_unpartitioned, missing)
    with stops_before("written"):
        artifacts = known_branch(compile_here(project, environment, branch=branch))
        refuse_atomic_branch(artifacts, when_published(atomic, one_by_one))
        described = _described(artifacts, request, when_published(atomic, one_by_one), piped=as_json or markdown)
    refusal = described.refusal
    if as_json:
        print_json(plan_document(artifacts, described))
    elif markdown:
        for line in markdown_lines(described, _title(artifacts)):
            click.echo(line)
    else:
        where = place_options(project, environment, branch)
        print_plan(console(), described, _title(artifacts), arguments=sys.argv[2:], where=where)
    if refusal is not None:
        raise click.exceptions.Exit(3)


def _described(
    artifacts: CompiledArtifacts, request: RunRequest, publish: Publish | None, *, piped: bool
) -> DescribedPlan:
    """The plan; what the project prints while it is imported goes to standard error if a program reads the output."""
    from floe_runtime.runs.described_plan import plan_with_effects
    from floe_runtime.runs.pipeline import open_pipeline

    observe(artifacts)
    with only_json(piped), plain_warnings(artifacts.root), open_pipeline(artifacts, publish=publish) as pipeline:
        return plan_with_effects(pipeline, request, atomic=publish is not None)


def _title(artifacts: CompiledArtifacts) -> str:
    where = f" ({artifacts.environment}{', protected' * artifacts.protected})" if artifacts.environment else ""
    at = f" at branch {artifacts.lake_branch}" if artifacts.lake_branch else ""
    return f"{artifacts.name}{where}{at}"
