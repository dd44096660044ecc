"""Row filters as Spark expressions: one grammar on both engines, PyIceberg's."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any
from uuid import UUID

from pyiceberg.expressions import BooleanExpression, BoundTerm
from pyiceberg.expressions.literals import Literal
from pyiceberg.expressions.visitors import BoundBooleanExpressionVisitor, bind, rewrite_not, visit
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    NestedField,
    StructType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from floe_core.errors import ConfigurationError
from floe_spark.names import quoted

__all__ = ["column_path", "filter_condition", "filter_sql"]

_NAN = float("nan")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def filter_condition(expression: BooleanExpression, schema: Schema) -> Column:
    """True for the rows that PyIceberg's own scan matches.

    A comparison with NULL matches nothing, `!=` and NOT included, and NaN is not greater than a number, unlike in
    Spark. Spark can push each part down to Iceberg.
    """
    # NOT is pushed down to the comparisons: Iceberg's file statistics take NOT (n = 1) as true for NULL, SQL does not.
    return visit(bind(schema, rewrite_not(expression), case_sensitive=True), _ToColumn(schema))


def filter_sql(expression: BooleanExpression, schema: Schema) -> str:
    """The same as SQL text, for procedures: only the predicates of slices."""
    return visit(bind(schema, rewrite_not(expression), case_sensitive=True), _ToSql(schema))


def column_path(schema: Schema, field_id: int) -> str:
    """The quoted name of a column, or of a field inside of a struct."""
    path = _path(schema.as_struct(), field_id)
    if path is None:
        raise ValueError(f"field {field_id} lies inside a list or a map")
    return ".".join(quoted(field.name) for field in path)


def _path(struct: StructType, field_id: int) -> list[NestedField] | None:
    for field in struct.fields:
        if field.field_id == field_id:
            return [field]
        if isinstance(field.field_type, StructType):
            below = _path(field.field_type, field_id)
            if below is not None:
                return [field, *below]
    return None


class _ToColumn(BoundBooleanExpressionVisitor[Column]):
    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def _column(self, term: BoundTerm) -> Column:
        return F.col(column_path(self._schema, term.ref().field.field_id))

    def visit_true(self) -> Column:
        return F.lit(True)

    def visit_false(self) -> Column:
        return F.lit(False)

    def visit_not(self, child_result: Column) -> Column:
        return ~child_result

    def visit_and(self, left_result: Column, right_result: Column) -> Column:
        return left_result & right_result

    def visit_or(self, left_result: Column, right_result: Column) -> Column:
        return left_result | right_result

    def visit_is_null(self, term: BoundTerm) -> Column:
        return self._column(term).isNull()

    def visit_not_null(self, term: BoundTerm) -> Column:
        return self._column(term).isNotNull()

    # Spark pushes `= NaN` down to Iceberg, but not isnan(); both mean the same to it.
    def visit_is_nan(self, term: BoundTerm) -> Column:
        return self._column(term) == _literal(_NAN, term.ref().field.field_type)

    def visit_not_nan(self, term: BoundTerm) -> Column:
        return self._not_nan(term)

    # 0.0 and -0.0 are equal to Spark, but Iceberg, which plans files by the same condition, puts -0.0 before 0.0.
    # Each comparison with zero therefore uses the zero that leaves both on the same side.
    def visit_equal(self, term: BoundTerm, literal: Literal[Any]) -> Column:
        if _is_zero(term, literal):
            return (self._column(term) >= _literal_of(term, -0.0)) & (self._column(term) <= _literal_of(term, 0.0))
        return self._column(term) == _literal_of(term, literal)

    def visit_not_equal(self, term: BoundTerm, literal: Literal[Any]) -> Column:
        if _is_zero(term, literal):
            beside = (self._column(term) < _literal_of(term, -0.0)) | (self._column(term) > _literal_of(term, 0.0))
            return self._column(term).isNotNull() & (beside | self.visit_is_nan(term))
        return self._column(term).isNotNull() & (self._column(term) != _literal_of(term, literal))

    def visit_greater_than(self, term: BoundTerm, literal: Literal[Any]) -> Column:
        return self._without_nan(term, self._column(term) > _literal_of(term, literal, zero=0.0))

    def visit_greater_than_or_equal(self, term: BoundTerm, literal: Literal[Any]) -> Column:
        return self._without_nan(term, self._column(term) >= _literal_of(term, literal, zero=-0.0))

    # Iceberg puts NULL before all values: without isNotNull a partition of NULL would be less than anything.
    def visit_less_than(self, term: BoundTerm, literal: Literal[Any]) -> Column:
        return self._column(term).isNotNull() & (self._column(term) < _literal_of(term, literal, zero=-0.0))

    def visit_less_than_or_equal(self, term: BoundTerm, literal: Literal[Any]) -> Column:
        return self._column(term).isNotNull() & (self._column(term) <= _literal_of(term, literal, zero=0.0))

    def visit_in(self, term: BoundTerm, literals: set[Any]) -> Column:
        return self._column(term).isin([_literal_of(term, value) for value in literals])

    def visit_not_in(self, term: BoundTerm, literals: set[Any]) -> Column:
        return self._column(term).isNotNull() & ~self._column(term).isin(
            [_literal_of(term, value) for value in literals]
        )

    def visit_starts_with(self, term: BoundTerm, literal: Literal[Any]) -> Column:
        return self._column(term).startswith(_literal_of(term, literal))

    def visit_not_starts_with(self, term: BoundTerm, literal: Literal[Any]) -> Column:
        return self._column(term).isNotNull() & ~self._column(term).startswith(_literal_of(term, literal))

    def _without_nan(self, term: BoundTerm, condition: Column) -> Column:
        if isinstance(term.ref().field.field_type, FloatType | DoubleType):
            return condition & self._not_nan(term)
        return condition

    def _not_nan(self, term: BoundTerm) -> Column:
        column = self._column(term)
        return column.isNotNull() & (column != _literal(_NAN, term.ref().field.field_type))


class _ToSql(BoundBooleanExpressionVisitor[str]):
    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def _compared(self, term: BoundTerm, sign: str, literal: Any) -> str:
        value = literal.value if isinstance(literal, Literal) else literal
        return f"{self._column(term)} {sign} {_text(value, term.ref().field.field_type)}"

    def _column(self, term: BoundTerm) -> str:
        return column_path(self._schema, term.ref().field.field_id)

    def visit_true(self) -> str:
        return "true"

    def visit_false(self) -> str:
        return "false"

    def visit_not(self, child_result: str) -> str:
        return f"(NOT {child_result})"

    def visit_and(self, left_result: str, right_result: str) -> str:
        return f"({left_result} AND {right_result})"

    def visit_or(self, left_result: str, right_result: str) -> str:
        return f"({left_result} OR {right_result})"

    def visit_is_null(self, term: BoundTerm) -> str:
        return f"{self._column(term)} IS NULL"

    def visit_not_null(self, term: BoundTerm) -> str:
        return f"{self._column(term)} IS NOT NULL"

    def visit_is_nan(self, term: BoundTerm) -> str:
        raise _unsupported(term)

    def visit_not_nan(self, term: BoundTerm) -> str:
        raise _unsupported(term)

    def visit_equal(self, term: BoundTerm, literal: Literal[Any]) -> str:
        return self._compared(term, "=", literal)

    def visit_not_equal(self, term: BoundTerm, literal: Literal[Any]) -> str:
        return self._compared(term, "<>", literal)

    def visit_greater_than(self, term: BoundTerm, literal: Literal[Any]) -> str:
        return self._compared(term, ">", literal)

    def visit_greater_than_or_equal(self, term: BoundTerm, literal: Literal[Any]) -> str:
        return self._compared(term, ">=", literal)

    def visit_less_than(self, term: BoundTerm, literal: Literal[Any]) -> str:
        return self._compared(term, "<", literal)

    def visit_less_than_or_equal(self, term: BoundTerm, literal: Literal[Any]) -> str:
        return self._compared(term, "<=", literal)

    def visit_in(self, term: BoundTerm, literals: set[Any]) -> str:
        return "(" + " OR ".join(sorted(self._compared(term, "=", value) for value in literals)) + ")"

    def visit_not_in(self, term: BoundTerm, literals: set[Any]) -> str:
        return "(" + " AND ".join(sorted(self._compared(term, "<>", value) for value in literals)) + ")"

    def visit_starts_with(self, term: BoundTerm, literal: Literal[Any]) -> str:
        del literal
        raise _unsupported(term)

    def visit_not_starts_with(self, term: BoundTerm, literal: Literal[Any]) -> str:
        del literal
        raise _unsupported(term)


def _unsupported(term: BoundTerm) -> ConfigurationError:
    return ConfigurationError(f"a slice of column {term.ref().field.name} cannot be passed to a procedure")


def _text(value: Any, kind: IcebergType) -> str:
    write = _WRITTEN.get(type(kind))
    if write is not None:
        return write(value)
    if isinstance(kind, DecimalType):
        return f"CAST('{value}' AS DECIMAL({kind.precision},{kind.scale}))"
    if isinstance(kind, UUIDType):
        value = str(UUID(bytes=value) if isinstance(value, bytes) else value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return str(value)


def _literal_of(term: BoundTerm, literal: object, *, zero: float | None = None) -> Column:
    """A literal of the column's type; a float zero is replaced by `zero`, if given."""
    value = literal.value if isinstance(literal, Literal) else literal
    return _literal(zero if zero is not None and _is_zero(term, literal) else value, term.ref().field.field_type)


