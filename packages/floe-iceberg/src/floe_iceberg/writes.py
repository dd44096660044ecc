"""Write Arrow data to a table: stage its files, then commit them in one snapshot that its write id finds again.

    look -> plan the schema -> stage the files -> commit -> (conflict or doubt: settle, commit the same files again)

Nothing is sent before everything is staged and checked, so a refusal leaves nothing behind; and what was sent once is
never deleted here, whatever comes back.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, replace

from pyiceberg.expressions import BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction

from floe_core.errors import TableAlreadyExistsError
from floe_core.models import WriteMode
from floe_core.telemetry import Operation, warn
from floe_iceberg import doubt, patience
from floe_iceberg.commits import Commit, begin
from floe_iceberg.filters import condition_of
from floe_iceberg.foreign_tables import refuse_location_provider
from floe_iceberg.incoming import ArrowData, Incoming, Sample, incoming
from floe_iceberg.replacing import Replacement, replace_rows
from floe_iceberg.schema import SchemaChange, to_iceberg_schema
from floe_iceberg.slices import Guard, slice_filter
from floe_iceberg.snapshots import DATA_ROWS, find_writes
from floe_iceberg.staging import Staged, Stager
from floe_iceberg.types import Fitting
from floe_iceberg.upserts import merge_rows
from floe_iceberg.write_request import WriteRequest, WriteResult, check_branch, check_table, created_by_another

__all__ = ["TRUNCATED", "write"]

# How many values lost their nanoseconds, in the summary of the snapshot.
TRUNCATED = "floe.truncated-nanoseconds"


def write(request: WriteRequest, data: ArrowData, op: Operation) -> WriteResult:
    """Write the data once: a write whose id is in the table's history has happened already."""
    op.event("validating")
    begun = _begun(request, data)
    if isinstance(begun, WriteResult):
        return begun
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
    commit = Commit(request, begun.schema, summary, staged, replacement, op)
    result = commit.run(begun.table, begun.transaction, begun.change)
    return replace(result, sample=sample.taken())


@dataclass(frozen=True)
class _Begun:
    """A write whose table was found, or is being created, before its files are staged."""

    table: Table | None
    arriving: Incoming
    schema: Schema
    transaction: Transaction
    change: SchemaChange


def _begun(request: WriteRequest, data: ArrowData) -> _Begun | WriteResult:
    """Begin the write; its result if it has happened already.

    A catalog may refuse to stage the creation of a table that another writer created since the look: then look again.
    """
    for number in itertools.count(1):
        table = request.manager.find_table(request.identifier)
        check_branch(table, request.identifier, request.branch)
        if table is not None:
            found = find_writes(table, request.write_id, branch=request.branch)
            if found:
                return WriteResult(doubt.only_one(found, request.identifier), SchemaChange(), deduplicated=True)
            if number > 1 and request.mode is not WriteMode.APPEND:
                raise created_by_another(request.identifier)
            request.manager.refuse_moved(table, request.identifier)
            check_table(request, table)
            refuse_location_provider(table.properties, f"table '{request.identifier}'")
        arriving = data = incoming(data)
        schema = to_iceberg_schema(arriving.schema_for(table.schema() if table is not None else None))
        try:
            transaction, change = begin(request, table, schema)
        except TableAlreadyExistsError:
            # Refused again although there is no table: it comes and goes, or the name is taken by something else.
            if table is not None or number >= patience.DOUBTFUL_ATTEMPTS:
                raise
            time.sleep(patience.pause(number))
        else:
            return _Begun(table, arriving, schema, transaction, change)
    raise AssertionError("the loop ends by itself")


def _stage(request: WriteRequest, begun: _Begun, sample: Sample) -> tuple[Staged, Replacement, int]:
    """Write the data files, and those that take the place of files of which only a part is replaced."""
    table, arriving = begun.table, begun.arriving
    stager = Stager(begun.transaction.table_metadata, begun.transaction._table.io)
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
