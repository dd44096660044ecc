"""A query in Spark's SQL, which was checked before: one statement that only reads tables of the lake."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyiceberg.table import Table
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from floe_core.errors import FloeError, FloeStorageError, QueryError
from floe_core.identifiers import TableIdentifier
from floe_core.observability import operation
from floe_core.security import redact
from floe_iceberg.catalogs import refuse_for_spark
from floe_iceberg.query import QueryResult
from floe_iceberg.reading import check_listed
from floe_iceberg.snapshots import refuse_disorder
from floe_spark.errors import translate

__all__ = ["query"]

_PLACE = re.compile(r";? ?line (\d+),? pos(?:ition)? (\d+)")
_TOO_LARGE = "spark.driver.maxResultSize"


def query(spark: SparkSession, text: str, tables: Sequence[tuple[TableIdentifier, Table, int | None]]) -> QueryResult:
    """Analyse a query now, and compute it when the result is read."""
    for identifier, table, snapshot_id in tables:
        refuse_for_spark(table)
        refuse_disorder(table.metadata, identifier)
        check_listed(None if snapshot_id is None else table.snapshot_by_id(snapshot_id), table.io)
    first = tables[0][0] if tables else None
    with operation("iceberg.sql", engine="spark", tables=sorted({str(identifier) for identifier, _, _ in tables})):
        try:
            # Only a query can stand in parentheses: anything else fails here, before it is executed.
            _ = spark.sql(f"SELECT * FROM (\n{text}\n)").schema  # noqa: S608 - it is the user's own query
            frame = spark.sql(text)
            schema = to_arrow_schema(frame.schema)
        except Exception as exc:
            raise _explained(exc, first, prefix_lines=1) from exc
    snapshots: dict[str, int | None] = {}
    for identifier, _, snapshot_id in tables:
        snapshots.setdefault(str(identifier), snapshot_id)
    return QueryResult(
        schema,
        [field.dataType.simpleString() for field in frame.schema.fields],
        lambda limit: _batches(frame, limit, first),
        snapshots=snapshots,
        close=lambda: None,
    )


def _batches(frame: DataFrame, limit: int | None, first: TableIdentifier | None) -> Iterator[pa.RecordBatch]:
    """The rows, which Spark collects on the driver; `limit` rows only, if it is given."""
    with operation("iceberg.sql_rows", engine="spark", limit=limit) as op:
        try:
            rows = (frame if limit is None else frame.limit(limit)).toArrow()
        except Exception as exc:
            raise _explained(exc, first, prefix_lines=0) from exc
        op.set(num_rows=rows.num_rows)
    yield from rows.to_batches()


def _explained(exc: Exception, table: TableIdentifier | None, *, prefix_lines: int) -> Exception:
    """The error of the query, or of the tables it reads; `prefix_lines` are in front of it in what Spark was given."""
    if isinstance(exc, FloeError):
        return exc
    text = redact(str(exc))
    if _TOO_LARGE in text:
        return FloeStorageError(
            "the result is larger than Spark returns at once; read fewer rows (--limit), write it to a table in an "
            f"asset, or set {_TOO_LARGE} in floe.yaml (spark: {{conf: {{{_TOO_LARGE}: 4g}}}})"
        )
    if isinstance(exc, AnalysisException | ParseException):
        return _query_error(text, prefix_lines)
    error = None if table is None else translate(exc, "spark.read", table)
    if error is not None:
        return error
    return _query_error(text, 0) if isinstance(exc, PySparkException) else exc


def _query_error(text: str, prefix_lines: int) -> QueryError:
    place = _PLACE.search(text)
    message = text.split("\n\n")[0].split("\n== ")[0]
    message = _PLACE.sub("", message.splitlines()[0] if message else "Spark refused the query")
    message = re.sub(r"\s*SQLSTATE: \w+", "", message).rstrip(" ;.")
    if place is None or int(place[1]) <= prefix_lines:
        return QueryError(message)
    return QueryError(message, line=int(place[1]) - prefix_lines, column=int(place[2]) + 1)
