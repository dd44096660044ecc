"""Compare two snapshots of a table by their rows: metadata decides what it can, only differing files are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from importlib.util import find_spec
from typing import Any, Protocol

import pyarrow as pa
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.snapshots import Snapshot

from floe_core.errors import ConfigurationError, IncompatibleLibraryError
from floe_core.formatting import counted
from floe_core.identifiers import TableIdentifier
from floe_core.observability import operation
from floe_iceberg.arguments import TableName, identifier_of, names_of
from floe_iceberg.comparison.columns import (
    all_names,
    compared_columns,
    key_columns,
    schema_after,
    schema_before,
)
from floe_iceberg.comparison.examples import first_rows
from floe_iceberg.comparison.files import PartitionLabels, differing_files
from floe_iceberg.comparison.result import KeyProblems, PartitionRows, RowExamples, TableComparison
from floe_iceberg.errors import translated
from floe_iceberg.inspection import column_changes
from floe_iceberg.reading import scan
from floe_iceberg.snapshots import Revision, find_snapshot

__all__ = ["compare_rows"]

_PARTITIONS = 100


class _Tables(Protocol):
    def load_table(self, identifier: TableName) -> Table: ...


class _Lake(Protocol):
    @property
    def tables(self) -> _Tables: ...


def compare_rows(
    lake: _Lake,
    identifier: TableName,
    *,
    before: Revision | None,
    after: Revision | None = None,
    keys: Sequence[str] | None = None,
    examples: int = 5,
    max_rows: int = 10_000_000,
    hidden: Collection[str] = (),
) -> TableComparison:
    """Compare two snapshots of a table by their rows, without writing anything.

    Only files are read that one of the snapshots does not have, or has with other deletes. Their rows are compared as
    multisets: a row that was carried over to another file does not differ.

    Args:
        lake: The lake.
        identifier: The table.
        before: The snapshot to compare with; None if the table had none: then all rows are added.
        after: The snapshot that is compared. By default the head.
        keys: The columns that identify a row, so that changed rows are found. By default the identifier fields of the
            table; an empty list for none.
        examples: The maximum number of rows of each kind to show.
        max_rows: If the differing files have more rows, a sample of about this size is compared.
        hidden: Columns whose values are never shown.
    """
    name = identifier_of(identifier)
    _check_count(examples, "examples", least=0)
    _check_count(max_rows, "max_rows", least=1)
    named = None if keys is None else names_of(keys, "keys")
    not_shown = {part for one in names_of(tuple(hidden), "hidden") for part in (one.lower(), one.lower().split(".")[0])}
    with operation("iceberg.compare", table=str(name), before=before, after=after) as op, translated("compare", name):
        made = _Comparison(lake.tables.load_table(name), name, before, after, named, examples, max_rows, not_shown)
        result = made.run()
        op.set(num_rows=result.rows_compared, sampled=result.sampled)
        return result


def _check_count(given: object, argument: str, *, least: int) -> None:
    if not isinstance(given, int) or isinstance(given, bool) or given < least:
        raise ConfigurationError(f"{argument} is {given!r}; it must be a whole number from {least}")


class _Comparison:
    """One comparison of two snapshots of a loaded table."""

    def __init__(
        self,
        table: Table,
        identifier: TableIdentifier,
        before: Revision | None,
        after: Revision | None,
        keys: Sequence[str] | None,
        examples: int,
        max_rows: int,
        hidden: Collection[str],
    ) -> None:
        self._identifier = identifier
        self._before = None if before is None else find_snapshot(table, identifier, before)
        self._after = find_snapshot(table, identifier, after)
        earlier, later = schema_before(table, self._before), schema_after(table, self._after)
        self._keys = key_columns(keys, later, identifier)
        self._changes = tuple(column_changes(earlier, later)) if before is not None else ()
        snapshots = {one.snapshot_id for one in (self._before, self._after) if one is not None}
        not_shown = all_names(table, hidden)
        self._columns = compared_columns(table, earlier, later, snapshots, not_shown)
        self._labels = PartitionLabels(table, not_shown)
        self._files = differing_files(table, identifier, self._before, self._after)
        self._examples = examples
        self._max_rows = max_rows

    def run(self) -> TableComparison:
        files = self._files
        if self._before is not None and files.before and files.after:
            return self._by_rows(self._before.snapshot_id)
        snapshot = self._before if files.before and self._before is not None else self._after
        added, removed = (self._counted(side, snapshot) for side in (files.after, files.before))
        examples = RowExamples(added=self._first(files.after, snapshot), removed=self._first(files.before, snapshot))
        rows = sum(added.values()) + sum(removed.values())
        scope = "no data file differs; no file was read"
        if files.before or files.after:
            side = "added" if files.after else "removed"
            scope = f"files were only {side}: all {counted(rows, 'row')} in them differ, and none had to be compared"
        return self._result(added, removed, Counter(), examples, scope=scope)

    def _by_rows(self, before: int) -> TableComparison:
        for library in ("duckdb", "sqlglot"):  # they are needed for this only
            if find_spec(library) is None:
                raise IncompatibleLibraryError(
                    f"comparing rows needs {library}, which is not installed: pip install 'floe-iceberg[sql]' (on "
                    f"Python 3.11 or newer). To compare files: floe tables diff {self._identifier} without --rows",
                    name=library,
                )
        from floe_iceberg.comparison.row_difference import difference_of_rows

        every = -(-self._files.rows // self._max_rows)
        found = difference_of_rows(
            self._identifier,
            (before, self._after.snapshot_id),
            self._files,
            self._columns,
            self._labels,
            keys=self._columns.internal(self._keys),
            examples=self._examples,
            every=every,
        )
        compared = found.rows_before + found.rows_after
        scope = f"all {counted(compared, 'row')} of the files that differ"
        if every > 1:
            chosen = f"the key ({', '.join(self._keys)})" if self._keys else "the whole row"
            scope = (
                f"a sample: {compared:,} of the {self._files.rows:,} rows in the files that differ, one of {every:,} "
                f"by a hash of {chosen}; all counts are those of the sample"
            )
        return self._result(
            found.added,
            found.removed,
            found.changed,
            found.examples,
            scope=scope,
            compared=compared,
            sampled=every > 1,
            problems=found.key_problems,
        )

    def _counted(self, tasks: Sequence[FileScanTask], snapshot: Snapshot) -> Counter[int]:
        """The rows of files by partition: by metadata, except for files with deletes."""
        rows: Counter[int] = Counter()
        for task in tasks:
            count = task.file.record_count
            if task.delete_files:
                count = sum(batch.num_rows for batch in self._read([task], self._columns.names[:1], snapshot))
            rows[self._labels.number(task)] += count
        return rows

    def _first(self, tasks: Sequence[FileScanTask], snapshot: Snapshot) -> tuple[dict[str, Any], ...]:
        if not tasks or not self._examples or not self._columns.shown:
            return ()
        return first_rows(self._read(tasks, list(self._columns.shown), snapshot), self._columns, self._examples)

    def _read(self, tasks: Sequence[FileScanTask], columns: Sequence[str], snapshot: Snapshot) -> pa.RecordBatchReader:
        table, snapshot_id = self._columns.table, snapshot.snapshot_id
        planned = scan(table, self._identifier, columns=columns, snapshot_id=snapshot_id, traced=False)
        return planned.to_arrow_batch_reader(tasks=tasks)  # type: ignore[call-arg]  # Floe's scan reads chosen files

    def _result(
        self,
        added: Counter[int],
        removed: Counter[int],
        changed: Counter[int],
        examples: RowExamples,
        *,
        scope: str,
        compared: int = 0,
        sampled: bool = False,
        problems: KeyProblems | None = None,
    ) -> TableComparison:
        partitions = [
            PartitionRows(partition, added[number], removed[number], changed[number])
            for number, partition in self._labels.in_order()
            if added[number] or removed[number] or changed[number]
        ]
        return TableComparison(
            table=str(self._identifier),
            before=None if self._before is None else self._before.snapshot_id,
            after=self._after.snapshot_id,
            keys=self._keys,
            rows_before=0 if self._before is None else self._files.rows_before,
            rows_after=self._files.rows_after,
            rows_added=sum(added.values()),
            rows_removed=sum(removed.values()),
            rows_changed=sum(changed.values()) if self._keys else None,
            sampled=sampled,
            rows_compared=compared,
            scope=scope,
            columns=self._changes,
            files=self._files.counts,
            partitions=tuple(partitions[:_PARTITIONS]),
            partitions_total=len(partitions),
            examples=examples,
            key_problems=problems,
            notes=tuple(self._notes(problems)),
        )

    def _notes(self, problems: KeyProblems | None) -> Iterator[str]:
        if not self._keys:
            yield "without keys, a changed row counts as one removed and one added"
        if problems is not None:
            for side, nulls, repeated in (
                ("before", problems.null_before, problems.repeated_before),
                ("after", problems.null_after, problems.repeated_after),
            ):
                parts = [f"{counted(nulls, 'row')} with NULL in the key"] if nulls else []
                parts += [f"{counted(repeated, 'key')} on more than one row"] if repeated else []
                if parts:
                    yield f"{side}: {' and '.join(parts)}; these rows count as added and removed, never as changed"
        dropped = [change.column for change in self._changes if change.change == "dropped"]
        if dropped:
            yield f"dropped columns are not compared: {', '.join(dropped)}"
        if self._columns.hidden:
            yield f"values not shown: {', '.join(self._columns.hidden.values())}"
