"""The rows that checks look at: a table at a snapshot, or the partitions of a run in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from floe_core.identifiers import TableIdentifier, TableSlice
from floe_iceberg.expressions import slice_filter
from floe_iceberg.snapshots import ancestors_of, is_rewrite, snapshot_info

__all__ = ["CheckedRows"]


@dataclass(frozen=True)
class CheckedRows:
    """A table at a snapshot, and the slice of it that is checked.

    Args:
        identifier: The table.
        table: The table, loaded.
        snapshot_id: The snapshot; None for a table that has none.
        within: The slice. None is the whole table.
        parts: The slice of each partition, by its key.
        earlier: The partitions before these, the latest first: what row counts are compared with.
    """

    identifier: TableIdentifier
    table: Table
    snapshot_id: int | None
    within: TableSlice | None = None
    parts: Mapping[str, TableSlice] = field(default_factory=dict)
    earlier: Sequence[TableSlice] = ()

    @property
    def schema(self) -> Schema:
        """The columns of the table at the snapshot, which are those that queries of it have."""
        snapshot = None if self.snapshot_id is None else self.table.snapshot_by_id(self.snapshot_id)
        if snapshot is None or snapshot.schema_id is None:
            return self.table.schema()
        return self.table.schemas().get(snapshot.schema_id, self.table.schema())

    def whole(self) -> CheckedRows:
        """The whole table at the same snapshot."""
        return replace(self, within=None, parts={}, earlier=())

    def count(self, within: TableSlice | None) -> int | None:
        """The rows of a slice by metadata; None if only the files themselves know, because they hold other rows too."""
        if self.snapshot_id is None:
            return 0
        snapshot = self.table.snapshot_by_id(self.snapshot_id)
        if within is None and snapshot is not None:
            summary = snapshot_info(snapshot).summary
            total, deletes = summary.get("total-records", ""), summary.get("total-delete-files", "")
            if total.isdecimal() and deletes == "0":
                return int(total)
        condition = AlwaysTrue() if within is None else slice_filter(within, self.schema)
        tasks = list(self.table.scan(row_filter=condition, snapshot_id=self.snapshot_id).plan_files())
        if any(task.delete_files or not isinstance(task.residual, AlwaysTrue) for task in tasks):
            return None
        return sum(task.file.record_count for task in tasks)

    def earlier_counts(self, limit: int) -> list[int]:
        """The rows of earlier partitions, or of earlier states of the table; the latest first."""
        if self.within is not None:
            found = (self.count(one) for one in self.earlier[:limit])
            return [count for count in found if count]
        head = None if self.snapshot_id is None else self.table.snapshot_by_id(self.snapshot_id)
        totals: list[int] = []
        for snapshot in list(ancestors_of(head, self.table.metadata))[1:]:
            if len(totals) == limit:
                break
            summary = snapshot_info(snapshot).summary
            total = summary.get("total-records", "")
            # Deleted rows are still in `total-records`, and a compaction is no state of its own.
            counts = summary.get("total-delete-files", "0") == "0" and not is_rewrite(snapshot)
            if counts and total.isdecimal() and int(total) > 0:
                totals.append(int(total))
        return totals
