"""Write a DataFrame to a table: one snapshot with exactly the requested rows, identified by its write id."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from pyiceberg.expressions import BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyspark.sql import Column, DataFrame, DataFrameWriterV2

from floe_core.errors import (
    ConfigurationError,
    FloeError,
    FloeStorageError,
    TableAlreadyExistsError,
)
from floe_core.identifiers import Namespace, TableIdentifier, TableSlice
from floe_core.models import CommitStrategy, PartitionTransform, WriteMode
from floe_core.observability import Operation, followed
from floe_core.security import redact
from floe_iceberg import IcebergTableManager
from floe_iceberg.arguments import choice, names_of
from floe_iceberg.catalogs import LOCATION, refuse_commits_by_spark
from floe_iceberg.errors import complete_detail, translated
from floe_iceberg.expressions import condition_of, slice_filter
from floe_iceberg.partitioning import partition_spec
from floe_iceberg.reading import check_listed
from floe_iceberg.schema import SchemaChange, with_optional_columns
from floe_iceberg.snapshots import ASSET, DATA_ROWS, disorder, find_writes, write_summary
from floe_iceberg.writing import (
    Committed,
    Target,
    WriteRequest,
    WriteResult,
    check_branch,
    check_properties,
    check_table,
    commit_outcome,
    created_by_another,
    refuse_strategy,
    report_missing_columns,
    write_operation,
)
from floe_spark.errors import text_of, translate
from floe_spark.jvm.process import ending, is_of_ended_process
from floe_spark.names import table_name
from floe_spark.reading.lineage import Base, base_of
from floe_spark.writing.commits import FANOUT, RUN_AGAIN, Commit
from floe_spark.writing.frames import Guard, as_in, data_schema, fitted, spelt_alike
from floe_spark.writing.overwrites import refuse_unpartitioned, replace_partitions, replace_rows, replace_table
from floe_spark.writing.partitioning import has_float_partitions, partition_columns
from floe_spark.writing.pinning import Source, pinned
from floe_spark.writing.progress import spark_progress
from floe_spark.writing.upserts import keyed, merge

__all__ = ["WriteResult", "write", "write_request"]


def write(
    frame: DataFrame,
    manager: IcebergTableManager,
    identifier: TableIdentifier,
    *,
    mode: WriteMode | str,
    slice: TableSlice | None = None,  # noqa: A002 - Iceberg's noun; the builtin is not needed here
    overwrite_filter: str | BooleanExpression | None = None,
    dynamic_partitions: bool = False,
    keys: Sequence[str] | str = (),
    commit_strategy: CommitStrategy | str | None = None,
    branch: str | None = None,
    partition_by: Sequence[PartitionTransform] = (),
    properties: Mapping[str, str] | None = None,
    snapshot_properties: Mapping[str, str] | None = None,
    write_id: str | None = None,
    validate_from: int | None = None,
    evolve: bool = True,
    allow_empty: bool = False,
) -> WriteResult:
    """Write a DataFrame in one commit; a table that does not exist is created by it.

    Spark writes to a staging branch, which is then published: concurrent commits are kept, or are a conflict. If the
    outcome of a commit is unknown, it is looked up, and the commit is retried only if it cannot be applied twice.

    At most one of `slice`, `overwrite_filter` and `dynamic_partitions` may be given.

    Args:
        frame: The DataFrame. Its rows are fixed when the write begins; a view that it reads may be replaced.
        manager: The manager of the tables.
        identifier: The table.
        mode: How the write treats the rows that the table already has: `append`, `overwrite` or `upsert`.
        slice: The rows that an overwrite replaces. Rows of the frame outside of it are refused.
        overwrite_filter: The rows that an overwrite replaces, as a filter such as
            `city = 'Oslo' AND day >= '2026-01-01'`. Rows of the frame outside of it are refused.
        dynamic_partitions: An overwrite replaces the partitions that the frame has rows for.
        keys: The key columns of an upsert. A row with a known key takes the values of the columns of the frame and
            keeps its other values; in a new row, columns that the frame does not have are NULL.
        commit_strategy: How an append treats manifests. `fast_append` leaves them as they are, `merge` merges small
            ones from `commit.manifest.min-count-to-merge` (100) on. By default the table's setting.
        branch: A branch created with `create_branch`. By default main.
        partition_by: The partitioning of the table, if the write creates it.
        properties: The properties of the table, if the write creates it; `location` sets its location.
        snapshot_properties: Added to the summary of the snapshot.
        write_id: The identity of the write. A write whose id is in the history of its branch is not repeated.
        validate_from: The snapshot that the frame was computed from. Changes since then to the rows that are replaced
            are a conflict; for an upsert, any change is. By default the snapshot that `read` took from the same table,
            or the head when the write begins.
        evolve: Add missing columns to the table, and widen types.
        allow_empty: Allow an overwrite of the whole table without rows.

    Example:
        >>> from floe_core import TableIdentifier
        >>> from floe_spark import write
        >>> orders = TableIdentifier.from_string("bronze.orders")
        >>> frame = lake.spark.createDataFrame([(1, "new"), (2, "new")], "id bigint, status string")
        >>> write(frame, lake.tables, orders, mode="append").created
        True
        >>> changed = lake.spark.createDataFrame([(2, "paid"), (3, "new")], "id bigint, status string")
        >>> _ = write(changed, lake.tables, orders, mode="upsert", keys=["id"])
        >>> [row.status for row in lake.read(orders).orderBy("id").collect()]
        ['new', 'paid', 'new']
    """
    write_id = write_id or uuid.uuid4().hex
    request = WriteRequest(
        identifier=identifier,
        mode=WriteMode(mode),
        write_id=write_id,
        summary=write_summary(write_id, snapshot_properties),
        slice=slice,
        overwrite_filter=overwrite_filter,
        dynamic_partitions=dynamic_partitions,
        keys=names_of(keys, "keys"),
        commit_strategy=None if commit_strategy is None else choice(CommitStrategy, commit_strategy, "commit_strategy"),
        branch=branch or MAIN_BRANCH,
        partition_by=tuple(partition_by),
        properties=properties,
        validate_from=validate_from,
        evolve=evolve,
        allow_empty=allow_empty,
    )
    return write_request(frame, manager, request)


def write_request(
    frame: DataFrame, manager: IcebergTableManager, request: WriteRequest, target: Target | None = None
) -> WriteResult:
    """`write` for a request; a target that was just loaded is not loaded again."""
    if not isinstance(frame, DataFrame) and "DataFrame" not in type(frame).__name__:
        raise ConfigurationError(f"the data is a {type(frame).__name__}; it must be a Spark DataFrame")
    identifier, name = request.identifier, request.mode.value
    if is_of_ended_process(frame):
        raise FloeStorageError(
            f"the DataFrame for '{identifier}' was made in a Spark process that has ended; make it again. Nothing was "
            f"written"
        )
    request, target = manager.on_branch(request, lambda _: with_optional_columns(data_schema(frame)), target)
    with write_operation(request, "spark") as op, translated(name, identifier):
        op.event("validating")
        table = manager.find_table(identifier) if target is None else target.table
        check_branch(table, identifier, request.branch)
        result = _done_before(request, table) or _write_pinned(manager, request, frame, table, op)
        op.event("committed")
        op.set(
            num_rows=result.snapshot.count("added-records"),
            snapshot_id=result.snapshot.snapshot_id,
            deduplicated=result.deduplicated or None,
        )
        return replace(result, seconds=op.seconds())


def _done_before(request: WriteRequest, table: Table | None) -> WriteResult | None:
    """The result of this write if its id is in the history of the branch."""
    done = find_writes(table, request.write_id, branch=request.branch) if table is not None else []
    if table is None or not done:
        return None
    return WriteResult(
        commit_outcome.single_snapshot(done, request.identifier), table, SchemaChange(), deduplicated=True
    )


def _write_pinned(
    manager: IcebergTableManager, request: WriteRequest, given: DataFrame, table: Table | None, op: Operation
) -> WriteResult:
    """Every frame is pinned here, so that the rows that are checked, written and reported are the same."""
    asset = request.summary.get(ASSET, "")
    with contextlib.ExitStack() as stack:
        try:
            source = stack.enter_context(pinned(given))
            stack.enter_context(followed(lambda: spark_progress(given.sparkSession, asset)))
            if table is None:
                return _create(manager, request, source, op)
            return _write_existing(manager, request, source, table, op)
        except FloeStorageError as exc:
            complete_detail(exc, f"spark.{request.mode.value}", request.identifier)
            raise
        except FloeError:
            raise
        except Exception as exc:
            # Commits raise their own errors: other failures come before them.
            ended = ending(exc)
            error = (
                FloeStorageError(f"{ended} Nothing was committed to '{request.identifier}': {RUN_AGAIN}")
                if ended is not None
                else translate(exc, f"spark.{request.mode.value}", request.identifier)
            )
            if error is None:
                raise
            raise error from exc


def _create(manager: IcebergTableManager, request: WriteRequest, source: Source, op: Operation) -> WriteResult:
    """Create the table with its first rows in one commit."""
    frame = source.frame
    schema = data_schema(frame)
    spec = partition_spec(request.partition_by, schema)  # raises on invalid transforms before anything is written
    properties = {**manager.config.table_properties, **request.new_table_properties}
    check_properties(properties)
    refuse_strategy(request, properties)
    if has_float_partitions(spec, schema):
        # 0.0 and -0.0 sort as equal, so sorted rows would return to a partition whose file is closed.
        properties[FANOUT] = "true"
    guard = _guard(request, frame, schema)
    columns = partition_columns(request.partition_by)
    if columns is None:
        return _create_empty_first(manager, request, source, schema, op)
    if request.mode is WriteMode.UPSERT:
        rows, _count = keyed(frame, request, schema)
        _refuse_strays(_guard(request, rows, schema))
    else:
        rows = frame if guard is None else guard.guarded()
    manager.ensure_namespace(Namespace(levels=request.identifier.namespace))
    commit = Commit(manager, request, op, None, guard)
    op.event("writing")
    try:
        writer = _creator(commit, rows, columns, properties)
        made = commit.run(lambda _: writer.create())
    except TableAlreadyExistsError as exc:
        return _write_to_concurrently_created(manager, request, source, op, exc)
    return WriteResult(made.snapshot, made.table, SchemaChange(), created=True)


def _creator(
    commit: Commit, rows: DataFrame, columns: Sequence[Column], properties: Mapping[str, str]
) -> DataFrameWriterV2:
    """A writer that creates the table where no other table's files are."""
    location, merged = commit.tables.placed(commit.request.identifier, properties)
    writer = commit.writer(rows, None)
    for key, value in {**merged, **({LOCATION: location} if location else {})}.items():
        writer = writer.tableProperty(key, value)
    return writer.partitionedBy(*columns) if columns else writer


