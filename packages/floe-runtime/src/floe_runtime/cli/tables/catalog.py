"""floe tables drop, rename and register."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from floe_runtime.cli.common import (
    confirm,
    consent,
    console,
    options_here,
    print_json,
    print_warning,
    project_options,
    table_argument,
    yes_option,
)
from floe_runtime.cli.tables.opened import open_tables

if TYPE_CHECKING:
    from floe_core.maintenance import KeptFile
    from floe_iceberg import IcebergTableManager
    from floe_iceberg.files import Purge
    from floe_iceberg.inspection import TableDescription

__all__ = ["drop", "register", "rename"]


@click.command()
@table_argument
@click.option("--purge", is_flag=True, help="Also delete the files of the table; this cannot be undone.")
@yes_option
@project_options
def drop(table: str, purge: bool, yes: bool, project: Path | None, environment: str | None, as_json: bool) -> None:
    """Drop a table from the catalog; its files stay, unless --purge is given.

    In a terminal it asks for the name of the table; elsewhere it needs --yes. --purge deletes the files that belong to
    the table alone: below its own location, in the warehouse or an owned location, and used by no other table. All
    others stay, and are listed.
    """
    from floe_iceberg.arguments import identifier_of

    with open_tables(table, project, environment) as (artifacts, tables):
        name = str(identifier_of(table))
        described = _described(tables, name, purge=purge)
        planned = tables.plan_purge(name) if purge else None
        if not yes and not as_json:
            click.echo(_about(name, described, planned), err=True)
        confirm(artifacts, yes, _action(name, planned), as_json=as_json, typed=name)
        location = described.location if described else None
        metadata = described.metadata_location if described else None
        kept = tables.drop_table(name, purge=purge, expected_metadata=metadata, log_kept=False)
    if as_json:
        where = {"location": location, "metadata_location": metadata}
        print_json(
            {"ok": True, "table": name, "purged": purge, **where, "not_removed": [file.model_dump() for file in kept]}
        )
        return
    referenced = len(planned.files) + len(planned.kept) if planned is not None else 0
    click.echo(
        f"dropped table {name}" + (f" and deleted {_deleted(referenced - len(kept), len(kept))}" if purge else "")
    )
    if metadata and not purge:
        here = options_here(project, environment)
        click.echo(f"its files stay at {location}; to bring it back:")
        click.echo(f"  floe tables register {name} {shlex.quote(metadata)}{here}")
    _print_kept(kept)


def _action(name: str, planned: Purge | None) -> str:
    if planned is None:
        return f"drop table '{name}'"
    return f"drop table '{name}' and delete {_deleted(len(planned.files), len(planned.kept))}"


def _deleted(deleted: int, kept: int) -> str:
    """How many of the files of a table are deleted with it, and how many stay."""
    from floe_core.formatting import counted

    if not kept:
        return f"its {counted(deleted, 'file')}"
    return f"{f'{deleted:,}' if deleted else 'none'} of its {counted(deleted + kept, 'file')}"


def _print_kept(kept: Sequence[KeptFile]) -> None:
    """One line per reason, with the number of files and one of them."""
    from floe_core.formatting import counted
    from floe_core.security import redact

    by_reason: dict[str, list[str]] = {}
    for file in kept:
        by_reason.setdefault(file.reason, []).append(file.path)
    for reason, paths in by_reason.items():
        such = "" if len(paths) == 1 else "such as "
        text = f"not deleted: {counted(len(paths), 'file')}, {such}{paths[0]}: {reason}"
        console().print(redact(text), markup=False, soft_wrap=True)
    if len(kept) > len(by_reason):
        click.echo("--json lists every file that was not deleted")


def _described(tables: IcebergTableManager, name: str, *, purge: bool) -> TableDescription | None:
    """The table; None if its metadata cannot be read, which is no reason to keep its name in the catalog."""
    from floe_core.errors import DamagedFileError, FloeStorageError

    try:
        return tables.describe(name)
    except FloeStorageError as exc:
        if purge or type(exc) not in (FloeStorageError, DamagedFileError):
            raise
        print_warning(str(exc))
        return None


def _about(name: str, described: TableDescription | None, planned: Purge | None) -> str:
    from floe_core.formatting import counted
    from floe_iceberg.inspection import rows_text, size_text

    if described is None:
        return f"{name}: its metadata cannot be read; its files stay where they are"
    summary = described.summary
    files = "its files stay"
    if planned is not None:
        stay = f", {len(planned.kept):,} stay" if planned.kept else ""
        files = f"{counted(len(planned.files), 'file')} would be deleted{stay}"
    return f"{name}: rows {rows_text(summary)}, {size_text(summary.bytes)}, at {described.location}; {files}"


@click.command()
@table_argument
@click.argument("to", metavar="NEW_NAMESPACE.NEW_TABLE")
@click.option("--yes", is_flag=True, help="Consent where the environment is protected.")
@project_options
def rename(table: str, to: str, yes: bool, project: Path | None, environment: str | None, as_json: bool) -> None:
    """Rename a table; its files, history and tags stay as they are."""
    from floe_iceberg.arguments import identifier_of

    with open_tables(table, project, environment) as (artifacts, tables):
        names = identifier_of(table), identifier_of(to)
        tables.summarize(table)  # a mistyped name is reported first
        consent(artifacts, yes, f"to rename table '{names[0]}'")
        renamed = tables.rename_table(*names)
    if as_json:
        print_json({"ok": True, "table": str(names[0]), "renamed_to": str(names[1]), "location": renamed.location()})
        return
    click.echo(f"renamed table {names[0]} to {names[1]}")
    click.echo(f"an asset that is stored in {names[0]} creates a new table there at its next run: rename it as well")


@click.command()
@table_argument
@click.argument("metadata_file", metavar="METADATA_FILE")
@project_options
def register(table: str, metadata_file: str, project: Path | None, environment: str | None, as_json: bool) -> None:
    """Register a table whose files exist, from its newest METADATA_FILE.

    METADATA_FILE is the full address of a file such as .../metadata/00003-....metadata.json, or a path on this machine.
    A table that is registered under two names diverges: each continues with commits of its own.
    """
    from floe_core.errors import ConfigurationError
    from floe_iceberg.inspection import rows_text

    local = Path(metadata_file.removeprefix("file://"))
    is_path = re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", metadata_file) is None
    if is_path and not local.is_file():
        raise ConfigurationError(f"there is no file {local}; give the newest metadata file of a table")
    # Not Path.as_uri(): both engines keep spaces and other characters as they are.
    address = f"file://{local.resolve()}" if is_path else metadata_file
    with open_tables(table, project, environment) as (_artifacts, tables):
        registered = tables.register_table(table, address)
        summary = tables.summarize(table)
    if local.is_file() and (newer := _newer(local)):
        print_warning(f"{newer} is newer than {local.name}: commits since then are not in the registered table")
    if as_json:
        location = {"location": registered.location(), "metadata_location": registered.metadata_location}
        print_json({"ok": True, "table": summary.table, **location, "rows": summary.rows})
    else:
        click.echo(f"registered table {summary.table}: rows {rows_text(summary)}, at {registered.location()}")


def _newer(metadata_file: Path) -> str | None:
    """The newest metadata file beside this one, by the number that its name begins with; None if it is this one."""
    numbered = [
        (int(match[0]), path.name) for path in metadata_file.parent.glob("*.metadata.json") if (match := _number(path))
    ]
    number = _number(metadata_file)
    newest = max(numbered, default=None)
    return newest[1] if number and newest and newest[0] > int(number[0]) else None


def _number(path: Path) -> re.Match[str] | None:
    return re.match(r"\d+(?=-)", path.name)
