"""floe tables diff."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from floe_runtime.cli.common import console, document, print_json, project_options, table_argument
from floe_runtime.cli.tables.history import limit_option, print_more, shown_limit
from floe_runtime.cli.tables.opened import open_tables

if TYPE_CHECKING:
    from rich.console import Console

    from floe_iceberg.inspection import Commit, SnapshotDiff

__all__ = ["diff"]


@click.command()
@table_argument
@click.option("--from", "start", metavar="SNAPSHOT", required=True, help="The snapshot to compare with.")
@click.option("--to", "end", metavar="SNAPSHOT", help="The snapshot that is compared; by default the current one.")
@limit_option
@project_options
def diff(
    table: str,
    start: str,
    end: str | None,
    limit: int | None,
    project: Path | None,
    environment: str | None,
    as_json: bool,
) -> None:
    """Show how two snapshots of a table differ: columns, and files by partition with their rows.

    Files are compared, not rows. A file that was rewritten, as by compaction or an update of one of its rows, counts as
    removed and added with all its rows. Delete files are counted; the rows that they delete are not subtracted.
    """
    with open_tables(table, project, environment) as (_artifacts, tables):
        found = tables.compare_snapshots(table, start, end)
    if as_json:
        shown = replace(found, partitions=found.partitions[:limit])
        print_json({"ok": True, "table": table, **document(shown), "total": len(found.partitions)})
        return
    out = console()
    for side, commit in (("from", found.start), ("to", found.end)):
        out.print(f"{side:<5}{_commit(commit)}", markup=False)
    if found.commits is None:
        out.print("the first is not in the history of the second")
    _print_columns(out, found)
    _print_partitions(out, found, limit)


def _commit(commit: Commit) -> str:
    from floe_core.formatting import moment_text

    names = f" ({', '.join(commit.refs)})" if commit.refs else ""
    return f"{commit.snapshot_id}, {commit.operation} at {moment_text(commit.committed_at)} UTC{names}"


def _print_columns(out: Console, found: SnapshotDiff) -> None:
    from floe_runtime.console import columns_table

    if not found.columns:
        out.print("no column differs")
        return
    changes = found.columns
    columns = {
        "column": [change.column for change in changes],
        "change": [change.change for change in changes],
        "before": [change.before or "-" for change in changes],
        "after": [change.after or "-" for change in changes],
    }
    out.print(columns_table(columns))


def _print_partitions(out: Console, found: SnapshotDiff, limit: int | None) -> None:
    from floe_core.formatting import counted, human_bytes
    from floe_iceberg.inspection import partition_text
    from floe_runtime.console import fitted_table

    changes = found.partitions
    if not changes:
        out.print("no file differs")
        return
    shown = changes[: shown_limit(limit, as_json=False)]
    columns = {
        "partition": [partition_text(change.partition) for change in shown],
        "rows": [f"+{change.rows_added:,} -{change.rows_removed:,}" for change in shown],
        "files": [f"+{change.files_added:,} -{change.files_removed:,}" for change in shown],
        "delete files": [f"+{change.delete_files_added:,} -{change.delete_files_removed:,}" for change in shown],
        "size": [f"+{human_bytes(change.bytes_added)} -{human_bytes(change.bytes_removed)}" for change in shown],
    }
    if not any(change.delete_files_added or change.delete_files_removed for change in changes):
        del columns["delete files"]
    out.print(fitted_table(columns, out, numbers=columns.keys() - {"partition"}, optional=("size",)))
    print_more(out, len(changes) - len(shown), "partition")
    added, removed = sum(change.files_added for change in changes), sum(change.files_removed for change in changes)
    more, fewer = sum(change.rows_added for change in changes), sum(change.rows_removed for change in changes)
    out.print(
        f"{counted(added, 'data file')} added with {counted(more, 'row')}, "
        f"{counted(removed, 'data file')} removed with {counted(fewer, 'row')}; files are compared, not rows"
    )
