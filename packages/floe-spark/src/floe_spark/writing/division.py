"""Divide a DataFrame by conditions: its rows are computed and evaluated once."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from floe_core.errors import FloeError, QueryError
from floe_core.identifiers import TableIdentifier
from floe_core.plugins import DividedFrame
from floe_iceberg.quarantine import FAILED_CHECKS
from floe_spark.errors import translate
from floe_spark.names import quoted

__all__ = ["divided"]


def divided(
    frame: DataFrame,
    conditions: Mapping[str, str],
    identifier: TableIdentifier,
    *,
    columns: Sequence[str],
    marks: Mapping[str, Any],
) -> DividedFrame:
    """The rows that meet no condition, and the others with the names of the conditions that they meet.

    Args:
        frame: The DataFrame.
        conditions: The conditions in Spark's SQL, by name.
        identifier: The table that the rows are for.
        columns: The columns that conditions refer to; one that the frame lacks is NULL.
        marks: The values of further columns of the moved rows.
    """
    known = {name.lower() for name in frame.columns}
    absent = {name: F.lit(None) for name in columns if name.lower() not in known}
    broken = [F.when(F.expr(condition), F.lit(name)) for name, condition in conditions.items()]
    try:
        # Computed once and kept by the executors, on disk if they lack memory: computing the rows again for the second
        # write could give others. If an executor loses them, the write fails.
        rows = (
            (frame.withColumns(absent) if absent else frame)
            .withColumn(FAILED_CHECKS, F.concat_ws(", ", *broken))
            .select(*(F.col(quoted(name)) for name in frame.columns), F.col(FAILED_CHECKS))
            .localCheckpoint()
        )
        is_kept = F.col(FAILED_CHECKS) == ""
        moved = rows.where(~is_kept)
        counts = {str(row[0]): int(row[1]) for row in moved.groupBy(FAILED_CHECKS).count().collect()}
    except FloeError:
        raise
    except (AnalysisException, ParseException) as exc:  # what the conditions say, not values of the rows
        reason = re.sub(r"\s*SQLSTATE: .*", "", str(exc).splitlines()[0]).rstrip(" .;")
        raise QueryError(
            f"the checks {', '.join(conditions)} of '{identifier}' could not be evaluated for quarantine: {reason}. "
            f"Nothing was written"
        ) from exc
    except Exception as exc:
        error = translate(exc, "spark.quarantine", identifier)
        if error is None:
            raise
        raise error from exc
    marked = moved.withColumns({name: _value(value) for name, value in marks.items()})
    return DividedFrame(rows.where(is_kept).drop(FAILED_CHECKS), marked, counts)


def _value(value: str | datetime | None) -> Column:
    return F.lit(None).cast("string") if value is None else F.lit(value)
