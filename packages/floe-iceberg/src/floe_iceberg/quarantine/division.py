"""Divide Arrow data by conditions, in bounded memory: each row is evaluated once."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema

from floe_core.errors import FloeError, QueryError
from floe_core.identifiers import TableIdentifier
from floe_iceberg.quarantine.conditions import CHECKED
from floe_iceberg.query.session import Session, quoted
from floe_iceberg.schema.types import ArrowCaster

__all__ = ["FAILED_CHECKS", "RowDivision"]

# The column with the names of the checks that a row breaks.
FAILED_CHECKS = "floe_failed_checks"
_PLACE = "floe_place"


class RowDivision:
    """Rows that break no condition are passed on; the others wait in a temporary file. Close it when done.

    Args:
        conditions: What is true for the rows that break a check, by the name of the check, in DuckDB's SQL.
        schema: The columns that the conditions are evaluated on; all of them optional.
        table: The table, for errors.
        shows_values: Whether an error of the engine may be shown, which may hold values.
        truncate_nanoseconds: Truncate timestamps to microseconds.

    Attributes:
        counts: The rows that break each check.
        rows: The rows that break at least one.
    """

    def __init__(
        self,
        conditions: Mapping[str, str],
        schema: Schema,
        table: TableIdentifier,
        *,
        shows_values: bool,
        truncate_nanoseconds: bool = False,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.rows = 0
        self._names, self._table, self._shows_values = list(conditions), table, shows_values
        self._caster = ArrowCaster(schema_to_pyarrow(schema, include_field_ids=False), truncate_nanoseconds)
        self.schema = self._caster.target.append(pa.field(FAILED_CHECKS, pa.string()))
        broken = [f"coalesce(({bad}), FALSE) AS c{number}" for number, bad in enumerate(conditions.values())]
        any_broken = " OR ".join(f"c{number}" for number in range(len(broken)))
        inner = f"SELECT {quoted(_PLACE)}, {', '.join(broken)} FROM {CHECKED}"  # noqa: S608 - was parsed
        self._query = f"SELECT * FROM ({inner}) AS evaluated WHERE {any_broken}"  # noqa: S608 - as above
        self._file: IO[bytes] | None = None
        self._writer: pa.RecordBatchWriter | None = None
        self._session = Session()
        try:
            self._session.allow_only(())
            self._session.lock()
            self._broken(self._caster.target.empty_table(), shows_values=True)  # a mistake in a condition has no values
        except BaseException:
            self.close()
            raise

    def kept(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows that break no condition; the others are added to the file."""
        for batch in batches:
            yield self._divided(batch) if len(batch) else batch

    def moved(self) -> pa.RecordBatchReader:
        """The rows that break a condition, with the names of their checks; once, after `kept` has ended."""
        if self._writer is None or self._file is None:
            return pa.RecordBatchReader.from_batches(self.schema, [])
        self._writer.close()
        self._file.seek(0)
        return pa.ipc.open_stream(self._file)

    def close(self) -> None:
        """End the engine, and remove the temporary file."""
        self._session.close()
        if self._file is not None:
            self._file.close()

    def _divided(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        fitted = self._caster.fit(batch)
        broken = self._broken(pa.Table.from_batches([fitted]), shows_values=self._shows_values)
        if not len(broken):
            return batch
        places = broken[_PLACE].combine_chunks()
        self._add(fitted.take(places), broken)
        keep = pc.invert(pc.is_in(pa.array(range(len(batch)), pa.int64()), places))
        try:
            return batch.filter(keep)
        except pa.ArrowNotImplementedError:  # Arrow cannot filter every type; the fitted columns are plain
            return fitted.filter(keep)

    def _broken(self, rows: pa.Table, *, shows_values: bool) -> pa.Table:
        """The places of the rows that break a condition, in order, and a column for each condition."""
        placed = rows.append_column(_PLACE, pa.array(range(len(rows)), pa.int64()))
        connection = self._session.connection

        def evaluate() -> pa.Table:
            connection.register(CHECKED, placed)
            try:
                return connection.sql(self._query).to_arrow_table()
            finally:
                connection.unregister(CHECKED)

        try:
            return self._session.call(evaluate).sort_by(_PLACE)
        except FloeError:
            raise
        except Exception as exc:
            if not type(exc).__module__.startswith(("duckdb", "_duckdb")):
                raise
            raise self._failure(exc, shows_values=shows_values) from exc

    def _failure(self, exc: Exception, *, shows_values: bool) -> QueryError:
        from floe_iceberg.query.failures import reported

        message = " ".join(str(reported(exc).get("exception_message", "")).split("\n\n")[0].split())
        reason = message if shows_values else "its error is not shown, because the table has sensitive columns"
        return QueryError(
            f"the checks {', '.join(self._names)} of '{self._table}' could not be evaluated for quarantine: {reason}. "
            f"Nothing was written"
        )

    def _add(self, rows: pa.RecordBatch, broken: pa.Table) -> None:
        found = [broken[f"c{number}"].combine_chunks() for number in range(len(self._names))]
        names = [
            pc.if_else(column, name, pa.scalar(None, pa.string()))
            for name, column in zip(self._names, found, strict=True)
        ]
        text = pc.binary_join_element_wise(*names, ", ", null_handling="skip")
        self.rows += len(rows)
        self.counts.update({name: pc.sum(column).as_py() for name, column in zip(self._names, found, strict=True)})
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="floe-quarantine-")  # noqa: SIM115 - closed with the division
            self._writer = pa.ipc.new_stream(self._file, self.schema)
        if self._writer is not None:
            self._writer.write_batch(pa.RecordBatch.from_arrays([*rows.columns, text], schema=self.schema))
