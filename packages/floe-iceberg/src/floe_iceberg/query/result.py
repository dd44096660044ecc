"""The result of a query: its columns, and its rows, which are computed while they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from importlib.util import find_spec
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from floe_core.errors import IncompatibleLibraryError, QueryError
from floe_core.notebooks import table_html
from floe_iceberg.arguments import check_limit
from floe_iceberg.reading import shown_values

if TYPE_CHECKING:
    import pandas
    import polars
    from typing_extensions import Self

__all__ = ["QueryResult"]

_SHOWN = 20  # rows in a notebook


class QueryResult:
    """The rows of a query, computed while they are read.

    `batches` passes them on once, in bounded memory. `to_arrow`, `to_pandas` and `to_polars` hold them all, and may be
    called repeatedly. Close a result that is not read to its end: with `close`, or as a context manager.

    Attributes:
        schema: The columns as Arrow types.
        types: The type of each column, as the engine calls it.
        snapshots: The snapshot that each table was read at; of several, the one that was read first.
    """

    def __init__(
        self,
        schema: pa.Schema,
        types: Sequence[str],
        start: Callable[[int | None], Iterator[pa.RecordBatch]],
        *,
        snapshots: Mapping[str, int | None],
        close: Callable[[], None],
    ) -> None:
        self.schema = schema
        self.types = tuple(types)
        self.snapshots = dict(snapshots)
        self._start: Callable[[int | None], Iterator[pa.RecordBatch]] | None = start
        self._close: Callable[[], None] | None = close
        self._table: pa.Table | None = None
        self._head: tuple[pa.RecordBatch, ...] = ()  # batches that were computed to be shown, and not passed on yet
        self._rest: Iterator[pa.RecordBatch] | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self.schema.names)

    def batches(self, limit: int | None = None) -> Iterator[pa.RecordBatch]:
        """The rows in batches, once; afterwards the result is closed.

        Args:
            limit: The maximum number of rows. The rest is not computed.
        """
        check_limit(limit)
        if self._table is not None:
            yield from _up_to(limit, iter(self._table.to_batches()))
            return
        start, self._start = self._start, None
        head, rest, self._head, self._rest = self._head, self._rest, (), None
        if start is None and rest is None:
            raise QueryError("the rows of this result were read already; run the query again, or use to_arrow")
        try:
            if start is not None:
                rest = start(limit)
            yield from _up_to(limit, chain(head, rest or ()))
        finally:
            self.close()

    def to_arrow(self) -> pa.Table:
        """All rows as an Arrow table."""
        if self._table is None:
            self._table = pa.Table.from_batches(self.batches(), schema=self.schema)
        return self._table

    def to_pandas(self, **options: Any) -> pandas.DataFrame:
        """All rows as a pandas DataFrame.

        Args:
            options: The options of `pyarrow.Table.to_pandas`.
        """
        _require("pandas")
        frame: pandas.DataFrame = self.to_arrow().to_pandas(**options)
        return frame

    def to_polars(self) -> polars.DataFrame:
        """All rows as a polars DataFrame."""
        _require("polars")
        import polars

        frame = polars.from_arrow(self.to_arrow())
        assert isinstance(frame, polars.DataFrame)  # noqa: S101 - of a table, not of one column
        return frame

    def close(self) -> None:
        """Stop the query, and free what it holds. A second call does nothing."""
        close, self._close = self._close, None
        self._start, self._rest, self._head = None, None, ()
        if close is not None:
            close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def _repr_html_(self) -> str:
        """The first rows; they stay in the result."""
        rows = self._first_rows()
        if rows is None:
            return f"<p>{escape(repr(self))}: its rows were read</p>"
        shown = rows.slice(0, _SHOWN)
        values = (shown_values(column.combine_chunks()) for column in shown.columns)
        cells = [["NULL" if value is None else value for value in column] for column in values]
        table = table_html(list(zip(self.columns, cells, strict=True)))
        return table if rows.num_rows <= _SHOWN else f"{table}<p>the first {_SHOWN} rows</p>"

    def _first_rows(self) -> pa.Table | None:
        """More rows than are shown, if there are; None if they were passed on already."""
        if self._table is not None:
            return self._table
        if self._start is not None:
            self._rest, self._start = self._start(None), None
        if self._rest is None:
            return None
        while sum(batch.num_rows for batch in self._head) <= _SHOWN:
            batch = next(self._rest, None)
            if batch is None:
                break
            self._head = (*self._head, batch)
        return pa.Table.from_batches(self._head, schema=self.schema)

    def __repr__(self) -> str:
        columns = ", ".join(f"{name} {kind}" for name, kind in zip(self.columns, self.types, strict=True))
        return f"QueryResult({columns})"


def _up_to(limit: int | None, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    left = limit
    while left is None or left > 0:
        batch = next(batches, None)
        if batch is None:
            return
        batch = batch if left is None else batch.slice(0, left)
        left = None if left is None else left - batch.num_rows
        yield batch


def _require(library: str) -> None:
    """Refuse before the rows are read: a result passes them on once."""
    if find_spec(library) is None:
        raise IncompatibleLibraryError(
            f"to_{library} needs {library}, which is not installed: pip install {library}", name=library
        )
