"""Data to be written, whatever it is held in: one Arrow schema, and batches that come once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
from pyiceberg.schema import Schema

from floe_core.errors import ConfigurationError, SchemaEvolutionError
from floe_iceberg.types import column_problems, lasting_type

__all__ = ["ArrowData", "Incoming", "Sample", "incoming"]

# pa.Table, pa.RecordBatch, pa.RecordBatchReader, pandas.DataFrame, polars.DataFrame, polars.LazyFrame: the last three
# are known by their module, so that none of them has to be installed.
ArrowData: TypeAlias = Any

# Rows that are converted and split at a time: enough to be quick, little enough to be forgotten.
_STEP_BYTES = 32 * 2**20
# Rows that are kept to be shown are no more than this.
_SAMPLE_BYTES = 2**20


@dataclass(frozen=True)
class Incoming:
    """What arrives: the schema as Iceberg will hold it, and the batches as they are.

    Whether a column in memory holds nulls is a fact; that its type would allow them says little. `full` names those
    that are known to hold none.
    """

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    full: frozenset[str] = frozenset()

    @property
    def untyped(self) -> list[str]:
        """The columns that hold nothing but NULL and have no type."""
        return [one.name for one in self.schema if pa.types.is_null(one.type)]

    def schema_for(self, table: Schema | None) -> pa.Schema:
        """The schema as it meets this table, or a new one.

        A column that holds nothing but NULL and has no type takes the table's; one that is full meets the table's
        demand for values.
        """
        known = {one.name.lower() for one in table.fields} if table is not None else set()
        untyped = self.untyped
        unknown = [name for name in untyped if name.lower() not in known]
        if unknown:
            raise SchemaEvolutionError(
                f"{', '.join(map(repr, unknown))} holds only NULL and has no type; cast or drop it. Nothing was written"
            )
        full = self.full if table is not None else frozenset[str]()
        return pa.schema(
            [one.with_nullable(one.nullable and one.name not in full) for one in self.schema if one.name not in untyped]
        )


class Sample:
    """The first rows that come by, copied: they must not keep the batches alive that they came in."""

    def __init__(self, rows: int) -> None:
        self.seen = 0  # of all rows
        self._wanted = rows
        self._batches: list[pa.RecordBatch] = []

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch, of which some rows were noted if more are wanted."""
        self.seen += len(batch)
        if self._wanted and len(batch):
            row_bytes = max(1, batch.nbytes // len(batch))
            rows = min(self._wanted, len(batch), max(1, _SAMPLE_BYTES // row_bytes))
            self._wanted = (
                self._wanted - rows if rows == min(self._wanted, len(batch)) else 0
            )  # wide rows: a few will do
            self._batches.append(batch.take(pa.array(range(rows), pa.int64())))
        return batch

    def taken(self) -> pa.Table | None:
        return pa.Table.from_batches(self._batches) if self._batches else None


def incoming(data: ArrowData) -> Incoming:
    """Look at the data without copying it; a stream is not read yet."""
    if isinstance(data, Incoming):
        return data
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if isinstance(data, pa.RecordBatchReader):
        schema = _lasting(data.schema)
        return Incoming(schema, _as_promised(data, schema))
    if isinstance(data, pa.Table):
        return _of_table(data)
    # A class that is derived from one of theirs is one of theirs.
    names = [(one.__module__.partition(".")[0], one.__name__) for one in type(data).__mro__]
    if ("pandas", "DataFrame") in names:
        return _of_table(_of_pandas(data))
    if ("polars", "DataFrame") in names:
        return _of_table(_of_polars(data))
    if ("polars", "LazyFrame") in names:
        return _of_lazy_frame(data)
    library, kind = names[0]
    raise ConfigurationError(
        f"data is a {library}.{kind}; it must be a pyarrow Table or RecordBatchReader, a pandas DataFrame, or a polars "
        f"DataFrame or LazyFrame (a Spark DataFrame is written with floe_spark.write)"
    )


def _of_table(table: pa.Table) -> Incoming:
    full = frozenset(name for at, name in enumerate(table.schema.names) if not table.column(at).null_count)
    row_bytes = max(1, table.nbytes // max(1, table.num_rows))
    batches = iter(table.to_batches(max_chunksize=max(1024, _STEP_BYTES // row_bytes)))
    return Incoming(_lasting(table.schema), batches, full)


def _as_promised(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The batches of a stream, each of them with the columns that the stream said it has."""
    for batch in batches:
        have = pa.schema([(one.name, lasting_type(one.type)) for one in batch.schema])
        if have != pa.schema([(one.name, one.type) for one in schema]):
            raise SchemaEvolutionError(
                f"the data said it has {_words(schema)}, and then came a batch with {_words(have)}; give all batches "
                f"one schema. Nothing was written"
            )
        yield batch


def _words(schema: pa.Schema) -> str:
    return ", ".join(f"{one.name} {one.type}" for one in schema) or "no columns"


def _of_pandas(frame: Any) -> pa.Table:
    names = [str(name) for name in frame.index.names if name is not None]
    # Numbers without a name count the rows, or did so before some were filtered out; anything else means something.
    if names or frame.index.dtype.kind not in "iu":
        raise ConfigurationError(
            f"the pandas index {', '.join(names) or f'of {frame.index.dtype}'} would be lost: write "
            f"frame.reset_index(), or frame.reset_index(drop=True) if it is not needed. Nothing was written"
        )
    try:
        return pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
    except (ValueError, TypeError) as exc:  # Arrow's are both; of columns named alike
        raise SchemaEvolutionError(f"pandas data that Arrow cannot hold: {exc.args[0]}. Nothing was written") from exc


def _of_polars(frame: Any) -> pa.Table:
    objects = [name for name, kind in frame.schema.items() if type(kind).__name__ == "Object"]
    if objects:
        raise SchemaEvolutionError(
            f"{', '.join(map(repr, objects))} holds Python objects, which only polars knows; cast or drop it. Nothing "
            f"was written"
        )
    try:
        return frame.to_arrow()
    except pa.ArrowInvalid as exc:
        raise SchemaEvolutionError(f"polars data that Arrow cannot hold: {exc.args[0]}. Nothing was written") from exc


def _of_lazy_frame(frame: Any) -> Incoming:
    schema = _lasting(_of_polars(frame.clear().collect()).schema)
    # Older releases of polars cannot hand out a result in pieces.
    pieces = frame.collect_batches() if hasattr(frame, "collect_batches") else iter([frame.collect()])
    batches = (batch for piece in pieces for batch in _of_polars(piece).to_batches())
    return Incoming(schema, _as_promised(batches, schema))


def _lasting(schema: pa.Schema) -> pa.Schema:
    problems = column_problems(schema)
    if problems:
        raise SchemaEvolutionError(f"{'; '.join(problems)}. Nothing was written")
    return pa.schema([one.with_type(lasting_type(one.type)) for one in schema])
