"""floe sql."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from floe_runtime.cli.common import (
    RefusedError,
    SuggestingChoice,
    branch_option,
    compile_here,
    known_branch,
    observe,
    project_options,
)
from floe_runtime.cli.rows.options import output_options, wanted_output
from floe_runtime.cli.rows.start import quick_start, skip_pandas

__all__ = ["sql"]


@click.command()
@click.argument("query", required=False)
@click.option(
    "--file",
    "script",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Read the query from this file.",
)
@click.option(
    "--engine",
    type=SuggestingChoice(("duckdb", "spark")),
    default="duckdb",
    show_default=True,
    help="What executes it, in its SQL.",
)
@branch_option
@output_options
@project_options
def sql(
    query: str | None,
    script: Path | None,
    engine: str,
    branch: str | None,
    limit: int | None,
    output: str | None,
    file: Path | None,
    project: Path | None,
    environment: str | None,
    as_json: bool,
) -> None:
    """Run a QUERY on the tables, and print its rows. Times are in UTC; QUERY - is read from standard input.

    Tables have their full names, such as bronze.orders. VERSION AS OF a snapshot id, 'tag' or 'branch' after the name
    reads a table as it was, and so does TIMESTAMP AS OF '2026-01-31T12:00:00+00:00'. Only tables of the lake are read,
    and nothing is written.
    """
    text = _text(query, script)
    wanted = wanted_output(output, limit, file, as_json)
    with quick_start() as started:
        if engine == "duckdb":
            skip_pandas()
        from floe_core.errors import QueryRefusedError
        from floe_iceberg import Lake
        from floe_runtime.cli.rows.output import Rows, write_rows

        artifacts = known_branch(compile_here(project, environment, branch=branch))
        observe(artifacts)
        try:
            with Lake(artifacts) as lake, lake.sql(text, engine="spark" if engine == "spark" else "duckdb") as result:
                facts = {"engine": engine, "snapshots": result.snapshots}
                rows = Rows(result.schema, result.types, result.batches, facts, "select fewer columns")
                started()
                write_rows(rows, wanted)
        except QueryRefusedError as exc:
            raise RefusedError(str(exc)) from exc


def _text(query: str | None, script: Path | None) -> str:
    if (query is None) == (script is None):
        raise click.UsageError("give one query: as QUERY, as - for standard input, or with --file.")
    if script is not None:
        return _decoded(script.read_bytes(), str(script))
    if query == "-":
        return _decoded(sys.stdin.buffer.read(), "standard input")
    return _decoded(os.fsencode(str(query)), "QUERY")  # a locale may have read it as something else


def _decoded(content: bytes, name: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise click.UsageError(f"{name} is not UTF-8 text: {exc.reason} at byte {exc.start}.") from None
