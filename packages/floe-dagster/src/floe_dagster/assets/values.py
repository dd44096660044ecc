"""The kinds of values that assets return and take: which engine each goes through, and how it is made from a table."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any, Union, get_args, get_origin

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import DataScan, IncrementalAppendScan

from floe_core.errors import ConfigurationError

__all__ = ["Kind", "from_scan", "kind_of_annotation", "kind_of_value", "nothing"]


class Kind(str, Enum):
    """The supported kinds; each value is the name under which the class is imported."""

    SPARK = "pyspark.sql.DataFrame"
    ARROW = "pyarrow.Table"
    READER = "pyarrow.RecordBatchReader"
    PANDAS = "pandas.DataFrame"
    POLARS = "polars.DataFrame"
    LAZY = "polars.LazyFrame"


_KINDS = {
    ("pyspark", "DataFrame"): Kind.SPARK,
    ("pyarrow", "Table"): Kind.ARROW,
    ("pyarrow", "RecordBatch"): Kind.ARROW,
    ("pyarrow", "RecordBatchReader"): Kind.READER,
    ("pandas", "DataFrame"): Kind.PANDAS,
    ("polars", "DataFrame"): Kind.POLARS,
    ("polars", "LazyFrame"): Kind.LAZY,
}
_ALL = ", ".join(kind.value for kind in Kind)


def _kind(cls: type) -> Kind | None:
    """Compares names, so that none of the libraries has to be installed; subclasses count."""
    for base in cls.__mro__:
        kind = _KINDS.get((base.__module__.partition(".")[0], base.__name__))
        if kind is not None:
            return kind
    return None


def kind_of_value(value: object, asset: str) -> Kind:
    """The kind of value that an asset returned; the error lists the supported kinds."""
    kind = _kind(type(value))
    if kind is None:
        returned = "None" if value is None else _name(type(value))
        raise ConfigurationError(
            f"asset {asset} returned {returned}, which is no table; return one of {_ALL}, or "
            f"annotate the function with -> None if it has nothing to store. Nothing was written"
        )
    return kind


def kind_of_annotation(annotation: Any, name: str, *, default: Kind = Kind.SPARK) -> Kind:
    """The kind of value that an input is loaded as; `default` where it is not annotated."""
    if annotation is None or annotation is Any or annotation is type(None):
        return default
    if get_origin(annotation) in (Union, types.UnionType):
        inner = [member for member in get_args(annotation) if member is not type(None)]
        if len(inner) == 1:
            return kind_of_annotation(inner[0], name, default=default)
    kind = _kind(annotation) if isinstance(annotation, type) else None
    if kind is None or annotation is pa.RecordBatch:
        raise ConfigurationError(
            f"input {name!r} is annotated as {_name(annotation)}, which Floe cannot make from a table; annotate it as "
            f"one of {_ALL}, or leave it out for a {default.value}"
        )
    return kind


def _name(kind: Any) -> str:
    if not isinstance(kind, type):
        return str(kind)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def from_scan(kind: Kind, scan: DataScan | IncrementalAppendScan) -> Any:
    """The rows of a scan, with columns and filter pushed down."""
    if kind is Kind.READER:
        return scan.to_arrow_batch_reader()
    if kind is Kind.PANDAS:
        return scan.to_arrow().to_pandas()
    if kind is Kind.POLARS:
        import polars as pl

        return pl.from_arrow(scan.to_arrow())
    if kind is Kind.LAZY:
        return _lazy(scan)
    return scan.to_arrow()


def _lazy(scan: DataScan | IncrementalAppendScan) -> Any:
    """A frame that reads nothing until it is collected, and then only the columns and rows it needs."""
    import polars as pl
    from polars.io.plugins import register_io_source

    def read(columns: list[str] | None, predicate: Any, rows: int | None, _size: int | None) -> Iterator[Any]:
        chosen = scan if columns is None else scan.update(selected_fields=tuple(columns))
        for batch in chosen.to_arrow_batch_reader():
            frame: Any = pl.from_arrow(batch)
            frame = frame if predicate is None else frame.filter(predicate)
            if rows is not None:
                frame = frame.head(rows)
                rows -= len(frame)
            yield frame
            if rows == 0:
                return

    columns: Any = pl.from_arrow(schema_to_pyarrow(scan.projection(), include_field_ids=False).empty_table())
    return register_io_source(read, schema=columns.schema)


def nothing(kind: Kind, spark: Callable[[], Any]) -> Any:
    """The value for a table that does not exist yet: no rows and no columns."""
    empty = pa.table({})
    if kind is Kind.SPARK:
        from pyspark.sql.types import StructType

        return spark().createDataFrame([], StructType([]))
    if kind is Kind.READER:
        return empty.to_reader()
    if kind is Kind.PANDAS:
        return empty.to_pandas()
    if kind in (Kind.POLARS, Kind.LAZY):
        import polars as pl

        return pl.DataFrame() if kind is Kind.POLARS else pl.LazyFrame()
    return empty
