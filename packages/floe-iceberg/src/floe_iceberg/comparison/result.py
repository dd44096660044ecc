"""The result of a comparison of two snapshots by their rows. All values are as JSON has them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from floe_core.notebooks import Listing, facts_html, heading_html, table_html
from floe_iceberg.inspection import ColumnChange

__all__ = [
    "ChangedRow",
    "FileChanges",
    "KeyProblems",
    "PartitionRows",
    "RowExamples",
    "TableComparison",
    "ValueChange",
]


@dataclass(frozen=True)
class ValueChange:
    """The value of a column before and after."""

    before: Any
    after: Any


@dataclass(frozen=True)
class ChangedRow:
    """A row whose key is on both sides, with the columns that differ.

    Attributes:
        key: The values of the key columns.
        values: The columns that differ.
        hidden: The columns that differ and are not shown.
    """

    key: dict[str, Any]
    values: dict[str, ValueChange]
    hidden: tuple[str, ...] = ()


@dataclass(frozen=True)
class RowExamples:
    """A few of the rows that differ, without hidden columns."""

    added: tuple[dict[str, Any], ...] = ()
    removed: tuple[dict[str, Any], ...] = ()
    changed: tuple[ChangedRow, ...] = ()


@dataclass(frozen=True)
class PartitionRows:
    """The rows that differ in one partition. A changed row counts in the partition that it is in afterwards."""

    partition: dict[str, str | None]
    rows_added: int
    rows_removed: int
    rows_changed: int


@dataclass(frozen=True)
class FileChanges:
    """The files that only one of the snapshots has."""

    data_files_added: int = 0
    data_files_removed: int = 0
    delete_files_added: int = 0
    delete_files_removed: int = 0


@dataclass(frozen=True)
class KeyProblems:
    """Compared rows whose key identifies no single row: they count as added and removed, never as changed.

    Attributes:
        null_before: The rows with NULL in a key column, before.
        null_after: The same, after.
        repeated_before: The keys that occur more than once, before.
        repeated_after: The same, after.
    """

    null_before: int = 0
    null_after: int = 0
    repeated_before: int = 0
    repeated_after: int = 0


@dataclass(frozen=True)
class TableComparison:
    """How the rows of a table differ between two snapshots.

    Attributes:
        table: The table.
        before: The snapshot to compare with; None if the table had none.
        after: The snapshot that is compared.
        keys: The columns by which changed rows are found; empty if there are none.
        rows_before: The rows of the whole snapshot; None if they are not known without a scan, because of delete files.
        rows_after: The same, of the other snapshot.
        rows_added: The rows that only the second snapshot has.
        rows_removed: The rows that only the first snapshot has.
        rows_changed: The keys whose other columns differ; None without keys.
        sampled: Whether the counts are those of a sample of the rows.
        rows_compared: The number of rows that were compared, on both sides together; 0 if metadata decided it.
        scope: What was compared, in words.
        columns: The columns that differ, by their field ids.
        files: The files that only one of the snapshots has.
        partitions: The partitions with rows that differ, at most 100.
        partitions_total: The number of partitions with rows that differ.
        examples: A few of the rows that differ.
        key_problems: Rows that have no key of their own; None if no keys were compared.
        notes: What limits the result, in sentences.
    """

    table: str
    before: int | None
    after: int
    keys: tuple[str, ...]
    rows_before: int | None
    rows_after: int | None
    rows_added: int
    rows_removed: int
    rows_changed: int | None
    sampled: bool
    rows_compared: int
    scope: str
    columns: tuple[ColumnChange, ...]
    files: FileChanges
    partitions: tuple[PartitionRows, ...]
    partitions_total: int
    examples: RowExamples
    key_problems: KeyProblems | None
    notes: tuple[str, ...]

    @property
    def differs(self) -> bool:
        """Whether a row or a column differs, as far as it was compared."""
        return bool(self.rows_added or self.rows_removed or self.rows_changed or self.columns)

    def _repr_html_(self) -> str:
        changed = {} if self.rows_changed is None else {"rows changed": self.rows_changed}
        facts = {"rows added": self.rows_added, "rows removed": self.rows_removed, **changed, "compared": self.scope}
        html = [facts_html(self.table, [*facts.items(), *(("", note) for note in self.notes)])]
        for title, listed in (("columns", self.columns), ("partitions", self.partitions)):
            if listed:
                html.append(f"{heading_html(title)}{Listing(listed)._repr_html_()}")
        examples = self.examples
        changes = [
            {**row.key, **{name: f"{_text(one.before)} → {_text(one.after)}" for name, one in row.values.items()}}
            for row in examples.changed
        ]
        for title, rows in (("added", examples.added), ("removed", examples.removed), ("changed", changes)):
            if rows:
                names = list(dict.fromkeys(name for row in rows for name in row))
                columns = [(name, [_text(row[name]) if name in row else "" for row in rows]) for name in names]
                html.append(f"{heading_html(title)}{table_html(columns)}")
        return "".join(html)


def _text(value: Any) -> str:
    return "NULL" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