def _is_zero(term: BoundTerm, literal: object) -> bool:
    value = literal.value if isinstance(literal, Literal) else literal
    return isinstance(term.ref().field.field_type, FloatType | DoubleType) and value == 0


def _literal(value: Any, kind: IcebergType) -> Column:
    """A value as Iceberg stores it, as a literal of the column's Spark type, so that nothing is cast."""
    write = _WRITTEN.get(type(kind))
    if write is not None:
        return F.expr(write(value))
    if isinstance(kind, DecimalType):
        return F.expr(f"CAST('{value}' AS DECIMAL({kind.precision},{kind.scale}))")
    if isinstance(kind, UUIDType):
        return F.lit(str(UUID(bytes=value) if isinstance(value, bytes) else value))
    if isinstance(kind, FloatType):
        return F.lit(value).cast("float")
    return F.lit(value)


def _moment(micros: int) -> str:
    try:
        return f"TIMESTAMP '{(_EPOCH + timedelta(microseconds=micros)).isoformat(sep=' ')}'"
    except OverflowError:  # outside of Python's range of years, but not of Spark's
        return f"timestamp_micros({micros}L)"


def _day(days: int) -> str:
    try:
        return f"DATE '{(_EPOCH.date() + timedelta(days=days)).isoformat()}'"
    except OverflowError:
        return f"date_from_unix_date({days})"


_WRITTEN: dict[type[IcebergType], Callable[[Any], str]] = {
    DateType: _day,
    TimestampType: lambda micros: _moment(micros).replace("TIMESTAMP", "TIMESTAMP_NTZ").replace("+00:00", ""),
    TimestamptzType: _moment,
    BinaryType: lambda value: f"X'{value.hex()}'",
    FixedType: lambda value: f"X'{value.hex()}'",
}
