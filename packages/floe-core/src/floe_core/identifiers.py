"""Names of tables and namespaces, and slices of tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from typing_extensions import Self

from floe_core.errors import ConfigurationError

__all__ = ["ColumnRange", "Name", "Namespace", "TableIdentifier", "TableSlice", "check_name"]

_MAX_NAME = 128
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
    """A namespace: one or more levels."""

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
    """A table's name inside a catalog."""

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
    def from_asset_key(cls, key: Sequence[str], default_namespace: str = "public") -> TableIdentifier:
        """The first part is the namespace, the rest joined by `_`; a single part lands in the default namespace."""
        if not key:
            raise ConfigurationError("asset key [] has no parts: a table needs a name")
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


class ColumnRange(BaseModel):
    """The rows of a column from `start` up to, not including, `end`; both in UTC."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    column: str
    start: Moment
    end: Moment

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.start >= self.end:
            raise ValueError(f"start {self.start} is not before end {self.end}")
        return self

    def __str__(self) -> str:
        return f"{self.column} from {self.start:%Y-%m-%d %H:%M} to {self.end:%Y-%m-%d %H:%M} UTC"


class TableSlice(BaseModel):
    """A set of rows of a table that a write replaces as a whole: the union of its ranges."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ranges: tuple[ColumnRange, ...] = Field(min_length=1)

    @classmethod
    def of_windows(cls, column: str, windows: Iterable[tuple[datetime, datetime]]) -> TableSlice:
        """The union of time windows on one column; windows that touch become one."""
        parts = [ColumnRange(column=column, start=start, end=end) for start, end in windows]
        merged: list[ColumnRange] = []
        for part in sorted(parts, key=lambda part: part.start):
            if merged and part.start <= merged[-1].end:
                end = max(merged[-1].end, part.end)
                merged[-1] = ColumnRange(column=column, start=merged[-1].start, end=end)
            else:
                merged.append(part)
        return cls(ranges=tuple(merged))

    def __str__(self) -> str:
        return "; ".join(str(one) for one in self.ranges)


def _name_error(what: str, exc: ValidationError) -> ConfigurationError:
    reasons = "; ".join(error["msg"].removeprefix("Value error, ") for error in exc.errors(include_input=False))
    return ConfigurationError(f"{what}: {reasons}")