def _create_empty_first(
    manager: IcebergTableManager, request: WriteRequest, source: Source, schema: Schema, op: Operation
) -> WriteResult:
    """Create a table whose partitions Spark's writer cannot express: empty, and then its first rows in a commit."""
    try:
        table = manager.create_table(
            request.identifier, schema, partition_by=request.partition_by, properties=request.new_table_properties
        )
    except TableAlreadyExistsError as exc:
        return _write_to_concurrently_created(manager, request, source, op, exc)
    with _reporting("the table was created before this, and stays"):
        result = _write_existing(manager, request, source, table, op)
    return replace(result, created=True)


def _write_to_concurrently_created(
    manager: IcebergTableManager,
    request: WriteRequest,
    source: Source,
    op: Operation,
    refusal: TableAlreadyExistsError,
) -> WriteResult:
    """Write to the table that another writer created first: rows are added to it, but none are replaced."""
    table = manager.find_table(request.identifier)
    if table is None:  # dropped again, or the name is taken by something that is not a table
        raise refusal
    if request.mode is not WriteMode.APPEND and _done_before(request, table) is None:
        raise created_by_another(request.identifier) from refusal
    return _write_existing(manager, request, source, table, op)


def _write_existing(
    manager: IcebergTableManager, request: WriteRequest, source: Source, table: Table, op: Operation
) -> WriteResult:
    identifier = request.identifier
    done = _done_before(request, table)
    if done:
        return done
    manager.refuse_moved(table, identifier)
    refuse_commits_by_spark(table, identifier)
    check_table(request, table)
    check_listed(table.snapshot_by_name(request.branch), table.io)
    if disorder(table.metadata) is not None:  # Spark could not load it
        table = manager.repair_timestamps(table, identifier)
    frame = spelt_alike(source.frame, table.schema())
    schema = as_in(table.schema(), data_schema(frame))
    if request.slice is not None:
        slice_filter(request.slice, schema)  # raises on a wrong partition column before the schema changes
    if request.overwrite_filter is not None:
        _check_filter(request, table.schema(), schema)
    if request.dynamic_partitions:
        refuse_unpartitioned(manager, request, table)
    base = base_of(request, source.given, table)
    rows = frame
    if request.mode is WriteMode.UPSERT:
        rows, count = keyed(frame, request, schema, table.schema())
        # A MERGE rewrites other rows of the same files, which cannot be distinguished from the data's rows afterwards.
        request = replace(request, summary={**request.summary, DATA_ROWS: str(count)})
    change = manager.evolve_for(identifier, schema, table=table, evolve=request.evolve)
    report_missing_columns(request, table.schema(), schema)
    if change:
        op.event("evolving")
        table = manager.load_table(identifier)
    rows = fitted(rows, table_name(manager.catalog_name, identifier), [field.name for field in table.schema().fields])
    guard = _guard(request, rows, table.schema())
    op.event("writing")
    with _reporting(f"the schema of the table was changed before this, and stays so: {change}" if change else ""):
        made = _written(Commit(manager, request, op, table, guard), rows, table, base, frame.columns)
        return WriteResult(made.snapshot, made.table, change)


