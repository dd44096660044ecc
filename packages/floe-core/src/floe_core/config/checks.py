"""Checks of tables as data: what must hold of the rows of a table, in floe.yaml and in Python."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StrictBool, WithJsonSchema, model_validator
from typing_extensions import Self

from floe_core.config.settings import Duration, Settings
from floe_core.errors import ConfigurationError
from floe_core.identifiers import TableIdentifier

__all__ = [
    "AcceptedValues",
    "CheckScope",
    "CheckValue",
    "CustomQuery",
    "DeclaredColumns",
    "Freshness",
    "Reference",
    "RowCount",
    "TableCheck",
    "ValueRange",
    "check_name",
    "check_table",
]

CheckScope = Literal["slice", "table"]
CheckValue = StrictBool | int | float | Decimal | datetime | date | str

_NAME = re.compile(r"[A-Za-z0-9_]+")


def _as_names(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


def _check_names(names: tuple[str, ...]) -> tuple[str, ...]:
    if not names or not all(names):
        raise ValueError("name at least one column")
    if len({name.lower() for name in names}) < len(names):
        raise ValueError(f"a column is named twice: {', '.join(names)}")
    return names


def check_table(name: str) -> str:
    """The name of a table; ValueError if it is none."""
    try:
        TableIdentifier.from_string(name)
    except ConfigurationError as exc:
        raise ValueError(str(exc)) from None
    return name


def _check_text(text: str) -> str:
    if not text.strip():
        raise ValueError("this must not be empty")
    return text


def _as_share(value: Any) -> Any:
    """A share of 1, which may be written as a percentage."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s?%", value) if isinstance(value, str) else None
    return float(match[1]) / 100 if match else value


Columns = Annotated[
    tuple[str, ...],
    BeforeValidator(_as_names),
    AfterValidator(_check_names),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]
_Statement = Annotated[str, AfterValidator(_check_text)]
_Share = Annotated[
    float,
    BeforeValidator(_as_share),
    Field(gt=0),
    WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string", "pattern": r"^\d+(\.\d+)?\s?%$"}]}),
]


class AcceptedValues(Settings):
    """The values that a column may have; NULL is accepted."""

    column: str
    values: tuple[CheckValue, ...] = Field(min_length=1)


class ValueRange(Settings):
    """The smallest and the largest value of a column; NULL is accepted, NaN is not."""

    column: str
    min: CheckValue | None = None
    max: CheckValue | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.min is None and self.max is None:
            raise ValueError("range: give min, max or both")
        return self


class Reference(Settings):
    """The columns whose values another table must have; rows with a NULL in one of them are accepted."""

    columns: Columns
    table: Annotated[str, AfterValidator(check_table)]
    to: Columns

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(self.columns) != len(self.to):
            raise ValueError(f"references: {len(self.columns)} columns refer to {len(self.to)}")
        return self


