"""Write Arrow data to a table: stage its files, then commit them in one snapshot that its write id finds again.

    look -> plan the schema -> stage the files -> commit -> (conflict or doubt: settle, commit the same files again)

Nothing is sent before everything is staged and checked, so a refusal leaves nothing behind; and what was sent once is
never deleted here, whatever comes back.
"""

from __future__ import annotations

from dataclasses import replace

from pyiceberg.expressions import BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction

from floe_core.models import WriteMode
from floe_core.telemetry import Operation, warn
from floe_iceberg import doubt
from floe_iceberg.commits import Commit, begin
from floe_iceberg.filters import condition_of
from floe_iceberg.incoming import ArrowData, Incoming, Sample, incoming
from floe_iceberg.replacing import Replacement, replace_rows
from floe_iceberg.schema import SchemaChange, to_iceberg_schema
from floe_iceberg.slices import Guard, slice_filter
from floe_iceberg.snapshots import find_writes
from floe_iceberg.staging import Staged, Stager
from floe_iceberg.types import Fitting
from floe_iceberg.upserts import merge_rows
from floe_iceberg.write_request import WriteRequest, WriteResult, check_branch, check_table

__all__ = ["TRUNCATED", "write"]

# How many values lost their nanoseconds, in the summary of the snapshot.
TRUNCATED = "floe.truncated-nanoseconds"


def write(request: WriteRequest, data: ArrowData, op: Operation) -> WriteResult:
    """Write the data once: a write whose id is in the table's history has happened already."""
    op.event("validating")
    table = request.manager.find_table(request.identifier)
    check_branch(table, request.identifier, request.branch)
    if table is not None:
        found = find_writes(table, request.write_id, branch=request.branch)
        if found:
            return WriteResult(doubt.only_one(found, request.identifier), SchemaChange(), deduplicated=True)
        request.manager.refuse_moved(table, request.identifier)
        check_table(request, table)
    arriving = incoming(data)
    schema = to_iceberg_schema(arriving.schema_for(table.schema() if table is not None else None))
    transaction, change = begin(request, table, schema)
    if change:
        op.event("evolving")
    op.event("writing")
    sample = Sample(request.sample_rows)
    staged, replacement, truncated = _stage(request, table, transaction, arriving, sample)
    if truncated:
        warn("nanoseconds were cut off", table=str(request.identifier), values=truncated)
    summary = {**request.summary, **({TRUNCATED: str(truncated)} if truncated else {})}
    result = Commit(request, schema, summary, staged, replacement, op).run(table, transaction, change)
    op.event("committed")
    return replace(result, sample=sample.taken())


def _stage(
    request: WriteRequest, table: Table | None, transaction: Transaction, arriving: Incoming, sample: Sample
) -> tuple[Staged, Replacement, int]:
    """Write the data files, and those that take the place of files of which only a part is replaced."""
    io = transaction._table.io
    stager = Stager(transaction.table_metadata, io)
    condition = _condition(request, stager.schema)
    fitting = Fitting(stager.arrow_schema, request.truncate_nanoseconds)
    fitted = (fitting.fit(batch) for batch in arriving.batches)
    try:
        guard = Guard(condition, stager.schema, str(request.slice or request.overwrite_filter))
        inside = (sample.of(batch) for batch in fitted if guard.check(batch))
        if request.mode is WriteMode.UPSERT:
            rows = guard.complete(inside, request.identifier)
            replacement = merge_rows(request, table, stager, rows, arriving.schema.names)
        else:
            for batch in guard.complete(inside, request.identifier):
                stager.add(batch)
            replacement = replace_rows(request, table, stager, condition)
        staged = stager.finish()
    except BaseException:
        stager.abandon()  # nothing was sent yet
        raise
    return staged, replacement, fitting.truncated


def _condition(request: WriteRequest, schema: Schema) -> BooleanExpression | None:
    """The rows that are replaced, where only some are."""
    if request.slice is not None:
        return slice_filter(request.slice, schema)
    if request.overwrite_filter is not None:
        return condition_of(request.overwrite_filter, schema, request.identifier, argument="overwrite_filter")
    return None
