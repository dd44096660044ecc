"""floe move."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from floe_runtime.cli.common import (
    RefusedError,
    compile_here,
    confirm,
    console,
    document,
    observe,
    options_here,
    print_error,
    print_json,
    print_warning,
    project_options,
    yes_option,
)

if TYPE_CHECKING:
    from rich.console import Console

    from floe_iceberg import IcebergTableManager
    from floe_iceberg.relocation import MovePlan, TableMove

__all__ = ["move"]

_NAMED = 5  # tables that are named for one reason


@click.command()
@click.option("--copy", "is_copy", is_flag=True, help="This lake is a copy, and its original stays in use.")
@yes_option
@project_options
def move(is_copy: bool, yes: bool, project: Path | None, environment: str | None, as_json: bool) -> None:
    """Rewrite the paths in the tables of a lake whose folder was moved.

    Iceberg records absolute paths, so a table cannot be read where its files are now. Run this in the new place, on a
    lake of local files with the SQLite catalog: it shows what it would rewrite, checks that every file that the tables
    reference is there, and asks. Without a terminal it changes nothing unless --yes is given.

    Data files are not touched, and history, tags and branches are kept. Each table is switched by one update of the
    catalog: after an interruption, run it again.

    A copy of a lake whose original is still there is refused, unless --copy is given: then the copy gets paths of its
    own, and the original is not touched.
    """
    from floe_iceberg import IcebergTableManager
    from floe_iceberg.relocation import plan_moves

    out = console(quiet=as_json)
    artifacts = compile_here(project, environment)
    observe(artifacts)
    tables = IcebergTableManager.open(artifacts)
    with out.status("checking the files of all tables"):
        plan = plan_moves(tables, copy=is_copy)
    if plan.not_embedded is not None:
        raise RefusedError(f"nothing was changed: {plan.not_embedded}")
    if not as_json:
        _print_plan(out, plan)
    pending = len(plan.moves) + len(plan.namespaces)
    execute = bool(pending) and (yes or (sys.stdin.isatty() and not as_json))
    if execute:
        confirm(artifacts, yes, _action(plan), as_json=as_json)
    failed = _execute(out, tables, plan, is_copy) if execute else {}
    if as_json:
        moved = [planned.table for planned in plan.moves if execute and planned.table not in failed]
        ok = not plan.refused and not failed
        print_json({"ok": ok, "executed": execute, "moved": moved, "failed": failed, **_document(plan)})
    else:
        here = options_here(project, environment)
        _print_result(plan, execute, failed, again=f"{' --copy' if is_copy else ''} --yes{here}", here=here)
    if failed or plan.refused:
        raise click.exceptions.Exit(1 if failed else 3)


def _action(plan: MovePlan) -> str:
    from floe_core.formatting import counted

    return f"rewrite the paths of {counted(len(plan.moves), 'table')}"


def _execute(out: Console, tables: IcebergTableManager, plan: MovePlan, is_copy: bool) -> dict[str, str]:
    """Rewrite namespaces, then tables; returns the errors. One table that fails does not stop the others."""
    from floe_iceberg.relocation import move_namespace

    for namespace in plan.namespaces:  # before the tables: these show what the old folder was
        move_namespace(tables, namespace)
    failed = {planned.table: _error(out, tables, planned, is_copy) for planned in plan.moves}
    return {table: error for table, error in failed.items() if error is not None}


def _error(out: Console, tables: IcebergTableManager, planned: TableMove, is_copy: bool) -> str | None:
    """Rewrite one table; returns the error, if there is one."""
    from floe_core.errors import FloeError
    from floe_core.security import redact
    from floe_iceberg.relocation import move_table

    try:
        with out.status(f"rewriting the paths of {planned.table}"):
            move_table(tables, planned, copy=is_copy)
    except FloeError as exc:
        return redact(str(exc))
    return None


def _document(plan: MovePlan) -> dict[str, Any]:
    described: dict[str, Any] = document(plan)
    del described["not_embedded"]
    return {"old_folders": list(plan.old_folders), **described}


def _print_plan(out: Console, plan: MovePlan) -> None:
    from floe_core.formatting import counted, human_bytes
    from floe_runtime.console import fitted_table

    for folder in plan.old_folders:
        out.print(f"moved from {folder}", markup=False, soft_wrap=True)
    if plan.moves:
        out.print(f"moved to   {plan.warehouse}", markup=False, soft_wrap=True)
        columns = {
            "table": [planned.table for planned in plan.moves],
            "snapshots": [f"{planned.snapshots:,}" for planned in plan.moves],
            "data files": [f"{planned.files:,}" for planned in plan.moves],
            "to write": [f"{planned.written:,}" for planned in plan.moves],
            "bytes": [human_bytes(planned.bytes) for planned in plan.moves],
        }
        numbers = columns.keys() - {"table"}
        out.print(fitted_table(columns, out, numbers=numbers, optional=("bytes", "snapshots")))
        out.print("every file is there; data files stay as they are, metadata is written beside the old", markup=False)
    for planned in plan.moves:
        if planned.outside:
            files = counted(planned.outside, "file")
            out.print(f"{planned.table} references {files} in other folders, which stay as they are", markup=False)
    for namespace in plan.namespaces:
        out.print(f"namespace {namespace.namespace}: {namespace.key} becomes {namespace.new}", markup=False)
    for table, place in plan.elsewhere.items():
        out.print(f"{table} is in another folder, and stays as it is: {place}", markup=False, soft_wrap=True)
    for name, count in plan.others.items():
        print_warning(
            f"catalog {name!r} in the same database has {counted(count, 'table')} that moved: set name: {name} under "
            f"catalog: in floe.yaml to rewrite them"
        )
    _print_refusals(plan)


def _print_refusals(plan: MovePlan) -> None:
    """One line per reason, with the tables that it applies to."""
    from floe_core.formatting import counted

    by_reason: dict[str, list[str]] = {}
    for refused in plan.refused:
        for reason in refused.reasons:
            by_reason.setdefault(reason, []).append(refused.table)
    for reason, names in by_reason.items():
        more = [counted(len(names) - _NAMED, "more table")] if len(names) > _NAMED else []
        print_error(f"not rewritten: {', '.join([*names[:_NAMED], *more])}: {reason}")


def _print_result(plan: MovePlan, execute: bool, failed: dict[str, str], *, again: str, here: str) -> None:
    """What was done, or how to do it.

    Args:
        again: The options of the command that does what was planned.
        here: The options of other commands on this project.
    """
    from floe_core.formatting import counted
    from floe_runtime.console import command_name

    for message in failed.values():
        print_error(message)
    done = len(plan.moves) - len(failed)
    if execute:
        click.echo(
            f"rewrote the paths of {counted(done, 'table')}; the old metadata stays until maintenance removes it"
        )
        click.echo(f"check the lake with: {command_name()} doctor{here}")
    elif plan.moves or plan.namespaces:
        click.echo(f"nothing was changed: to {_action(plan)}, run: {command_name()} move{again}")
    elif not plan.refused:
        verb = "is" if plan.in_place == 1 else "are"
        where = f"{counted(plan.in_place, 'table')} {verb} where the catalog says" if plan.in_place else "no tables yet"
        click.echo(f"nothing to rewrite: {where}")
