"""The history of a table: each snapshot with its time, its counts, and the write that committed it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import ClassVar

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from floe_iceberg.snapshots import ASSET, PARTITION, RUN_ID, WRITE_ID, ancestors_of

__all__ = ["Commit", "commit_of", "history", "refs_by_snapshot"]


@dataclass(frozen=True)
class Commit:
    """One snapshot of a table. Counts are those of its summary; None where its writer did not record them.

    Attributes:
        snapshot_id: The id of the snapshot.
        parent_snapshot_id: The snapshot that it was committed on; None for the first.
        committed_at: The time of the commit, by the clock of its writer.
        operation: append, overwrite, delete or replace, as Iceberg records it.
        rows_added: The rows in the data files that it added.
        rows_deleted: The rows in the data files that it removed.
        row_deletes: The deletes that it added in delete files.
        files_added: The data files that it added.
        files_removed: The data files that it removed.
        total_rows: The rows in all data files of the snapshot; delete files are not subtracted.
        on_main: Whether it leads to the head of main. A rolled-back snapshot and one of another branch do not.
        refs: The branches and tags that point to it.
        run_id: The Dagster run that wrote it.
        asset: The asset that it materialized.
        partition: The partitions that it materialized.
        write_id: The identity of the write.
    """

    notebook_fields: ClassVar = (
        "committed_at",
        "snapshot_id",
        "operation",
        "rows_added",
        "rows_deleted",
        "row_deletes",
        "total_rows",
        "on_main",
        "refs",
        "asset",
        "partition",
    )

    snapshot_id: int
    parent_snapshot_id: int | None
    committed_at: datetime
    operation: str
    rows_added: int | None
    rows_deleted: int | None
    row_deletes: int
    files_added: int | None
    files_removed: int | None
    total_rows: int | None
    on_main: bool
    refs: tuple[str, ...] = ()
    run_id: str | None = None
    asset: str | None = None
    partition: str | None = None
    write_id: str | None = None


def history(table: Table) -> list[Commit]:
    """The snapshots of a table, newest first, those of other branches and rolled-back ones included."""
    main = {snapshot.snapshot_id for snapshot in ancestors_of(table.current_snapshot(), table.metadata)}
    refs = refs_by_snapshot(table)
    commits = [
        commit_of(snapshot, on_main=snapshot.snapshot_id in main, refs=refs.get(snapshot.snapshot_id, ()))
        for snapshot in table.metadata.snapshots
    ]
    # By sequence, because clocks differ. Format version 1 has none, but lists snapshots in the order of their commits.
    order = {
        snapshot.snapshot_id: (snapshot.sequence_number or 0, place)
        for place, snapshot in enumerate(table.metadata.snapshots)
    }
    return sorted(commits, key=lambda commit: order[commit.snapshot_id], reverse=True)


def refs_by_snapshot(table: Table) -> dict[int, tuple[str, ...]]:
    """The names of the branches and tags at each snapshot."""
    names: dict[int, list[str]] = defaultdict(list)
    for name, ref in table.metadata.refs.items():
        names[ref.snapshot_id].append(name)
    return {snapshot_id: tuple(sorted(found)) for snapshot_id, found in names.items()}


def commit_of(snapshot: Snapshot, *, on_main: bool = True, refs: tuple[str, ...] = ()) -> Commit:
    """A snapshot as its summary describes it."""
    summary = dict(snapshot.summary.additional_properties) if snapshot.summary else {}
    # Writers leave out what is zero; a summary without any total counts nothing.
    counted = any(key in summary for key in ("total-records", "added-records", "deleted-records"))

    def count(key: str) -> int | None:
        text = summary.get(key, "0" if counted else "")
        return int(text) if text.isdecimal() else None

    deletes = [count(key) or 0 for key in ("added-position-deletes", "added-equality-deletes")]
    return Commit(
        snapshot_id=snapshot.snapshot_id,
        parent_snapshot_id=snapshot.parent_snapshot_id,
        committed_at=datetime.fromtimestamp(snapshot.timestamp_ms / 1000, timezone.utc),
        operation=snapshot.summary.operation.value if snapshot.summary else "unknown",
        rows_added=count("added-records"),
        rows_deleted=count("deleted-records"),
        row_deletes=sum(deletes),
        files_added=count("added-data-files"),
        files_removed=count("deleted-data-files"),
        total_rows=count("total-records"),
        on_main=on_main,
        refs=refs,
        run_id=summary.get(RUN_ID),
        asset=summary.get(ASSET),
        partition=summary.get(PARTITION),
        write_id=summary.get(WRITE_ID),
    )
