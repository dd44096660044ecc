"""Upserts of Arrow data: small ones, by one key column or several. Large ones are a MERGE in Spark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import And, BooleanExpression, GreaterThanOrEqual, In, LessThanOrEqual
from pyiceberg.expressions.literals import FloatLiteral, literal
from pyiceberg.table import Table

from floe_core.errors import ConfigurationError, FloeStorageError
from floe_iceberg.schema.types import places_of
from floe_iceberg.writing.overwrites import NOTHING, Replacement, check_basis, files_at_first, files_under, state_of
from floe_iceberg.writing.request import WriteRequest
from floe_iceberg.writing.staging import Stager, read_rows

__all__ = ["LARGEST_UPSERT", "merge_rows"]

LARGEST_UPSERT = 100_000
_EXAMPLES = 3
# Above this many keys, filter by their range: it prunes files as well and is faster to evaluate.
_LISTED_KEYS = 200


def merge_rows(
    request: WriteRequest, table: Table | None, stager: Stager, batches: Iterable[pa.RecordBatch], columns: list[str]
) -> Replacement:
    """Stage matched rows with their new values, the unmatched rows of the same files, then the new rows.

    A matched row takes the values of the data's `columns` and keeps its others.
    """
    check_basis(request, table)
    names = _key_columns(request, stager)
    source = _collected(request, batches, stager.arrow_schema)
    _check_keys(request, names, source)
    if table is None or not len(source):
        _add(stager, source)
        return NOTHING
    keys = _Keys.of(source, names)
    find = files_under(keys.filter(), request.branch)
    seen = files_at_first(request, table, find)
    removed = set()
    matched = pa.nulls(0, pa.int64())
    known = stager.arrow_schema.names
    given = {name for name, place in zip(known, places_of(columns, known), strict=True) if place is not None}
    updated = given - set(names)  # keys stay as stored: 0.0 matches -0.0
    for task in seen:
        rows = pa.Table.from_batches(read_rows(stager.metadata, table.io, task), schema=stager.arrow_schema)
        places = keys.places(rows)
        if places.null_count == len(places):
            continue
        removed.add(task.file.file_path)
        is_match = pc.is_valid(places)
        _add(stager, rows.filter(pc.invert(is_match)))
        old, new = rows.filter(is_match), source.take(places.drop_null())
        _add(
            stager,
            pa.Table.from_arrays(
                [(new if name in updated else old)[name] for name in known],
                schema=stager.arrow_schema,
            ),
        )
        matched = pa.concat_arrays([matched, places.drop_null()])
    is_new = pc.invert(pc.is_in(pa.array(range(len(source)), pa.int64()), matched))
    _add(stager, source.filter(is_new))
    return Replacement(find, state_of(seen), frozenset(removed))


@dataclass(frozen=True)
class _Keys:
    """The keys of the source rows as integer codes, to find the source row of a table row."""

    distinct: dict[str, pa.Array]  # the values of each key column
    combined: tuple[pa.Array, ...]  # for each column after the first, the codes of the combinations so far
    codes: pa.Array  # the code of each row

    @classmethod
    def of(cls, source: pa.Table, names: Sequence[str]) -> _Keys:
        first, *others = names
        distinct = {name: _plain(source[name]).unique() for name in names}
        codes, combined = _codes(source, first, distinct), []
        for name in others:
            paired = _paired(codes, source, name, distinct)
            combined.append(paired.unique())
            codes = pc.index_in(paired, combined[-1]).cast(pa.int64())
        return cls(distinct, tuple(combined), codes)

    def places(self, rows: pa.Table) -> pa.Array:
        """For each of these rows, the position of the source row with the same keys; NULL if there is none."""
        first, *others = self.distinct
        codes = _codes(rows, first, self.distinct)
        for name, combinations in zip(others, self.combined, strict=True):
            paired = _paired(codes, rows, name, self.distinct)
            # Codes of combinations stay below the number of rows, so that the next pairing cannot overflow.
            codes = pc.index_in(paired, combinations, skip_nulls=True).cast(pa.int64())
        return pc.index_in(codes, self.codes, skip_nulls=True).cast(pa.int64())

    def filter(self) -> BooleanExpression:
        """A filter that all rows with these keys match; other rows may match it too."""
        conditions = [_among(name, values) for name, values in self.distinct.items()]
        return conditions[0] if len(conditions) == 1 else And(*conditions)


def _codes(rows: pa.Table, name: str, distinct: dict[str, pa.Array]) -> pa.Array:
    return pc.index_in(_plain(rows[name]), distinct[name], skip_nulls=True).cast(pa.int64())


def _paired(codes: pa.Array, rows: pa.Table, name: str, distinct: dict[str, pa.Array]) -> pa.Array:
    return pc.add(pc.multiply(codes, len(distinct[name])), _codes(rows, name, distinct))


def _key_columns(request: WriteRequest, stager: Stager) -> list[str]:
    """The keys, spelled as the table's columns."""
    columns = {field.name.lower(): field for field in stager.schema.fields}
    names: list[str] = []
    for key in request.keys:
        field = columns.get(key.lower())
        if field is None:
            known = ", ".join(column.name for column in stager.schema.fields)
            raise ConfigurationError(f"there is no column {key!r} to upsert by (there: {known})")
        if not field.field_type.is_primitive:
            raise ConfigurationError(f"the key {key!r} is {field.field_type}; a key must be a single value")
        names.append(field.name)
    return list(dict.fromkeys(names))


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


def _check_keys(request: WriteRequest, names: Sequence[str], source: pa.Table) -> None:
    problems: list[str] = []
    usable = pa.array([True] * len(source), pa.bool_())
    for name in names:
        values = _plain(source[name])
        usable = pc.and_(usable, pc.is_valid(values))
        if values.null_count:
            problems.append(f"{_rows_have(values.null_count)} no {name}")
        if pa.types.is_floating(values.type) and (nans := pc.sum(pc.is_nan(values)).as_py()):
            problems.append(f"{_rows_have(nans)} NaN as {name}")
            usable = pc.and_(usable, pc.invert(pc.fill_null(pc.is_nan(values), False)))
    whole = source.filter(usable)
    codes = _Keys.of(whole, names).codes
    counted = codes.value_counts()
    twice = counted.filter(pc.greater(counted.field("counts"), 1)).field("values")
    if len(twice):
        places = [pc.index(codes, code).as_py() for code in twice[:_EXAMPLES]]
        examples = ", ".join(" and ".join(str(whole[name][place].as_py()) for name in names) for place in places)
        problems.append(f"{len(twice)} {'key occurs' if len(twice) == 1 else 'keys occur'} more than once ({examples})")
    if problems:
        raise FloeStorageError(
            f"the data cannot be upserted into '{request.identifier}' by {', '.join(names)}: {'; '.join(problems)}. "
            f"Every row needs a key of its own. Nothing was written"
        )


def _rows_have(count: int) -> str:
    return f"{count} {'row has' if count == 1 else 'rows have'}"


def _among(key: str, distinct: pa.Array) -> BooleanExpression:
    # PyIceberg takes an infinite double to be out of range for a float column, and finds no file for it.
    as_literal = FloatLiteral if pa.types.is_float32(distinct.type) else literal
    if len(distinct) <= _LISTED_KEYS:
        among: Any = In
        return among(key, {as_literal(value) for value in distinct.to_pylist()})  # type: ignore[no-any-return]
    at_least: Any = GreaterThanOrEqual
    at_most: Any = LessThanOrEqual
    ends = pc.min_max(distinct).as_py()
    return And(at_least(key, as_literal(ends["min"])), at_most(key, as_literal(ends["max"])))


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
