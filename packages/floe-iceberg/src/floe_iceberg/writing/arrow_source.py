"""Data to be written, from any library: one Arrow schema, and batches that can be read once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
from pyiceberg.schema import Schema

from floe_core.errors import ConfigurationError, SchemaEvolutionError
from floe_iceberg.schema.types import column_problems, iceberg_storage_type

__all__ = ["ArrowData", "ArrowSource", "Sample", "source_of"]

# pa.Table, pa.RecordBatch, pa.RecordBatchReader, pandas.DataFrame, polars.DataFrame, polars.LazyFrame: the last three
# are recognized by their module, so that none of them has to be installed.
ArrowData: TypeAlias = Any

# Rows converted and split at a time: enough to be fast, few enough not to matter for memory.
_STEP_BYTES = 32 * 2**20
# The maximum size of the sample of rows.
_SAMPLE_BYTES = 2**20


@dataclass(frozen=True)
class ArrowSource:
    """Data to be written: its schema as Iceberg stores it, and its batches as they are.

    Nullability of in-memory data is observed, not taken from its declared type: `full` names the columns that are
    known to hold no NULL.
    """

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    full: frozenset[str] = frozenset()
    rows: int | None = None  # in all batches, if they are in memory

    @property
    def untyped(self) -> list[str]:
        """The columns that hold only NULL and have no type."""
        return [column.name for column in self.schema if pa.types.is_null(column.type)]

    def schema_for(self, table: Schema | None) -> pa.Schema:
        """The schema for a write to this table, or to a new one.

        A column that holds only NULL and has no type takes the table's type; a column without NULL satisfies a
        required one.
        """
        known = {column.name.lower() for column in table.fields} if table is not None else set()
        untyped = self.untyped
        unknown = [name for name in untyped if name.lower() not in known]
        if unknown:
            raise SchemaEvolutionError(
                f"{', '.join(map(repr, unknown))} holds only NULL and has no type; cast or drop it. Nothing was written"
            )
        full = self.full if table is not None else frozenset[str]()
        return pa.schema(
            [
                column.with_nullable(column.nullable and column.name not in full)
                for column in self.schema
                if column.name not in untyped
            ]
        )


class Sample:
    """The first rows of the data, copied: they must not keep their batches in memory."""

    def __init__(self, rows: int) -> None:
        self.seen = 0  # the number of rows in all batches
        self._wanted = rows
        self._batches: list[pa.RecordBatch] = []

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch; copy some of its rows if the sample is not complete yet."""
        self.seen += len(batch)
        if self._wanted and len(batch):
            row_bytes = max(1, batch.nbytes // len(batch))
            rows = min(self._wanted, len(batch), max(1, _SAMPLE_BYTES // row_bytes))
            self._wanted = (
                self._wanted - rows if rows == min(self._wanted, len(batch)) else 0
            )  # wide rows: a few are enough
            self._batches.append(batch.take(pa.array(range(rows), pa.int64())))
        return batch

    def taken(self) -> pa.Table | None:
        return pa.Table.from_batches(self._batches) if self._batches else None


def source_of(data: ArrowData) -> ArrowSource:
    """Describe the data without copying it; a stream is not read yet."""
    if isinstance(data, ArrowSource):
        return data
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if isinstance(data, pa.RecordBatchReader):
        schema = _storage_schema(data.schema)
        return ArrowSource(schema, _checked_batches(data, schema))
    if isinstance(data, pa.Table):
        return _of_table(data)
    # Subclasses of the supported classes are supported too.
    names = [(base.__module__.partition(".")[0], base.__name__) for base in type(data).__mro__]
    if ("pandas", "DataFrame") in names:
        return _of_table(_of_pandas(data))
    if ("polars", "DataFrame") in names:
        return _of_table(_of_polars(data))
    if ("polars", "LazyFrame") in names:
        return _of_lazy_frame(data)
    library, kind = names[0]
    raise ConfigurationError(
        f"data is a {library}.{kind}; it must be a pyarrow Table or RecordBatchReader, a pandas DataFrame, or a polars "
        f"DataFrame or LazyFrame (a Spark DataFrame is written with floe_spark.writing.write)"
    )


def _of_table(table: pa.Table) -> ArrowSource:
    full = frozenset(name for index, name in enumerate(table.schema.names) if not table.column(index).null_count)
    row_bytes = max(1, table.nbytes // max(1, table.num_rows))
    batches = iter(table.to_batches(max_chunksize=max(1024, _STEP_BYTES // row_bytes)))
    return ArrowSource(_storage_schema(table.schema), batches, full, table.num_rows)


def _checked_batches(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The batches of a stream, each checked against the schema that the stream declares."""
    for batch in batches:
        have = pa.schema([(column.name, iceberg_storage_type(column.type)) for column in batch.schema])
        if have != pa.schema([(column.name, column.type) for column in schema]):
            raise SchemaEvolutionError(
                f"the data declares {_described(schema)}, but a batch has {_described(have)}; give all batches one "
                f"schema. Nothing was written"
            )
        yield batch


def _described(schema: pa.Schema) -> str:
    return ", ".join(f"{column.name} {column.type}" for column in schema) or "no columns"


def _of_pandas(frame: Any) -> pa.Table:
    names = [str(name) for name in frame.index.names if name is not None]
    # An unnamed integer index counts the rows, or did so before a filter; any other index carries data.
    if names or frame.index.dtype.kind not in "iu":
        raise ConfigurationError(
            f"the pandas index {', '.join(names) or f'of {frame.index.dtype}'} would be lost: write "
            f"frame.reset_index(), or frame.reset_index(drop=True) if it is not needed. Nothing was written"
        )
    try:
        return pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
    except (ValueError, TypeError) as exc:  # ArrowInvalid, ArrowTypeError; a plain ValueError for duplicate names
        raise SchemaEvolutionError(f"pandas data that Arrow cannot hold: {exc.args[0]}. Nothing was written") from exc


def _of_polars(frame: Any) -> pa.Table:
    objects = [name for name, kind in frame.schema.items() if type(kind).__name__ == "Object"]
    if objects:
        raise SchemaEvolutionError(
            f"{', '.join(map(repr, objects))} holds Python objects, which Arrow cannot hold; cast or drop it. Nothing "
            f"was written"
        )
    try:
        return frame.to_arrow()
    except pa.ArrowInvalid as exc:
        raise SchemaEvolutionError(f"polars data that Arrow cannot hold: {exc.args[0]}. Nothing was written") from exc


def _of_lazy_frame(frame: Any) -> ArrowSource:
    schema = _storage_schema(_of_polars(frame.clear().collect()).schema)
    # Older releases of polars cannot return a result in batches.
    pieces = frame.collect_batches() if hasattr(frame, "collect_batches") else iter([frame.collect()])
    batches = (batch for piece in pieces for batch in _of_polars(piece).to_batches())
    return ArrowSource(schema, _checked_batches(batches, schema))


def _storage_schema(schema: pa.Schema) -> pa.Schema:
    problems = column_problems(schema)
    if problems:
        raise SchemaEvolutionError(f"{'; '.join(problems)}. Nothing was written")
    return pa.schema([column.with_type(iceberg_storage_type(column.type)) for column in schema])
