"""Write a DataFrame to a table: one snapshot, exactly the rows asked for, found again by its write id."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyspark.errors import PySparkTypeError
from pyspark.sql import Column, DataFrame, DataFrameWriterV2
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention
from pyspark.sql.pandas.types import to_arrow_schema

from floe_core import __version__
from floe_core.errors import (
    CommitStateUnknownError,
    ConcurrencyConflictError,
    ConfigurationError,
    FloeStorageError,
    PartitionMismatchError,
    SchemaEvolutionError,
    TableAlreadyExistsError,
)
from floe_core.identifiers import Namespace, TableIdentifier, TableSlice
from floe_core.models import PartitionTransform, SnapshotInfo, WriteMode
from floe_core.telemetry import operation
from floe_iceberg import IcebergTableManager
from floe_iceberg.schema import SchemaChange, to_iceberg_schema
from floe_iceberg.snapshots import WRITE_ID, find_write
from floe_iceberg.tables import DEFAULT_PROPERTIES
from floe_spark.errors import translate
from floe_spark.names import quoted, table_name
from floe_spark.partitioning import is_aligned, partition_columns
from floe_spark.slices import slice_condition

__all__ = ["WriteResult", "write"]

_OUTSIDE = "floe: a row lies outside the slice being written"


@dataclass(frozen=True)
class WriteResult:
    """The snapshot of a write, and what else happened."""

    snapshot: SnapshotInfo
    schema_change: SchemaChange
    created: bool = False
    deduplicated: bool = False


@dataclass(frozen=True)
class _Write:
    frame: DataFrame
    manager: IcebergTableManager
    identifier: TableIdentifier
    mode: WriteMode
    slice: TableSlice | None
    options: Mapping[str, str]
    write_id: str


def write(
    frame: DataFrame,
    manager: IcebergTableManager,
    identifier: TableIdentifier,
    *,
    mode: WriteMode,
    slice: TableSlice | None = None,  # noqa: A002 - Iceberg's noun; the builtin is not needed here
    partition_by: Sequence[PartitionTransform] = (),
    properties: Mapping[str, str] | None = None,
    snapshot_properties: Mapping[str, str] | None = None,
    write_id: str | None = None,
    evolve: bool = True,
    allow_empty: bool = False,
) -> WriteResult:
    """Append the rows, or replace the table or exactly one slice of it, in one commit.

    Args:
        slice: The rows to replace; rows of `frame` outside of it are refused. Without it, overwrite means the table.
        partition_by: How a table that does not exist yet is partitioned.
        properties: Table properties for a table that does not exist yet.
        write_id: A write whose id is found in the table's history has happened already, and is not done again.
        evolve: Let the table gain the columns and the wider types of the data.
        allow_empty: Let an empty frame replace a whole table.
    """
    write_id = write_id or uuid.uuid4().hex
    summary = {**(snapshot_properties or {}), WRITE_ID: write_id, "floe.version": __version__}
    job = _Write(
        frame,
        manager,
        identifier,
        mode,
        slice,
        {f"snapshot-property.{key}": value for key, value in summary.items()},
        write_id,
    )
    with operation(f"iceberg.{mode.value}", table=str(identifier), engine="spark", slice=slice) as op:
        op.event("validating")
        if mode is WriteMode.OVERWRITE and slice is None and not allow_empty and frame.isEmpty():
            raise FloeStorageError(
                f"refused to replace all rows of '{identifier}' by nothing; if that is meant, allow it with allow_empty"
            )
        table = manager.find_table(identifier)
        result = None
        if table is None:
            result = _create(job, partition_by, {**DEFAULT_PROPERTIES, **(properties or {})})
        if result is None:
            result = _write_existing(job, table or manager.load_table(identifier), evolve=evolve)
        op.event("committed")
        op.set(
            num_rows=result.snapshot.count("added-records"),
            snapshot_id=result.snapshot.snapshot_id,
            deduplicated=result.deduplicated or None,
        )
        return result


def _create(
    job: _Write, partition_by: Sequence[PartitionTransform], properties: Mapping[str, str]
) -> WriteResult | None:
    """Create the table with its first rows in one commit; None if somebody else was quicker."""
    job.manager.ensure_namespace(Namespace(levels=job.identifier.namespace))
    _data_schema(job.frame)  # refuses what Iceberg cannot hold, before anything happens
    writer = _checked(job, job.frame).writeTo(table_name(job.identifier)).options(**job.options)
    for key, value in properties.items():
        writer = writer.tableProperty(key, value)
    columns = partition_columns(partition_by)
    if columns:
        writer = writer.partitionedBy(*columns)
    try:
        _run(job, writer.create)
    except TableAlreadyExistsError:
        return None  # their table is written to like any other
    return WriteResult(_committed(job), SchemaChange(), created=True)


def _write_existing(job: _Write, table: Table, *, evolve: bool) -> WriteResult:
    done = find_write(table, job.write_id)
    if done is not None:
        return WriteResult(done, SchemaChange(), deduplicated=True)
    if job.slice is not None and job.mode is WriteMode.OVERWRITE:
        _refuse_unaligned(table, job.slice, job.identifier)
    change = job.manager.evolve_for(job.identifier, _data_schema(job.frame), table=table, evolve=evolve)
    columns = [field.name for field in table.schema().fields] + [path[0] for path in change.added if len(path) == 1]
    frame = _checked(job, _aligned(job, columns))
    writer = frame.writeTo(table_name(job.identifier)).options(**job.options)
    try:
        if job.mode is WriteMode.APPEND:
            _run(job, writer.append)
        else:
            _overwrite(job, frame, writer, table)
    except SchemaEvolutionError:
        raise
    except FloeStorageError as exc:
        if change:
            raise type(exc)(f"{exc} (the schema had changed before: {change})", detail=exc.detail) from exc
        raise
    return WriteResult(_committed(job), change)


def _data_schema(frame: DataFrame) -> Schema:
    try:
        return to_iceberg_schema(to_arrow_schema(frame.schema))
    except PySparkTypeError as exc:
        raise SchemaEvolutionError(
            f"Iceberg has no type for a column: {exc}. Cast or drop it; nothing was written"
        ) from exc


def _overwrite(job: _Write, frame: DataFrame, writer: DataFrameWriterV2, table: Table) -> None:
    """Replace rows, and raise if somebody else added or removed some of them since we looked."""
    head = table.current_snapshot()
    writer = writer.option("isolation-level", "serializable")
    if head is not None:
        writer = writer.option("validate-from-snapshot-id", str(head.snapshot_id))
    condition = F.lit(True) if job.slice is None else slice_condition(job.slice, frame.schema)
    try:
        _run(job, lambda: writer.overwrite(condition))
    except ConcurrencyConflictError as exc:
        now = job.manager.load_table(job.identifier).current_snapshot()
        if now == head:  # nobody was there: Iceberg refuses the same way when the slice cuts through a file
            raise FloeStorageError(
                f"the slice ({job.slice}) cuts through files of '{job.identifier}' that were written under another "
                f"partitioning; rewrite the table under its present partitioning first. Nothing was written",
                detail=exc.detail,
            ) from exc
        raise


def _refuse_unaligned(table: Table, one: TableSlice, identifier: TableIdentifier) -> None:
    if not is_aligned(table, one):
        raise ConfigurationError(
            f"table '{identifier}' is partitioned by {table.spec()}, which does not align with the slice ({one}); "
            f"only slices made of whole partitions can be replaced. Nothing was written"
        )


def _aligned(job: _Write, columns: Sequence[str]) -> DataFrame:
    """The frame in the order of the table's columns, NULL where the data has none."""
    if job.frame.columns == list(columns):
        return job.frame
    present = {name.lower(): name for name in job.frame.columns}
    target = job.frame.sparkSession.table(table_name(job.identifier)).schema
    return job.frame.select(
        [
            F.col(quoted(present[field.name.lower()])).alias(field.name)
            if field.name.lower() in present
            else F.lit(None).cast(field.dataType).alias(field.name)
            for field in target.fields
        ]
    )