class RowCount(Settings):
    """How many rows there must be, by metadata alone; `change` compares with the history."""

    min: int | None = Field(default=None, ge=0)
    max: int | None = Field(default=None, ge=0)
    change: _Share | None = Field(
        default=None, description="the largest difference from the mean of the history, such as 0.5 or 50%"
    )
    history: int = Field(
        default=7, ge=1, le=1000, description="earlier partitions, or earlier states of the table, to compare with"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.min is None and self.max is None and self.change is None:
            raise ValueError("row_count: give min, max or change")
        return self


class Freshness(Settings):
    """The age that the newest row may have; without a column, that of the latest change of the table."""

    max_age: Duration
    column: str | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.max_age <= timedelta():
            raise ValueError("max_age must be greater than zero")
        return self


class DeclaredColumns(Settings):
    """The columns that a table must have, with the types that Iceberg calls them by."""

    columns: dict[str, str] = Field(min_length=1)
    exact: bool = Field(default=False, description="whether other columns are refused")


class CustomQuery(Settings):
    """A query that returns the rows that are wrong; the rows to check are the table `this`."""

    name: str
    query: _Statement


def _check_quarantine(value: bool | str) -> bool | str:
    return check_table(value) if isinstance(value, str) else value


# True is the table `<table>_quarantine`.
_Quarantine = Annotated[StrictBool | str, AfterValidator(_check_quarantine)]

_RULES = (
    "not_null",
    "unique",
    "accepted_values",
    "range",
    "condition",
    "references",
    "row_count",
    "freshness",
    "columns",
    "sql",
)
# The rules that hold for each row by itself, so that it is decided which rows break them.
_ROW_RULES = ("not_null", "accepted_values", "range", "condition")


class TableCheck(Settings):
    """One check: exactly one rule, and how it is applied.

    Args:
        not_null: Columns without NULL.
        unique: Columns whose values occur once together; rows with a NULL in one of them are not compared.
        accepted_values: A column that has only these values.
        range: A column within these bounds.
        condition: A condition in SQL that is not false for any row.
        references: Columns whose values another table has.
        row_count: The number of rows.
        freshness: The age of the newest row.
        columns: The columns and their types.
        sql: A query that returns no rows.
        name: The name of the check. By default made from the rule.
        scope: The rows that are checked: the partitions of the run, or the whole table.
        severity: `warn` reports a failure and goes on.
        blocking: Whether a failure stops the assets downstream, and the publication.
        quarantine: Whether rows that break the rule are moved to a table of their own instead of failing the check:
            `true` for `<table>_quarantine`, or the name of that table. The publication stops if they cannot be moved.
        description: What the check means, for readers.

    Example:
        >>> from floe_core import TableCheck
        >>> TableCheck(not_null="id", severity="warn").not_null
        ('id',)
    """

    not_null: Columns | None = None
    unique: Columns | None = None
    accepted_values: AcceptedValues | None = None
    range: ValueRange | None = None
    condition: _Statement | None = None
    references: Reference | None = None
    row_count: RowCount | None = None
    freshness: Freshness | None = None
    columns: DeclaredColumns | None = None
    sql: CustomQuery | None = None
    name: str | None = None
    scope: CheckScope = "slice"
    severity: Literal["error", "warn"] = "error"
    blocking: bool = False
    quarantine: _Quarantine = False
    description: str | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        given = [rule for rule in _RULES if getattr(self, rule) is not None]
        if len(given) != 1:
            found = f"this has {', '.join(given)}" if given else "this has none"
            raise ValueError(f"a check has exactly one of {', '.join(_RULES)}; {found}")
        if self.blocking and self.severity == "warn":
            raise ValueError("a warning does not block: leave out blocking, or severity: warn")
        if self.name is not None and not _NAME.fullmatch(self.name):
            raise ValueError(f"name: {self.name!r} may have letters, digits and underscores")
        self._check_quarantined()
        return self

    def _check_quarantined(self) -> None:
        if not self.quarantine:
            return
        if self.rule not in _ROW_RULES:
            raise ValueError(
                f"quarantine moves the rows that break a rule, and {self.rule} does not decide this for each row by "
                f"itself; quarantine is for {', '.join(_ROW_RULES)}: leave it out, or make the check blocking"
            )
        if self.scope == "table":
            raise ValueError("quarantine moves rows that the run writes: leave out scope: table, or quarantine")
        if self.severity == "warn":
            raise ValueError("quarantine moves the rows, so nothing is left to warn of: leave out one of them")

    @property
    def rule(self) -> str:
        """The name of the rule."""
        return next(rule for rule in _RULES if getattr(self, rule) is not None)

    @property
    def blocks(self) -> bool:
        """Whether a failure stops the assets downstream and the publication; rows left to be moved are one."""
        return self.blocking or bool(self.quarantine)


def check_name(check: TableCheck) -> str:
    """The name of a check: its own, or one made from its rule and columns."""
    if check.name is not None:
        return check.name
    if check.sql is not None:
        return _identifier(check.sql.name)
    return _identifier("_".join([check.rule, *_subject(check)]))


def _subject(check: TableCheck) -> tuple[str, ...]:
    """What a check is about: its columns, or its condition."""
    if check.condition is not None:
        return (check.condition,)
    if check.references is not None:
        return check.references.columns
    named = check.accepted_values or check.range or check.freshness
    if named is not None:
        return (named.column,) if named.column is not None else ()
    return check.not_null or check.unique or ()


def _identifier(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_")[:100] or "check"
