"""Resolve the names in a frame once, when its write begins: every part of the write then sees the same rows."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from pyspark.sql import DataFrame

from floe_spark.jvm.connect import is_remote

__all__ = ["Source", "pinned"]


@dataclass(frozen=True)
class Source:
    """The frame that a write stores, and the given frame, whose plan has the lineage."""

    frame: DataFrame
    given: DataFrame


@contextmanager
def pinned(given: DataFrame) -> Iterator[Source]:
    """The frame as it is now: a view that is replaced or dropped later does not change its rows.

    Spark analyses the outermost operator of a frame again when it is written. The result of `spark.sql` would
    therefore read the views of its text as they are at that moment, and not as they were when the frame was made.
    """
    if not is_remote(given.sparkSession):
        # A derived frame carries the analysed plan of the frame below it. An alias adds nothing to execute.
        yield Source(given.alias("floe_source"), given)
        return
    # A Connect client keeps no analysed plan: the server resolves all names at every request, so that `collect` reads
    # the view at that time. A temporary view keeps the plan that the server made at this request.
    spark, view = given.sparkSession, f"floe_{uuid.uuid4().hex}"
    given.createTempView(view)
    try:
        yield Source(spark.table(view), given)
    finally:
        with suppress(Exception):  # a view that stays is harmless; the write's own outcome is the one to report
            spark.catalog.dropTempView(view)
