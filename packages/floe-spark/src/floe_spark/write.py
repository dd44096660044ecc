"""Write a DataFrame to a table: one snapshot, exactly the rows asked for, found again by its write id."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyspark.sql import DataFrame, DataFrameWriterV2
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from floe_core import __version__
from floe_core.errors import (
    CommitStateUnknownError,
    ConcurrencyConflictError,
    ConfigurationError,
    FloeError,
    FloeStorageError,
    TableAlreadyExistsError,
)
from floe_core.identifiers import Namespace, TableIdentifier, TableSlice
from floe_core.models import PartitionTransform, SnapshotInfo, WriteMode
from floe_core.redaction import redact
from floe_core.telemetry import operation
from floe_iceberg import IcebergTableManager
from floe_iceberg.layout import partition_spec
from floe_iceberg.schema import SchemaChange
from floe_iceberg.snapshots import WRITE_ID, find_writes, snapshot_info
from floe_iceberg.tables import DEFAULT_PROPERTIES
from floe_spark.errors import translate
from floe_spark.frames import OUTSIDE, data_schema, fitted, guarded, strays
from floe_spark.names import table_name
from floe_spark.partitioning import is_aligned, partition_columns
from floe_spark.slices import slice_condition

__all__ = ["WriteResult", "write"]


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
    allow_empty: bool

    def writer(self, frame: DataFrame, *, branch: str | None = None) -> DataFrameWriterV2:
        return frame.writeTo(table_name(self.identifier, branch=branch)).options(**self.options)


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
        allow_empty: Let an empty frame replace all rows of a table.
    """
    mode = WriteMode(mode)
    write_id = write_id or uuid.uuid4().hex
    summary = {**(snapshot_properties or {}), WRITE_ID: write_id, "floe.version": __version__}
    options = {f"snapshot-property.{key}": value for key, value in summary.items()}
    job = _Write(frame, manager, identifier, mode, slice, options, write_id, allow_empty)
    with operation(f"iceberg.{mode.value}", table=str(identifier), engine="spark", slice=slice) as op:
        op.event("validating")
        table = manager.find_table(identifier)
        if table is None:
            result = _create(job, partition_by, {**DEFAULT_PROPERTIES, **(properties or {})}, evolve=evolve)
        else:
            result = _write_existing(job, table, evolve=evolve)
        op.event("committed")
        op.set(
            num_rows=result.snapshot.count("added-records"),
            snapshot_id=result.snapshot.snapshot_id,
            deduplicated=result.deduplicated or None,
        )
        return result


def _create(
    job: _Write, partition_by: Sequence[PartitionTransform], properties: Mapping[str, str], *, evolve: bool
) -> WriteResult:
    """Create the table with its first rows in one commit."""
    schema = data_schema(job.frame)
    partition_spec(partition_by, schema)  # refuses what cannot be, before anything happens
    frame = guarded(job.frame, job.slice)
    columns = partition_columns(partition_by)
    if columns is None:
        return _create_empty_first(job, schema, partition_by, properties, evolve=evolve)
    job.manager.ensure_namespace(Namespace(levels=job.identifier.namespace))
    writer = job.writer(frame)
    for key, value in properties.items():
        writer = writer.tableProperty(key, value)
    if columns:
        writer = writer.partitionedBy(*columns)
    try:
        _run(job, writer.create)
    except TableAlreadyExistsError:
        # Somebody else was quicker. Rows can be added to theirs, but not put in the place of rows never looked at.
        if job.mode is not WriteMode.APPEND:
            raise ConcurrencyConflictError(
                f"'{job.identifier}' was created by somebody else meanwhile; nothing was written: run it again"
            ) from None
        return _write_existing(job, job.manager.load_table(job.identifier), evolve=evolve)
    return WriteResult(_committed(job), SchemaChange(), created=True)


def _create_empty_first(
    job: _Write,
    schema: Schema,
    partition_by: Sequence[PartitionTransform],
    properties: Mapping[str, str],
    *,
    evolve: bool,
) -> WriteResult:
    """Create a table whose partitions Spark's writer has no words for: empty, and then its first rows in a commit."""
    table = job.manager.create_table(
        job.identifier, schema, partition_by=partition_by, properties=properties, if_not_exists=True
    )
    try:
        result = _write_existing(job, table, evolve=evolve)
    except FloeStorageError as exc:
        note = "(the table had been created before, and stays)"
        raise type(exc)(f"{exc} {note}", detail=exc.detail) from exc
    return replace(result, created=True)


