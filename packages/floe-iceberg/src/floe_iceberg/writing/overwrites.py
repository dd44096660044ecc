"""The files that an overwrite removes, and the rows to keep of those it replaces only in part."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import bind
from pyiceberg.table import FileScanTask, Table
from pyiceberg.typedef import Record

from floe_core.errors import ConcurrencyConflictError, ConfigurationError, FloeStorageError
from floe_core.models import WriteMode
from floe_iceberg.expressions.conditions import matches
from floe_iceberg.expressions.filters import is_negative
from floe_iceberg.partition_values import partition_key
from floe_iceberg.writing.request import WriteRequest
from floe_iceberg.writing.staging import Stager, read_rows

__all__ = [
    "NOTHING",
    "Replacement",
    "check_basis",
    "files_at_first",
    "files_of_partitions",
    "files_under",
    "replace_rows",
    "state_of",
]


class Finder(Protocol):
    """Finds the files that may hold rows to be replaced, at the head of a branch or at a snapshot."""

    def __call__(self, table: Table, at: int | None = None) -> list[FileScanTask]: ...


@dataclass(frozen=True)
class Replacement:
    """The files that a write removes, and how it detects that another writer changed those rows since they were read.

    `seen` are all files that may hold such rows, with their deletes: if they differ at the time of the commit, rows
    were added or removed that this write does not know.
    """

    find: Finder
    seen: frozenset[tuple[str, ...]]
    removed: frozenset[str]

    def files_in(self, table: Table, request: WriteRequest) -> list[FileScanTask]:
        """The files to remove from the current table; raises a conflict if the rows have changed."""
        now = self.find(table)
        if state_of(now) != self.seen:
            raise ConcurrencyConflictError(
                f"another writer changed the same rows of '{request.identifier}' since they were read; nothing was "
                f"written: run it again"
            )
        return [task for task in now if task.file.file_path in self.removed]


def _none(table: Table, at: int | None = None) -> list[FileScanTask]:
    del table, at
    return []


NOTHING = Replacement(_none, frozenset(), frozenset())


def files_under(condition: BooleanExpression, branch: str) -> Finder:
    """The files of a branch that may hold rows for which the condition is true."""

    def find(table: Table, at: int | None = None) -> list[FileScanTask]:
        head = table.snapshot_by_name(branch) if at is None else table.snapshot_by_id(at)
        if head is None or not _has_columns_of(condition, table):
            return []
        return list(table.scan(row_filter=condition, snapshot_id=head.snapshot_id).plan_files())

    return find


def files_of_partitions(partitions: Iterable[Record], spec_id: int, branch: str) -> Finder:
    """The files of a branch that may hold rows of these partitions: theirs, and all files of other specs."""
    keys = {partition_key(partition) for partition in partitions}

    def find(table: Table, at: int | None = None) -> list[FileScanTask]:
        return [
            task
            for task in files_under(AlwaysTrue(), branch)(table, at)
            if task.file.spec_id != spec_id or partition_key(task.file.partition) in keys
        ]

    return find


def _has_columns_of(condition: BooleanExpression, table: Table) -> bool:
    """Does the table have the columns of the condition? A column that this write adds has no values yet."""
    try:
        bind(table.schema(), condition, case_sensitive=True)
    except ValueError:
        return False
    return True


def replace_rows(
    request: WriteRequest, table: Table | None, stager: Stager, condition: BooleanExpression | None
) -> Replacement:
    """Choose the files to remove, and stage their remaining rows."""
    check_basis(request, table)
    if request.mode is not WriteMode.OVERWRITE or table is None:
        return NOTHING
    if request.replaces_all:
        _refuse_empty(request, table, stager)
    if request.dynamic_partitions:
        return _replace_partitions(request, table, stager)
    condition = AlwaysTrue() if condition is None else condition
    find = files_under(condition, request.branch)
    seen = files_at_first(request, table, find)
    removed = set()
    inside = matches(condition, stager.schema)
    for task in seen:
        if _is_whole(task, condition):
            removed.add(task.file.file_path)
            continue
        rows = pa.Table.from_batches(read_rows(stager.metadata, table.io, task), schema=stager.arrow_schema)
        kept = rows.filter(pc.invert(inside))
        if len(kept) < len(rows):
            removed.add(task.file.file_path)
            for batch in kept.to_batches():
                stager.add(batch)
    return Replacement(find, state_of(seen), frozenset(removed))


def check_basis(request: WriteRequest, table: Table | None) -> None:
    """The snapshot that the data was made from must exist, otherwise changes since then cannot be detected."""
    if request.validate_from is None:
        return
    if table is None or table.snapshot_by_id(request.validate_from) is None:
        raise ConfigurationError(
            f"table '{request.identifier}' has no snapshot {request.validate_from} to validate from; it may have "
            f"expired: read the table again. Nothing was written"
        )


def files_at_first(request: WriteRequest, table: Table, find: Finder) -> list[FileScanTask]:
    """The files at the head; a conflict if they differ from those of the snapshot that the caller read."""
    now = find(table)
    if request.validate_from is not None:
        Replacement(find, state_of(find(table, request.validate_from)), frozenset()).files_in(table, request)
    return now


def _refuse_empty(request: WriteRequest, table: Table, stager: Stager) -> None:
    head = table.snapshot_by_name(request.branch)
    has_rows = head is not None and (head.summary is None or head.summary["total-records"] != "0")
    if has_rows and not stager.rows and not request.allow_empty:
        raise FloeStorageError(
            f"refused to replace all rows of '{request.identifier}' by nothing; to allow it, set allow_empty"
        )


def _is_whole(task: FileScanTask, condition: BooleanExpression) -> bool:
    """Do all rows of the file certainly match? Its partition proves it, unless a negation could match NULL."""
    return isinstance(task.residual, AlwaysTrue) and not is_negative(condition)


def _replace_partitions(request: WriteRequest, table: Table, stager: Stager) -> Replacement:
    """Replace the partitions that the data has rows for; in files of older specs, the rows that belong to them."""
    spec_id = table.spec().spec_id
    if table.spec().is_unpartitioned():
        raise ConfigurationError(
            f"table '{request.identifier}' is not partitioned, so there are no partitions to replace; leave "
            f"dynamic_partitions out to replace the table. Nothing was written"
        )
    partitions = stager.partitions
    keys = {partition_key(partition) for partition in partitions}
    find = files_of_partitions(partitions, spec_id, request.branch)
    seen = files_at_first(request, table, find)
    removed = set()
    for task in seen:
        if task.file.spec_id == spec_id:
            removed.add(task.file.file_path)
            continue
        parts = [part for batch in read_rows(stager.metadata, table.io, task) for part in stager.split(batch)]
        if any(partition_key(partition) in keys for partition, _ in parts):
            removed.add(task.file.file_path)
            for partition, rows in parts:
                if partition_key(partition) not in keys:
                    stager.add(rows)
    return Replacement(find, state_of(seen), frozenset(removed))


def state_of(tasks: list[FileScanTask]) -> frozenset[tuple[str, ...]]:
    """The files with their deletes: two equal states hold the same rows."""
    return frozenset((task.file.file_path, *sorted(file.file_path for file in task.delete_files)) for task in tasks)