def _written(commit: Commit, rows: DataFrame, table: Table, base: Base, given: Sequence[str]) -> Committed:
    request, guard = commit.request, commit.guard
    if request.mode is WriteMode.UPSERT:
        _refuse_strays(guard)
        return merge(commit, rows, table, base, given)
    if guard is not None:
        rows = guard.guarded()
    if request.mode is WriteMode.APPEND:
        return commit.append(rows)
    if guard is not None:
        return replace_rows(commit, rows, table, base, guard.condition)
    if request.dynamic_partitions:
        return replace_partitions(commit, rows, table, base)
    return replace_table(commit, rows, table, base)


def _guard(request: WriteRequest, frame: DataFrame, schema: Schema) -> Guard | None:
    """The condition that the rows of the frame must match, if there is one."""
    if request.slice is not None:
        return Guard(frame, slice_filter(request.slice, schema), schema, request.identifier, str(request.slice))
    if request.overwrite_filter is not None:
        condition = condition_of(request.overwrite_filter, schema, request.identifier, argument="overwrite_filter")
        return Guard(frame, condition, schema, request.identifier, str(request.overwrite_filter))
    return None


def _refuse_strays(guard: Guard | None) -> None:
    """Check rows that are computed already: the source of a MERGE must not fail during execution."""
    refusal = guard.refusal() if guard is not None else None
    if refusal is not None:
        raise refusal


def _check_filter(request: WriteRequest, table: Schema, data: Schema) -> None:
    """Refuse a filter that does not fit the columns of the table and the data, before the schema changes."""
    known = {field.name.lower() for field in table.fields}
    first = table.highest_field_id + 1
    added = [field for field in data.fields if field.name.lower() not in known and field.field_type.is_primitive]
    fields = [field.model_copy(update={"field_id": first + number}) for number, field in enumerate(added)]
    condition_of(
        request.overwrite_filter, Schema(*table.fields, *fields), request.identifier, argument="overwrite_filter"
    )


@contextlib.contextmanager
def _reporting(earlier_change: str) -> Iterator[None]:
    """Add to the error of a failed write the change that was committed before it."""
    try:
        yield
    except Exception as exc:
        if not earlier_change:
            raise
        note = f"({earlier_change})"
        if isinstance(exc, FloeStorageError):
            raise type(exc)(f"{exc} {note}", detail=exc.detail) from exc
        if isinstance(exc, FloeError):
            raise type(exc)(f"{exc} {note}") from exc
        line = next((line.strip() for line in text_of(exc).splitlines() if line.strip()), "")
        reason = redact(f"{type(exc).__name__}: {line}")
        raise FloeStorageError(f"{reason} {note}") from exc
