"""floe tables history, and the commits of other verbs as a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from floe_runtime.cli.common import console, document, print_json, project_options, table_argument
from floe_runtime.cli.tables.opened import open_tables

if TYPE_CHECKING:
    from rich.console import Console

    from floe_iceberg.inspection import Commit

__all__ = ["count_text", "history", "limit_option", "print_commits", "print_more", "shown_limit"]

_SHOWN = 20
limit_option = click.option(
    "--limit",
    type=click.IntRange(min=1),
    help=f"How many to show at most; by default {_SHOWN}, and all with --json.",
)


def shown_limit(limit: int | None, *, as_json: bool) -> int | None:
    """How many to show; None is all, which programs get unless they ask for less."""
    return limit if limit is not None or as_json else _SHOWN


@click.command()
@table_argument
@limit_option
@project_options
def history(table: str, limit: int | None, project: Path | None, environment: str | None, as_json: bool) -> None:
    """Show the snapshots of a table, the latest first: time, rows, and what wrote them; times are in UTC.

    Snapshots that do not lead to the head, because the table was rolled back or has branches, are marked.
    """
    with open_tables(table, project, environment) as (_artifacts, tables):
        commits = tables.history(table)
    shown = commits[: shown_limit(limit, as_json=as_json)]
    if as_json:
        print_json({"ok": True, "table": table, "snapshots": document(shown), "total": len(commits)})
    elif not commits:
        click.echo(f"{table} has no snapshot yet: nothing was written to it")
    else:
        out = console()
        print_commits(out, shown)
        print_more(out, len(commits) - len(shown), "snapshot")


def print_commits(out: Console, commits: Sequence[Commit]) -> None:
    """A line for each commit; columns that do not fit are named below."""
    from floe_runtime.console import exact_text, fitted_table

    columns = {
        "snapshot": [str(commit.snapshot_id) for commit in commits],
        "time": [exact_text(commit.committed_at) for commit in commits],
        "operation": [commit.operation for commit in commits],
        "added": [count_text(commit.rows_added) for commit in commits],
        "removed": [count_text(commit.rows_deleted) for commit in commits],
        "row deletes": [f"{commit.row_deletes:,}" if commit.row_deletes else "-" for commit in commits],
        "rows": [count_text(commit.total_rows) for commit in commits],
        "refs": [_refs(commit) for commit in commits],
        "asset": [commit.asset or "-" for commit in commits],
        "partition": [commit.partition or "-" for commit in commits],
        "run": [(commit.run_id or "-")[:8] for commit in commits],
        "write": [(commit.write_id or "-")[:8] for commit in commits],
    }
    bare = [
        name
        for name in ("row deletes", "asset", "partition", "run", "write", "refs")
        if all(cell in ("-", "") for cell in columns[name])
    ]
    shown = {name: cells for name, cells in columns.items() if name not in bare}
    # Who wrote it stays longer than what it counts. A mark such as `not on main` is dropped last; that the head is
    # main's is known.
    optional = ["write", "row deletes", "removed", "added"]
    origin = ("operation", "asset", "partition", "rows", "run")
    optional += (*origin, "refs") if {*columns["refs"]} - {"", "main"} else ("refs", *origin)
    numbers = ("snapshot", "time", "added", "removed", "row deletes", "rows")
    out.print(fitted_table(shown, out, numbers=numbers, optional=[name for name in optional if name in shown]))


def print_more(out: Console, more: int, word: str) -> None:
    """How many were left out, and how to see them."""
    from floe_core.formatting import counted

    if more > 0:
        out.print(f"and {counted(more, f'more {word}')}; --limit sets how many are shown")


def count_text(count: int | None) -> str:
    return "-" if count is None else f"{count:,}"


def _refs(commit: Commit) -> str:
    return ", ".join([*commit.refs, *([] if commit.on_main else ["not on main"])])
