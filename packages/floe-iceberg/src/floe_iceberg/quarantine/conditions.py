"""The rules of a quarantine as SQL conditions on single rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from pyiceberg.schema import Schema

from floe_core.config import TableCheck, check_name
from floe_core.errors import ConfigurationError, QueryError
from floe_core.identifiers import TableIdentifier
from floe_iceberg.checks.row_rules import row_rule
from floe_iceberg.checks.sql_text import SqlText
from floe_iceberg.query.run import require_parser

__all__ = ["CHECKED", "conditions_of"]

# The rows, as conditions may name them.
CHECKED = "checked"


def conditions_of(
    checks: Sequence[TableCheck], schema: Schema, engine: Literal["duckdb", "spark"], table: TableIdentifier
) -> Mapping[str, str]:
    """The condition that is true for the rows that break a check, by the name of the check.

    ConfigurationError for a check that does not fit the columns, or whose condition needs more than the row.

    Args:
        checks: The checks.
        schema: The columns of the rows.
        engine: The engine that evaluates them.
        table: The table, for errors.
    """
    sql, found = SqlText(engine), dict[str, str]()
    for check in checks:
        name = check_name(check)
        what = f"check {name} of '{table}'"
        found[name] = row_rule(check, schema, sql, what).bad
        _refuse_more_than_the_row(found[name], engine, what)
    return found


def _refuse_more_than_the_row(condition: str, engine: Literal["duckdb", "spark"], what: str) -> None:
    require_parser()
    from sqlglot import exp

    from floe_iceberg.query.parsing import parse

    try:
        query = parse(f"SELECT * FROM {CHECKED} WHERE {condition}", engine)  # noqa: S608 - of the project, read only
    except QueryError as exc:
        raise ConfigurationError(f"{what}: {' '.join(str(exc).split())}. Nothing was written") from exc
    others = sorted({use.name for use in query.tables if use.name != CHECKED})
    if others:
        reason = f"it reads {', '.join(others)}"
    elif query.tree.find(exp.AggFunc, exp.Window) is not None:
        reason = "it has an aggregate or a window"
    else:
        return
    raise ConfigurationError(
        f"{what}: quarantine needs a condition on the row alone, because rows are moved while they are written, and "
        f"{reason}; leave out quarantine, and the check fails instead. Nothing was written"
    )
