"""The options of commands that print rows."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ParamSpec, TypeVar

import click

from floe_runtime.cli.common import RefusedError, SuggestingChoice

__all__ = ["DEFAULT_ROWS", "FORMATS", "Wanted", "output_options", "wanted_output"]

P = ParamSpec("P")
R = TypeVar("R")

FORMATS = ("table", "csv", "json", "parquet")
DEFAULT_ROWS = 20
# A table for people is held in memory; more rows than this cannot be read on a screen.
_MOST_ROWS = 10_000
_SUFFIXES = {".csv": "csv", ".json": "json", ".parquet": "parquet"}


@dataclass(frozen=True)
class Wanted:
    """How rows are to be printed.

    Attributes:
        output: One of `FORMATS`.
        limit: The maximum number of rows; None for all of them.
        file: Where they are written; None for standard output.
        as_json: One JSON document around the rows, or about the file.
    """

    output: str
    limit: int | None
    file: Path | None
    as_json: bool


def output_options(command: Callable[P, R]) -> Callable[P, R]:
    """How many rows, in which form, and where they go."""
    limit = click.option(
        "--limit", type=click.IntRange(min=0), help=f"The most rows; a table shows {DEFAULT_ROWS} by default, else all."
    )
    output = click.option(
        "--output",
        type=SuggestingChoice(FORMATS),
        help="A table for people (the default), csv, json or parquet.",
    )
    file = click.option(
        "--to",
        "file",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Write to this new file; .csv, .json or .parquet sets the form.",
    )
    return limit(output(file(command)))


def wanted_output(output: str | None, limit: int | None, file: Path | None, as_json: bool) -> Wanted:
    """The options as they hold together; a usage error if they do not."""
    if output is None and file is not None:
        output = _SUFFIXES.get(file.suffix.lower())
        if output is None:
            raise click.UsageError(f"--to {file}: say the form with --output csv, json or parquet.")
    if as_json and file is None:
        if output not in (None, "json"):
            raise click.UsageError(f"--json prints JSON: leave --output {output} out, or write to a file with --to.")
        output = "json"
    output = output or "table"
    if output == "parquet" and file is None and sys.stdout.isatty():
        raise click.UsageError("parquet is not for a terminal: write it with --to FILE, or redirect it.")
    if output == "table":
        if limit is not None and limit > _MOST_ROWS:
            raise click.UsageError(f"--limit: a table shows at most {_MOST_ROWS:,} rows; for more: --output csv.")
        limit = DEFAULT_ROWS if limit is None else limit
    if file is not None and file.exists():
        raise RefusedError(f"{file} exists already, and was not changed: remove it, or choose another name")
    if file is not None and not file.parent.is_dir():
        raise RefusedError(f"there is no folder {file.parent}: create it, or choose another place for {file.name}")
    return Wanted(output, limit, file, as_json)
