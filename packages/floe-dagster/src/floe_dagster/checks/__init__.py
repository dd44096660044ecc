"""Checks of assets in one line each: `checks.of(orders, checks.not_null("id"), checks.unique("id"))`."""

from floe_dagster.checks.definitions import of
from floe_dagster.checks.functions import FunctionCheck, function
from floe_dagster.checks.rules import (
    accepted_values,
    columns,
    condition,
    freshness,
    not_null,
    references,
    row_count,
    sql,
    unique,
    value_range,
)

__all__ = [
    "FunctionCheck",
    "accepted_values",
    "columns",
    "condition",
    "freshness",
    "function",
    "not_null",
    "of",
    "references",
    "row_count",
    "sql",
    "unique",
    "value_range",
]
