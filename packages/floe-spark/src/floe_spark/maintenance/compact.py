"""Compact: the same rows in fewer and larger files, with delete files applied."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot

from floe_core.config import CompactionStrategy
from floe_core.errors import ConfigurationError, FloeStorageError
from floe_core.identifiers import TableIdentifier, TableSlice
from floe_core.maintenance import CompactReport
from floe_core.observability import operation
from floe_iceberg.catalogs import refuse_commits_by_spark
from floe_iceberg.expressions import slice_filter
from floe_iceberg.schema import no_column
from floe_iceberg.snapshots import ancestors_of
from floe_spark.maintenance.calls import again_on_conflict, call, text_sql
from floe_spark.names import quoted
from floe_spark.reading.filters import filter_sql

if TYPE_CHECKING:
    from floe_iceberg.lake import Lake

__all__ = ["compact"]


def compact(
    lake: Lake,
    identifier: TableIdentifier,
    *,
    strategy: CompactionStrategy = CompactionStrategy.BIN_PACK,
    columns: Sequence[str] = (),
    slice: TableSlice | None = None,  # noqa: A002 - Iceberg's noun; the builtin is not needed here
    target_file_size: int | None = None,
    min_files: int = 5,
) -> CompactReport:
    """Merge small files, and rewrite files with deletes; commits of other writers are kept, or are a conflict."""
    began = time.perf_counter()
    with operation("iceberg.compact", table=str(identifier), strategy=strategy.value, slice=slice) as op:
        for attempt in again_on_conflict():
            with attempt:
                before = lake.tables.load_table(identifier)
                lake.tables.refuse_moved(before, identifier)
                refuse_commits_by_spark(before, identifier)
                arguments = _arguments(before, identifier, strategy, columns, slice, target_file_size, min_files)
                report = CompactReport(table=str(identifier), strategy=strategy)
                head = before.current_snapshot()
                if head is None:
                    return report
                (row,) = call(lake, "rewrite_data_files", identifier, arguments, small=False)
        after = lake.tables.load_table(identifier)
        made = _rewrites_since(after, head) if head is not None else []
        report = _checked(lake, identifier, made, row, report)
        op.set(files=report.files_rewritten, added=report.files_added, snapshot_id=report.snapshot_id)
        return report.model_copy(update={"seconds": time.perf_counter() - began})


def _arguments(
    table: Table,
    identifier: TableIdentifier,
    strategy: CompactionStrategy,
    columns: Sequence[str],
    slice: TableSlice | None,  # noqa: A002 - Iceberg's noun; the builtin is not needed here
    target_file_size: int | None,
    min_files: int,
) -> dict[str, str]:
    unknown = no_column(columns, table.schema())
    if unknown:
        raise ConfigurationError(f"columns: '{identifier}' has {unknown}. Nothing was compacted")
    if strategy is CompactionStrategy.BIN_PACK and columns:
        raise ConfigurationError("columns are for sort and zorder; binpack keeps the order of rows")
    if strategy is CompactionStrategy.Z_ORDER and not columns:
        raise ConfigurationError(f"zorder of '{identifier}' needs columns")
    if strategy is CompactionStrategy.SORT and not columns and table.sort_order().is_unsorted:
        raise ConfigurationError(
            f"'{identifier}' has no sort order, so sort needs columns: give them, or create the table with sort_by"
        )
    if target_file_size is not None and target_file_size <= 0:
        raise ConfigurationError(f"target_file_size is {target_file_size}; it must be more than 0 bytes")
    if min_files < 2:
        raise ConfigurationError(f"min_files is {min_files}; it must be at least 2: compaction merges files")
    options = {
        "min-input-files": str(min_files),
        # A file with any delete is rewritten; delete files that then apply to no file are removed too.
        "delete-file-threshold": "1",
        "remove-dangling-deletes": "true",
    }
    if target_file_size is not None:
        options["target-file-size-bytes"] = str(target_file_size)
    pairs = ", ".join(f"{text_sql(key)}, {text_sql(value)}" for key, value in options.items())
    arguments = {"options": f"map({pairs})"}
    names = ", ".join(quoted(column) for column in columns)
    if strategy is not CompactionStrategy.BIN_PACK:
        arguments["strategy"] = "'sort'"
    if strategy is CompactionStrategy.Z_ORDER:
        arguments["sort_order"] = text_sql(f"zorder({names})")
    elif columns:
        arguments["sort_order"] = text_sql(", ".join(f"{quoted(column)} ASC NULLS LAST" for column in columns))
    if slice is not None:
        arguments["where"] = text_sql(filter_sql(slice_filter(slice, table.schema()), table.schema()))
    return arguments


def _rewrites_since(table: Table, head: Snapshot) -> list[Snapshot]:
    """The rewrites on main since that snapshot, newest first."""
    made: list[Snapshot] = []
    for snapshot in ancestors_of(table.current_snapshot(), table.metadata):
        if snapshot.snapshot_id == head.snapshot_id:
            return made
        if snapshot.summary is not None and snapshot.summary.operation is Operation.REPLACE:
            made.append(snapshot)
    raise FloeStorageError(
        "the table was rolled back, or its history expired, while it was compacted; check its snapshots"
    )


def _checked(
    lake: Lake,
    identifier: TableIdentifier,
    made: Sequence[Snapshot],
    row: dict[str, int],
    report: CompactReport,
) -> CompactReport:
    rewritten, added = row["rewritten_data_files_count"], row["added_data_files_count"]
    if row["failed_data_files_count"]:
        raise FloeStorageError(
            f"compaction of '{identifier}' left {row['failed_data_files_count']} files as they were; Spark's log has "
            f"the reason. Nothing is lost: run it again"
        )
    if not rewritten:
        # Then only rewrites that applied deletes are ours; another engine may have compacted concurrently.
        made = [
            rewrite
            for rewrite in made
            if _count(rewrite, "removed-delete-files") and not _count(rewrite, "deleted-data-files")
        ]
        if not made:
            return report
    ours = [
        rewrite
        for rewrite in made
        if _count(rewrite, "deleted-data-files") == rewritten and _count(rewrite, "added-data-files") == added
    ]
    if rewritten and not ours:
        raise FloeStorageError(
            f"compaction reported {rewritten} files of '{identifier}' rewritten into {added}, but no snapshot of the "
            f"table shows it; concurrent maintenance may have undone it: run it again"
        )
    deletes = sum(_count(rewrite, "removed-delete-files") for rewrite in made)
    snapshot = ours[-1] if ours else made[-1]
    rows_before, rows_after = _count(snapshot, "deleted-records"), _count(snapshot, "added-records")
    if rewritten and rows_before != rows_after:
        rows_before, rows_after = _rows_around(lake, identifier, snapshot)
        if rows_before != rows_after:
            raise FloeStorageError(
                f"'{identifier}' has {rows_after} rows after compaction and had {rows_before} before; go back with "
                f"rollback_to_snapshot({snapshot.parent_snapshot_id})"
            )
    return report.model_copy(
        update={
            "snapshot_id": snapshot.snapshot_id,
            "files_rewritten": rewritten,
            "files_added": added,
            "bytes_rewritten": row["rewritten_bytes_count"],
            "bytes_added": _count(snapshot, "added-files-size"),
            "delete_files_folded": max(deletes, row.get("removed_delete_files_count", 0)),
            "rows": _count(snapshot, "added-records"),
        }
    )


def _rows_around(lake: Lake, identifier: TableIdentifier, snapshot: Snapshot) -> tuple[int, int]:
    """Rows before and after, counted by reads: with deletes applied, files hold fewer rows, but the table the same."""
    if snapshot.parent_snapshot_id is None:
        return 0, 0
    before = lake.read(identifier, snapshot_id=snapshot.parent_snapshot_id).count()
    return before, lake.read(identifier, snapshot_id=snapshot.snapshot_id).count()


def _count(snapshot: Snapshot, key: str) -> int:
    return int(snapshot.summary.additional_properties.get(key, "0")) if snapshot.summary else 0
