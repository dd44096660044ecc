"""SQL text for one engine: quoted names, values in the type of their column, and the rows of a slice."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.literals import AboveMax, BelowMin, literal
from pyiceberg.expressions.visitors import BoundBooleanExpressionVisitor, bind, rewrite_not, visit
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from floe_core.config import CheckValue
from floe_core.errors import ConfigurationError
from floe_core.identifiers import TableIdentifier, TableSlice
from floe_iceberg.expressions import slice_filter

__all__ = ["SqlText", "field_named"]

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_COMPARED = (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)


def field_named(schema: Schema, column: str, what: str) -> NestedField:
    """The field of a column, which may lie inside of a struct: `address.city`.

    Args:
        schema: The columns of the table.
        column: The name, in any case.
        what: What names it, for the error.
    """
    try:
        return schema.find_field(column, case_sensitive=False)
    except ValueError:
        from difflib import get_close_matches

        there = [schema.find_column_name(field.field_id) or field.name for field in schema.fields]
        near = get_close_matches(column.lower(), {name.lower(): name for name in there}, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there: {', '.join(there)}"
        raise ConfigurationError(f"{what}: there is no column {column!r}; {hint}") from None


@dataclass(frozen=True)
class SqlText:
    """The SQL of one engine.

    Args:
        engine: `duckdb` or `spark`.
    """

    engine: str

    def name(self, name: str) -> str:
        """A quoted name."""
        if self.engine == "spark":
            return f"`{name.replace('`', '``')}`"
        return '"' + name.replace('"', '""') + '"'

    def table(self, identifier: TableIdentifier, snapshot_id: int | None) -> str:
        """A table at a snapshot."""
        named = ".".join(map(self.name, (*identifier.namespace, identifier.name)))
        return named if snapshot_id is None else f"{named} VERSION AS OF {snapshot_id}"

    def column(self, schema: Schema, field: NestedField) -> str:
        """A column, or a field inside of a struct."""
        path = schema.find_column_name(field.field_id) or field.name
        names = path.split(".") if field not in schema.fields else [path]
        return ".".join(map(self.name, names))

    def text(self, text: str) -> str:
        """A text as a literal."""
        if self.engine == "spark":
            text = text.replace("\\", "\\\\")
        literal_text = "'" + text.replace("'", "''") + "'"
        if self.engine == "spark" and "${" in literal_text:  # Spark would put the value of a variable there
            return "(" + literal_text.replace("${", "$' || '{") + ")"
        return literal_text

    def value(self, value: CheckValue, field: NestedField, what: str) -> str:
        """A value as a literal of the type of a column; ConfigurationError if it is none."""
        kind = field.field_type
        if not isinstance(kind, _COMPARED):
            raise ConfigurationError(f"{what}: column {field.name!r} is {kind}, which is not compared with values")
        return self._literal(_of_kind(value, field, what), kind)

    def _literal(self, value: Any, kind: IcebergType) -> str:
        spark = self.engine == "spark"
        if isinstance(kind, StringType | UUIDType):
            return self.text(str(value))
        if isinstance(kind, BooleanType):
            return "TRUE" if value else "FALSE"
        if isinstance(kind, DateType):
            return f"DATE '{(_EPOCH + timedelta(days=value)).date()}'"
        if isinstance(kind, TimestamptzType):
            moment = _EPOCH + timedelta(microseconds=value)
            return f"{'TIMESTAMP' if spark else 'TIMESTAMPTZ'} '{moment:%Y-%m-%d %H:%M:%S.%f}+00:00'"
        if isinstance(kind, TimestampType):
            moment = _EPOCH + timedelta(microseconds=value)
            return f"{'TIMESTAMP_NTZ' if spark else 'TIMESTAMP'} '{moment:%Y-%m-%d %H:%M:%S.%f}'"
        if isinstance(kind, FloatType | DoubleType):
            return f"CAST('{value!r}' AS {'FLOAT' if isinstance(kind, FloatType) else 'DOUBLE'})"
        return str(value)

    def slice(self, within: TableSlice | None, schema: Schema) -> str:
        """A condition that is true for the rows of a slice."""
        return "TRUE" if within is None else self.condition(slice_filter(within, schema), schema)

    def condition(self, expression: BooleanExpression, schema: Schema) -> str:
        """The condition of a slice as text."""
        return visit(bind(schema, rewrite_not(expression), case_sensitive=False), _Condition(self, schema))

    def select(self, expressions: Iterable[str], source: str, *conditions: str, rest: str = "") -> str:
        """A query on the rows that meet all conditions."""
        kept = [f"({condition})" for condition in conditions if condition != "TRUE"]
        where = f" WHERE {' AND '.join(kept)}" if kept else ""
        return f"SELECT {', '.join(expressions)} FROM {source}{where}{rest}"  # noqa: S608 - names are quoted


class _Condition(BoundBooleanExpressionVisitor[str]):
    """The predicates of slices as text: comparisons and lists of values on columns."""

    def __init__(self, sql: SqlText, schema: Schema) -> None:
        self._sql = sql
        self._schema = schema

    def _compared(self, term: Any, sign: str, value: Any) -> str:
        field = term.ref().field
        return f"{self._sql.column(self._schema, field)} {sign} {self._sql._literal(value.value, field.field_type)}"  # noqa: SLF001 - of this module

    def visit_true(self) -> str:
        return "TRUE"

    def visit_false(self) -> str:
        return "FALSE"

    def visit_not(self, child_result: str) -> str:
        return f"NOT ({child_result})"

    def visit_and(self, left_result: str, right_result: str) -> str:
        return f"({left_result}) AND ({right_result})"

    def visit_or(self, left_result: str, right_result: str) -> str:
        return f"({left_result}) OR ({right_result})"

    def visit_in(self, term: Any, literals: set[Any]) -> str:
        field = term.ref().field
        values = ", ".join(self._sql._literal(value, field.field_type) for value in _ordered(literals))  # noqa: SLF001
        return f"{self._sql.column(self._schema, field)} IN ({values})"

    def visit_equal(self, term: Any, literal: Any) -> str:
        return self._compared(term, "=", literal)

    def visit_greater_than_or_equal(self, term: Any, literal: Any) -> str:
        return self._compared(term, ">=", literal)

    def visit_less_than(self, term: Any, literal: Any) -> str:
        return self._compared(term, "<", literal)

    def visit_greater_than(self, term: Any, literal: Any) -> str:
        return self._compared(term, ">", literal)

    def visit_less_than_or_equal(self, term: Any, literal: Any) -> str:
        return self._compared(term, "<=", literal)

    def visit_not_equal(self, term: Any, literal: Any) -> str:
        raise NotImplementedError("a slice has no inequalities")

    def visit_not_in(self, term: Any, literals: set[Any]) -> str:
        raise NotImplementedError("a slice has no inequalities")

    def visit_is_null(self, term: Any) -> str:
        return f"{self._sql.column(self._schema, term.ref().field)} IS NULL"

    def visit_not_null(self, term: Any) -> str:
        return f"{self._sql.column(self._schema, term.ref().field)} IS NOT NULL"

    def visit_is_nan(self, term: Any) -> str:
        raise NotImplementedError("a slice has no NaN")

    def visit_not_nan(self, term: Any) -> str:
        raise NotImplementedError("a slice has no NaN")

    def visit_starts_with(self, term: Any, literal: Any) -> str:
        raise NotImplementedError("a slice has no prefixes")

    def visit_not_starts_with(self, term: Any, literal: Any) -> str:
        raise NotImplementedError("a slice has no prefixes")


def _ordered(values: Iterable[Any]) -> Sequence[Any]:
    return sorted(values, key=str)


def _of_kind(value: CheckValue, field: NestedField, what: str) -> Any:
    """The value as Iceberg stores it for the type of a column."""
    kind = field.field_type
    problem = ConfigurationError(f"{what}: {value!r} is no value of column {field.name!r}, which is {kind}")
    if isinstance(value, bool) != isinstance(kind, BooleanType) and not isinstance(value, str):
        raise problem
    if isinstance(kind, StringType):
        return str(value)
    if isinstance(kind, DecimalType):
        return _decimal(value, problem)
    if isinstance(kind, DoubleType | FloatType):
        return _number(value, problem)
    if isinstance(kind, IntegerType | LongType) and not isinstance(value, int):
        number = _decimal(value, problem)
        if number != number.to_integral_value():
            raise problem
        value = int(number)
    given: Any = value.isoformat() if isinstance(value, date) else value
    if isinstance(kind, TimestamptzType) and isinstance(given, str):
        given = _with_zone(given, problem)
    try:
        converted = literal(given).to(kind)
    except (TypeError, ValueError) as exc:
        raise problem from exc
    if isinstance(converted, AboveMax | BelowMin):
        raise problem
    return converted.value


def _decimal(value: CheckValue, problem: ConfigurationError) -> Decimal:
    try:
        number = Decimal(str(value))
    except ArithmeticError as exc:
        raise problem from exc
    if not number.is_finite():
        raise problem
    return number


def _number(value: Any, problem: ConfigurationError) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError) as exc:
        raise problem from exc
    if math.isnan(number):
        raise problem
    return number


def _with_zone(text: str, problem: ConfigurationError) -> str:
    """A moment as text; one without a zone, or a date, is in UTC."""
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError as exc:
        raise problem from exc
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)).isoformat()
