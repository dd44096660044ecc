"""floe tables list."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from floe_runtime.cli.common import console, document, print_error, print_json, project_options
from floe_runtime.cli.tables.opened import open_catalog

if TYPE_CHECKING:
    from rich.console import Console

    from floe_core.identifiers import TableIdentifier
    from floe_iceberg import IcebergTableManager
    from floe_iceberg.inspection import TableSummary

__all__ = ["list_"]


@click.command("list")
@click.option("--namespace", metavar="NAME", help="Only the tables in this namespace and below.")
@click.option("--names", "only_names", is_flag=True, help="Only the names; no table is loaded.")
@project_options
def list_(
    namespace: str | None, only_names: bool, project: Path | None, environment: str | None, as_json: bool
) -> None:
    """List tables with their rows, size and last change, from their metadata."""
    from floe_iceberg.inspection import summarize_each

    out = console(quiet=as_json)
    with open_catalog(project, environment) as (_artifacts, tables):
        with out.status("listing tables"):
            found = _found(tables, namespace)
        if only_names:
            _print_names(found, namespace, as_json=as_json)
            return
        with _counting(out, len(found)) as step:
            summaries, failures = summarize_each(tables.summarize, found, step)
    if as_json:
        print_json(
            {
                "ok": not failures,
                "error": f"{', '.join(failures)} cannot be read" if failures else None,
                "tables": document(summaries),
                "unread": [{"table": name, "error": reason} for name, reason in failures.items()],
            }
        )
    else:
        if summaries or not failures:
            _print(out, summaries, namespace)
        for name, reason in failures.items():
            print_error(f"{name}: {reason}")
    raise click.exceptions.Exit(1 if failures else 0)


def _found(tables: IcebergTableManager, namespace: str | None) -> list[TableIdentifier]:
    from floe_core.errors import NamespaceNotFoundError
    from floe_iceberg.inspection import similar

    try:
        return tables.find_tables(namespace)
    except NamespaceNotFoundError as exc:
        near = similar(str(namespace), [str(name) for name in tables.list_namespaces(recursive=True)])
        hint = f"Did you mean {' or '.join(near)}?" if near else "List them with: floe namespaces list"
        raise NamespaceNotFoundError(f"namespace '{namespace}' not found in the catalog. {hint}") from exc


@contextmanager
def _counting(out: Console, total: int) -> Iterator[Callable[[], None]]:
    """Show how many tables have been read, on a terminal."""
    from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

    columns = (SpinnerColumn(), MofNCompleteColumn(), TextColumn("tables read"))
    with Progress(*columns, console=out, transient=True, disable=not out.is_terminal) as progress:
        task = progress.add_task("", total=total)
        yield lambda: progress.advance(task)


def _print_names(found: Sequence[TableIdentifier], namespace: str | None, *, as_json: bool) -> None:
    if as_json:
        print_json({"ok": True, "tables": [str(name) for name in found]})
    elif found:
        click.echo("\n".join(map(str, found)))
    else:
        click.echo(_nothing(namespace), err=True)  # standard output holds names only


def _print(out: Console, summaries: Sequence[TableSummary], namespace: str | None) -> None:
    from floe_core.formatting import counted
    from floe_iceberg.inspection import rows_text, size_text
    from floe_runtime.console import age, fitted_table

    if not summaries:
        click.echo(_nothing(namespace))
        return
    columns = {
        "table": [summary.table for summary in summaries],
        "rows": [rows_text(summary) for summary in summaries],
        "files": ["-" if summary.files is None else f"{summary.files:,}" for summary in summaries],
        "size": [size_text(summary.bytes) for summary in summaries],
        "last change": [age(summary.last_change) for summary in summaries],
    }
    numbers = columns.keys() - {"table"}
    out.print(fitted_table(columns, out, numbers=numbers, optional=("files", "size", "last change")))
    click.echo(counted(len(summaries), "table"))


def _nothing(namespace: str | None) -> str:
    if namespace is not None:
        return f"no tables in {namespace} yet"
    return "no tables yet: materialize the assets of the project with floe run, or see floe tables register --help"
