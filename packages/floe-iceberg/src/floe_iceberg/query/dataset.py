"""Rows of a table as a dataset that DuckDB scans: each scan reads the files again, in bounded memory."""

from __future__ import annotations

import contextvars
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.dataset
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import DataScan, FileScanTask

__all__ = ["TableDataset"]


class TableDataset(pyarrow.dataset.Dataset):  # type: ignore[misc]  # pyarrow has no types
    """Files of a planned scan, deletes applied and columns mapped by their ids, as PyArrow's consumers read a dataset.

    A table that occurs several times in a query is scanned several times, each time with the columns and the condition
    that DuckDB asks for. Errors of a scan are kept in `failures`: DuckDB passes on their text only.
    """

    def __init__(self, scan: Any, tasks: Sequence[FileScanTask]) -> None:
        # The base class forbids instances of its own; nothing of it is used.
        planned: DataScan = scan
        self._scan = scan
        self.tasks = tuple(tasks)
        self._schema = schema_to_pyarrow(planned.projection(), include_field_ids=False)
        # DuckDB scans in threads of its own, which do not know the current span.
        self._context = contextvars.copy_context()
        self.failures: list[Exception] = []

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: Any = None,  # noqa: A002 - PyArrow's name
        **_options: Any,
    ) -> pyarrow.dataset.Scanner:
        """Scan the files, with these columns and the rows that match an expression of PyArrow."""
        wanted = self._schema.names if columns is None else list(columns)
        condition = "" if filter is None else str(filter)
        # A column that the condition uses is in its text; one that only looks so costs time, nothing else.
        read = [name for name in self._schema.names if name in wanted or name in condition]
        reader = self._context.copy().run(self._open, tuple(read))
        return pyarrow.dataset.Scanner.from_batches(
            self._kept(reader), schema=reader.schema, columns=wanted, filter=filter
        )

    def _open(self, columns: tuple[str, ...]) -> pa.RecordBatchReader:
        try:
            rows = self._scan.update(selected_fields=columns).to_arrow_batch_reader(tasks=self.tasks)
        except Exception as exc:
            self.failures.append(exc)
            raise
        names = [field.name for field in rows.schema]
        order = [names.index(name) for name in columns]
        schema = pa.schema([self._schema.field(name) for name in columns])
        batches = (pa.record_batch([batch.column(place) for place in order], schema=schema) for batch in rows)
        return pa.RecordBatchReader.from_batches(schema, batches)

    def _kept(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        try:
            yield from reader
        except Exception as exc:
            self.failures.append(exc)
            raise
