"""Row filters: parsed, and checked against a schema before any file is opened."""

from __future__ import annotations

import math
import re
import struct
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    BoundPredicate,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    LiteralPredicate,
    Not,
    NotEqualTo,
    NotIn,
    NotNull,
    NotStartsWith,
    Or,
    Reference,
    SetPredicate,
    UnboundPredicate,
)
from pyiceberg.expressions import parser as language
from pyiceberg.expressions.literals import FloatLiteral, Literal
from pyiceberg.expressions.visitors import BooleanExpressionVisitor, rewrite_not, visit
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    TimestampType,
    TimestamptzType,
)
from pyiceberg.utils.datetime import date_to_days, datetime_to_micros
from pyparsing import ParseException

from floe_core.errors import ConfigurationError
from floe_core.identifiers import TableIdentifier
from floe_iceberg.schema.columns import no_column

__all__ = ["condition_of", "is_negative"]

_EXAMPLE = "n > 10 AND note = 'x'"
_IN_SQL = "; for any other condition use floe sql or lake.sql"
# The first and the last value that Python has.
_DAYS = (date_to_days(date.min), date_to_days(date.max))
_MICROSECONDS = (datetime_to_micros(datetime.min), datetime_to_micros(datetime.max))


def condition_of(
    row_filter: str | BooleanExpression | None,
    schema: Schema,
    identifier: TableIdentifier,
    *,
    argument: str = "row_filter",
) -> BooleanExpression:
    """The filter as an expression, true for every row if it is None; ConfigurationError if it does not fit."""
    if row_filter is None:
        return AlwaysTrue()
    if not isinstance(row_filter, str | BooleanExpression):
        raise ConfigurationError(
            f"{argument} is a {type(row_filter).__name__}; write a text like {_EXAMPLE}, or an expression of PyIceberg"
        )
    in_sql = _IN_SQL if argument == "row_filter" else ""  # a write has no other way to say what it replaces
    try:
        parsed = language.parse(_without_exponents(row_filter)) if isinstance(row_filter, str) else row_filter
    except ParseException as exc:
        raise ConfigurationError(
            f"{argument} {row_filter!r} cannot be read at character {exc.column}; write it like {_EXAMPLE}{in_sql}"
        ) from None
    except ValueError as exc:
        hint = in_sql if "LIKE" in str(exc) else ""
        raise ConfigurationError(f"{argument} {row_filter!r} cannot be read: {exc}{hint}") from exc
    if isinstance(row_filter, str) and any("_" in match["pattern"] for match in _LIKE.finditer(row_filter)):
        raise ConfigurationError(
            f"{argument} {row_filter!r}: the _ of a LIKE would stand for itself here, and for any character in SQL; "
            f"compare with =, or pass StartsWith of PyIceberg for a prefix{in_sql}"
        )
    problems = visit(parsed, _Problems(schema))
    if problems:
        raise ConfigurationError(
            f"{argument} {str(row_filter)!r} does not fit table '{identifier}': {'; '.join(problems)}"
        )
    # Rewritten without NOT, so that no predicate that is NULL has to be negated later.
    return visit(rewrite_not(parsed), _InSql(schema))


_LIKE = re.compile(r"\blike\s*'(?P<pattern>(?:[^'\\]|\\.)*)'", re.IGNORECASE)

