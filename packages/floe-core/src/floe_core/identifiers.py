"""Names of tables and namespaces, and slices of tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from typing_extensions import Self

from floe_core.errors import ConfigurationError
from floe_core.wording import value_problem

__all__ = [
    "ColumnRange",
    "ColumnValues",
    "Condition",
    "Name",
    "Namespace",
    "TableIdentifier",
    "TableSlice",
    "check_name",
]

_MAX_NAME = 128
# As many values or parts as a text about a slice names.
_SHOWN = 5
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")


def check_name(name: str) -> str:
    """One level of a name, or a ValueError that says what is allowed.

    Names become folders and SQL identifiers in two engines, so everything unusual is refused, not escaped.
    """
    if len(name) > _MAX_NAME:
        raise ValueError(f"the name '{name[:20]}…' has {len(name)} characters; at most {_MAX_NAME} are allowed")
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is not a valid name: use letters (a-z, A-Z), digits, '_' and '-', not starting with '-'"
        )
    return name


Name = Annotated[str, AfterValidator(check_name)]


class Namespace(BaseModel):
    """The name of a namespace: one or more levels.

    Args:
        levels: The names of the levels, outermost first. A name has letters, digits, `_` and `-`.

    Example:
        >>> from floe_core import Namespace
        >>> raw = Namespace.from_string("bronze.raw")
        >>> raw.levels
        ('bronze', 'raw')
        >>> [str(level) for level in raw.lineage()]
        ['bronze', 'bronze.raw']
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    levels: tuple[Name, ...] = Field(min_length=1)

    def __str__(self) -> str:
        return ".".join(self.levels)

    @classmethod
    def from_string(cls, text: str) -> Namespace:
        """`bronze.raw` has the levels bronze and raw."""
        try:
            return cls(levels=tuple(text.split(".")))
        except ValidationError as exc:
            raise _name_error(f"namespace {text!r}", exc) from exc

    def lineage(self) -> list[Namespace]:
        """The namespace and its parents, outermost first."""
        return [Namespace(levels=self.levels[: depth + 1]) for depth in range(len(self.levels))]


class TableIdentifier(BaseModel):
    """The name of a table in a catalog: its namespace and its own name.

    Args:
        namespace: The levels of the namespace, outermost first.
        name: The name of the table in its namespace. A name has letters, digits, `_` and `-`.

    Example:
        >>> from floe_core import TableIdentifier
        >>> orders = TableIdentifier.from_string("bronze.raw.orders")
        >>> orders.namespace, orders.name
        (('bronze', 'raw'), 'orders')
        >>> str(orders)
        'bronze.raw.orders'
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    namespace: tuple[Name, ...] = Field(min_length=1)
    name: Name

    @property
    def full_name(self) -> str:
        return ".".join([*self.namespace, self.name])

    def __str__(self) -> str:
        return self.full_name

    @classmethod
    def from_string(cls, text: str) -> TableIdentifier:
        """`gold.metrics.daily` is the table daily in the namespace gold.metrics."""
        *namespace, name = text.split(".")
        if not namespace:
            raise ConfigurationError(f"table {text!r} has no namespace: write it as 'namespace.{text}'")
        try:
            return cls(namespace=tuple(namespace), name=name)
        except ValidationError as exc:
            raise _name_error(f"table {text!r}", exc) from exc

    @classmethod
    def from_asset_key(
        cls, key: Sequence[str], default_namespace: str = "public", *, ignore_prefix: bool = False
    ) -> TableIdentifier:
        """The first part is the namespace, the rest joined by `_`; a single part lands in the default namespace.

        With `ignore_prefix`, the last part is the name, in the default namespace.
        """
        if not key:
            raise ConfigurationError("asset key [] has no parts: a table needs a name")
        key = key[-1:] if ignore_prefix else key
        namespace, name = (key[0], "_".join(key[1:])) if len(key) >= 2 else (default_namespace, key[0])
        try:
            return cls(namespace=tuple(namespace.split(".")) if len(key) < 2 else (namespace,), name=name)
        except ValidationError as exc:
            raise _name_error(f"asset key {list(key)!r}", exc) from exc


def _in_utc(moment: datetime) -> datetime:
    # Python compares moments of one zone by their wall clock, which shows the same hour twice when clocks go back.
    if moment.tzinfo is None:
        raise ValueError("start and end need a time zone")
    return moment.astimezone(timezone.utc)


Moment = Annotated[datetime, AfterValidator(_in_utc)]


def _known_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        raise ValueError(f"no time zone {name!r} is known here") from None
    return name


class ColumnRange(BaseModel):
    """The rows of a column from `start` up to, not including, `end`.

    Moments are kept in UTC. Columns that know no zone, dates and timestamps without one, show the clock of `zone`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    column: str
    start: Moment
    end: Moment
    zone: Annotated[str, AfterValidator(_known_zone)] = "UTC"

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.start >= self.end:
            raise ValueError(f"start {self.start} is not before end {self.end}")
        return self

    def local(self, moment: datetime) -> datetime:
        """What a clock in the zone shows at this moment; `fold` tells the second of two equal times."""
        return moment.astimezone(ZoneInfo(self.zone)).replace(tzinfo=None)

    def is_ambiguous(self, moment: datetime) -> bool:
        """Does a clock in the zone show this time twice, because it is put back?"""
        local = moment.astimezone(ZoneInfo(self.zone))
        return local.replace(fold=0).utcoffset() != local.replace(fold=1).utcoffset()

    def __str__(self) -> str:
        start, end = self.local(self.start), self.local(self.end)
        return f"{self.column} from {start:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} {self.zone}"


