"""How two snapshots of a table differ, by their metadata: columns, and files by partition.

Files are compared, not rows: a file that was rewritten counts as removed and added, with all its rows. Delete files
are counted as files; the rows that they delete are not subtracted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from floe_core.notebooks import Listing, heading_html
from floe_iceberg.inspection.description import Column, columns_of
from floe_iceberg.inspection.files import Found, entries_of, partition_order, size_of
from floe_iceberg.inspection.history import Commit, commit_of, refs_by_snapshot
from floe_iceberg.snapshots import ancestors_of

__all__ = ["ColumnChange", "PartitionChange", "SnapshotDiff", "column_changes", "compare"]


@dataclass(frozen=True)
class ColumnChange:
    """A column that differs: added, dropped, renamed, type, nullability or comment."""

    change: str
    column: str
    before: str | None
    after: str | None


@dataclass(frozen=True)
class PartitionChange:
    """The files that only one of the snapshots has, in one partition."""

    partition: dict[str, str | None]
    rows_added: int
    rows_removed: int
    files_added: int
    files_removed: int
    delete_files_added: int
    delete_files_removed: int
    bytes_added: int
    bytes_removed: int


@dataclass(frozen=True)
class SnapshotDiff:
    """How the snapshot `end` differs from the snapshot `start`.

    Attributes:
        start: The snapshot to compare with.
        end: The snapshot that is compared.
        commits: How many commits lead from `start` to `end`; None if `start` is not in the history of `end`.
        columns: The columns that differ.
        partitions: The partitions whose files differ.
    """

    start: Commit
    end: Commit
    commits: int | None
    columns: Listing[ColumnChange]
    partitions: Listing[PartitionChange]

    def _repr_html_(self) -> str:
        columns = f"{heading_html('columns')}{self.columns._repr_html_()}"
        files = f"{heading_html('files')}{self.partitions._repr_html_()}"
        return f"{Listing([self.start, self.end])._repr_html_()}{columns}{files}"


def compare(table: Table, start: Snapshot, end: Snapshot, *, end_is_now: bool) -> SnapshotDiff:
    """Compare two snapshots; `end_is_now` takes the current schema for that of `end`."""
    main = {snapshot.snapshot_id for snapshot in ancestors_of(table.current_snapshot(), table.metadata)}
    refs = refs_by_snapshot(table)
    between = [snapshot.snapshot_id for snapshot in ancestors_of(end, table.metadata)]
    sides = [
        commit_of(side, on_main=side.snapshot_id in main, refs=refs.get(side.snapshot_id, ())) for side in (start, end)
    ]
    return SnapshotDiff(
        start=sides[0],
        end=sides[1],
        commits=between.index(start.snapshot_id) if start.snapshot_id in between else None,
        columns=Listing(column_changes(_schema(table, start), table.schema() if end_is_now else _schema(table, end))),
        partitions=Listing(_partitions(table, start, end)),
    )


def _schema(table: Table, snapshot: Snapshot) -> Schema:
    schemas = table.schemas()
    return schemas.get(snapshot.schema_id, table.schema()) if snapshot.schema_id is not None else table.schema()


def column_changes(start: Schema, end: Schema) -> Iterator[ColumnChange]:
    """The columns that differ, by their field ids."""
    before = {column.id: column for column in columns_of(start)}
    after = {column.id: column for column in columns_of(end)}
    for column in after.values():
        if column.id not in before:
            yield ColumnChange("added", column.name, None, _text(column))
        else:
            yield from _changes(before[column.id], column)
    for column in before.values():
        if column.id not in after:
            yield ColumnChange("dropped", column.name, _text(column), None)


def _changes(before: Column, after: Column) -> Iterator[ColumnChange]:
    if before.name != after.name:
        yield ColumnChange("renamed", after.name, before.name, after.name)
    if before.type != after.type:
        yield ColumnChange("type", after.name, before.type, after.type)
    if before.required != after.required:
        yield ColumnChange("nullability", after.name, _nullability(before), _nullability(after))
    if before.comment != after.comment:
        yield ColumnChange("comment", after.name, before.comment, after.comment)


def _nullability(column: Column) -> str:
    return "required" if column.required else "optional"


def _text(column: Column) -> str:
    return f"{column.type} {_nullability(column)}"


def _partitions(table: Table, start: Snapshot, end: Snapshot) -> list[PartitionChange]:
    left = {manifest.manifest_path: manifest for manifest in start.manifests(table.io)}
    right = {manifest.manifest_path: manifest for manifest in end.manifests(table.io)}
    # A manifest is never changed, so one that both have lists the same files.
    removed = list(entries_of(table, [manifest for path, manifest in left.items() if path not in right]))
    added = list(entries_of(table, [manifest for path, manifest in right.items() if path not in left]))
    groups: dict[tuple[object, ...], tuple[list[Found], list[Found]]] = {}
    for side, found, other in ((0, added, removed), (1, removed, added)):
        for item in _only(found, other):
            groups.setdefault(item.key, ([], []))[side].append(item)
    changes = sorted(groups.values(), key=lambda group: partition_order((group[0] or group[1])[0]))
    return [_change(*change) for change in changes]


def _only(found: list[Found], other: list[Found]) -> Iterator[Found]:
    """What only the first has. A file may hold several deletion vectors, each with an entry of its own."""
    shared = Counter(map(_identity, other))
    for item in found:
        identity = _identity(item)
        if shared[identity]:
            shared[identity] -= 1
        else:
            yield item


def _identity(item: Found) -> tuple[object, ...]:
    file = item.entry.data_file
    return file.file_path, file.content, *(() if item.is_data else (item.key, file.record_count))


def _change(added: list[Found], removed: list[Found]) -> PartitionChange:
    return PartitionChange(
        partition=(added or removed)[0].partition,
        rows_added=_rows(added),
        rows_removed=_rows(removed),
        files_added=_files(added, data=True),
        files_removed=_files(removed, data=True),
        delete_files_added=_files(added, data=False),
        delete_files_removed=_files(removed, data=False),
        bytes_added=size_of(added),
        bytes_removed=size_of(removed),
    )


def _rows(items: list[Found]) -> int:
    return sum(item.entry.data_file.record_count for item in items if item.is_data)


def _files(items: list[Found], *, data: bool) -> int:
    return len({item.entry.data_file.file_path for item in items if item.is_data is data})