# A quoted string, which is skipped, or a number with an exponent, which PyIceberg's grammar does not have.
_EXPONENT = re.compile(
    r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|(?<![\w.])(?P<number>(?:\d+\.?\d*|\.\d+)[eE][+-]?\d+)(?![\w.])"""
)
_WHOLE_DIGITS = 18  # every whole number of so many digits fits a long


def _without_exponents(row_filter: str) -> str:
    """The same filter with 1e300 written out."""

    def written_out(match: re.Match[str]) -> str:
        number = match["number"]
        if number is None:
            return match[0]
        value = Decimal(number)
        if not math.isfinite(float(value)):
            raise ValueError(f"{number} is larger than any double")
        if float(value) == 0.0:  # written out, 1e-999999999 would fill the memory
            return "0.0"
        text = format(value, "f")
        whole = "." not in text
        return f"{text}.0" if whole and len(text) > _WHOLE_DIGITS else text

    return _EXPONENT.sub(written_out, row_filter)


def is_negative(condition: BooleanExpression) -> bool:
    """Does it contain a negated predicate? Iceberg matches a partition of NULL with `x != 1`, SQL does not."""
    parts = [rewrite_not(condition)]
    while parts:
        part = parts.pop()
        if isinstance(part, NotEqualTo | NotIn | NotStartsWith):
            return True
        if isinstance(part, And | Or):
            parts += [part.left, part.right]
    return False


class _InSql(BooleanExpressionVisitor[BooleanExpression]):
    """Gives planning and reading SQL's semantics: a negation never matches NULL, floats compare with floats."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def visit_true(self) -> BooleanExpression:
        return AlwaysTrue()

    def visit_false(self) -> BooleanExpression:
        return AlwaysFalse()

    def visit_not(self, child_result: BooleanExpression) -> BooleanExpression:
        return Not(child_result)

    def visit_and(self, left_result: BooleanExpression, right_result: BooleanExpression) -> BooleanExpression:
        return And(left_result, right_result)

    def visit_or(self, left_result: BooleanExpression, right_result: BooleanExpression) -> BooleanExpression:
        return Or(left_result, right_result)

    def visit_bound_predicate(self, predicate: BoundPredicate) -> BooleanExpression:
        return predicate

    def visit_unbound_predicate(self, predicate: UnboundPredicate) -> BooleanExpression:
        term = predicate.term
        kind = self._schema.find_field(term.name).field_type if isinstance(term, Reference) else None
        if isinstance(kind, FloatType):
            predicate = _with_float_literals(predicate)
        condition = _with_both_zeros(predicate) if isinstance(kind, FloatType | DoubleType) else predicate
        if isinstance(kind, DateType | TimestampType | TimestamptzType) and isinstance(predicate, LiteralPredicate):
            condition = _within_calendar(predicate, kind)
        if not isinstance(predicate, NotEqualTo | NotIn | NotStartsWith):
            return condition
        not_null: Any = NotNull
        return And(not_null(term), condition)


def _with_both_zeros(predicate: UnboundPredicate) -> BooleanExpression:
    """Compare zero with `=` instead of IN: Arrow's sets distinguish 0.0 from -0.0, which are equal in SQL."""
    if not isinstance(predicate, SetPredicate):
        return predicate
    zeros = [literal for literal in predicate.literals if literal.value == 0]
    if not zeros:
        return predicate
    equal: Any = EqualTo
    unequal: Any = NotEqualTo
    predicate_type: Any = type(predicate)
    rest = predicate_type(predicate.term, predicate.literals - set(zeros))
    if isinstance(predicate, In):
        return Or(rest, equal(predicate.term, zeros[0]))
    return And(rest, unequal(predicate.term, zeros[0]))


def _within_calendar(predicate: LiteralPredicate, kind: IcebergType) -> BooleanExpression:
    """The same condition in other words, if planning would otherwise compute a day that Python does not have.

    Planning moves the limit of an order by one, which fails at the first and the last day or microsecond.
    """
    kind_of: Any = type(predicate)
    equal: Any = EqualTo
    unequal: Any = NotEqualTo
    by, same = predicate.term, predicate.literal
    first, last = _DAYS if isinstance(kind, DateType) else _MICROSECONDS
    value = same.to(kind).value
    strict = {LessThan: (LessThanOrEqual, first), GreaterThan: (GreaterThanOrEqual, last)}
    loose = {LessThanOrEqual: (LessThan, last), GreaterThanOrEqual: (GreaterThan, first)}
    if kind_of in strict and value == strict[kind_of][1]:
        wider: Any = strict[kind_of][0]
        return And(wider(by, same), unequal(by, same))
    if kind_of in loose and value == loose[kind_of][1]:
        narrower: Any = loose[kind_of][0]
        return Or(narrower(by, same), equal(by, same))
    return predicate


def _with_float_literals(predicate: UnboundPredicate) -> UnboundPredicate:
    predicate_type: Any = type(predicate)
    if isinstance(predicate, LiteralPredicate):
        return predicate_type(predicate.term, _rounded(predicate.literal))  # type: ignore[no-any-return]
    if isinstance(predicate, SetPredicate):
        literals = {_rounded(literal) for literal in predicate.literals}
        return predicate_type(predicate.term, literals)  # type: ignore[no-any-return]
    return predicate


def _rounded(literal: Literal[Any]) -> Literal[Any]:
    """The literal rounded to a float: PyIceberg compares a stored 0.1, which is 0.10000000149, with a double."""
    if isinstance(literal.value, float) and math.isinf(literal.value):
        return FloatLiteral(literal.value)
    converted = literal.to(FloatType())
    if not isinstance(converted, FloatLiteral):
        return literal  # out of the range of float, which PyIceberg handles
    return FloatLiteral(struct.unpack("<f", struct.pack("<f", converted.value))[0])


class _Problems(BooleanExpressionVisitor[list[str]]):
    """The reasons why an expression does not fit a schema; empty if it fits."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def visit_true(self) -> list[str]:
        return []

    def visit_false(self) -> list[str]:
        return []

    def visit_not(self, child_result: list[str]) -> list[str]:
        return child_result

    def visit_and(self, left_result: list[str], right_result: list[str]) -> list[str]:
        return [*left_result, *right_result]

    def visit_or(self, left_result: list[str], right_result: list[str]) -> list[str]:
        return [*left_result, *right_result]

    def visit_bound_predicate(self, predicate: BoundPredicate) -> list[str]:
        return [f"{predicate} is bound to a table already; leave it unbound"]

    def visit_unbound_predicate(self, predicate: UnboundPredicate) -> list[str]:
        term = predicate.term
        if isinstance(term, Reference):
            unknown = no_column([term.name], self._schema)
            if unknown:
                return [unknown]
            kind = self._schema.find_field(term.name).field_type
            # PyIceberg would round: n = 1.5 would find 2.
            if isinstance(kind, IntegerType | LongType) and any(map(_is_fraction, _values(predicate))):
                return [f"{term.name} is {kind} and is never a fraction; compare it with a whole number"]
            hint = "; write a moment like '2026-01-31T00:00:00+00:00'" if isinstance(kind, TimestamptzType) else ""
            hint = "; write a moment like '2026-01-31T00:00:00'" if isinstance(kind, TimestampType) else hint
        else:
            hint = ""
        try:
            predicate.bind(self._schema, case_sensitive=True)
        except (ValueError, TypeError) as exc:
            return [f"{exc}{hint}"]
        return []


def _values(predicate: UnboundPredicate) -> list[object]:
    if isinstance(predicate, LiteralPredicate):
        return [predicate.literal.value]
    if isinstance(predicate, SetPredicate):
        return [literal.value for literal in predicate.literals]
    return []


def _is_fraction(value: object) -> bool:
    if isinstance(value, str):
        try:
            value = Decimal(value)
        except InvalidOperation:
            return False  # not a number: binding reports it
    return isinstance(value, float | Decimal) and (not math.isfinite(value) or value != int(value))
