"""floe tables diff."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from floe_runtime.cli.common import (
    console,
    document,
    only_json,
    plain_warnings,
    print_json,
    print_warning,
    project_options,
    table_argument,
)
from floe_runtime.cli.tables.history import limit_option, print_more, shown_limit
from floe_runtime.cli.tables.opened import open_tables

if TYPE_CHECKING:
    from rich.console import Console

    from floe_core.config import CompiledArtifacts
    from floe_iceberg import IcebergTableManager
    from floe_iceberg.comparison import TableComparison
    from floe_iceberg.inspection import Commit, SnapshotDiff

__all__ = ["diff"]


@click.command()
@table_argument
@click.option("--from", "start", metavar="SNAPSHOT", required=True, help="The snapshot to compare with.")
@click.option("--to", "end", metavar="SNAPSHOT", help="The snapshot that is compared; by default the current one.")
@limit_option
@click.option("--rows", "by_rows", is_flag=True, help="Compare rows, by reading the files that differ.")
@click.option("--key", "keys", multiple=True, metavar="COLUMN", help="With --rows: identifies a row; may be repeated.")
@click.option(
    "--max-rows",
    type=click.IntRange(min=1),
    help="With --rows: compare a sample if the files that differ have more rows; by default 10,000,000.",
)
@click.option("--markdown", is_flag=True, help="With --rows: print Markdown, for a pull request.")
@project_options
def diff(
    table: str,
    start: str,
    end: str | None,
    limit: int | None,
    by_rows: bool,
    keys: tuple[str, ...],
    max_rows: int | None,
    markdown: bool,
    project: Path | None,
    environment: str | None,
    as_json: bool,
) -> None:
    """Show how two snapshots of a table differ: columns, and files by partition with their rows.

    Files are compared, not rows. A file that was rewritten, as by compaction or an update of one of its rows, counts as
    removed and added with all its rows. Delete files are counted; the rows that they delete are not subtracted.

    With --rows, the rows of the files that differ are read and compared, without Spark: those added, removed and, if
    --key names the columns that identify a row, changed, with examples. Sensitive columns of assets are not shown.
    """
    _refuse_options(by_rows, {"--key": keys, "--max-rows": max_rows, "--markdown": markdown}, limit)
    if markdown and as_json:
        raise click.UsageError("--markdown and --json are mutually exclusive.")
    with open_tables(table, project, environment) as (artifacts, tables):
        if by_rows:
            _print_rows(_compared(artifacts, tables, table, start, end, keys, max_rows, as_json), as_json, markdown)
            return
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


def _refuse_options(by_rows: bool, of_rows: Mapping[str, object], limit: int | None) -> None:
    given = [name for name, value in of_rows.items() if value]
    if given and not by_rows:
        raise click.UsageError(f"{given[0]} is for comparing rows: add --rows.")
    if by_rows and limit is not None:
        raise click.UsageError("--limit is for partitions of files; --rows shows a few examples.")


def _compared(
    artifacts: CompiledArtifacts,
    tables: IcebergTableManager,
    table: str,
    start: str,
    end: str | None,
    keys: tuple[str, ...],
    max_rows: int | None,
    as_json: bool,
) -> TableComparison:
    from floe_core.identifiers import TableIdentifier
    from floe_iceberg import Lake
    from floe_runtime.declared_tables import DeclaredTable, declared_tables

    name = TableIdentifier.from_string(table).full_name
    _ = tables.find_snapshot(name, start)  # a mistake is reported before the definitions are loaded
    with only_json(as_json=True), plain_warnings(artifacts.root, quiet=as_json):
        declared = declared_tables(artifacts)
    if declared is None:
        print_warning(
            "the definitions of the project cannot be loaded, so its sensitive columns are unknown: no examples are "
            "shown; floe plan says what is wrong"
        )
    known = (declared or {}).get(name, DeclaredTable())
    options = {} if max_rows is None else {"max_rows": max_rows}
    return Lake.of_tables(artifacts, tables).compare(
        name,
        before=start,
        after=end,
        keys=list(keys or known.keys) or None,
        examples=5 if declared is not None else 0,
        hidden=known.hidden,
        **options,
    )


def _print_rows(found: TableComparison, as_json: bool, markdown: bool) -> None:
    from floe_runtime.cli.branches.diff_markdown import markdown_lines
    from floe_runtime.console.row_differences import print_differences

    if as_json:
        print_json({"ok": True, **document(found)})
    elif markdown:
        for line in markdown_lines([found], f"floe tables diff: {found.table}"):
            click.echo(line)
    else:
        print_differences(console(), [found])


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
