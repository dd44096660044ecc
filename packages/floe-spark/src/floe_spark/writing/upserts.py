"""Upserts: rows found by their keys take the new values, the others are added, in one MERGE."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import suppress
from functools import reduce
from operator import or_

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from floe_core.errors import ConfigurationError, FloeStorageError
from floe_iceberg.schema import no_column
from floe_iceberg.writing import Committed, WriteRequest
from floe_spark.jvm.connect import session_with
from floe_spark.names import quoted
from floe_spark.reading.lineage import Base
from floe_spark.writing.commits import Commit

__all__ = ["keyed", "merge"]

_EXAMPLES = 3
_ATTEMPTS = 5


def keyed(frame: DataFrame, request: WriteRequest, *schemas: Schema) -> tuple[DataFrame, int]:
    """The frame, computed once, and its number of rows; every key is checked to be present and unique.

    Spark evaluates the source of a MERGE more than once, and the check of the keys does so again: rand(), a clock or a
    source that changes would give other rows each time.
    """
    for schema in schemas:
        named = {field.name.lower() for field in schema.fields}
        inside = [key for key in request.keys if key.lower() not in named]
        unknown = no_column(inside, schema) or (f"no top-level column {', '.join(inside)}" if inside else None)
        if unknown:
            raise ConfigurationError(f"keys: '{request.identifier}' has {unknown}. Nothing was written")
    rows = frame.localCheckpoint()
    return rows, _checked(rows, request)


def _checked(rows: DataFrame, request: WriteRequest) -> int:
    """The number of rows; raises unless each has a key of its own."""
    columns = [F.col(quoted(key)) for key in request.keys]
    counted = rows.groupBy(*columns).agg(F.count(F.lit(1)).alias("__rows"))
    missing = F.greatest(*(column.isNull() for column in columns), F.lit(False))
    floats = {name.lower() for name, kind in rows.dtypes if kind in ("float", "double")}
    # NaN is no key on either engine: Spark considers it equal to itself, Iceberg and Arrow do not.
    nan = reduce(or_, (F.isnan(F.col(quoted(key))) for key in request.keys if key.lower() in floats), F.lit(False))
    twice = ~missing & ~nan & (F.col("__rows") > 1)
    totals = counted.agg(
        F.sum(F.when(missing, F.col("__rows"))),
        F.sum(F.when(nan, F.col("__rows"))),
        F.count(F.when(twice, 1)),
        F.sum(F.col("__rows")),
    ).collect()[0]
    without, nans, repeated, count = (int(total or 0) for total in totals)
    problems = []
    if without:
        which = f" ({_examples(counted.where(missing), request.keys)})" if len(request.keys) > 1 else ""
        problems.append(f"{without} {'row has' if without == 1 else 'rows have'} no {' or '.join(request.keys)}{which}")
    if nans:
        problems.append(f"{nans} {'row has' if nans == 1 else 'rows have'} NaN as {' or '.join(request.keys)}")
    if repeated:
        which = _examples(counted.where(twice), request.keys)
        problems.append(f"{repeated} {'key occurs' if repeated == 1 else 'keys occur'} more than once ({which})")
    if problems:
        raise FloeStorageError(
            f"the data cannot be upserted into '{request.identifier}' by {', '.join(request.keys)}: "
            f"{'; '.join(problems)}. Every row needs a key of its own. Nothing was written"
        )
    return count


def _examples(counted: DataFrame, keys: Sequence[str]) -> str:
    shown = counted.select([F.col(quoted(key)).cast("string") for key in keys]).limit(_EXAMPLES).collect()
    texts = [["NULL" if value is None else str(value) for value in row] for row in shown]
    if len(keys) == 1:
        return ", ".join(row[0] for row in texts)
    return "; ".join(", ".join(f"{key} = {value}" for key, value in zip(keys, row, strict=True)) for row in texts)


def merge(commit: Commit, rows: DataFrame, table: Table, base: Base, given: Sequence[str]) -> Committed:
    """MERGE the rows, fitted to the table; a matched row keeps its values of columns that were not `given`.

    Iceberg itself detects changes from the moment that MERGE reads the table. Rows that were made from an earlier read
    are published only if the table has not changed since.
    """
    request, spark = commit.request, rows.sparkSession
    if base.was_read:
        base.refuse_changes(request, table)
    view = f"floe_{uuid.uuid4().hex}"
    # MERGE takes no options: only the session's settings reach the snapshot's summary.
    summary = {f"spark.sql.iceberg.snapshot-property.{key}": value for key, value in request.summary.items()}
    rows.createGlobalTempView(view)

    def act(branch: str | None) -> None:
        with session_with(spark, summary) as session:
            session.sql(_statement(request, commit.table_name(branch), view, rows.columns, given)).collect()

    try:
        # The effect of the rows depends on the table: after a conflict they are merged into its new state.
        return commit.run(act, fresh=not base.was_read, attempts=1 if base.was_read else _ATTEMPTS)
    finally:
        with suppress(Exception):  # a view that stays is harmless; the write's own outcome is the one to report
            spark.catalog.dropGlobalTempView(view)


def _statement(request: WriteRequest, target: str, view: str, columns: Sequence[str], given: Sequence[str]) -> str:
    keys = {key.lower() for key in request.keys}
    updated = [column for column in columns if column.lower() in {name.lower() for name in given} - keys]
    same = " AND ".join(f"t.{quoted(key)} = s.{quoted(key)}" for key in request.keys)
    changes = ", ".join(f"t.{quoted(column)} = s.{quoted(column)}" for column in updated)
    names, values = (", ".join(f"{prefix}{quoted(column)}" for column in columns) for prefix in ("", "s."))
    return (
        f"MERGE INTO {target} t USING global_temp.{view} s ON {same} "  # noqa: S608 - quoted names
        f"{f'WHEN MATCHED THEN UPDATE SET {changes} ' if changes else ''}"
        f"WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({values})"
    )
