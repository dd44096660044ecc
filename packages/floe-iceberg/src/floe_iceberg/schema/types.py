"""The mapping of Arrow's types to Iceberg's, and the cast of batches to the schema of a table.

Arrow has several types for what Iceberg stores as one. Lossless conversions always apply; conversions that could lose
data are checked value by value:

    string, string_view, dictionary, run-end encoded   their plain value type
    int8, int16, uint8, uint16                         int
    uint32, uint64                                     long (a value that is too large is refused)
    float16                                            float
    decimal32, decimal64, decimal256                   decimal, up to 38 digits
    timestamp of any unit and zone                     timestamp, or timestamptz in UTC, in microseconds
    date64, time32, time64                             date, time in microseconds
    list, fixed-size list, list view                   list

Values finer than a microsecond are refused, or truncated and counted if the write sets `truncate_nanoseconds`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from floe_core.errors import SchemaEvolutionError

__all__ = ["ArrowCaster", "column_problems", "iceberg_storage_type", "places_of"]

_MAX_DIGITS = 38


def iceberg_storage_type(kind: pa.DataType) -> pa.DataType:
    """The Arrow type under which Iceberg stores values of this type; the type itself if Iceberg has none."""
    for is_kind, storage_type in _STORAGE_TYPES:
        if is_kind(kind):
            return storage_type
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return iceberg_storage_type(kind.value_type)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if pa.types.is_decimal(kind) and kind.precision <= _MAX_DIGITS:
        return pa.decimal128(kind.precision, kind.scale)
    if pa.types.is_struct(kind):
        return pa.struct([_storage_field(kind.field(at)) for at in range(kind.num_fields)])
    if pa.types.is_map(kind):
        return pa.map_(_storage_field(kind.key_field), _storage_field(kind.item_field))
    if _is_list(kind):
        return pa.large_list(_storage_field(kind.value_field))
    if isinstance(kind, pa.BaseExtensionType) and kind != pa.uuid():
        return iceberg_storage_type(kind.storage_type)
    return kind


def _storage_field(field: pa.Field) -> pa.Field:
    return field.with_type(iceberg_storage_type(field.type))


def _is_list(kind: pa.DataType) -> bool:
    return any(
        is_kind(kind)
        for is_kind in (
            pa.types.is_list,
            pa.types.is_large_list,
            pa.types.is_fixed_size_list,
            pa.types.is_list_view,
            pa.types.is_large_list_view,
        )
    )


_STORAGE_TYPES = (
    (pa.types.is_string_view, pa.large_string()),
    (pa.types.is_string, pa.large_string()),
    (pa.types.is_binary_view, pa.large_binary()),
    (pa.types.is_binary, pa.large_binary()),
    (pa.types.is_int8, pa.int32()),
    (pa.types.is_int16, pa.int32()),
    (pa.types.is_uint8, pa.int32()),
    (pa.types.is_uint16, pa.int32()),
    (pa.types.is_uint32, pa.int64()),
    (pa.types.is_uint64, pa.int64()),
    (pa.types.is_float16, pa.float32()),
    (pa.types.is_date, pa.date32()),
    (pa.types.is_time, pa.time64("us")),
)


def column_problems(schema: pa.Schema, whose: str = "the data") -> list[str]:
    """The names and types of these columns, and of their nested fields, that no table can hold."""
    return _name_problems(list(schema), whose, "column", "")


def places_of(have: Sequence[str], want: Sequence[str]) -> list[int | None]:
    """The place of each wanted column, ignoring case as Spark does; None if it is missing."""
    exact, wanted = {name: place for place, name in enumerate(have)}, set(want)
    # A table of another engine may have both `At` and `at`: exact matches come first.
    free = {name.lower(): place for name, place in exact.items() if name not in wanted}
    return [exact[name] if name in exact else free.pop(name.lower(), None) for name in want]


def _name_problems(fields: list[pa.Field], where: str, noun: str, above: str) -> list[str]:
    names = [field.name for field in fields]
    twice = [name for name, count in Counter(name.lower() for name in names).items() if count > 1]
    problems = []
    if twice:
        problems.append(
            f"{where} has more than one {noun} {', '.join(map(repr, twice))} (upper and lower case are the same to "
            f"Spark); rename or drop one"
        )
    if any(not name for name in names):
        problems.append(f"{where} has a {noun} without a name; name it")
    return problems + [problem for field in fields for problem in _inner_problems(field.type, f"{above}{field.name}")]


def _inner_problems(kind: pa.DataType, path: str) -> list[str]:
    if pa.types.is_struct(kind):
        inner = [kind.field(at) for at in range(kind.num_fields)]
        if not inner:
            return [f"column {path!r} is a struct without fields; drop it"]
        return _name_problems(inner, f"column {path!r}", "field", f"{path}.")
    if pa.types.is_map(kind):
        return [*_inner_problems(kind.key_type, f"{path}.key"), *_inner_problems(kind.item_type, f"{path}.value")]
    if _is_list(kind):
        return _inner_problems(kind.value_type, f"{path}.element")
    if pa.types.is_decimal(kind) and kind.scale < 0:
        return [f"column {path!r} is {kind}, and Iceberg has no decimals of negative scale; cast it"]
    return []


@dataclass
class ArrowCaster:
    """Casts batches to a table's schema: its columns, in their order and types; NULL for missing columns."""

    target: pa.Schema
    truncate_nanoseconds: bool = False
    by_position: bool = False  # match columns and nested fields by position, not by name
    truncated: int = 0

    def fit(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        places = self._places(batch.schema.names, self.target.names)
        columns = [
            pa.nulls(len(batch), want.type) if place is None else self._fit(batch.column(place), want.type, want.name)
            for place, want in zip(places, self.target, strict=True)
        ]
        for column, want in zip(columns, self.target, strict=True):
            _refuse_nulls(column, want, want.name)
        return pa.RecordBatch.from_arrays(columns, schema=self.target)

    def _places(self, have: list[str], want: list[str]) -> list[int | None]:
        if self.by_position:
            return list(range(len(want)))
        return places_of(have, want)

    def _fit(self, values: pa.Array, want: pa.DataType, path: str) -> pa.Array:
        have = values.type
        if have == want and not _has_required(want):
            return values
        if pa.types.is_dictionary(have):
            return self._fit(values.dictionary_decode(), want, path)
        if pa.types.is_run_end_encoded(have):
            return self._fit(pc.run_end_decode(values), want, path)
        if isinstance(have, pa.BaseExtensionType):
            return self._fit(values.storage, want, path)
        if isinstance(want, pa.BaseExtensionType):
            return pa.ExtensionArray.from_storage(want, self._fit(values, want.storage_type, path))
        if pa.types.is_struct(have) and pa.types.is_struct(want):
            return self._fit_struct(values, want, path)
        if pa.types.is_map(have) and pa.types.is_map(want):
            values = pa.concat_arrays([values])  # a copy: a slice keeps the offsets of the whole array
            keys = self._fit(values.keys, want.key_type, f"{path}.key")
            items = self._fit(values.items, want.item_type, f"{path}.value")
            _refuse_nulls(items, want.item_field, f"{path}.value")
            return pa.MapArray.from_arrays(values.offsets, keys, items, want, mask=values.is_null())
        if _is_list(have) and _is_list(want):
            return self._fit_list(values, want, path)
        return self._cast(values, want, path)

    def _fit_struct(self, values: pa.StructArray, want: pa.StructType, path: str) -> pa.Array:
        fields = [want.field(at) for at in range(want.num_fields)]
        have = [values.type.field(at).name for at in range(values.type.num_fields)]
        places = self._places(have, [field.name for field in fields])
        children = [
            pa.nulls(len(values), field.type)
            if place is None
            else self._fit(values.field(place), field.type, f"{path}.{field.name}")
            for place, field in zip(places, fields, strict=True)
        ]
        for child, field in zip(children, fields, strict=True):
            present = child.filter(values.is_valid()) if values.null_count else child
            _refuse_nulls(present, field, f"{path}.{field.name}")
        return pa.StructArray.from_arrays(children, fields=fields, mask=values.is_null())

    def _fit_list(self, values: pa.Array, want: pa.DataType, path: str) -> pa.Array:
        # Arrow's own cast of list views reads beyond their end, so the list is rebuilt from its lengths.
        lengths = pc.fill_null(pc.list_value_length(values), 0).cast(pa.int64())
        offsets = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(lengths)])
        items = self._fit(values.flatten(), want.value_type, f"{path}.element")
        _refuse_nulls(items, want.value_field, f"{path}.element")
        return pa.LargeListArray.from_arrays(offsets, items, want, mask=values.is_null())

    def _cast(self, values: pa.Array, want: pa.DataType, path: str) -> pa.Array:
        try:
            return values.cast(want)
        except pa.ArrowInvalid as exc:
            if _is_finer(values.type, want):
                return self._truncate(values, want, path)
            raise SchemaEvolutionError(
                f"column '{path}' holds a value that {want} cannot: {exc.args[0]}. Nothing was written"
            ) from exc
        except pa.ArrowNotImplementedError as exc:
            raise SchemaEvolutionError(
                f"column '{path}': {values.type} cannot become {want}; cast it. Nothing was written"
            ) from exc

    def _truncate(self, values: pa.Array, want: pa.DataType, path: str) -> pa.Array:
        # Round down, also before 1970, where a cast would round up.
        floored = pc.floor_temporal(values, unit="microsecond") if pa.types.is_timestamp(values.type) else values
        truncated = floored.cast(want, safe=False)
        count = pc.sum(pc.not_equal(truncated.cast(values.type, safe=False), values)).as_py()
        if not self.truncate_nanoseconds:
            raise SchemaEvolutionError(
                f"column '{path}' holds {count} {'value' if count == 1 else 'values'} finer than a microsecond, which "
                f"the table cannot keep: round them, or set truncate_nanoseconds. Nothing was written"
            )
        self.truncated += count
        return truncated


def _has_required(kind: pa.DataType) -> bool:
    """Does the type have a required nested field? Then its values must be checked for NULL."""
    if pa.types.is_struct(kind):
        inner = [kind.field(at) for at in range(kind.num_fields)]
    elif pa.types.is_map(kind):
        inner = [kind.item_field]
    else:
        inner = [kind.value_field] if _is_list(kind) else []
    return any(not field.nullable or _has_required(field.type) for field in inner)


def _refuse_nulls(values: pa.Array, field: pa.Field, path: str) -> None:
    if values.null_count and not field.nullable:
        raise SchemaEvolutionError(
            f"column '{path}' holds {values.null_count} NULL, which the table does not allow there; fill or drop "
            f"{'it' if values.null_count == 1 else 'them'}. Nothing was written"
        )


def _is_finer(have: pa.DataType, want: pa.DataType) -> bool:
    is_time = (pa.types.is_timestamp(have) and pa.types.is_timestamp(want)) or (
        pa.types.is_time64(have) and pa.types.is_time64(want)
    )
    return is_time and (have.unit, want.unit) == ("ns", "us")
