"""Upserts of Arrow data: small ones, by one key. Large and composite ones are a MERGE, which is Spark's work."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import And, BooleanExpression, GreaterThanOrEqual, In, LessThanOrEqual
from pyiceberg.expressions.literals import FloatLiteral, literal
from pyiceberg.table import Table

from floe_core.errors import ConfigurationError, FloeStorageError
from floe_iceberg.replacing import NOTHING, Replacement, check_basis, files_at_first, files_under, state_of
from floe_iceberg.staging import Stager, read_rows
from floe_iceberg.types import places_of
from floe_iceberg.write_request import WriteRequest

__all__ = ["LARGEST_UPSERT", "merge_rows"]

LARGEST_UPSERT = 100_000
_EXAMPLES = 3
# Beyond this many keys a range of them finds the files as well, and is quicker to check.
_LISTED_KEYS = 200


def merge_rows(
    request: WriteRequest, table: Table | None, stager: Stager, batches: Iterable[pa.RecordBatch], columns: list[str]
) -> Replacement:
    """Stage the rows with new values, and those of their files that stay; then the rows that are new.

    A matched row takes the values of the data's `columns` and keeps its others.
    """
    check_basis(request, table)
    key = _key(request, stager)
    source = _collected(request, batches, stager.arrow_schema)
    _check_keys(request, key, source[key])
    if table is None or not len(source):
        _add(stager, source)
        return NOTHING
    values = _plain(source[key])
    find = files_under(_among(key, values), request.branch)
    seen = files_at_first(request, table, find)
    removed = set()
    matched = pa.nulls(0, pa.int64())
    names = stager.arrow_schema.names
    given = {name for name, place in zip(names, places_of(columns, names), strict=True) if place is not None}
    updated = given - {key}  # 0.0 finds the row of -0.0, which keeps its own
    for task in seen:
        rows = pa.Table.from_batches(read_rows(stager.metadata, table.io, task), schema=stager.arrow_schema)
        places = pc.index_in(_plain(rows[key]), values)
        if places.null_count == len(places):
            continue
        removed.add(task.file.file_path)
        found = pc.is_valid(places)
        _add(stager, rows.filter(pc.invert(found)))
        old, new = rows.filter(found), source.take(places.drop_null())
        _add(
            stager,
            pa.Table.from_arrays(
                [new[one.name] if one.name in updated else old[one.name] for one in stager.arrow_schema],
                schema=stager.arrow_schema,
            ),
        )
        matched = pa.concat_arrays([matched, places.drop_null().cast(pa.int64())])
    is_new = pc.invert(pc.is_in(pa.array(range(len(source)), pa.int64()), matched))
    _add(stager, source.filter(is_new))
    return Replacement(find, state_of(seen), frozenset(removed))


def _key(request: WriteRequest, stager: Stager) -> str:
    if len(request.keys) > 1:
        raise ConfigurationError(
            f"an upsert by several keys ({', '.join(request.keys)}) needs Spark: write a Spark DataFrame, which merges "
            f"them. Nothing was written"
        )
    (key,) = request.keys
    for field in stager.schema.fields:
        if field.name.lower() == key.lower():
            if not field.field_type.is_primitive:
                raise ConfigurationError(f"the key {key!r} is {field.field_type}; a key must be a single value")
            return field.name
    raise ConfigurationError(
        f"there is no column {key!r} to upsert by (there: {', '.join(field.name for field in stager.schema.fields)})"
    )


def _collected(request: WriteRequest, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    rows: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        rows.append(batch)
        count += len(batch)
        if count > LARGEST_UPSERT:
            raise ConfigurationError(
                f"an upsert of more than {LARGEST_UPSERT:,} rows into '{request.identifier}' needs Spark: write a "
                f"Spark DataFrame, which merges them. Nothing was written"
            )
    return pa.Table.from_batches(rows, schema=schema).combine_chunks()


def _check_keys(request: WriteRequest, key: str, values: pa.ChunkedArray) -> None:
    plain = _plain(values)
    problems = []
    if plain.null_count:
        problems.append(f"{plain.null_count} {'row has' if plain.null_count == 1 else 'rows have'} no {key}")
    if pa.types.is_floating(plain.type) and (nans := pc.sum(pc.is_nan(plain)).as_py()):
        problems.append(f"{nans} {'row has' if nans == 1 else 'rows have'} NaN as {key}")
        plain = plain.filter(pc.invert(pc.is_nan(plain)))
    counted = plain.drop_null().value_counts()
    twice = counted.filter(pc.greater(counted.field("counts"), 1))
    if len(twice):
        examples = ", ".join(str(one.as_py()) for one in twice.field("values")[:_EXAMPLES])
        problems.append(f"{len(twice)} {'key stands' if len(twice) == 1 else 'keys stand'} more than once ({examples})")
    if problems:
        raise FloeStorageError(
            f"the data cannot be upserted into '{request.identifier}' by {key}: {'; '.join(problems)}. Every row needs "
            f"a key of its own. Nothing was written"
        )


def _among(key: str, values: pa.Array) -> BooleanExpression:
    distinct = values.unique()
    # PyIceberg takes an infinite double for one that a float cannot hold, and looks for it nowhere.
    told = FloatLiteral if pa.types.is_float32(values.type) else literal
    if len(distinct) <= _LISTED_KEYS:
        among: Any = In
        return among(key, {told(one) for one in distinct.to_pylist()})  # type: ignore[no-any-return]
    at_least: Any = GreaterThanOrEqual
    at_most: Any = LessThanOrEqual
    ends = pc.min_max(values).as_py()
    return And(at_least(key, told(ends["min"])), at_most(key, told(ends["max"])))


def _plain(values: pa.ChunkedArray) -> pa.Array:
    whole = values.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        whole = pa.concat_arrays(whole.chunks) if whole.num_chunks else pa.array([], whole.type)
    if pa.types.is_floating(whole.type):
        return pc.add(whole, pa.scalar(0.0, whole.type))  # 0.0 and -0.0 are one key; by their bits they would be two
    return whole.storage if isinstance(whole, pa.ExtensionArray) else whole


def _add(stager: Stager, rows: pa.Table) -> None:
    for batch in rows.to_batches():
        stager.add(batch)
