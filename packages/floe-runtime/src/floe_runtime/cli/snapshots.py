"""floe snapshots."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from floe_runtime.cli.common import (
    RefusedError,
    Verbs,
    confirm,
    consent,
    console,
    document,
    options_here,
    print_json,
    project_options,
    table_argument,
    yes_option,
)
from floe_runtime.cli.tables.history import count_text, limit_option, print_commits, print_more, shown_limit
from floe_runtime.cli.tables.opened import open_tables

if TYPE_CHECKING:
    from rich.console import Console

    from floe_iceberg.inspection import RollbackPlan

__all__ = ["snapshots"]

_LISTED = 10  # commits that a rollback lists


@click.group(cls=Verbs)
def snapshots() -> None:
    """List and tag snapshots of a table, and roll it back.

    A SNAPSHOT is the id of a snapshot, a tag or branch, or a time such as 2026-01-31T12:00:00+00:00.
    """


@snapshots.command("list")
@table_argument
@limit_option
@project_options
def list_(table: str, limit: int | None, project: Path | None, environment: str | None, as_json: bool) -> None:
    """List the snapshots of a table with its branches and tags, the latest first; times are in UTC."""
    from floe_iceberg.inspection import ref_text

    with open_tables(table, project, environment) as (_artifacts, tables):
        commits, refs = tables.history(table), tables.describe(table).refs
    shown = commits[: shown_limit(limit, as_json=as_json)]
    if as_json:
        listed = {"snapshots": document(shown), "total": len(commits), "refs": document(refs)}
        print_json({"ok": True, "table": table, **listed})
        return
    if not commits:
        click.echo(f"{table} has no snapshot yet: nothing was written to it")
        return
    out = console()
    print_commits(out, shown)
    print_more(out, len(commits) - len(shown), "snapshot")
    for ref in refs:
        out.print(ref_text(ref), markup=False, soft_wrap=True)


@snapshots.command()
@table_argument
@click.argument("name")
@click.option("--snapshot", metavar="SNAPSHOT", help="The snapshot; by default the current one.")
@click.option("--keep", type=float, metavar="DAYS", help="Let expiry remove the tag after so many days.")
@project_options
def tag(
    table: str,
    name: str,
    snapshot: str | None,
    keep: float | None,
    project: Path | None,
    environment: str | None,
    as_json: bool,
) -> None:
    """Tag a snapshot with a NAME; expiry keeps a tagged snapshot."""
    from datetime import timedelta

    if keep is not None and not 0 < keep <= 365_000:
        raise click.UsageError("--keep: give a number of days above 0, and at most 365000.")
    with open_tables(table, project, environment) as (_artifacts, tables):
        found = tables.find_snapshot(table, snapshot)
        age = None if keep is None else timedelta(days=keep)
        tables.create_tag(table, name, snapshot_id=found.snapshot_id, max_ref_age=age)
    if as_json:
        print_json({"ok": True, "table": table, "tag": name, "snapshot_id": found.snapshot_id, "max_age_days": keep})
    else:
        kept = f", for {keep:g} days" if keep is not None else ""
        click.echo(f"tagged snapshot {found.snapshot_id} of {table} as {name}{kept}")


@snapshots.command()
@table_argument
@click.argument("name")
@yes_option
@project_options
def untag(table: str, name: str, yes: bool, project: Path | None, environment: str | None, as_json: bool) -> None:
    """Remove the tag NAME; its snapshot then expires like any other.

    It asks only if the tag is the cursor of an asset that reads the table with since.
    """
    from floe_iceberg.snapshots import CURSOR_PREFIX, refs

    with open_tables(table, project, environment) as (artifacts, tables):
        exists = name in (ref.name for ref in tables.describe(table).refs)  # if not, removing it raises the error
        if exists and name.startswith(refs.LEASE):
            here = options_here(project, environment)
            raise RefusedError(
                f"{name} is the lease of a maintenance; release it with: floe maintain release {table}{here}"
            )
        if exists and name.startswith(CURSOR_PREFIX):
            action = f"remove {name}, which keeps what an asset still has to read of '{table}'"
            confirm(artifacts, yes, action, as_json=as_json)
        elif exists:
            consent(artifacts, yes, f"to remove tag {name} of '{table}'")
        snapshot_id = tables.remove_tag(table, name)
    if as_json:
        print_json({"ok": True, "table": table, "tag": name, "snapshot_id": snapshot_id})
    else:
        click.echo(f"removed tag {name} of {table}; it was at snapshot {snapshot_id}")


@snapshots.command()
@table_argument
@click.option("--to", required=True, metavar="SNAPSHOT", help="The snapshot that becomes the current one.")
@yes_option
@project_options
def rollback(table: str, to: str, yes: bool, project: Path | None, environment: str | None, as_json: bool) -> None:
    """Make an earlier snapshot of main the current one, after showing what readers lose.

    Nothing is deleted: the later snapshots stay until they expire. Columns that were added since stay, with NULL in the
    rows of the earlier snapshot. Dagster keeps its record of the materializations that are lost: floe run --missing
    computes them again. An asset that has read lost rows with since is refused at its next run, and says how to go on.
    """
    with open_tables(table, project, environment) as (artifacts, tables):
        plan = tables.plan_rollback(table, to)
        out = console(quiet=as_json)
        if plan.commits:
            if not as_json:
                _print_plan(out, plan)
            action = f"roll '{plan.table}' back to snapshot {plan.to.snapshot_id}"
            confirm(artifacts, yes, action, as_json=as_json)
            tables.rollback_to_snapshot(table, plan.to.snapshot_id, expected_head=plan.head.snapshot_id)
    if as_json:
        print_json({"ok": True, "rolled_back": bool(plan.commits), **document(plan)})
    elif not plan.commits:
        click.echo(f"{plan.table} is at snapshot {plan.to.snapshot_id} already; nothing was changed")
    else:
        click.echo(f"rolled {plan.table} back from snapshot {plan.head.snapshot_id} to {plan.to.snapshot_id}")
        options = options_here(project, environment)
        if any(commit.asset for commit in plan.commits):
            click.echo(f"when the data or the code is corrected: floe run --missing{options}")
        click.echo(f"to undo the rollback: floe snapshots restore {plan.table} {plan.head.snapshot_id}{options}")


@snapshots.command()
@table_argument
@click.argument("snapshot")
@project_options
def restore(table: str, snapshot: str, project: Path | None, environment: str | None, as_json: bool) -> None:
    """Undo a rollback: make a later SNAPSHOT the current one again.

    Refused if main has other commits since the rollback, which would be lost. floe tables history shows the snapshots
    that are not on main.
    """
    with open_tables(table, project, environment) as (_artifacts, tables):
        head, target = tables.current_snapshot(table), tables.find_snapshot(table, snapshot).snapshot_id
        tables.restore_snapshot(table, target)
    before = None if head is None else head.snapshot_id
    if as_json:
        print_json({"ok": True, "table": table, "from_snapshot_id": before, "snapshot_id": target})
    elif before == target:
        click.echo(f"{table} is at snapshot {target} already; nothing was changed")
    else:
        click.echo(f"restored {table} from snapshot {before} to {target}")


def _print_plan(out: Console, plan: RollbackPlan) -> None:
    from floe_core.formatting import counted, moment_text

    totals = f"{count_text(plan.head.total_rows)} to {count_text(plan.to.total_rows)} rows"
    out.print(
        f"{plan.table}: back to {plan.to.snapshot_id} of {moment_text(plan.to.committed_at)} UTC, from {totals}; "
        f"readers lose {counted(len(plan.commits), 'commit')}:",
        markup=False,
    )
    print_commits(out, plan.commits[:_LISTED])
    print_more(out, len(plan.commits) - _LISTED, "commit")
    assets = sorted({commit.asset for commit in plan.commits if commit.asset})
    if assets:
        out.print(
            f"Dagster still records them as materialized ({', '.join(assets)}): floe run --missing computes them again",
            markup=False,
        )
    if plan.cursors:
        out.print(
            f"assets have read lost rows with since ({', '.join(plan.cursors)}): their tables keep these rows, and "
            f"their next run is refused until they are materialized without since or their table is dropped",
            markup=False,
        )
    out.print("nothing is deleted; the lost snapshots stay until they expire")
