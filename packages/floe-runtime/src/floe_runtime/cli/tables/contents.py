"""floe tables files and floe tables partitions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from floe_runtime.cli.common import console, document, print_json, project_options, table_argument
from floe_runtime.cli.tables.history import limit_option, print_more, shown_limit
from floe_runtime.cli.tables.opened import open_tables

if TYPE_CHECKING:
    from floe_iceberg.inspection import FileEntry

__all__ = ["files", "partitions"]

snapshot_option = click.option("--snapshot", metavar="SNAPSHOT", help="Of this snapshot; by default the current one.")


@click.command()
@table_argument
@snapshot_option
@limit_option
@project_options
def files(
    table: str, snapshot: str | None, limit: int | None, project: Path | None, environment: str | None, as_json: bool
) -> None:
    """Show the data and delete files of a table with their partition, rows and size."""
    from floe_core.formatting import human_bytes
    from floe_iceberg.inspection import partition_text
    from floe_runtime.console import fitted_table

    with open_tables(table, project, environment) as (_artifacts, tables):
        listing = tables.list_files(table, snapshot=snapshot, limit=shown_limit(limit, as_json=as_json))
        location = tables.describe(table).location
    if as_json:
        print_json({"ok": True, "table": table, "location": location, **document(listing)})
        return
    if not listing.files:
        click.echo(f"{table} has no files")
        return
    out = console()
    shown = listing.files
    columns = {"file": [_inside(file, location) for file in shown]}
    if any(file.content != "data" for file in shown):
        columns["content"] = [file.content for file in shown]
    if any(file.partition for file in shown):
        columns["partition"] = [partition_text(file.partition) for file in shown]
    columns["rows"] = [f"{file.rows:,}" for file in shown]
    columns["size"] = [human_bytes(file.bytes) for file in shown]
    # Most writers name the partition in the path.
    optional = [name for name in ("partition",) if name in columns]
    out.print(fitted_table(columns, out, numbers=("rows", "size"), optional=optional))
    out.print(f"below {location}", soft_wrap=True, markup=False)
    print_more(out, listing.total - len(shown), "file")


def _inside(file: FileEntry, location: str) -> str:
    """The path below the location of the table; the address of a file elsewhere."""
    from floe_iceberg.files import canonical

    path, folder = canonical(file.path), f"{canonical(location)}/"  # engines write one address in different ways
    return path.removeprefix(folder) if path.startswith(folder) else file.path


@click.command()
@table_argument
@snapshot_option
@limit_option
@project_options
def partitions(
    table: str, snapshot: str | None, limit: int | None, project: Path | None, environment: str | None, as_json: bool
) -> None:
    """Show the partitions of a table with their rows, files, size and last change; times are in UTC.

    The last change is when the newest file of the partition was added. Delete files are not subtracted from the rows.
    """
    from floe_core.formatting import human_bytes, moment_text
    from floe_iceberg.inspection import partition_text
    from floe_runtime.console import fitted_table

    with open_tables(table, project, environment) as (_artifacts, tables):
        found = tables.list_partitions(table, snapshot=snapshot)
    shown = found[: shown_limit(limit, as_json=as_json)]
    if as_json:
        print_json({"ok": True, "table": table, "partitions": document(shown), "total": len(found)})
        return
    if not found:
        click.echo(f"{table} has no files, so it has no partitions")
        return
    out = console()
    columns = {
        "partition": [partition_text(one.partition) for one in shown],
        "rows": [f"{one.rows:,}" for one in shown],
        "files": [f"{one.files:,}" for one in shown],
        "deletes": [f"{one.delete_files:,}" for one in shown],
        "size": [human_bytes(one.bytes) for one in shown],
        "last change": [moment_text(one.last_change) for one in shown],
    }
    if not any(one.delete_files for one in found):
        del columns["deletes"]
    out.print(fitted_table(columns, out, numbers=columns.keys() - {"partition"}, optional=("size", "files")))
    print_more(out, len(found) - len(shown), "partition")
