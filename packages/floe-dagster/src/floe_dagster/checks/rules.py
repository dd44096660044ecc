"""A function for each rule; the other arguments are those of every check (`TableCheck`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from pydantic import ValidationError

from floe_core.config import CheckValue, TableCheck
from floe_core.errors import ConfigurationError

__all__ = [
    "accepted_values",
    "columns",
    "condition",
    "freshness",
    "not_null",
    "references",
    "row_count",
    "sql",
    "unique",
    "value_range",
]


def not_null(*names: str, **options: Any) -> TableCheck:
    """Columns without NULL.

    Args:
        names: The columns.
        options: `name`, `scope`, `severity`, `blocking`, `quarantine`, `description`.

    Example:
        >>> from floe_dagster import checks
        >>> checks.not_null("id", "amount", severity="warn").not_null
        ('id', 'amount')
    """
    return _check(not_null=names, **options)


def unique(*names: str, **options: Any) -> TableCheck:
    """Columns whose values occur once, together; rows with a NULL in one of them are not compared.

    Args:
        names: The columns.
        options: `name`, `scope`, `severity`, `blocking`, `description`.
    """
    return _check(unique=names, **options)


def accepted_values(column: str, values: Sequence[CheckValue], **options: Any) -> TableCheck:
    """A column that has only these values, or NULL.

    Args:
        column: The column.
        values: The values.
        options: `name`, `scope`, `severity`, `blocking`, `quarantine`, `description`.
    """
    return _check(accepted_values={"column": column, "values": tuple(values)}, **options)


def value_range(
    column: str,
    *,
    min: CheckValue | None = None,  # noqa: A002 - as in floe.yaml
    max: CheckValue | None = None,  # noqa: A002 - as in floe.yaml
    **options: Any,
) -> TableCheck:
    """A column within bounds, both of which are allowed values; NULL is accepted, NaN is not.

    Args:
        column: The column.
        min: The smallest value.
        max: The largest value.
        options: `name`, `scope`, `severity`, `blocking`, `quarantine`, `description`.
    """
    return _check(range={"column": column, "min": min, "max": max}, **options)


def condition(text: str, **options: Any) -> TableCheck:
    """A condition in SQL that is not false for any row, such as `amount >= discount`.

    Args:
        text: The condition, in the SQL of the engine.
        options: `name`, `scope`, `severity`, `blocking`, `quarantine`, `description`.
    """
    return _check(condition=text, **options)


def references(
    names: str | Sequence[str], table: str, to: str | Sequence[str] | None = None, **options: Any
) -> TableCheck:
    """Columns whose values another table has; rows with a NULL in one of them are accepted.

    Args:
        names: The columns.
        table: The other table.
        to: Its columns. By default of the same names.
        options: `name`, `scope`, `severity`, `blocking`, `description`.
    """
    return _check(references={"columns": names, "table": table, "to": names if to is None else to}, **options)


def row_count(
    *,
    min: int | None = None,  # noqa: A002 - as in floe.yaml
    max: int | None = None,  # noqa: A002 - as in floe.yaml
    change: float | str | None = None,
    history: int = 7,
    **options: Any,
) -> TableCheck:
    """The number of rows, by metadata alone.

    Args:
        min: The smallest number.
        max: The largest number.
        change: The largest difference from the mean of the earlier partitions, or of the earlier states of the table:
            0.5 or `50%`.
        history: How many of them are compared.
        options: `name`, `scope`, `severity`, `blocking`, `description`.
    """
    return _check(row_count={"min": min, "max": max, "change": change, "history": history}, **options)


def freshness(max_age: timedelta | str, *, column: str | None = None, **options: Any) -> TableCheck:
    """The age of the newest row, or of the latest change of the table.

    Args:
        max_age: The largest age, such as `26h`.
        column: The time of a row. By default the table's latest change counts, by metadata alone.
        options: `name`, `scope`, `severity`, `blocking`, `description`.
    """
    return _check(freshness={"max_age": max_age, "column": column}, **options)


def columns(types: Mapping[str, str], *, exact: bool = False, **options: Any) -> TableCheck:
    """The columns of the table and their types, as Iceberg calls them: `long`, `timestamptz`, `decimal(10, 2)`.

    Args:
        types: The type of each column.
        exact: Whether other columns are refused.
        options: `name`, `scope`, `severity`, `blocking`, `description`.
    """
    return _check(columns={"columns": dict(types), "exact": exact}, **options)


def sql(name: str, query: str, **options: Any) -> TableCheck:
    """A query that returns the rows that are wrong; the rows to check are the table `this`.

    Args:
        name: The name of the check.
        query: The query, in the SQL of the engine.
        options: `scope`, `severity`, `blocking`, `description`.
    """
    return _check(sql={"name": name, "query": query}, **options)


def _check(**given: Any) -> TableCheck:
    try:
        return TableCheck(**given)
    except ValidationError as exc:
        problems = (
            f"{'.'.join(str(part) for part in error['loc'])}: {error['msg'].removeprefix('Value error, ')}"
            for error in exc.errors(include_url=False, include_input=False)
        )
        raise ConfigurationError(
            f"this is no check: {'; '.join(problem.removeprefix(': ') for problem in problems)}"
        ) from None