def _checked(job: _Write, frame: DataFrame) -> DataFrame:
    """The frame, failing inside the plan at the first row outside the slice: no second pass over the data."""
    if job.slice is None:
        return frame
    name = job.slice.ranges[0].column
    actual = next((column for column in frame.columns if column.lower() == name.lower()), name)
    inside = slice_condition(job.slice, frame.schema)
    kind = frame.schema[actual].dataType
    refusal = F.raise_error(F.lit(_OUTSIDE)).cast(kind)
    return frame.withColumn(actual, F.when(inside, F.col(quoted(actual))).otherwise(refusal))


def _run(job: _Write, action: object) -> None:
    """Run a write; foreign errors become Floe's, and doubt about the commit is settled by looking."""
    assert callable(action)  # noqa: S101 - DataFrameWriterV2's methods have no common type
    try:
        action()
    except Exception as exc:
        if _OUTSIDE in str(exc):
            raise _outside_rows(job) from exc
        error = translate(exc, f"spark.{job.mode.value}", job.identifier)
        if error is None:
            raise
        if isinstance(error, CommitStateUnknownError) and job.manager.find_write(job.identifier, job.write_id):
            return
        raise error from exc


def _outside_rows(job: _Write) -> PartitionMismatchError:
    """Only a refusal looks at the data again, to count."""
    assert job.slice is not None  # noqa: S101 - only a slice is checked
    inside: Column = F.coalesce(slice_condition(job.slice, job.frame.schema), F.lit(False))
    outside = job.frame.where(~inside)
    column = quoted(job.slice.ranges[0].column)
    examples = [str(row[0]) for row in outside.select(F.col(column).cast("string")).distinct().limit(3).collect()]
    count = outside.count()
    lie = "row lies" if count == 1 else "rows lie"
    return PartitionMismatchError(
        f"{count} {lie} outside the slice being written to '{job.identifier}' ({job.slice}): "
        f"{column} is {', '.join(examples)}, …; filter the data to its partition. Nothing was written"
    )


def _committed(job: _Write) -> SnapshotInfo:
    snapshot = job.manager.find_write(job.identifier, job.write_id)
    if snapshot is None:
        raise CommitStateUnknownError(
            f"Spark reported success, but the snapshot of write {job.write_id} is not in '{job.identifier}'; "
            f"inspect the table before trying again"
        )
    return snapshot
