"""floe branches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from floe_runtime.cli.common import (
    RefusedError,
    Verbs,
    compile_here,
    confirm,
    consent,
    console,
    document,
    observe,
    only_json,
    plain_warnings,
    print_json,
    project_options,
    yes_option,
)

if TYPE_CHECKING:
    from floe_core.config import CompiledArtifacts
    from floe_runtime.project import Project

__all__ = ["branches"]

_name = click.argument("name")
_one_by_one = click.option(
    "--one-by-one",
    is_flag=True,
    help="On a catalog that cannot commit several tables at once, publish one after the other.",
)


@click.group(cls=Verbs)
def branches() -> None:
    """Work on a branch of the lake, review what it changes, and publish all of its tables in one commit.

    floe run --branch NAME writes to the branch NAME of each table, which begins where main is, and copies nothing. What
    the branch has not written it reads of main as it was when the branch was created.
    """


@branches.command("list")
@project_options
def list_(project: Path | None, environment: str | None, as_json: bool) -> None:
    """List the branches, with their tables and when they expire; times are in UTC."""
    from floe_runtime.console.branches import print_branches

    with _opened(project, environment, as_json) as (_, lake):
        found = lake.branches.list()
    if as_json:
        print_json({"ok": True, "branches": document(found)})
    elif found:
        print_branches(console(), found)
    else:
        click.echo("no branches; create one with floe run --branch NAME")


@branches.command()
@_name
@click.option("--if-not-exists", is_flag=True, help="Leave a branch of this name as it is.")
@project_options
def create(name: str, if_not_exists: bool, project: Path | None, environment: str | None, as_json: bool) -> None:
    """Create a branch that reads main as it is now. floe run --branch NAME does so by itself."""
    with _opened(project, environment, as_json) as (_, lake):
        status = lake.branches.create(name, if_not_exists=if_not_exists)
    if as_json:
        print_json({"ok": True, **document(status)})
    else:
        moment = f"{status.pinned_at:%Y-%m-%d %H:%M:%S} UTC"
        click.echo(f"branch {name} reads main as of {moment}; write to it with: floe run --branch {name}")


@branches.command()
@_name
@project_options
def show(name: str, project: Path | None, environment: str | None, as_json: bool) -> None:
    """Show the tables of a branch, and what stands against its publication."""
    from floe_runtime.console.branches import print_branch

    with _opened(project, environment, as_json) as (_, lake):
        status = lake.branches.show(name)
    if as_json:
        print_json({"ok": True, **document(status)})
    else:
        print_branch(console(), status)


@branches.command()
@_name
@click.argument("tables", nargs=-1, metavar="[TABLE]...")
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="TABLE=COLUMN,...",
    help="The columns that identify a row of a table; may be repeated. By default those of upserts.",
)
@click.option(
    "--max-rows",
    type=click.IntRange(min=1),
    help="Compare a sample if the files of a table that differ have more rows; by default 10,000,000.",
)
@click.option("--markdown", is_flag=True, help="Print Markdown, for a comment on a pull request.")
@project_options
def diff(
    name: str,
    tables: tuple[str, ...],
    keys: tuple[str, ...],
    max_rows: int | None,
    markdown: bool,
    project: Path | None,
    environment: str | None,
    as_json: bool,
) -> None:
    """Show what a branch changes: rows added, removed and changed, columns and partitions, with examples.

    Its tables are compared with main where the branch began. Without keys, a changed row counts as one that is removed
    and one that is added. Sensitive columns of assets are not shown.
    """
    from floe_runtime.cli.branches.diff_markdown import markdown_lines
    from floe_runtime.console.row_differences import print_differences

    if markdown and as_json:
        raise click.UsageError("--markdown and --json are mutually exclusive.")
    by_table = _keys(keys)
    with _opened(project, environment, as_json or markdown) as (artifacts, lake):
        with plain_warnings(artifacts.root, quiet=as_json):
            options = {} if max_rows is None else {"max_rows": max_rows}
            found = list(lake.branches.diff(name, *tables, keys=by_table, **options))
        problems = lake.branches.show(name).problems
    if as_json:
        print_json({"ok": True, "branch": name, "tables": document(found), "problems": list(problems)})
    elif markdown:
        for line in markdown_lines(found, f"Branch {name} of {artifacts.name}"):
            click.echo(line)
        if problems:
            click.echo(f"\n**It cannot be published as it is:** {len(problems)} of its tables have changed on main.")
    elif found:
        print_differences(console(), found)
    else:
        click.echo(f"branch {name} changes nothing")


@branches.command()
@_name
@click.option(
    "--restart",
    is_flag=True,
    help="Begin tables again whose rows have changed on main too; what the branch wrote to them is removed.",
)
@yes_option
@project_options
def update(name: str, restart: bool, yes: bool, project: Path | None, environment: str | None, as_json: bool) -> None:
    """Let a branch read main as it is now, with its own commits on top.

    Exit code 3: main has changed the same rows, so that nothing was done; --restart begins these tables again.
    """
    from floe_core.errors import ConcurrencyConflictError

    with _opened(project, environment, as_json) as (artifacts, lake):
        before = lake.branches.show(name)
        lost = [one.table for one in before.tables if one.state.is_problem]
        if restart and lost:
            confirm(artifacts, yes, f"remove what branch {name} wrote to {', '.join(lost)}", as_json=as_json)
        try:
            status = lake.branches.update(name, restart=restart)
        except ConcurrencyConflictError as exc:
            raise RefusedError(str(exc)) from exc
    assets = sorted({asset for one in before.tables if one.table in lost for asset in one.assets})
    if as_json:
        print_json({"ok": True, **document(status), "restarted": lost})
        return
    click.echo(f"branch {name} reads main as of {status.pinned_at:%Y-%m-%d %H:%M:%S} UTC")
    moved = [one.table for one in before.tables if one.state.value == "behind"]
    if moved:
        click.echo(f"put on top of main: {', '.join(moved)}")
    if lost:
        click.echo(f"begun again: {', '.join(lost)}; run them with: floe run --branch {name} {' '.join(assets)}")


@branches.command()
@_name
@_one_by_one
@yes_option
@project_options
def publish(
    name: str, one_by_one: bool, yes: bool, project: Path | None, environment: str | None, as_json: bool
) -> None:
    """Move main of all tables of a branch to it, in one commit, and remove the branch.

    A table whose main has moved in other rows only is put on top of that. If the same rows have changed, or a blocking
    check has failed on the branch, nothing is published, and the exit code is 3.
    """
    from floe_core.errors import CheckFailedError, ConcurrencyConflictError
    from floe_runtime.console.branches import print_publication

    with _opened(project, environment, as_json) as (artifacts, lake):
        consent(artifacts, yes, f"to publish branch {name}")
        try:
            published = lake.branches.publish(name, one_by_one=one_by_one)
        except (CheckFailedError, ConcurrencyConflictError) as exc:
            raise RefusedError(str(exc)) from exc
    if as_json:
        print_json({"ok": True, **document(published)})
    else:
        print_publication(console(), published)


@branches.command()
@_name
@yes_option
@project_options
def discard(name: str, yes: bool, project: Path | None, environment: str | None, as_json: bool) -> None:
    """Remove a branch, the tables that it created, the files that only it references, and its history."""
    from floe_core.formatting import counted

    with _opened(project, environment, as_json) as (artifacts, lake):
        tables = [one.table for one in lake.branches.show(name).tables]
        written = f" and what it wrote to {', '.join(tables)}" if tables else ""
        confirm(artifacts, yes, f"discard branch {name}{written}", as_json=as_json)
        deleted = lake.branches.discard(name)
    if as_json:
        print_json({"ok": True, "branch": name, "tables": tables, "files_removed": deleted})
    else:
        click.echo(f"discarded branch {name}: {counted(len(tables), 'table')}, {counted(deleted, 'file')} deleted")


@contextmanager
def _opened(project: Path | None, environment: str | None, piped: bool) -> Iterator[tuple[CompiledArtifacts, Project]]:
    """The project on main: branches are seen from there."""
    from floe_runtime.project import Project

    artifacts = compile_here(project, environment, quiet=piped)
    observe(artifacts)
    with only_json(piped), Project(artifacts) as lake:
        yield artifacts, lake


def _keys(given: tuple[str, ...]) -> dict[str, list[str]]:
    """The key columns of each table, from TABLE=COLUMN,COLUMN."""
    keys: dict[str, list[str]] = {}
    for one in given:
        table, is_there, columns = one.partition("=")
        if not is_there or not table or not columns:
            raise click.UsageError(f"--key: write it as TABLE=COLUMN,COLUMN, not {one!r}.")
        keys[table] = [column.strip() for column in columns.split(",")]
    return keys
