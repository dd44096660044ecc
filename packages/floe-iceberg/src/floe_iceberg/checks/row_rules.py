"""Rules that hold for each row by itself: the condition that is true for the rows that break one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, FloatType, NestedField

from floe_core.config import AcceptedValues, TableCheck, ValueRange
from floe_iceberg.checks.sql_text import SqlText, field_named

__all__ = ["RowRule", "row_rule"]


@dataclass(frozen=True)
class RowRule:
    """A condition that is true for the rows that break the rule; counted in the shared pass.

    Args:
        bad: The condition.
        words: What breaks the rule, such as `have no id`.
        columns: Conditions whose rows are counted beside, by column.
    """

    bad: str
    words: str
    columns: Mapping[str, str] = field(default_factory=dict)


def row_rule(check: TableCheck, schema: Schema, sql: SqlText, what: str) -> RowRule:
    """The condition of a check that holds for each row by itself; ConfigurationError if it does not fit the columns.

    Args:
        check: The check.
        schema: The columns of the rows.
        sql: The SQL of the engine.
        what: What names a column, for errors.
    """

    def found(column: str) -> tuple[NestedField, str]:
        named = field_named(schema, column, what)
        return named, sql.column(schema, named)

    if check.not_null is not None:
        return _not_null(check.not_null, lambda name: found(name)[1])
    if check.accepted_values is not None:
        return _accepted_values(check.accepted_values, *found(check.accepted_values.column), sql, what)
    if check.range is not None:
        return _value_range(check.range, *found(check.range.column), sql, what)
    if check.condition is not None:
        return RowRule(f"NOT ({check.condition}\n)", f"do not meet {check.condition!r}")
    raise AssertionError(f"{check.rule} does not hold for each row by itself")


def _not_null(names: tuple[str, ...], column: Callable[[str], str]) -> RowRule:
    conditions = {name: f"{column(name)} IS NULL" for name in names}
    bad = " OR ".join(conditions.values())
    return RowRule(bad, f"have no {' or no '.join(conditions)}", conditions if len(conditions) > 1 else {})


def _accepted_values(accepted: AcceptedValues, named: NestedField, column: str, sql: SqlText, what: str) -> RowRule:
    values = ", ".join(sql.value(value, named, what) for value in accepted.values)
    return RowRule(
        f"{column} IS NOT NULL AND {column} NOT IN ({values})", f"have a {accepted.column} that is not accepted"
    )


def _value_range(limits: ValueRange, named: NestedField, column: str, sql: SqlText, what: str) -> RowRule:
    outside = [
        f"{column} {sign} {sql.value(limit, named, what)}"
        for sign, limit in (("<", limits.min), (">", limits.max))
        if limit is not None
    ]
    if isinstance(named.field_type, FloatType | DoubleType):
        outside.append(f"isnan({column})")
    ends = [f"{word} {limit}" for word, limit in (("below", limits.min), ("above", limits.max)) if limit is not None]
    return RowRule(" OR ".join(outside), f"have {limits.column} {' or '.join(ends)}")
