"""floe undo."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from floe_runtime.cli.common import (
    RefusedError,
    confirm,
    console,
    document,
    environment_option,
    json_option,
    options_here,
    print_json,
    project_option,
    tells_errors,
    yes_option,
)
from floe_runtime.cli.tables.opened import open_catalog

if TYPE_CHECKING:
    from rich.console import Console

    from floe_core.config import CompiledArtifacts
    from floe_iceberg import IcebergTableManager
    from floe_iceberg.transactions import RestoredTable, UndoPlan

__all__ = ["run_id_of", "undo"]

_LISTED = 20


@click.command()
@click.argument("run")
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@click.option("--with-later", is_flag=True, help="Take back later writes that depend on the run, too.")
@click.option("--restore", is_flag=True, help="Undo the undoing: bring back what the run wrote.")
@click.option(
    "--one-by-one",
    is_flag=True,
    help="Restore one table after the other on a catalog that cannot commit several at once.",
)
@yes_option
@project_option
@environment_option
@json_option
@tells_errors
def undo(
    run: str,
    dry_run: bool,
    with_later: bool,
    restore: bool,
    one_by_one: bool,
    yes: bool,
    project: Path | None,
    environment: str | None,
    as_json: bool,
) -> None:
    """Restore every table that a run wrote, in one commit.

    RUN is the id of a run, or its beginning. Later writes to other partitions of the same tables stay; so do later
    appends, if the run only appended. Other later writes to these tables, and tables that were computed from what the
    run wrote, are named and stop it; --with-later takes them back too. A table that the run created counts as absent
    afterwards. Columns that were added stay.

    Nothing is deleted: a tag keeps the heads for 30 days, and --restore brings them back. floe plan --missing then
    shows what is missing, and floe run --missing computes it again.
    """
    if restore and with_later:
        raise click.UsageError("--restore goes without --with-later.")
    from floe_runtime.runs.history import tables_written

    with open_catalog(project, environment) as (artifacts, tables):
        run_id = run_id_of(artifacts, run)
        here = options_here(project, environment)
        if restore:
            _restore(artifacts, tables, run_id, dry_run=dry_run, one_by_one=one_by_one, yes=yes, as_json=as_json)
            return
        written = tables_written(artifacts, run_id)
        plan = tables.plan_undo(run_id, with_later=with_later, written=written)
        if not as_json:
            _print_plan(console(), plan)
        if plan.refusal is not None:
            if as_json:
                print_json(_document(plan, done=False))
                raise click.exceptions.Exit(3)
            raise RefusedError(f"{plan.refusal}; nothing was undone. To take them back too: --with-later")
        if not dry_run:
            confirm(artifacts, yes, f"undo run {run_id[:8]}", as_json=as_json)
            plan = tables.undo(run_id, with_later=with_later, one_by_one=one_by_one, written=written)
    if as_json:
        print_json(_document(plan, done=not dry_run))
    elif not dry_run:
        click.echo(f"undone in one commit; to compute it again: floe run --missing{here}")
        click.echo(f"to bring it back: floe undo {run_id[:8]} --restore{here}")


def _restore(
    artifacts: CompiledArtifacts,
    tables: IcebergTableManager,
    run_id: str,
    *,
    dry_run: bool,
    one_by_one: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Undo the undoing of a run, after showing what that does."""
    plan, names = tables.plan_restore(run_id), []
    if not as_json:
        _print_plan(console(), plan, "restore")
    if not dry_run:
        confirm(artifacts, yes, f"restore what run {run_id[:8]} wrote", as_json=as_json)
        names = [str(name) for name in tables.restore_undone(run_id, one_by_one=one_by_one)]
    if as_json:
        print_json({"ok": True, "run_id": run_id, "restored": names, "tables": document(plan.tables)})
    elif not dry_run:
        click.echo(f"restored in one commit: {', '.join(names)}")


def _document(plan: UndoPlan, *, done: bool) -> dict[str, object]:
    return {"ok": plan.refusal is None, "error": plan.refusal, "undone": done, **document(plan)}


def run_id_of(artifacts: CompiledArtifacts, run: str) -> str:
    """The id of a run that has ended, by its beginning."""
    from floe_runtime.runs.history import UnfinishedRunError, ended_run

    try:
        return ended_run(artifacts, run)
    except UnfinishedRunError as exc:
        raise RefusedError(str(exc)) from exc


def _print_plan(out: Console, plan: UndoPlan, verb: str = "undo") -> None:
    from floe_core.formatting import moment_text

    out.print(f"{verb} run {plan.run_id}:", style="bold", soft_wrap=True)
    for table in plan.tables:
        out.print(f"  {table.table}: {_effect(table)}", markup=False, soft_wrap=True)
        if table.columns_left:
            out.print(
                f"    columns that were added stay: {', '.join(table.columns_left)}", markup=False, soft_wrap=True
            )
    if plan.later:
        out.print("later writes that depend on it" + (", taken back too:" if plan.with_later else ":"))
    for write in plan.later[:_LISTED]:
        who = f"{write.asset}{f' ({write.partitions})' if write.partitions else ''} " if write.asset else ""
        what = f"{write.table} snapshot {write.snapshot_id} of {moment_text(write.committed_at)} UTC"
        out.print(f"  {who}{what}: {write.reason}", markup=False, soft_wrap=True)
    if len(plan.later) > _LISTED:
        out.print(f"  and {len(plan.later) - _LISTED} more")


def _effect(table: RestoredTable) -> str:
    from floe_core.formatting import counted

    removed = "rows" if table.rows_removed is None else counted(table.rows_removed, "row")
    restored = "rows" if table.rows_restored is None else counted(table.rows_restored, "row")
    if table.how == "emptied":
        return f"takes out its {removed}; the run created the table, which counts as absent afterwards"
    if table.how == "rewritten":
        out = f"takes out {removed} that the run wrote" if table.rows_removed != 0 else ""
        back = f"puts back {restored} that the run replaced" if table.rows_restored != 0 else ""
        return f"{' and '.join(filter(None, (out, back))) or 'changes no row'}; later writes of other rows stay"
    if table.how == "restored":
        return f"from snapshot {table.head} to {table.to}, from {removed} to {restored}"
    return f"back to snapshot {table.to}, from {removed} to {restored}"
