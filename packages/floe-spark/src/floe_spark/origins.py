"""Which snapshots of a table a frame was made from: `read` leaves a mark that derived frames carry along."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession

from floe_core.identifiers import TableIdentifier
from floe_spark.connect import is_remote
from floe_spark.names import table_name

__all__ = ["snapshots_read", "table_at"]

# An option of the scan: neither Spark nor Iceberg knows it, both keep it in the plan.
_MARK = "floe.read"


def table_at(spark: SparkSession, identifier: TableIdentifier, snapshot_id: int) -> DataFrame:
    """The table as it is now, at its head: later commits do not change what the frame shows."""
    name = table_name(identifier)
    if pyspark.__version__.startswith("3."):  # these do not take a version as an option, and would not say so
        return spark.table(name)
    reader = spark.read.option("versionAsOf", str(snapshot_id)).option(_MARK, f"{snapshot_id}@{identifier}")
    return reader.table(name)


def snapshots_read(frame: DataFrame, identifier: TableIdentifier) -> list[int]:
    """The snapshots of this table that `read` gave to the frame, cached or not.

    Reads of an explicit moment are not among them (to write the past back is no accident), nor is what went through
    a checkpoint or a view of another name: for those, say `validate_from`.
    """
    marks = _marks_of_request(frame) if is_remote(frame.sparkSession) else _marks_of_plan(frame)
    found = (mark.partition("@") for mark in marks)
    return [int(snapshot) for snapshot, _, table in found if table == str(identifier)]


def _marks_of_plan(frame: DataFrame) -> Iterator[str]:
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
    for index in range(leaves.size()):
        leaf = leaves.apply(index)
        if leaf.getClass().getSimpleName() == "DataSourceV2Relation":
            mark = leaf.options().get(_MARK)
            if mark is not None:
                yield str(mark)


def _marks_of_request(frame: Any) -> Iterator[str]:
    """A Connect client has no analyzed plan, but the request it will send."""
    return _marks_within(frame._plan.to_proto(frame.sparkSession.client))


def _marks_within(message: Any) -> Iterator[str]:
    for field, value in message.ListFields():
        if field.name == "options" and _MARK in value:
            yield str(value[_MARK])
        elif field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for one in value if field.is_repeated else [value]:
                yield from _marks_within(one)
