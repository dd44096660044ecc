"""Iceberg expressions as Arrow expressions, evaluated per row with SQL's semantics of NULL."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import BooleanExpression, BoundTerm
from pyiceberg.expressions.literals import Literal
from pyiceberg.expressions.visitors import (
    BoundBooleanExpressionVisitor,
    bind,
    extract_field_ids,
    rewrite_not,
    visit,
)
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StructType, UUIDType

__all__ = ["columns_of", "matches"]


def matches(condition: BooleanExpression, schema: Schema) -> pc.Expression:
    """The condition for Arrow: true or false for every row, never null."""
    return pc.coalesce(visit(_bound(condition, schema), _ForArrow(schema)), pc.scalar(False))


def columns_of(condition: BooleanExpression, schema: Schema) -> list[str]:
    """The top-level columns that a condition refers to."""
    paths = _paths(schema)
    return sorted({paths[field_id][0] for field_id in extract_field_ids(_bound(condition, schema))})


def _bound(condition: BooleanExpression, schema: Schema) -> BooleanExpression:
    # Rewritten without NOT: for NULL or NaN, neither `x < 5` nor its negation `x >= 5` is true.
    return bind(schema, rewrite_not(condition), case_sensitive=True)


def _paths(schema: Schema) -> dict[int, tuple[str, ...]]:
    """The path of each field as a tuple of names, because a name may contain dots."""
    paths: dict[int, tuple[str, ...]] = {}

    def collect(fields: tuple[NestedField, ...], above: tuple[str, ...]) -> None:
        for field in fields:
            paths[field.field_id] = (*above, field.name)
            if isinstance(field.field_type, StructType):
                collect(field.field_type.fields, paths[field.field_id])

    collect(schema.fields, ())
    return paths


class _ForArrow(BoundBooleanExpressionVisitor[pc.Expression]):
    """Each predicate as an expression of Arrow, null where the value is NULL."""

    def __init__(self, schema: Schema) -> None:
        self._paths = _paths(schema)

    def _plain(self, term: BoundTerm) -> pc.Expression:
        return pc.field(self._paths[term.ref().field.field_id])

    def _column(self, term: BoundTerm) -> pc.Expression:
        """The column in a comparable type: Arrow has no kernels for UUIDs."""
        column = self._plain(term)
        return column.cast(_kind(term)) if isinstance(term.ref().field.field_type, UUIDType) else column

    def visit_true(self) -> pc.Expression:
        return pc.scalar(True)

    def visit_false(self) -> pc.Expression:
        return pc.scalar(False)

    def visit_not(self, child_result: pc.Expression) -> pc.Expression:
        return ~child_result

    def visit_and(self, left_result: pc.Expression, right_result: pc.Expression) -> pc.Expression:
        return left_result & right_result

    def visit_or(self, left_result: pc.Expression, right_result: pc.Expression) -> pc.Expression:
        return left_result | right_result

    def visit_is_null(self, term: BoundTerm) -> pc.Expression:
        return self._plain(term).is_null()

    def visit_not_null(self, term: BoundTerm) -> pc.Expression:
        return self._plain(term).is_valid()

    def visit_is_nan(self, term: BoundTerm) -> pc.Expression:
        return pc.is_nan(self._column(term))

    def visit_not_nan(self, term: BoundTerm) -> pc.Expression:
        return ~pc.is_nan(self._column(term))

    def visit_equal(self, term: BoundTerm, literal: Literal[Any]) -> pc.Expression:
        return self._column(term) == _scalar(term, literal)

    def visit_not_equal(self, term: BoundTerm, literal: Literal[Any]) -> pc.Expression:
        return self._column(term) != _scalar(term, literal)

    def visit_less_than(self, term: BoundTerm, literal: Literal[Any]) -> pc.Expression:
        return self._column(term) < _scalar(term, literal)

    def visit_less_than_or_equal(self, term: BoundTerm, literal: Literal[Any]) -> pc.Expression:
        return self._column(term) <= _scalar(term, literal)

    def visit_greater_than(self, term: BoundTerm, literal: Literal[Any]) -> pc.Expression:
        return self._column(term) > _scalar(term, literal)

    def visit_greater_than_or_equal(self, term: BoundTerm, literal: Literal[Any]) -> pc.Expression:
        return self._column(term) >= _scalar(term, literal)

    def visit_in(self, term: BoundTerm, literals: set[Any]) -> pc.Expression:
        return self._column(term).isin(pa.array(literals, _kind(term)))

    def visit_not_in(self, term: BoundTerm, literals: set[Any]) -> pc.Expression:
        # For NULL, the negation of Arrow's `isin` is true; SQL's NOT IN is NULL.
        return self._plain(term).is_valid() & ~self.visit_in(term, literals)

    def visit_starts_with(self, term: BoundTerm, literal: Literal[Any]) -> pc.Expression:
        return pc.starts_with(self._column(term), literal.value)

    def visit_not_starts_with(self, term: BoundTerm, literal: Literal[Any]) -> pc.Expression:
        return ~self.visit_starts_with(term, literal)


def _kind(term: BoundTerm) -> pa.DataType:
    kind = schema_to_pyarrow(term.ref().field.field_type)
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _scalar(term: BoundTerm, literal: Literal[Any]) -> pa.Scalar:
    return pa.scalar(literal.value, _kind(term))
