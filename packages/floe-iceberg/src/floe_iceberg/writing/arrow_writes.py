"""Write Arrow data to a table: stage its files, then commit them in one snapshot that carries the write id.

    load -> plan the schema -> stage the files -> commit -> (failed: resolve the outcome, commit again)

No commit is sent before everything is staged and checked, so a refused write leaves nothing behind. Files of a commit
that was sent are never deleted here, whatever the response.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyiceberg.expressions import BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction

from floe_core.errors import TableAlreadyExistsError
from floe_core.models import WriteMode
from floe_core.observability import Operation, WriteProgress, followed, warn
from floe_iceberg import backoff
from floe_iceberg._pyiceberg.tables import table_of
from floe_iceberg.catalogs.foreign_tables import refuse_location_provider
from floe_iceberg.expressions.filters import condition_of
from floe_iceberg.expressions.slices import Guard, slice_filter
from floe_iceberg.schema.evolution import SchemaChange, to_iceberg_schema
from floe_iceberg.schema.types import ArrowCaster
from floe_iceberg.snapshots.snapshots import ASSET, DATA_ROWS, find_writes
from floe_iceberg.writing import commit_outcome
from floe_iceberg.writing.arrow_source import ArrowData, ArrowSource, Sample, source_of
from floe_iceberg.writing.commits import Commit, begin
from floe_iceberg.writing.overwrites import Replacement, replace_rows
from floe_iceberg.writing.request import (
    Target,
    WriteRequest,
    WriteResult,
    check_branch,
    check_table,
    created_by_another,
    report_missing_columns,
)
from floe_iceberg.writing.staging import Staged, Stager
from floe_iceberg.writing.upserts import merge_rows

if TYPE_CHECKING:
    from floe_iceberg.manager import IcebergTableManager

__all__ = ["TRUNCATED", "write"]

# In the snapshot summary: the number of values whose nanoseconds were truncated.
TRUNCATED = "floe.truncated-nanoseconds"


def write(
    tables: IcebergTableManager,
    request: WriteRequest,
    data: ArrowData,
    op: Operation,
    target: Target | None = None,
) -> WriteResult:
    """Write the data, idempotently: a write whose id is in the table's history is not repeated."""
    op.event("validating")
    begun = _begun(tables, request, data, target)
    if isinstance(begun, WriteResult):
        return begun
    if begun.table is not None:
        report_missing_columns(request, begun.table.schema(), begun.schema)
    if begun.change:
        op.event("evolving")
    op.event("writing")
    sample = Sample(request.sample_rows)
    staged, replacement, truncated = _stage(request, begun, sample)
    if truncated:
        warn("nanoseconds were cut off", table=str(request.identifier), values=truncated)
    rewritten = sum(file.record_count for file in staged.files) != sample.seen
    summary = {
        **request.summary,
        **({TRUNCATED: str(truncated)} if truncated else {}),
        **({DATA_ROWS: str(sample.seen)} if rewritten else {}),
    }
    commit = Commit(tables, request, begun.schema, summary, op, staged, replacement)
    result = commit.run(begun.table, begun.transaction, begun.change)
    return replace(result, sample=sample.taken())


@dataclass(frozen=True)
class _Begun:
    """A write whose table was found, or is being created, before its files are staged."""

    table: Table | None
    source: ArrowSource
    schema: Schema
    transaction: Transaction
    change: SchemaChange


def _begun(
    tables: IcebergTableManager, request: WriteRequest, data: ArrowData, target: Target | None
) -> _Begun | WriteResult:
    """Begin the write, or return its result if it is committed already.

    A catalog may refuse to stage the creation of a table that another writer has just created: then load it again.
    """
    for number in itertools.count(1):
        first = target is not None and number == 1
        table = target.table if target is not None and first else tables.find_table(request.identifier)
        check_branch(table, request.identifier, request.branch)
        if table is not None:
            found = find_writes(table, request.write_id, branch=request.branch)
            if found:
                snapshot = commit_outcome.single_snapshot(found, request.identifier)
                return WriteResult(snapshot, table, SchemaChange(), deduplicated=True)
            if number > 1 and request.mode is not WriteMode.APPEND:
                raise created_by_another(request.identifier)
            tables.refuse_moved(table, request.identifier)
            check_table(request, table)
            refuse_location_provider(table.properties, f"table '{request.identifier}'")
        source = data = source_of(data)
        schema = to_iceberg_schema(source.schema_for(table.schema() if table is not None else None))
        try:
            transaction, change = begin(tables, request, table, schema)
        except TableAlreadyExistsError:
            # Refused again without a table: other writers create and drop it, or another object has its name.
            if table is not None or number >= backoff.DOUBTFUL_ATTEMPTS:
                raise
            time.sleep(backoff.delay(number))
        else:
            return _Begun(table, source, schema, transaction, change)
    raise AssertionError("the loop returns or raises")


def _stage(request: WriteRequest, begun: _Begun, sample: Sample) -> tuple[Staged, Replacement, int]:
    """Write the data files, and the remaining rows of files that are replaced only in part."""
    table, source = begun.table, begun.source
    stager = Stager(begun.transaction.table_metadata, table_of(begun.transaction).io)
    condition = _condition(request, stager.schema)
    caster = ArrowCaster(stager.arrow_schema, request.truncate_nanoseconds)
    cast = (caster.fit(batch) for batch in source.batches)
    try:
        guard = Guard(condition, stager.schema, str(request.slice or request.overwrite_filter))
        inside = (sample.of(batch) for batch in cast if guard.check(batch))
        with followed(lambda: _progress(request, source, sample, stager)):
            if request.mode is WriteMode.UPSERT:
                rows = guard.complete(inside, request.identifier)
                replacement = merge_rows(request, table, stager, rows, source.schema.names)
            else:
                for batch in guard.complete(inside, request.identifier):
                    stager.add(batch)
                replacement = replace_rows(request, table, stager, condition)
            staged = stager.finish()
    except BaseException:
        stager.abandon()  # no commit was sent yet
        raise
    return staged, replacement, caster.truncated


def _progress(request: WriteRequest, source: ArrowSource, sample: Sample, stager: Stager) -> WriteProgress:
    share = sample.seen / source.rows if source.rows else None
    return WriteProgress(request.summary.get(ASSET, ""), sample.seen, stager.bytes, share)


def _condition(request: WriteRequest, schema: Schema) -> BooleanExpression | None:
    """The condition of the rows to be replaced; None unless a slice or a filter is set."""
    if request.slice is not None:
        return slice_filter(request.slice, schema)
    if request.overwrite_filter is not None:
        return condition_of(request.overwrite_filter, schema, request.identifier, argument="overwrite_filter")
    return None
