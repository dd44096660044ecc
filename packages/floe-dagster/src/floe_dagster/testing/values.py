"""The kinds of values that assets return and take, each converted from and to an Arrow table."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

__all__ = ["VALUES", "Values", "spark_values"]


class _CannotComputeError(RuntimeError):
    """The failure of a lazily computed value."""


@dataclass(frozen=True)
class Values:
    """One kind of value.

    Args:
        name: Used in the test ids.
        annotation: The type annotation of results and inputs.
        make: Makes a value from an Arrow table.
        rows: The rows of a loaded value, as an Arrow table.
        failing: Makes a lazy value that fails before its last row; None if the kind is never lazy.
    """

    name: str
    annotation: Any
    make: Callable[[pa.Table], Any]
    rows: Callable[[Any], pa.Table]
    failing: Callable[[pa.Table], Any] | None = None


def _arrow() -> Values:
    return Values("arrow", pa.Table, make=lambda rows: rows, rows=lambda value: value)


def _reader() -> Values:
    def failing(rows: pa.Table) -> pa.RecordBatchReader:
        def batches() -> Iterator[pa.RecordBatch]:
            yield from rows.slice(0, rows.num_rows - 1).to_batches()
            raise _CannotComputeError("the last batch")

        return pa.RecordBatchReader.from_batches(rows.schema, batches())

    return Values(
        "reader",
        pa.RecordBatchReader,
        make=lambda rows: rows.to_reader(max_chunksize=2),
        rows=lambda value: value.read_all(),
        failing=failing,
    )


def _pandas() -> Values:
    import pandas as pd

    return Values(
        "pandas",
        pd.DataFrame,
        make=lambda rows: rows.to_pandas(),
        rows=lambda value: pa.Table.from_pandas(value, preserve_index=False),
    )


def _polars() -> Values:
    import polars as pl

    return Values("polars", pl.DataFrame, make=pl.from_arrow, rows=lambda value: value.to_arrow())


def _lazy() -> Values:
    import polars as pl

    def lazy(rows: pa.Table) -> pl.LazyFrame:
        frame = pl.from_arrow(rows)
        assert isinstance(frame, pl.DataFrame)  # noqa: S101 - a table is a frame, a column would be a series
        return frame.lazy()

    def fail(frame: pl.DataFrame) -> pl.DataFrame:
        if frame.height:
            raise _CannotComputeError("the rows")
        return frame

    return Values(
        "lazy",
        pl.LazyFrame,
        make=lazy,
        rows=lambda value: value.collect().to_arrow(),
        failing=lambda rows: lazy(rows).map_batches(fail),
    )


# Made on demand: a project needs only some of these libraries.
VALUES: Mapping[str, Callable[[], Values]] = {
    "arrow": _arrow,
    "reader": _reader,
    "pandas": _pandas,
    "polars": _polars,
    "lazy": _lazy,
}


def spark_values(session: Callable[[], Any]) -> Values:
    """Spark DataFrames; `session` is called when the first one is made."""
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention
    from pyspark.sql.pandas.types import from_arrow_schema

    def make(rows: pa.Table) -> DataFrame:
        frame: DataFrame = session().createDataFrame(rows, from_arrow_schema(rows.schema, prefer_timestamp_ntz=True))
        return frame

    def failing(rows: pa.Table) -> DataFrame:
        last = max(rows.column("id").to_pylist())
        fail = F.raise_error(F.lit("the last row")).cast("bigint")
        return make(rows).withColumn("id", F.when(F.col("id") == last, fail).otherwise(F.col("id")))

    return Values("spark", DataFrame, make=make, rows=lambda value: value.toArrow(), failing=failing)