def _write_existing(job: _Write, table: Table, *, evolve: bool) -> WriteResult:
    done = find_writes(table, job.write_id)
    if done:
        return WriteResult(done[0], SchemaChange(), deduplicated=True)
    job.manager.refuse_moved(table, job.identifier)
    if job.slice is not None and job.mode is WriteMode.OVERWRITE and not is_aligned(table, job.slice):
        fields = ", ".join(f"{field.name} ({field.transform})" for field in table.spec().fields) or "nothing"
        raise ConfigurationError(
            f"table '{job.identifier}' is partitioned by {fields}, which does not align with the slice ({job.slice}); "
            f"only slices made of whole partitions can be replaced. Write to a new table (another asset key), or drop "
            f"this one and fill it anew with: floe run --missing. Nothing was written"
        )
    guarded(job.frame, job.slice)  # refuses a wrong partition column before the schema changes
    change = job.manager.evolve_for(job.identifier, data_schema(job.frame), table=table, evolve=evolve)
    columns = [field.name for field in table.schema().fields] + [path[0] for path in change.added if len(path) == 1]
    frame = guarded(fitted(job.frame, job.identifier, columns), job.slice)
    with _telling(change):
        if job.mode is WriteMode.APPEND:
            _run(job, job.writer(frame).append)
        elif job.slice is None and not job.allow_empty and _has_rows(table):
            _replace_table(job, frame, table)
        else:
            _replace(job, frame, table)
    return WriteResult(_committed(job), change)


@contextlib.contextmanager
def _telling(change: SchemaChange) -> Iterator[None]:
    """A write that fails after the schema changed says so: the new columns stay."""
    try:
        yield
    except Exception as exc:
        if not change:
            raise
        note = f"(the table's schema had changed before, and stays so: {change})"
        if isinstance(exc, FloeStorageError):
            raise type(exc)(f"{exc} {note}", detail=exc.detail) from exc
        if isinstance(exc, FloeError):
            raise
        reason = redact(f"{type(exc).__name__}: {exc}".splitlines()[0])
        raise FloeStorageError(f"{reason} {note}") from exc


def _has_rows(table: Table) -> bool:
    head = table.current_snapshot()
    return head is not None and snapshot_info(head).summary.get("total-records") != "0"


def _replace(job: _Write, frame: DataFrame, table: Table) -> None:
    """Replace rows, and raise if somebody else added or removed some of them since we looked."""
    head = table.current_snapshot()
    writer = job.writer(frame).option("isolation-level", "serializable")
    if head is not None:
        writer = writer.option("validate-from-snapshot-id", str(head.snapshot_id))
    condition = F.lit(True) if job.slice is None else slice_condition(job.slice, frame.schema)
    try:
        _run(job, lambda: writer.overwrite(condition))
    except FloeStorageError as exc:
        # Not a conflict, and nothing else about the rows can be wrong here: the slice does not consist of whole files.
        if type(exc) is FloeStorageError and exc.detail is not None and exc.detail.error_type == "ValidationException":
            raise FloeStorageError(
                f"the slice ({job.slice}) cuts through files of '{job.identifier}' that were written under another "
                f"partitioning; rewrite the table under its present partitioning first. Nothing was written",
                detail=exc.detail,
            ) from exc
        raise


def _replace_table(job: _Write, frame: DataFrame, table: Table) -> None:
    """Replace all rows, unless by none: the rows are counted as they are written, on a branch that is then published.

    Asking the frame first would compute it twice, and a source that changes in between would answer twice.
    """
    head = table.current_snapshot()
    assert head is not None  # noqa: S101 - there are rows to protect
    branch = f"floe_{uuid.uuid4().hex[:12]}"
    job.manager.create_branch(job.identifier, branch, snapshot_id=head.snapshot_id, max_ref_age=timedelta(days=1))
    try:
        _run(job, lambda: job.writer(frame, branch=branch).overwrite(F.lit(True)), branch=branch)
        staged = job.manager.find_write(job.identifier, job.write_id, branch=branch)
        if staged is None or staged.count("added-records") == 0:
            raise FloeStorageError(
                f"refused to replace all rows of '{job.identifier}' by nothing; if that is meant, say allow_empty"
            )
        try:
            job.manager.fast_forward(job.identifier, branch, remove=True)
        except ConcurrencyConflictError as exc:
            raise ConcurrencyConflictError(
                f"somebody else changed '{job.identifier}' meanwhile; nothing was written: run it again",
                detail=exc.detail,
            ) from exc
    except BaseException:
        with contextlib.suppress(Exception):  # the branch ages out by itself; the first error is the one to tell
            job.manager.remove_branch(job.identifier, branch)
        raise


def _run(job: _Write, action: Callable[[], object], *, branch: str = "main") -> None:
    """Run a write; foreign errors become Floe's, and doubt about the commit is settled by looking."""
    try:
        action()
    except Exception as exc:
        if OUTSIDE in str(exc) and job.slice is not None:
            raise strays(job.frame, job.slice, job.identifier) from exc
        error = translate(exc, f"spark.{job.mode.value}", job.identifier)
        if error is None:
            raise
        if isinstance(error, CommitStateUnknownError) and job.manager.find_write(
            job.identifier, job.write_id, branch=branch
        ):
            return
        raise error from exc


def _committed(job: _Write) -> SnapshotInfo:
    found = find_writes(job.manager.load_table(job.identifier), job.write_id)
    if not found:
        raise CommitStateUnknownError(
            f"Spark reported success, but the snapshot of write {job.write_id} is not in '{job.identifier}'; "
            f"inspect the table before trying again"
        )
    if len(found) > 1:
        raise CommitStateUnknownError(
            f"two attempts of one write to '{job.identifier}' ran at the same time and both are there: snapshots "
            f"{', '.join(str(one.snapshot_id) for one in found)}. Look at their rows and take one of them back"
        )
    return found[0]
