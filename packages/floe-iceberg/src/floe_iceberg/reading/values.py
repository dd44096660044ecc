"""Values of Arrow columns as JSON has them, without loss; and as text, for CSV and for people.

| type | JSON |
|---|---|
| boolean, integer, text | as such |
| decimal | a text, such as "12.50"; without digits after the point an integer |
| float | a number; NaN and infinities are "NaN", "Infinity" and "-Infinity" |
| date, time, timestamp | ISO 8601; a timestamp with a zone ends with +00:00; "Infinity" and "-Infinity" of DuckDB |
| binary | a text, in base64 |
| uuid | a text |
| interval | a text, such as "P1M2DT3S" |
| struct | an object |
| list | an array |
| map | an array of objects with key and value |
"""

from __future__ import annotations

import base64
import json
import math
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["csv_array", "json_values", "shown_values"]

_NANOSECONDS = 10**9
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": _NANOSECONDS}
_CYCLE_DAYS = 146_097  # of 400 years
_NEAR_DAYS = 70 * _CYCLE_DAYS  # Arrow writes the years from -32767 to 32767


def json_values(array: pa.Array) -> list[Any]:
    """The values of a column as JSON has them."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return [None if value is None else str(value) for value in array.to_pylist()]
    if pa.types.is_dictionary(kind):
        return json_values(array.dictionary_decode())
    if pa.types.is_nested(kind):
        return _nested(array)
    if pa.types.is_temporal(kind) and not pa.types.is_duration(kind) and not _is_interval(kind):
        return _times(array).to_pylist()  # type: ignore[no-any-return]
    convert = _converter(kind)
    values = array.to_pylist()
    return values if convert is None else [None if value is None else convert(value) for value in values]


def _is_interval(kind: pa.DataType) -> bool:
    return bool(kind == pa.month_day_nano_interval())


def _converter(kind: pa.DataType) -> Any:
    if pa.types.is_floating(kind):
        return _float
    if pa.types.is_decimal(kind):
        return int if kind.scale <= 0 else _decimal
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return lambda value: base64.b64encode(value).decode()
    if _is_interval(kind):
        return lambda value: _interval(value.months, value.days, value.nanoseconds)
    return str if pa.types.is_duration(kind) else None


def _float(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _decimal(value: Decimal) -> str:
    return format(value, "f")


def _times(array: pa.Array) -> pa.Array:
    """ISO 8601. Arrow's texts, because years before 1 and after 9999 are no dates of Python."""
    if pa.types.is_timestamp(array.type) and array.type.tz not in (None, "UTC"):
        array = array.cast(pa.timestamp(array.type.unit, "UTC"))
    far = _far_times(array)
    text = pc.replace_substring(array.cast(pa.string()), " ", "T", max_replacements=1)
    text = pc.replace_substring_regex(text, r"\.0+(Z?)$", r"\1")
    text = pc.replace_substring_regex(text, "Z$", "+00:00")
    if not far:
        return text
    return pa.array([far.get(place, value) for place, value in enumerate(text.to_pylist())], pa.string())


def _far_times(array: pa.Array) -> dict[int, Any]:
    """The texts of the dates and times, by place, that Arrow cannot write: infinite ones and distant years."""
    kind = array.type
    if pa.types.is_time(kind):
        return {}
    numbers = array.view(pa.int32() if pa.types.is_date32(kind) else pa.int64())
    infinite = 2 ** (numbers.type.bit_width - 1) - 1
    per_day = 1 if pa.types.is_date32(kind) else 86_400 * _PER_SECOND[getattr(kind, "unit", "ms")]
    limit = _NEAR_DAYS * per_day
    is_far = pc.or_(pc.greater(numbers, min(limit, infinite - 1)), pc.less(numbers, max(-limit, 1 - infinite)))
    texts = {}
    for place in pc.indices_nonzero(is_far.fill_null(False)).to_pylist():
        number = numbers[place].as_py()
        is_infinite = abs(number) == infinite
        texts[place] = _float(math.copysign(math.inf, number)) if is_infinite else _distant(number, kind, per_day)
    return texts


def _distant(number: int, kind: pa.DataType, per_day: int) -> str:
    """As Arrow writes a near one. The calendar repeats every 400 years."""
    cycles, number = divmod(number, _CYCLE_DAYS * per_day)
    near = str(json_values(pa.array([number], pa.int32() if per_day == 1 else pa.int64()).view(kind))[0])
    return f"{int(near[:4]) + 400 * cycles}{near[4:]}"


def _interval(months: int, days: int, nanoseconds: int) -> str:
    seconds = Decimal(nanoseconds) / _NANOSECONDS
    parts = [f"{months}M" if months else "", f"{days}D" if days else ""]
    time = f"T{seconds.normalize():f}S" if seconds or not any(parts) else ""
    return f"P{''.join(parts)}{time}"


def _nested(array: pa.Array) -> list[Any]:
    valid = array.is_valid().to_pylist()
    kind = array.type
    if pa.types.is_struct(kind):
        names = [kind.field(place).name for place in range(kind.num_fields)]
        columns = [json_values(child) for child in array.flatten()]
        rows = zip(*columns, strict=True) if columns else (() for _ in valid)
        return [
            dict(zip(names, row, strict=True)) if is_valid else None for is_valid, row in zip(valid, rows, strict=True)
        ]
    if pa.types.is_fixed_size_list(kind):
        values, size = json_values(array.values), kind.list_size
        first = array.offset * size
        bounds = [(first + place * size, first + (place + 1) * size) for place in range(len(array))]
    else:
        offsets = array.offsets.to_pylist()
        bounds = list(pairwise(offsets))
        if pa.types.is_map(kind):
            pairs = zip(json_values(array.keys), json_values(array.items), strict=True)
            values = [{"key": key, "value": value} for key, value in pairs]
        else:
            values = json_values(array.values)
    return [values[start:end] if is_valid else None for is_valid, (start, end) in zip(valid, bounds, strict=True)]


def csv_array(array: pa.Array) -> pa.Array:
    """The column as PyArrow's CSV writer can write it; texts where its own form would lose something."""
    kind = array.type
    plain = pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if plain or pa.types.is_decimal(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return array
    return pa.array([_text(value) for value in json_values(array)], pa.string())


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)


def shown_values(array: pa.Array) -> list[str | None]:
    """The values as people read them, on one line; None for NULL."""
    return [None if value is None else _shown(value) for value in json_values(array)]


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if text.isprintable():
        return text
    # Control characters could change the terminal.
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
