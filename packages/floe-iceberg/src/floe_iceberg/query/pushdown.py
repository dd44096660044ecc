"""Conditions of a query that its tables can be planned with: files without a matching row are not read.

Only what is certain is taken: comparisons of a column with constants in a WHERE that applies to every row of the table.
The engine applies the whole query afterwards, so a condition that is left out costs time, never a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    LessThanOrEqual,
    NotNull,
    Or,
)
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField
from sqlglot import exp

from floe_iceberg.query.literals import COMPARABLE, Value, value_of
from floe_iceberg.query.parsing import TableUse

__all__ = ["row_filters"]

# PyIceberg's own annotations do not allow these calls.
_EQUAL: Any = EqualTo
_LESS: Any = LessThan
_GREATER: Any = GreaterThan
_AT_MOST: Any = LessThanOrEqual
_AT_LEAST: Any = GreaterThanOrEqual
_IN: Any = In
_IS_NULL: Any = IsNull
_NOT_NULL: Any = NotNull

_COMPARISONS: dict[type[exp.Expr], tuple[Any, Any]] = {
    exp.EQ: (_EQUAL, _EQUAL),
    exp.LT: (_LESS, _GREATER),
    exp.LTE: (_AT_MOST, _AT_LEAST),
    exp.GT: (_GREATER, _LESS),
    exp.GTE: (_AT_LEAST, _AT_MOST),
}
# The parts of a SELECT that leave the meaning of its WHERE as it is. A sample, for one, is taken before it.
_PLAIN_PARTS = {
    *("expressions", "from_", "joins", "where", "group", "having", "qualify", "windows", "order", "limit", "offset"),
    *("distinct", "with_"),
}
_PLAIN_TABLE = {"this", "db", "catalog", "alias"}
_SIDES = ("", "LEFT", "RIGHT", "FULL")
_KINDS = ("", "INNER", "OUTER", "CROSS")


def row_filters(
    tree: exp.Expr, uses: Sequence[TableUse], schemas: Mapping[int, Schema]
) -> dict[int, BooleanExpression]:
    """The condition on each occurrence of a table, by the position of the occurrence in `uses`.

    Args:
        tree: The query.
        uses: The tables in it.
        schemas: The schema of each occurrence.
    """
    places = {id(use.node): place for place, use in enumerate(uses)}
    found: dict[int, BooleanExpression] = {}
    for select in tree.find_all(exp.Select):
        sources = _sources(select, places, uses, schemas)
        if sources is None:
            continue
        for place, condition in _conditions(select, sources):
            found[place] = And(found[place], condition) if place in found else condition
    return found


@dataclass(frozen=True)
class _Source:
    """A table in a FROM, or something else there, whose columns are not known."""

    name: str
    levels: tuple[str, ...]
    place: int | None
    schema: Schema | None


@dataclass(frozen=True)
class _Scope:
    """What the columns of a WHERE may refer to."""

    sources: tuple[_Source, ...]
    aliases: frozenset[str]
    outer: bool

    def resolve(self, column: exp.Expr) -> tuple[int, NestedField] | None:
        """The table and the field that a column certainly refers to."""
        if not isinstance(column, exp.Column) or not isinstance(column.this, exp.Identifier):
            return None
        *qualifiers, name = [str(part.name).casefold() for part in column.parts]
        matching = self._qualified(qualifiers) if qualifiers else self._unqualified(name)
        if matching is None or matching.schema is None or matching.place is None:
            return None
        fields = [field for field in matching.schema.fields if field.name.casefold() == name]
        is_plain = len(fields) == 1 and isinstance(fields[0].field_type, COMPARABLE)
        return (matching.place, fields[0]) if is_plain else None

    def _qualified(self, qualifiers: list[str]) -> _Source | None:
        if len(qualifiers) == 1 and any(_has(source, qualifiers[0]) for source in self.sources):
            return None  # it may be a struct
        matching = [
            source
            for source in self.sources
            if (len(qualifiers) == 1 and source.name == qualifiers[0]) or source.levels == tuple(qualifiers)
        ]
        return matching[0] if len(matching) == 1 else None

    def _unqualified(self, name: str) -> _Source | None:
        if name in self.aliases:
            return None
        if len(self.sources) > 1 and any(source.schema is None for source in self.sources):
            return None
        matching = [source for source in self.sources if _has(source, name)]
        return matching[0] if len(matching) == 1 else None


def _has(source: _Source, name: str) -> bool | None:
    """Whether it has a column of this name; None if its columns are not known."""
    if source.schema is None:
        return None
    return any(field.name.casefold() == name for field in source.schema.fields)


def _sources(
    select: exp.Select, places: Mapping[int, int], uses: Sequence[TableUse], schemas: Mapping[int, Schema]
) -> _Scope | None:
    """What a SELECT reads from; None if its WHERE may not be moved to where the tables are read."""
    first = select.args.get("from_")
    if first is None or select.args.get("where") is None:
        return None
    if any(value and name not in _PLAIN_PARTS for name, value in select.args.items()):
        return None
    joins = select.args.get("joins") or []
    for join in joins:
        side, kind = str(join.args.get("side") or "").upper(), str(join.args.get("kind") or "").upper()
        if side not in _SIDES or kind not in _KINDS or join.args.get("method"):
            return None
    sources = [_source(node, places, uses, schemas) for node in (first.this, *(join.this for join in joins))]
    if any(source is None for source in sources):
        return None
    aliases = frozenset(one.alias.casefold() for one in select.expressions if one.alias)
    outer = any(join.args.get("side") for join in joins)
    return _Scope(tuple(source for source in sources if source is not None), aliases, outer)


def _source(
    node: exp.Expr, places: Mapping[int, int], uses: Sequence[TableUse], schemas: Mapping[int, Schema]
) -> _Source | None:
    """An entry of a FROM; None if rows of it may depend on other rows of it, as those of a sample do."""
    alias = node.args.get("alias")
    if alias is not None and alias.args.get("columns") and isinstance(node, exp.Table):
        return None
    place = places.get(id(node))
    if isinstance(node, exp.Table):
        if any(value and name not in _PLAIN_TABLE for name, value in node.args.items()):
            return None
        if place is not None:
            levels = () if alias is not None else tuple(part.casefold() for part in uses[place].parts)
            name = node.alias_or_name.casefold()
            return _Source(name, levels, place, schemas.get(place))
    elif not isinstance(node, exp.Subquery) or node.args.get("joins"):
        return None
    return _Source(str(node.alias_or_name).casefold(), (), None, None)


def _conditions(select: exp.Select, scope: _Scope) -> Iterator[tuple[int, BooleanExpression]]:
    pending = [select.args["where"].this]
    while pending:
        node = pending.pop().unnest()
        if isinstance(node, exp.And):
            pending += [node.left, node.right]
            continue
        places: set[int] = set()
        condition = _condition(node, scope, places)
        if condition is not None and len(places) == 1:
            yield places.pop(), condition


def _condition(node: exp.Expr, scope: _Scope, places: set[int]) -> BooleanExpression | None:
    """The condition as Iceberg has it, and in `places` the tables it is about."""
    node = node.unnest()
    if isinstance(node, exp.And | exp.Or):
        left, right = _condition(node.left, scope, places), _condition(node.right, scope, places)
        if left is None or right is None:
            return None
        return And(left, right) if isinstance(node, exp.And) else Or(left, right)
    made = _comparison(node, scope) or _membership(node, scope) or _null_test(node, scope)
    if made is None:
        return None
    places.add(made[0])
    return made[1]


_Made = tuple[int, BooleanExpression]


def _comparison(node: exp.Expr, scope: _Scope) -> _Made | None:
    if isinstance(node, exp.Column):
        return _build(scope, node, [exp.true()], lambda name, values: _EQUAL(name, values[0]))
    if isinstance(node, exp.Between):
        if node.args.get("symmetric"):
            return None
        bounds = [node.args["low"], node.args["high"]]
        return _build(
            scope,
            node.this,
            bounds,
            lambda name, values: And(_AT_LEAST(name, values[0]), _AT_MOST(name, values[1])),
        )
    if type(node) not in _COMPARISONS:
        return None
    straight, mirrored = _COMPARISONS[type(node)]
    left, right = node.this.unnest(), node.expression.unnest()
    return _build(scope, left, [right], lambda name, values: straight(name, values[0])) or _build(
        scope, right, [left], lambda name, values: mirrored(name, values[0])
    )


def _membership(node: exp.Expr, scope: _Scope) -> _Made | None:
    if not isinstance(node, exp.In) or not node.expressions or node.args.get("query") or node.args.get("unnest"):
        return None
    return _build(scope, node.this, node.expressions, lambda name, values: _IN(name, set(values)))


def _null_test(node: exp.Expr, scope: _Scope) -> _Made | None:
    """IS NULL and IS NOT NULL; a row that an outer join adds is NULL too, so there only the second one is certain."""
    negated = isinstance(node, exp.Not)
    test = node.this.unnest() if negated else node
    if not isinstance(test, exp.Is) or not isinstance(test.expression, exp.Null) or (scope.outer and not negated):
        return None
    return _build(scope, test.this, [], lambda name, _values: _NOT_NULL(name) if negated else _IS_NULL(name))


def _build(
    scope: _Scope,
    column: exp.Expr,
    constants: Sequence[exp.Expr],
    make: Callable[[Any, list[Value]], Any],
) -> _Made | None:
    """The condition on the column, if the column and all constants are certain."""
    resolved = scope.resolve(column.unnest())
    if resolved is None:
        return None
    place, field = resolved
    values = [value_of(constant.unnest(), field.field_type) for constant in constants]
    if any(value is None for value in values):
        return None
    return place, make(field.name, [_plain(value) for value in values if value is not None])


def _plain(value: Value) -> Any:
    """The value as PyIceberg's literals take it: dates and times as ISO text."""
    return value.isoformat() if hasattr(value, "isoformat") else value


def either(conditions: Sequence[BooleanExpression | None]) -> BooleanExpression:
    """The condition for a table that occurs several times and is read once for all."""
    if any(condition is None for condition in conditions) or not conditions:
        return AlwaysTrue()
    made, *rest = [condition for condition in conditions if condition is not None]
    for condition in rest:
        made = Or(made, condition)
    return made
