"""The files in which two snapshots differ, and the partition of each. Files that both have hold the same rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.snapshots import Snapshot

from floe_core.errors import FloeStorageError
from floe_core.identifiers import TableIdentifier
from floe_iceberg.comparison.result import FileChanges
from floe_iceberg.inspection.files import PartitionTexts, partition_rank
from floe_iceberg.reading import scan
from floe_iceberg.snapshots import summary_of

__all__ = ["DifferingFiles", "PartitionLabels", "differing_files"]

_HIDDEN = "(not shown)"


@dataclass(frozen=True)
class DifferingFiles:
    """The files of each snapshot that the other one does not have with the same deletes.

    Attributes:
        before: Those of the first snapshot.
        after: Those of the second snapshot.
        rows_before: The rows of the whole first snapshot; None if only its delete files know.
        rows_after: The same, of the second snapshot.
        counts: The numbers of files.
    """

    before: tuple[FileScanTask, ...]
    after: tuple[FileScanTask, ...]
    rows_before: int | None
    rows_after: int | None
    counts: FileChanges

    @property
    def rows(self) -> int:
        """The rows that are stored in the differing files; deleted ones are not subtracted."""
        return sum(task.file.record_count for task in (*self.before, *self.after))


def differing_files(
    table: Table, identifier: TableIdentifier, before: Snapshot | None, after: Snapshot
) -> DifferingFiles:
    """The files in which two snapshots differ, by their manifests; no data file is read."""
    if before is not None and _manifests(table, before) == _manifests(table, after):
        rows = _summarized(after)
        return DifferingFiles((), (), rows, rows, FileChanges())
    left = [] if before is None else _planned(table, identifier, before)
    right = _planned(table, identifier, after)
    paths = [{task.file.file_path for task in side} for side in (left, right)]
    deletes = [{one.file_path for task in side for one in task.delete_files} for side in (left, right)]
    return DifferingFiles(
        before=tuple(_only(left, right)),
        after=tuple(_only(right, left)),
        rows_before=_rows(left),
        rows_after=_rows(right),
        counts=FileChanges(
            data_files_added=len(paths[1] - paths[0]),
            data_files_removed=len(paths[0] - paths[1]),
            delete_files_added=len(deletes[1] - deletes[0]),
            delete_files_removed=len(deletes[0] - deletes[1]),
        ),
    )


def _manifests(table: Table, snapshot: Snapshot) -> set[str]:
    return {manifest.manifest_path for manifest in snapshot.manifests(table.io)}


def _summarized(snapshot: Snapshot) -> int | None:
    summary = summary_of(snapshot)
    total = summary.get("total-records", "")
    return int(total) if total.isdecimal() and summary.get("total-delete-files") == "0" else None


def _planned(table: Table, identifier: TableIdentifier, snapshot: Snapshot) -> list[FileScanTask]:
    if summary_of(snapshot).get("total-equality-deletes", "0") != "0":
        raise FloeStorageError(
            f"snapshot {snapshot.snapshot_id} of '{identifier}' has equality deletes, which only Spark reads; compare "
            f"its files: floe tables diff {identifier} without --rows, or query both snapshots: floe sql --engine spark"
        )
    return list(scan(table, identifier, snapshot_id=snapshot.snapshot_id, traced=False).plan_files())


def _rows(tasks: Iterable[FileScanTask]) -> int | None:
    total = 0
    for task in tasks:
        if task.delete_files:
            return None
        total += task.file.record_count
    return total


def _only(tasks: list[FileScanTask], other: list[FileScanTask]) -> Iterator[FileScanTask]:
    """What only the first has. A file may be listed more than once."""
    shared = Counter(map(_identity, other))
    for task in tasks:
        identity = _identity(task)
        if shared[identity]:
            shared[identity] -= 1
        else:
            yield task


def _identity(task: FileScanTask) -> tuple[object, ...]:
    return task.file.file_path, frozenset(map(_delete, task.delete_files))


def _delete(file: DataFile) -> tuple[object, ...]:
    return file.file_path, file.record_count


class PartitionLabels:
    """The partitions of files as numbers; those that are shown alike have the same number."""

    def __init__(self, table: Table, hidden: Collection[str]) -> None:
        self._texts = PartitionTexts(table)
        self._hidden = {
            field.name
            for spec in table.specs().values()
            for field in spec.fields
            if (_source(table, field.source_id) or "").lower().partition(".")[0] in hidden
        }
        self._numbers: dict[tuple[tuple[str, str | None], ...], int] = {}
        self._ranks: list[tuple[Any, ...]] = []

    def number(self, task: FileScanTask) -> int:
        """The number of the partition of a file."""
        file = task.file
        texts = self._texts.of(file.spec_id, file.partition)
        label = tuple((name, _HIDDEN if name in self._hidden else text) for name, text in texts.items())
        if label not in self._numbers:
            self._numbers[label] = len(self._numbers)
            self._ranks.append(partition_rank(file.spec_id, file.partition))
        return self._numbers[label]

    def in_order(self) -> list[tuple[int, dict[str, str | None]]]:
        """The numbers and partitions, in the order of their values."""
        return sorted(
            ((number, dict(label)) for label, number in self._numbers.items()), key=lambda pair: self._ranks[pair[0]]
        )


def _source(table: Table, source_id: int) -> str | None:
    schemas = chain((table.schema(),), table.schemas().values())
    names = (schema.find_column_name(source_id) for schema in schemas)
    return next((name for name in names if name is not None), None)
