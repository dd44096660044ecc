"""Reads as spans: each begins when its rows are requested, ends when they have been read, and records their number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from typing_extensions import Self

from floe_core.observability import Operation, begin, operation

__all__ = ["CountedReads"]


class CountedReads:
    """A mixin for scans, placed before PyIceberg's class; `of` makes one from a planned scan."""

    _span_name = "iceberg.scan"
    selected_fields: tuple[str, ...]
    row_filter: Any
    limit: int | None
    _table: str
    # The planned filter, and the filter as the caller wrote it.
    _asked: tuple[Any, Any]

    @classmethod
    def of(cls, planned: Any, table: str, row_filter: Any) -> Self:
        scan = cls(**vars(planned))
        scan._table, scan._asked = table, (scan.row_filter, row_filter)
        return scan

    def update(self, **overrides: Any) -> Self:
        scan: Self = super().update(**overrides)  # type: ignore[misc]  # the scan's
        scan._table, scan._asked = self._table, self._asked
        return scan

    def _facts(self) -> dict[str, Any]:
        """The attributes of the span."""
        condition, written = self._asked
        everything = self.row_filter == AlwaysTrue()
        return {
            "table": self._table,
            "engine": "arrow",
            "columns": None if "*" in self.selected_fields else self.selected_fields,
            "row_filter": written if self.row_filter == condition else None if everything else self.row_filter,
            "limit": self.limit,
        }

    def to_arrow(self, *arguments: Any, **options: Any) -> pa.Table:
        with operation(self._span_name, **self._facts()) as op:
            rows: pa.Table = super().to_arrow(*arguments, **options)  # type: ignore[misc]  # the scan's
            op.set(num_rows=rows.num_rows)
            return rows

    def to_arrow_batch_reader(self, *arguments: Any, **options: Any) -> pa.RecordBatchReader:
        op = begin(self._span_name, **self._facts())
        try:
            with op.active():
                reader = super().to_arrow_batch_reader(*arguments, **options)  # type: ignore[misc]  # the scan's
        except BaseException as exc:
            op.end(exc)
            raise
        return pa.RecordBatchReader.from_batches(reader.schema, _Counted(reader, op))


class _Counted:
    """Batches whose span ends with the last one, or when they are garbage-collected."""

    def __init__(self, batches: Iterator[pa.RecordBatch], op: Operation) -> None:
        self._batches = batches
        self._op: Operation | None = op
        self._rows = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        if self._op is None:
            raise StopIteration
        try:
            with self._op.active():
                batch = next(self._batches)
        except StopIteration:
            self._end()
            raise
        except BaseException as exc:
            self._end(exc)
            raise
        self._rows += batch.num_rows
        return batch

    def _end(self, error: BaseException | None = None) -> None:
        op, self._op = self._op, None
        if op is not None:
            op.set(num_rows=self._rows)
            op.end(error)

    def __del__(self) -> None:
        self._end()
