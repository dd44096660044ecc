"""floe tables show."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from floe_runtime.cli.common import console, document, print_json, project_options, table_argument
from floe_runtime.cli.tables.opened import open_tables

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from floe_iceberg.inspection import TableDescription

__all__ = ["show"]


@click.command()
@table_argument
@project_options
def show(table: str, project: Path | None, environment: str | None, as_json: bool) -> None:
    """Show a table: columns, partitioning, sort order, properties, location, size, current snapshot, refs.

    Everything is from the metadata of the table; no data file is read.
    """
    from floe_core.security import masked

    with open_tables(table, project, environment) as (_artifacts, tables):
        described = tables.describe(table)
    properties = {key: str(masked(key, value)) for key, value in described.properties.items()}
    if as_json:
        shown = document(described)
        print_json({"ok": True, **shown.pop("summary"), **shown, "properties": properties})
        return
    out = console()
    _print_facts(out, described)
    _print_columns(out, described)
    _print_properties(out, properties, tables.config.table_properties)


def _print_facts(out: Console, described: TableDescription) -> None:
    from rich.table import Table

    from floe_iceberg.inspection import facts_of

    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, style="bold")
    grid.add_column(overflow="fold")
    for name, text in facts_of(described):
        grid.add_row(name, _plain(text))
    out.print(_plain(described.summary.table, "bold"))
    out.print(grid)


def _plain(text: str, style: str = "") -> Text:
    from rich.text import Text

    from floe_core.formatting import printable

    return Text(printable(text), style=style)


def _print_columns(out: Console, described: TableDescription) -> None:
    from floe_runtime.console import columns_table

    columns = {
        "column": [column.name for column in described.columns],
        "type": [column.type for column in described.columns],
        "nullable": ["no" if column.required else "yes" for column in described.columns],
    }
    if any(column.comment for column in described.columns):
        columns["comment"] = [column.comment or "" for column in described.columns]
    out.print(columns_table(columns))


def _print_properties(out: Console, properties: dict[str, str], given: dict[str, str]) -> None:
    """The properties that differ from those of every new table of the project."""
    from floe_core.formatting import counted
    from floe_runtime.console import columns_table

    own = {key: value for key, value in properties.items() if given.get(key) != value}
    if own:
        out.print(columns_table({"property": list(own), "value": list(own.values())}))
    if len(own) < len(properties):
        rest = counted(len(properties) - len(own), "more setting")
        out.print(f"and {rest}, as for every new table of the project; --json lists them")
