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
    "check_branch_name",
    "check_name",
]

_MAX_NAME = 128
# How many values or parts the text of a slice lists.
_SHOWN = 5
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
# Iceberg's own branch, and names of refs that Floe gives itself.
_RESERVED_BRANCH = re.compile(r"(?i)main$|floe[-_]")
_LIKE_A_TIME = re.compile(r"\d{4}-\d{2}|\d{8}T")


def check_name(name: str) -> str:
    """Return one level of a name, or raise a ValueError that states what is allowed.

    Names become folders and SQL identifiers in two engines, so everything unusual is refused, not escaped.
    """
    if len(name) > _MAX_NAME:
        raise ValueError(f"the name '{name[:20]}…' has {len(name)} characters; at most {_MAX_NAME} are allowed")
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is not a valid name: use letters (a-z, A-Z), digits, '_' and '-', not starting with '-'"
        )
    return name


def check_branch_name(name: str) -> str:
    """Return the name of a branch of the lake, or raise a ValueError that states what is allowed."""
    check_name(name)
    if _RESERVED_BRANCH.match(name):
        raise ValueError(f"{name!r} is reserved, as are all names that begin with floe; choose another")
    if name.isdecimal() or _LIKE_A_TIME.match(name):
        raise ValueError(
            f"{name!r} reads like the id of a snapshot, or a time: choose a name with a letter, such as pr-{name}"
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
    # Python compares datetimes of one zone by wall-clock time, which repeats an hour when clocks go back.
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

    Both are stored in UTC. Dates, and timestamps without a zone, are local time in `zone`.
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
        """The local time in the zone; `fold` marks the second of two equal times."""
        return moment.astimezone(ZoneInfo(self.zone)).replace(tzinfo=None)

    def is_ambiguous(self, moment: datetime) -> bool:
        """Whether the local time occurs twice, because clocks go back."""
        local = moment.astimezone(ZoneInfo(self.zone))
        return local.replace(fold=0).utcoffset() != local.replace(fold=1).utcoffset()

    def __str__(self) -> str:
        start, end = self.local(self.start), self.local(self.end)
        return f"{self.column} from {start:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} {self.zone}"


class ColumnValues(BaseModel):
    """The rows of a column with one of these values, written as text and parsed by the column's type."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    column: str
    values: tuple[str, ...] = Field(min_length=1)

    def __str__(self) -> str:
        shown = ", ".join(repr(value) for value in self.values[:_SHOWN])
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
        """The union of time windows on one column; adjacent windows are merged."""
        return cls.union((ColumnRange(column=column, start=start, end=end, zone=zone),) for start, end in windows)

    @classmethod
    def of_values(cls, column: str, values: Iterable[str]) -> TableSlice:
        """The rows with one of these values in a column."""
        return cls.union((ColumnValues(column=column, values=(value,)),) for value in values)

    @classmethod
    def union(cls, parts: Iterable[Sequence[Condition]]) -> TableSlice:
        """The union of parts, merged if they differ in one condition only: thirty days of two cities are one part."""
        merged = list(dict.fromkeys(tuple(part) for part in parts))
        for position in range(min((len(part) for part in merged), default=0)):
            merged = _merged(merged, position)
        return cls(parts=tuple(merged))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of its conditions, each once."""
        return tuple(dict.fromkeys(condition.column for part in self.parts for condition in part))

    def __str__(self) -> str:
        texts = [" and ".join(str(condition) for condition in part) for part in self.parts[:_SHOWN]]
        if len(self.parts) > _SHOWN:
            texts.append(f"and {len(self.parts) - _SHOWN} more")
        return "; ".join(texts)


def _merged(parts: Sequence[tuple[Condition, ...]], position: int) -> list[tuple[Condition, ...]]:
    """Merge the parts that differ only in the condition at this position."""
    groups: dict[tuple[object, ...], list[tuple[Condition, ...]]] = {}
    for part in parts:
        condition = part[position]
        kind = condition.column, condition.zone if isinstance(condition, ColumnRange) else None
        groups.setdefault((part[:position], kind, part[position + 1 :]), []).append(part)
    return [
        (*group[0][:position], condition, *group[0][position + 1 :])
        for group in groups.values()
        for condition in _union([part[position] for part in group])
    ]


def _union(conditions: Sequence[Condition]) -> list[Condition]:
    """Merge conditions on one column and of one kind: adjacent windows become one, values become one list."""
    values = [value for condition in conditions if isinstance(condition, ColumnValues) for value in condition.values]
    if values:
        return [ColumnValues(column=conditions[0].column, values=tuple(sorted(set(values))))]
    windows: list[ColumnRange] = []
    ranges = [condition for condition in conditions if isinstance(condition, ColumnRange)]
    for window in sorted(ranges, key=lambda window: window.start):
        if windows and window.start <= windows[-1].end:
            windows[-1] = windows[-1].model_copy(update={"end": max(windows[-1].end, window.end)})
        else:
            windows.append(window)
    return list(windows)


def _name_error(subject: str, exc: ValidationError) -> ConfigurationError:
    reasons = "; ".join(
        value_problem(error["type"], error["msg"], error.get("ctx")) for error in exc.errors(include_input=False)
    )
    return ConfigurationError(f"{subject}: {reasons}")
