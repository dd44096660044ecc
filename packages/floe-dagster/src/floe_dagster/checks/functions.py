"""Checks that are functions of the rows."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_type_hints

from dagster import AssetCheckResult, AssetCheckSeverity

from floe_core.config import CheckScope
from floe_core.errors import ConfigurationError, FloeError, TimeLimitError
from floe_dagster.assets.values import Kind, from_scan, kind_of_annotation
from floe_iceberg import Lake
from floe_iceberg.checks import CheckedRows, CheckOutcome
from floe_iceberg.expressions import slice_filter

__all__ = ["FunctionCheck", "function", "run_function"]


@dataclass(frozen=True)
class FunctionCheck:
    """A function that gets the rows and returns whether they are right.

    Attributes:
        function: The function. Its parameter is annotated with the type that it gets, as inputs of assets are.
        name: The name of the check.
        scope: The rows that it gets: the partitions of the run, or the whole table.
        severity: `warn` reports a failure and goes on.
        blocking: Whether a failure stops the assets downstream, and the publication.
        description: What the check means.
    """

    function: Callable[[Any], Any]
    name: str
    scope: CheckScope = "slice"
    severity: Literal["error", "warn"] = "error"
    blocking: bool = False
    description: str | None = None


def function(checked: Callable[[Any], Any], **options: Any) -> FunctionCheck:
    """A check by a function of the rows, which returns True, False or an AssetCheckResult.

    Args:
        checked: The function.
        options: `name`, by default that of the function; `scope`, `severity`, `blocking`, `description`.

    Example:
        >>> from floe_dagster import checks
        >>> def even(rows: pa.Table) -> bool:
        ...     return all(value % 2 == 0 for value in rows["id"].to_pylist())
        >>> checks.function(even).name
        'even'
    """
    if not callable(checked) or len(inspect.signature(checked).parameters) != 1:
        raise ConfigurationError("a check by a function needs a function of one parameter, the rows")
    made = FunctionCheck(checked, getattr(checked, "__name__", "function"), description=inspect.getdoc(checked))
    return replace(made, **options)


def run_function(check: FunctionCheck, lake: Lake, rows: CheckedRows, *, default: Kind) -> CheckOutcome:
    """The outcome of a function; one that raises or returns something else has not passed."""
    rows = rows if check.scope == "slice" else rows.whole()
    outcome = CheckOutcome(
        name=check.name,
        rule="function",
        passed=False,
        severity="error",
        scope=check.scope,
        message="",
        snapshot_id=rows.snapshot_id,
    )
    try:
        result = check.function(_loaded(check, lake, rows, default))
    except TimeLimitError:
        raise
    except FloeError as exc:
        return replace(outcome, message=f"could not be run: {exc}")
    except Exception as exc:  # noqa: BLE001 - an error of the user's code is the outcome of the check
        return replace(outcome, message=f"raised {type(exc).__name__}: {exc}")
    if isinstance(result, AssetCheckResult):
        is_warning = result.severity is AssetCheckSeverity.WARN or check.severity == "warn"
        numbers: Mapping[str, Any] = {key: value.value for key, value in (result.metadata or {}).items()}
        message = result.description or ("passed" if result.passed else "did not pass")
        severity: Literal["error", "warn"] = "warn" if is_warning else "error"
        return replace(outcome, passed=result.passed, severity=severity, message=message, numbers=numbers)
    if not isinstance(result, bool) and type(result).__name__ not in ("bool", "bool_"):
        return replace(
            outcome,
            message=f"returned {type(result).__name__}; a check returns True, False or an AssetCheckResult, so whether "
            f"it passed is unknown",
        )
    return replace(
        outcome,
        passed=bool(result),
        severity=check.severity,
        message="returned True" if result else "returned False",
    )


def _loaded(check: FunctionCheck, lake: Lake, rows: CheckedRows, default: Kind) -> Any:
    """The rows in the type that the function takes."""
    (parameter,) = inspect.signature(check.function).parameters
    try:
        annotation = get_type_hints(check.function).get(parameter)
    except NameError:  # a name that is imported for type checkers only
        annotation = None
    kind = kind_of_annotation(annotation, parameter, default=default)
    if kind is Kind.SPARK:
        return lake.read(rows.identifier, snapshot_id=rows.snapshot_id, slice=rows.within)
    scan = lake.tables.scan(rows.identifier, snapshot_id=rows.snapshot_id, table=rows.table)
    if rows.within is not None:
        scan = scan.filter(slice_filter(rows.within, scan.projection()))
    return from_scan(kind, scan)
