"""Write rows to a table, and those that break a check to its quarantine table.

    evaluate each row once -> commit the bad rows to the branch of the quarantine table
                           -> commit the others to the branch of the table, as the write itself

The write itself is committed last. If an attempt ends in between, the next one finds no write in the table, evaluates
the rows again, and replaces what the earlier attempt has moved. Both branches are published by one commit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Protocol

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from floe_core.errors import ConfigurationError
from floe_core.observability import operation
from floe_core.plugins import ComputePlugin
from floe_iceberg.manager import IcebergTableManager
from floe_iceberg.quarantine.conditions import conditions_of
from floe_iceberg.quarantine.division import RowDivision
from floe_iceberg.quarantine.moved import MovedRows, moved_rows
from floe_iceberg.quarantine.target import Quarantine, check_target, marks_of, move_request, open_target
from floe_iceberg.schema import to_iceberg_schema, with_optional_columns
from floe_iceberg.snapshots import find_writes
from floe_iceberg.writing import ArrowSource, Target, WriteRequest, WriteResult, commits

__all__ = ["write_quarantined"]


class _Lake(Protocol):
    @property
    def tables(self) -> IcebergTableManager: ...

    @property
    def compute(self) -> ComputePlugin: ...

    def write_request(self, frame: Any, request: WriteRequest, target: Target | None = None) -> WriteResult: ...


def write_quarantined(
    lake: _Lake, request: WriteRequest, data: Any, table: Table, quarantine: Quarantine, *, shows_values: bool = True
) -> tuple[WriteResult, MovedRows]:
    """Write rows to the branch of a run, and those that break a check to the branch of the quarantine table.

    Args:
        lake: The lake.
        request: The write; its branch is that of the run.
        data: An ArrowSource, or a Spark DataFrame.
        table: The table of the write, with the branch.
        quarantine: Where the other rows go.
        shows_values: Whether errors may show values of the rows.
    """
    if request.overwrite_filter is not None or request.dynamic_partitions:
        raise ConfigurationError("quarantine is for writes of a slice or of the whole table. Nothing was written")
    if isinstance(data, ArrowSource):
        data = quarantine.without_null(data)
    with operation("iceberg.quarantine", table=str(request.identifier), quarantine=str(quarantine.table)) as op:
        if find_writes(table, request.write_id, branch=request.branch):  # committed by an earlier attempt
            result = _write(lake, request, data, table)
        else:
            check_target(lake.tables.find_table(quarantine.table), quarantine, request.identifier, table.schema())
            divided = _write_arrow if isinstance(data, ArrowSource) else _write_frame
            result = divided(lake, request, data, table, quarantine, shows_values)
        moved = moved_rows(lake.tables, quarantine.table, request.branch, write_id=request.write_id)
        op.set(num_rows=moved.rows)
    return result, moved


def _write(lake: _Lake, request: WriteRequest, data: Any, table: Table) -> WriteResult:
    if isinstance(data, ArrowSource):
        return lake.tables.write(request, data, Target(table))
    return lake.write_request(data, request, Target(table))


def _write_arrow(
    lake: _Lake, request: WriteRequest, data: ArrowSource, table: Table, quarantine: Quarantine, shows_values: bool
) -> WriteResult:
    given = to_iceberg_schema(data.schema_for(table.schema()))
    evolved = commits.begin(lake.tables, request, table, given)[0].table_metadata.schema()
    schema = with_optional_columns(_evaluated(evolved, given, request))
    check_target(None, quarantine, request.identifier, schema)
    conditions = conditions_of(quarantine.checks, schema, "duckdb", request.identifier)
    division = RowDivision(
        conditions,
        schema,
        request.identifier,
        shows_values=shows_values,
        truncate_nanoseconds=request.truncate_nanoseconds,
    )

    def kept() -> Iterator[pa.RecordBatch]:
        yield from division.kept(data.batches)
        # All rows of the write are staged by now, and its commit was not sent.
        _move(
            lake,
            request,
            table,
            quarantine,
            rows=division.rows,
            counts=division.counts,
            write=lambda moves, target: lake.tables.write(moves, _marked(division, quarantine, request), target),
        )

    try:
        return lake.tables.write(request, replace(data, batches=kept()), Target(table))
    finally:
        division.close()


def _write_frame(
    lake: _Lake, request: WriteRequest, frame: Any, table: Table, quarantine: Quarantine, _shows_values: bool
) -> WriteResult:
    given = lake.compute.schema_of(frame)
    schema = _evaluated(_with_columns_of(given, table.schema()), given, request)
    check_target(None, quarantine, request.identifier, schema)
    conditions = conditions_of(quarantine.checks, schema, "spark", request.identifier)
    divided = lake.compute.divided(
        frame, conditions, request.identifier, columns=schema, marks=marks_of(quarantine, request.write_id)
    )
    counts = Counter[str]()
    for names, rows in divided.counts.items():
        counts.update(dict.fromkeys(names.split(", "), rows))
    _move(
        lake,
        request,
        table,
        quarantine,
        rows=sum(divided.counts.values()),
        counts=counts,
        write=lambda moves, target: lake.write_request(divided.moved, moves, target),
    )
    return lake.write_request(divided.kept, request, Target(table))


def _move(
    lake: _Lake,
    request: WriteRequest,
    table: Table,
    quarantine: Quarantine,
    *,
    rows: int,
    counts: Mapping[str, int],
    write: Callable[[WriteRequest, Target], object],
) -> None:
    """Commit the rows to the branch of the quarantine table, if there are some, or some to replace."""
    moves = move_request(lake.tables, request, quarantine, rows=rows, counts=counts)
    if moves is not None:
        write(moves, Target(open_target(lake.tables, quarantine, table, request.identifier)))


def _marked(division: RowDivision, quarantine: Quarantine, request: WriteRequest) -> pa.RecordBatchReader:
    """The moved rows with the values that say where they come from."""
    marks = marks_of(quarantine, request.write_id)
    rows = division.moved()
    schema = rows.schema
    for name, value in marks.items():
        kind = pa.timestamp("us", "UTC") if isinstance(value, datetime) else pa.string()
        schema = schema.append(pa.field(name, kind))

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in rows:
            own = [pa.repeat(pa.scalar(value, schema.field(name).type), len(batch)) for name, value in marks.items()]
            yield pa.RecordBatch.from_arrays([*batch.columns, *own], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _evaluated(columns: Schema, given: Schema, request: WriteRequest) -> Schema:
    """The columns that rules are evaluated on; an upsert keeps the values of columns that it is not given."""
    if not request.keys:
        return columns
    names = {field.name.lower() for field in given.fields}
    return Schema(*(field for field in columns.fields if field.name.lower() in names))


def _with_columns_of(given: Schema, table: Schema) -> Schema:
    """The columns of the table, and those that the data adds."""
    known = {field.name.lower() for field in table.fields}
    first = table.highest_field_id + 1
    added = [field for field in given.fields if field.name.lower() not in known]
    own = [field.model_copy(update={"field_id": first + number}) for number, field in enumerate(added)]
    return with_optional_columns(Schema(*table.fields, *own))
