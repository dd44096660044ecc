"""The lineage of a frame: `read` marks its scan with the snapshot, and derived frames keep the mark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Snapshot
from pyspark.sql import DataFrame, DataFrameReader, SparkSession

from floe_core.errors import ConcurrencyConflictError, ConfigurationError
from floe_core.identifiers import TableIdentifier
from floe_core.models import WriteMode
from floe_iceberg.snapshots import ancestors_of
from floe_iceberg.writing import WriteRequest
from floe_spark._pyspark import analyzed_plan, requested_plan
from floe_spark.jvm.connect import is_remote

__all__ = ["Base", "appended_since", "base_of", "snapshots_read", "table_at", "table_on", "table_since"]

# An option of the scan that Spark and Iceberg ignore, and keep in the plan.
_MARK = "floe.read"


def table_at(spark: SparkSession, identifier: TableIdentifier, name: str, snapshot_id: int) -> DataFrame:
    """The table at a head: later commits do not change the rows of the frame."""
    return _marked(spark, identifier, snapshot_id).option("versionAsOf", str(snapshot_id)).table(name)


def table_on(spark: SparkSession, identifier: TableIdentifier, name: str, branch: str, snapshot_id: int) -> DataFrame:
    """The branch of a table with the columns of the table; `snapshot_id` is its head now."""
    return _marked(spark, identifier, snapshot_id).option("versionAsOf", branch).table(name)


def appended_since(spark: SparkSession, name: str, snapshot_id: int, until: Snapshot | None) -> DataFrame:
    """The rows that were appended after a snapshot, up to and including another."""
    if until is None or until.snapshot_id == snapshot_id:  # Iceberg refuses to read from a snapshot to itself
        return spark.table(name).limit(0)
    span = {"start-snapshot-id": str(snapshot_id), "end-snapshot-id": str(until.snapshot_id)}
    return spark.read.options(**span).table(name)


def table_since(spark: SparkSession, identifier: TableIdentifier, name: str, snapshot_id: int) -> DataFrame:
    """The table as it is when the frame is computed; `snapshot_id` is its head now."""
    return _marked(spark, identifier, snapshot_id).table(name)


def _marked(spark: SparkSession, identifier: TableIdentifier, snapshot_id: int) -> DataFrameReader:
    return spark.read.option(_MARK, f"{snapshot_id}@{identifier}")


def snapshots_read(frame: DataFrame, identifier: TableIdentifier) -> list[int]:
    """The snapshots of this table that `read` gave to the frame, cached or not.

    Time travel is not among them (writing an old version back is deliberate), nor are reads behind a checkpoint or a
    view of another name: for those, set `validate_from`.
    """
    marks = _marks_of_request(frame) if is_remote(frame.sparkSession) else _marks_of_plan(frame)
    parts = (mark.partition("@") for mark in marks)
    return [int(snapshot) for snapshot, _, table in parts if table == str(identifier)]


def _marks_of_plan(frame: DataFrame) -> Iterator[str]:
    plan = analyzed_plan(frame)
    # Leaves of the plan are not those of subqueries inside its expressions.
    for part in (plan, *_items(plan.subqueriesAll())):
        for leaf in _items(part.collectLeaves()):
            if leaf.getClass().getSimpleName() == "DataSourceV2Relation":
                mark = leaf.options().get(_MARK)
                if mark is not None:
                    yield str(mark)


def _items(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(index) for index in range(sequence.size()))


def _marks_of_request(frame: Any) -> Iterator[str]:
    """A Connect client has no analyzed plan, but the request it will send."""
    return _marks_within(requested_plan(frame))


def _marks_within(message: Any) -> Iterator[str]:
    for field, value in message.ListFields():
        if field.name == "options" and _MARK in value:
            yield str(value[_MARK])
        elif field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for part in value if field.is_repeated else [value]:
                yield from _marks_within(part)


@dataclass(frozen=True)
class Base:
    """The snapshot since which no other writer may have changed the rows: the one that was read, or the head."""

    snapshot_id: int | None
    was_read: bool

    def refuse_changes(self, request: WriteRequest, table: Table) -> None:
        """Raise a conflict if another writer changed the branch since; a compaction is not a change."""
        for snapshot in _history(request, table):
            if snapshot.snapshot_id == self.snapshot_id:
                return
            if snapshot.summary is None or snapshot.summary.operation is not Operation.REPLACE:
                raise ConcurrencyConflictError(
                    f"another writer changed '{request.identifier}' after it was read for this write; nothing was "
                    f"written: run it again"
                )


def base_of(request: WriteRequest, frame: DataFrame, table: Table) -> Base:
    """The snapshot that this write is validated from; an append removes no rows, so it needs none."""
    if request.mode is WriteMode.APPEND:
        return Base(None, was_read=False)
    history = [snapshot.snapshot_id for snapshot in _history(request, table)]
    if request.validate_from is not None:
        if request.validate_from not in history:
            raise ConfigurationError(
                f"table '{request.identifier}' has no snapshot {request.validate_from} in its history to validate "
                f"from; it may have expired: read the table again. Nothing was written"
            )
        return Base(request.validate_from, was_read=True)
    read = snapshots_read(frame, request.identifier)
    if request.branch == MAIN_BRANCH and not set(read) <= set(history):
        raise ConcurrencyConflictError(
            f"the data was made from a snapshot that is no longer in the history of '{request.identifier}'; nothing "
            f"was written: run it again"
        )
    oldest = next((snapshot_id for snapshot_id in reversed(history) if snapshot_id in read), None)
    return Base(oldest if oldest is not None else next(iter(history), None), was_read=oldest is not None)


def _history(request: WriteRequest, table: Table) -> Iterator[Snapshot]:
    return iter(ancestors_of(table.snapshot_by_name(request.branch), table.metadata))
