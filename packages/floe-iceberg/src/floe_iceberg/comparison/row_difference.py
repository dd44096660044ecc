"""Rows of files compared as multisets by DuckDB: equal rows cancel out, whichever file they are in.

The rows of both sides are read once, into a table of DuckDB, which spills to a private folder if they exceed its
memory.
NULL equals NULL, NaN equals NaN, and 0.0 equals -0.0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from floe_core.errors import FloeError, FloeStorageError
from floe_core.identifiers import TableIdentifier
from floe_iceberg.comparison.columns import ComparedColumns
from floe_iceberg.comparison.examples import changed_rows, shown_rows
from floe_iceberg.comparison.files import DifferingFiles, PartitionLabels
from floe_iceberg.comparison.result import ChangedRow, KeyProblems, RowExamples
from floe_iceberg.comparison.sources import PARTITION, FileRows, comparable
from floe_iceberg.query.failures import reported
from floe_iceberg.query.session import Session

__all__ = ["RowDifference", "difference_of_rows"]

_BATCH_ROWS = 1000


@dataclass(frozen=True)
class RowDifference:
    """The rows that differ, by the number of their partition."""

    added: Counter[int]
    removed: Counter[int]
    changed: Counter[int]
    rows_before: int
    rows_after: int
    examples: RowExamples
    key_problems: KeyProblems | None


def difference_of_rows(
    identifier: TableIdentifier,
    snapshots: tuple[int, int],
    files: DifferingFiles,
    columns: ComparedColumns,
    labels: PartitionLabels,
    *,
    keys: Sequence[str],
    examples: int,
    every: int,
) -> RowDifference:
    """Compare the rows of the differing files.

    Args:
        snapshots: The ids of the first and of the second snapshot.
        keys: The columns of the key, by their names in `columns`; empty without one.
        examples: How many rows of each kind to show.
        every: 1 for all rows; otherwise one of so many, chosen by a hash that is the same on both sides.
    """
    session = Session()
    sides: list[FileRows] = []
    try:
        with _translated(identifier, sides, columns):
            for name, snapshot_id, tasks in zip(
                ("before_rows", "after_rows"), snapshots, (files.before, files.after), strict=True
            ):
                sides.append(
                    FileRows(
                        session, columns, identifier, snapshot_id, name=name, tasks=tasks, partition_of=labels.number
                    )
                )
            session.allow_only(path for side in sides for path in side.paths)
            for side in sides:
                side.create_view()
            session.lock()
            return _Comparison(session, sides, columns, list(keys), examples).run(every)
    finally:
        session.close()


@contextmanager
def _translated(identifier: TableIdentifier, sides: Sequence[FileRows], columns: ComparedColumns) -> Iterator[None]:
    try:
        yield
    except FloeError:
        raise
    except Exception as exc:
        if not type(exc).__module__.startswith(("duckdb", "_duckdb")) and not any(
            one.dataset.failures for one in sides
        ):
            raise
        raise _failure(exc, identifier, sides, columns) from exc


def _failure(
    exc: Exception, identifier: TableIdentifier, sides: Sequence[FileRows], columns: ComparedColumns
) -> Exception:
    for side in sides:
        if side.dataset.failures:
            return side.dataset.failures[0]
    error = reported(exc)
    message = " ".join(str(error.get("exception_message", "")).partition("Possible solutions")[0].split())
    if error.get("exception_type") == "Out of Memory":
        return FloeStorageError(
            f"comparing the rows of '{identifier}' needs more memory or disk than there is; compare a sample: a "
            f"smaller max_rows ({message})"
        )
    for side in sides:
        problem = side.damage(message)
        if problem is not None:
            return problem
    if columns.hidden:  # the words of DuckDB may be values
        message = "its error is not shown, because columns of the table are not shown"
    return FloeStorageError(f"DuckDB cannot compare the rows of '{identifier}': {message}")


@dataclass(frozen=True)
class _Comparison:
    """The tables of one comparison: `all_rows`, `differing`, and with keys `repeated` and `changed`."""

    session: Session
    sides: Sequence[FileRows]
    columns: ComparedColumns
    keys: list[str]
    examples: int

    def run(self, every: int) -> RowDifference:
        self._read(every)
        before, after = self._row("SELECT count(*) FILTER (side < 0), count(*) FILTER (side > 0) FROM all_rows")
        self._find_differing()
        added = self._counts("SELECT after_partition, sum(n) FROM differing WHERE n > 0 GROUP BY 1")
        removed = self._counts("SELECT before_partition, -sum(n) FROM differing WHERE n < 0 GROUP BY 1")
        changed: Counter[int] = Counter()
        problems = None
        if self.keys:
            problems = self._find_changed()
            changed = self._counts("SELECT after_partition, count(*) FROM changed GROUP BY 1")
            added -= changed
            removed -= self._counts("SELECT before_partition, count(*) FROM changed GROUP BY 1")
        return RowDifference(
            added=added,
            removed=removed,
            changed=changed,
            rows_before=before,
            rows_after=after,
            examples=self._examples(),
            key_problems=problems,
        )

    @property
    def _names(self) -> str:
        return ", ".join(self.columns.names)

    @property
    def _key(self) -> str:
        return ", ".join(self.keys)

    @property
    def _has_key(self) -> str:
        return " AND ".join(f"{key} IS NOT NULL" for key in self.keys)

    def _read(self, every: int) -> None:
        """All rows of both sides, or a sample: a row is in it on both sides or on none."""
        made = ", ".join(f"{comparable(one.name, one.field_type)} AS {one.name}" for one in self.columns.schema.fields)
        parts = (
            f"SELECT {made}, {PARTITION} AS place, {sign}::TINYINT AS side FROM {source.name}"  # noqa: S608 - own names
            for source, sign in zip(self.sides, (-1, 1), strict=True)
        )
        chosen = f" WHERE hash({self._key or self._names}) % {every} = 0" if every > 1 else ""
        self._execute(f"CREATE TEMP TABLE all_rows AS FROM ({' UNION ALL '.join(parts)}){chosen}")

    def _find_differing(self) -> None:
        """Each row that one side has more often, with the number by which it does: below 0 for the first side."""
        self._execute(
            f"CREATE TEMP TABLE differing AS SELECT {self._names}, sum(side)::BIGINT AS n, "  # noqa: S608
            f"any_value(place) FILTER (side < 0) AS before_partition, "
            f"any_value(place) FILTER (side > 0) AS after_partition "
            f"FROM all_rows GROUP BY {self._names} HAVING sum(side) <> 0"
        )

    def _find_changed(self) -> KeyProblems:
        """The keys with one row on each side, which differ. Repeated keys are found among all rows, equal ones too."""
        both = "count(*) FILTER (side < 0) AS b, count(*) FILTER (side > 0) AS a"
        self._execute(
            f"CREATE TEMP TABLE repeated AS SELECT {self._key}, {both} FROM all_rows WHERE {self._has_key} "  # noqa: S608
            f"GROUP BY {self._key} HAVING a > 1 OR b > 1"
        )
        self._execute(
            f"CREATE TEMP TABLE changed AS SELECT {self._key}, max(before_partition) AS before_partition, "  # noqa: S608
            f"max(after_partition) AS after_partition FROM differing ANTI JOIN repeated USING ({self._key}) "
            f"WHERE {self._has_key} GROUP BY {self._key} HAVING count(*) = 2"
        )
        nulls = self._row(f"SELECT {both} FROM all_rows WHERE NOT ({self._has_key})")  # noqa: S608
        repeated = self._row("SELECT count(*) FILTER (b > 1), count(*) FILTER (a > 1) FROM repeated")
        return KeyProblems(*nulls, *repeated)

    def _examples(self) -> RowExamples:
        shown, few = ", ".join(self.columns.shown), self.examples
        unchanged = f" ANTI JOIN changed USING ({self._key})" if self.keys else ""
        rows = []
        for condition in ("n > 0", "n < 0"):
            order = ", ".join([*(key for key in self.keys if key in self.columns.shown), *self.columns.shown])
            found = (
                self._table(
                    f"SELECT {shown} FROM differing{unchanged} WHERE {condition} ORDER BY {order} LIMIT {few}"  # noqa: S608
                )
                if shown
                else None
            )
            rows.append(() if found is None else shown_rows(found, self.columns))
        changed: tuple[ChangedRow, ...] = ()
        if self.keys:
            pairs = self._table(
                f"WITH few AS (SELECT {self._key} FROM changed ORDER BY {self._key} LIMIT {few}) "  # noqa: S608
                f"SELECT {self._names} FROM differing SEMI JOIN few USING ({self._key}) ORDER BY {self._key}, n"
            )
            changed = changed_rows(pairs, self.columns, self.keys)
        return RowExamples(added=rows[0], removed=rows[1], changed=changed)

    def _row(self, query: str) -> tuple[int, ...]:
        (row,) = self.session.call(lambda: self.session.connection.execute(query).fetchall())
        return tuple(map(int, row))

    def _counts(self, query: str) -> Counter[int]:
        rows = self.session.call(lambda: self.session.connection.execute(query).fetchall())
        return Counter({int(place): int(count) for place, count in rows})

    def _table(self, query: str) -> pa.Table:
        return self.session.call(lambda: self.session.connection.sql(query).to_arrow_table(_BATCH_ROWS))

    def _execute(self, statement: str) -> None:
        self.session.call(lambda: self.session.connection.execute(statement))