class ColumnValues(BaseModel):
    """The rows of a column with one of these values, written as text; the column's type says what they are."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    column: str
    values: tuple[str, ...] = Field(min_length=1)

    def __str__(self) -> str:
        shown = ", ".join(repr(one) for one in self.values[:_SHOWN])
        if len(self.values) == 1:
            return f"{self.column} = {shown}"
        more = f" and {len(self.values) - _SHOWN} more" if len(self.values) > _SHOWN else ""
        return f"{self.column} in ({shown}{more})"


Condition = ColumnRange | ColumnValues


class TableSlice(BaseModel):
    """The rows of a table that a partitioned write may touch: the union of its parts.

    A part is the set of rows that meet all its conditions, such as those of one day, or of one day and one city.
    `of_windows` and `of_values` build the common slices.

    Args:
        parts: The conditions of each part.

    Example:
        >>> from datetime import datetime, timezone
        >>> from floe_core import TableSlice
        >>> start, end = datetime(2026, 1, 1, tzinfo=timezone.utc), datetime(2026, 1, 2, tzinfo=timezone.utc)
        >>> print(TableSlice.of_windows("ordered_at", [(start, end)]))
        ordered_at from 2026-01-01 00:00 to 2026-01-02 00:00 UTC
        >>> print(TableSlice.of_values("city", ["Oslo", "Rome"]))
        city in ('Oslo', 'Rome')
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    parts: tuple[tuple[Condition, ...], ...] = Field(min_length=1)

    @classmethod
    def of_windows(cls, column: str, windows: Iterable[tuple[datetime, datetime]], *, zone: str = "UTC") -> TableSlice:
        """The union of time windows on one column; windows that touch become one."""
        return cls.union((ColumnRange(column=column, start=start, end=end, zone=zone),) for start, end in windows)

    @classmethod
    def of_values(cls, column: str, values: Iterable[str]) -> TableSlice:
        """The rows with one of these values in a column."""
        return cls.union((ColumnValues(column=column, values=(value,)),) for value in values)

    @classmethod
    def union(cls, parts: Iterable[Sequence[Condition]]) -> TableSlice:
        """The same rows in as few parts as can be told at a glance: thirty days of two cities are one part."""
        merged = list(dict.fromkeys(tuple(part) for part in parts))
        for place in range(min((len(part) for part in merged), default=0)):
            merged = _merged(merged, place)
        return cls(parts=tuple(merged))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it speaks of, each once."""
        return tuple(dict.fromkeys(condition.column for part in self.parts for condition in part))

    def __str__(self) -> str:
        told = [" and ".join(str(condition) for condition in part) for part in self.parts[:_SHOWN]]
        if len(self.parts) > _SHOWN:
            told.append(f"and {len(self.parts) - _SHOWN} more")
        return "; ".join(told)


def _merged(parts: Sequence[tuple[Condition, ...]], place: int) -> list[tuple[Condition, ...]]:
    """Parts that differ in this condition only, as one."""
    alike: dict[tuple[object, ...], list[tuple[Condition, ...]]] = {}
    for part in parts:
        one = part[place]
        kind = one.column, one.zone if isinstance(one, ColumnRange) else None
        alike.setdefault((part[:place], kind, part[place + 1 :]), []).append(part)
    return [
        (*same[0][:place], one, *same[0][place + 1 :])
        for same in alike.values()
        for one in _union([part[place] for part in same])
    ]


def _union(conditions: Sequence[Condition]) -> list[Condition]:
    """Windows that touch become one, values stand together; all are of one column and of one kind."""
    values = [value for one in conditions if isinstance(one, ColumnValues) for value in one.values]
    if values:
        return [ColumnValues(column=conditions[0].column, values=tuple(sorted(set(values))))]
    windows: list[ColumnRange] = []
    for one in sorted((one for one in conditions if isinstance(one, ColumnRange)), key=lambda one: one.start):
        if windows and one.start <= windows[-1].end:
            windows[-1] = windows[-1].model_copy(update={"end": max(windows[-1].end, one.end)})
        else:
            windows.append(one)
    return list(windows)


def _name_error(what: str, exc: ValidationError) -> ConfigurationError:
    reasons = "; ".join(
        value_problem(error["type"], error["msg"], error.get("ctx")) for error in exc.errors(include_input=False)
    )
    return ConfigurationError(f"{what}: {reasons}")
