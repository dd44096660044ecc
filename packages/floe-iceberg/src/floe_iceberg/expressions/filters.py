"""Row filters: what a user wrote, checked against a schema before any file is opened."""

from __future__ import annotations

import math
import re
import struct
from decimal import Decimal, InvalidOperation
from typing import Any

from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    BoundPredicate,
    EqualTo,
    In,
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
from pyiceberg.types import DoubleType, FloatType, IntegerType, LongType, TimestampType, TimestamptzType
from pyparsing import ParseException

from floe_core.errors import ConfigurationError
from floe_core.identifiers import TableIdentifier
from floe_iceberg.schema.columns import no_column

__all__ = ["condition_of", "is_negative"]

_EXAMPLE = "n > 10 AND note = 'x'"


def condition_of(
    row_filter: str | BooleanExpression | None,
    schema: Schema,
    identifier: TableIdentifier,
    *,
    argument: str = "row_filter",
) -> BooleanExpression:
    """The filter as an expression, every row without one, or a ConfigurationError that says what is wrong with it."""
    if row_filter is None:
        return AlwaysTrue()
    if not isinstance(row_filter, str | BooleanExpression):
        raise ConfigurationError(
            f"{argument} is a {type(row_filter).__name__}; write a text like {_EXAMPLE}, or an expression of PyIceberg"
        )
    try:
        parsed = language.parse(_without_exponents(row_filter)) if isinstance(row_filter, str) else row_filter
    except ParseException as exc:
        raise ConfigurationError(
            f"{argument} {row_filter!r} cannot be read at character {exc.column}; write it like {_EXAMPLE}"
        ) from None
    except ValueError as exc:
        raise ConfigurationError(f"{argument} {row_filter!r} cannot be read: {exc}") from exc
    problems = visit(parsed, _Problems(schema))
    if problems:
        raise ConfigurationError(
            f"{argument} {str(row_filter)!r} does not fit table '{identifier}': {'; '.join(problems)}"
        )
    # Without NOT, so that nobody has to think of what is neither true nor false.
    return visit(rewrite_not(parsed), _InSql(schema))


# A text in quotes, which is passed over, or a number with an exponent, which PyIceberg's grammar does not have.
_EXPONENT = re.compile(
    r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|(?<![\w.])(?P<number>(?:\d+\.?\d*|\.\d+)[eE][+-]?\d+)(?![\w.])"""
)
_WHOLE_DIGITS = 18  # as many as any long has


def _without_exponents(row_filter: str) -> str:
    """The same filter with 1e300 written out."""

    def written_out(found: re.Match[str]) -> str:
        number = found["number"]
        if number is None:
            return found[0]
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
    """Does it say what a value is not? Iceberg lets `x != 1` be true for a partition of NULL, SQL for no row."""
    parts = [rewrite_not(condition)]
    while parts:
        one = parts.pop()
        if isinstance(one, NotEqualTo | NotIn | NotStartsWith):
            return True
        if isinstance(one, And | Or):
            parts += [one.left, one.right]
    return False


class _InSql(BooleanExpressionVisitor[BooleanExpression]):
    """The same for whoever plans and whoever reads: NULL is not unequal to anything, a float compares with a float."""

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
            predicate = _of_floats(predicate)
        said = _with_both_zeros(predicate) if isinstance(kind, FloatType | DoubleType) else predicate
        if not isinstance(predicate, NotEqualTo | NotIn | NotStartsWith):
            return said
        not_null: Any = NotNull
        return And(not_null(term), said)


def _with_both_zeros(predicate: UnboundPredicate) -> BooleanExpression:
    """The same, zero compared with `=`: a set of Arrow's holds 0.0 or -0.0, which are equal in SQL."""
    if not isinstance(predicate, SetPredicate):
        return predicate
    zeros = [one for one in predicate.literals if one.value == 0]
    if not zeros:
        return predicate
    equal: Any = EqualTo
    unequal: Any = NotEqualTo
    made: Any = type(predicate)
    rest = made(predicate.term, predicate.literals - set(zeros))
    if isinstance(predicate, In):
        return Or(rest, equal(predicate.term, zeros[0]))
    return And(rest, unequal(predicate.term, zeros[0]))


def _of_floats(predicate: UnboundPredicate) -> UnboundPredicate:
    made: Any = type(predicate)
    if isinstance(predicate, LiteralPredicate):
        return made(predicate.term, _rounded(predicate.literal))  # type: ignore[no-any-return]
    if isinstance(predicate, SetPredicate):
        return made(predicate.term, {_rounded(one) for one in predicate.literals})  # type: ignore[no-any-return]
    return predicate


def _rounded(said: Literal[Any]) -> Literal[Any]:
    """A float as a column holds it: PyIceberg compares 0.1 in a partition, which is 0.10000000149, with a double."""
    if isinstance(said.value, float) and math.isinf(said.value):
        return FloatLiteral(said.value)
    converted = said.to(FloatType())
    if not isinstance(converted, FloatLiteral):
        return said  # larger than any float, which PyIceberg knows
    return FloatLiteral(struct.unpack("<f", struct.pack("<f", converted.value))[0])


class _Problems(BooleanExpressionVisitor[list[str]]):
    """Why the parts of an expression do not fit a schema; nothing if they do."""

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
            return False  # no number at all, which binding tells
    return isinstance(value, float | Decimal) and (not math.isfinite(value) or value != int(value))
