"""Constants of a query as values of an Iceberg type, where both engines read them as exactly the same value."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal

from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)
from sqlglot import exp

__all__ = ["COMPARABLE", "value_of"]

# Not float and double: SQL counts NaN as larger than every number, and the bounds of a file leave it out.
COMPARABLE = (BooleanType, IntegerType, LongType, StringType, DateType, TimestampType, TimestamptzType, DecimalType)

_LIMITS = {IntegerType: 2**31, LongType: 2**63}
_DATE = r"\d{4}-\d{2}-\d{2}"
_TIME = re.compile(rf"({_DATE})(?:[ T](\d{{2}}:\d{{2}}:\d{{2}}(?:\.\d{{1,6}})?)(Z|[+-]\d{{2}}(?::?\d{{2}})?)?)?")
_NUMBER = re.compile(r"\d+(\.\d+)?")

Value = bool | int | str | date | datetime | Decimal


def value_of(node: exp.Expr, kind: IcebergType) -> Value | None:
    """The value that a constant has when it is compared with a column of this type; None if that is not certain."""
    if isinstance(kind, BooleanType):
        return bool(node.this) if isinstance(node, exp.Boolean) else None
    if isinstance(kind, IntegerType | LongType | DecimalType):
        return _number(node, kind)
    text, cast = _text(node)
    if text is None:
        return None
    if isinstance(kind, StringType):
        return text if cast is None else None
    if isinstance(kind, DateType):
        return _date(text) if cast in (None, exp.DType.DATE) else None
    if isinstance(kind, TimestampType | TimestamptzType):
        return _moment(text, cast, zoned=isinstance(kind, TimestamptzType))
    return None


def _number(node: exp.Expr, kind: IntegerType | LongType | DecimalType) -> int | Decimal | None:
    negative = isinstance(node, exp.Neg)
    literal = node.this if negative else node
    if not isinstance(literal, exp.Literal) or literal.is_string or not _NUMBER.fullmatch(str(literal.this)):
        return None
    value = -Decimal(literal.this) if negative else Decimal(literal.this)
    if isinstance(kind, DecimalType):
        scale, digits = -int(value.as_tuple().exponent), len(value.as_tuple().digits)
        fits = scale <= kind.scale and digits - scale <= kind.precision - kind.scale
        return value.quantize(Decimal(1).scaleb(-kind.scale)) if fits and kind.precision <= 28 else None
    limit = _LIMITS[type(kind)]
    return int(value) if "." not in str(literal.this) and -limit <= value < limit else None


def _text(node: exp.Expr) -> tuple[str | None, exp.DType | None]:
    """The text of a constant, and the type it is cast to."""
    cast = None
    if type(node) is exp.Cast:
        if node.to.expressions:  # a precision, such as timestamp(0), rounds the value
            return None, None
        cast = node.to.this
        node = node.this
    is_text = isinstance(node, exp.Literal) and node.is_string
    return (str(node.this) if is_text else None), cast


def _date(text: str) -> date | None:
    try:
        return date.fromisoformat(text) if re.fullmatch(_DATE, text) else None
    except ValueError:
        return None


def _moment(text: str, cast: exp.DType | None, *, zoned: bool) -> datetime | None:
    """A time, or the start of a day. Times without a zone are UTC, as the sessions of both engines are."""
    match = _TIME.fullmatch(text)
    if match is None or (cast is exp.DType.DATE and match[2]):
        return None
    if cast not in (None, exp.DType.DATE, exp.DType.TIMESTAMPNTZ, exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ):
        return None
    if match[3] and (not zoned or cast not in (None, exp.DType.TIMESTAMPTZ)):
        return None  # what a zone means for a time without one is for the engine to decide
    if not zoned and cast is exp.DType.TIMESTAMPTZ:
        return None
    try:
        naive = datetime.fromisoformat(f"{match[1]}T{_padded(match[2] or '00:00:00')}")
        return (naive - _offset(match[3])).replace(tzinfo=timezone.utc) if zoned else naive
    except (ValueError, OverflowError):  # no such time, or in UTC before the year 1 or after 9999
        return None


def _padded(time: str) -> str:
    """Six digits after the point: before Python 3.11, others are not read."""
    whole, point, fraction = time.partition(".")
    return f"{whole}.{fraction:0<6}" if point else whole


def _offset(zone: str | None) -> timedelta:
    if not zone or zone == "Z":
        return timedelta()
    digits = zone[1:].replace(":", "")
    offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:] or 0))
    return -offset if zone[0] == "-" else offset
