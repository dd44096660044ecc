"""What callers hand in, checked before anything is looked at: errors name the argument and what it must be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import TypeVar

from pyiceberg.table import Table

from floe_core.errors import ConfigurationError
from floe_core.identifiers import Namespace, TableIdentifier, TableSlice
from floe_core.models import PartitionTransform

__all__ = [
    "NamespaceName",
    "TableName",
    "check_limit",
    "check_moment",
    "check_slice",
    "check_snapshot_id",
    "check_transforms",
    "choice",
    "identifier_of",
    "names_of",
    "namespace_of",
    "property_texts",
]

TableName = TableIdentifier | str | Table
NamespaceName = Namespace | str
_Choice = TypeVar("_Choice", bound=Enum)


def choice(kind: type[_Choice], said: object, argument: str) -> _Choice:
    """One of the values of an enumeration, itself or by name."""
    try:
        return kind(said)
    except ValueError:
        there = ", ".join(str(one.value) for one in kind)
        raise ConfigurationError(f"{argument} is {said!r}; it must be one of {there}") from None


def names_of(said: Sequence[str], argument: str) -> tuple[str, ...]:
    """Names of columns; a text is one name, not its letters."""
    names = (said,) if isinstance(said, str) else tuple(said)
    wrong = [one for one in names if not isinstance(one, str)]
    if wrong:
        raise ConfigurationError(f"{argument} are names of columns; {wrong[0]!r} is a {type(wrong[0]).__name__}")
    return names


def property_texts(properties: Mapping[str, object], argument: str) -> dict[str, str]:
    """Properties as Iceberg keeps them; numbers and booleans become text."""
    texts = {}
    for key, value in properties.items():
        if not isinstance(key, str) or not key or not isinstance(value, str | int | float):
            raise ConfigurationError(f"{argument}: a property is a name and a text; {key!r}: {value!r} is not")
        texts[key] = str(value).lower() if isinstance(value, bool) else str(value)
    return texts


def identifier_of(name: TableName) -> TableIdentifier:
    """The identifier of a table: itself, as a text such as `bronze.orders`, or of a table that PyIceberg loaded."""
    if isinstance(name, TableIdentifier):
        return name
    if isinstance(name, str):
        return TableIdentifier.from_string(name)
    if isinstance(name, Table):
        return TableIdentifier.from_string(".".join(name.name()))
    raise ConfigurationError(
        f"identifier is a {type(name).__name__}; write 'bronze.orders', or TableIdentifier.from_string('bronze.orders')"
    )


def namespace_of(name: NamespaceName) -> Namespace:
    """A namespace, itself or as a text such as `bronze.raw`."""
    if isinstance(name, Namespace):
        return name
    if isinstance(name, str):
        return Namespace.from_string(name)
    raise ConfigurationError(
        f"namespace is a {type(name).__name__}; write 'bronze.raw', or Namespace.from_string('bronze.raw')"
    )


def check_slice(said: object) -> None:
    if said is not None and not isinstance(said, TableSlice):
        raise ConfigurationError(
            f"slice is a {type(said).__name__}; write TableSlice.of_windows('at', [(start, end)]), or a text as "
            f"overwrite_filter"
        )


def check_transforms(said: Sequence[PartitionTransform]) -> None:
    wrong = [one for one in said if not isinstance(one, PartitionTransform)]
    if wrong:
        raise ConfigurationError(
            f"partition_by is a list of PartitionTransform; {wrong[0]!r} is a {type(wrong[0]).__name__}: write "
            f"[PartitionTransform(source_column='at', transform_type='day')]"
        )


def check_moment(said: object) -> None:
    if said is not None and not isinstance(said, datetime):
        raise ConfigurationError(
            f"as_of is a {type(said).__name__}; it must be a datetime with a time zone, such as "
            f"datetime(2026, 1, 31, tzinfo=timezone.utc)"
        )


def check_limit(said: object) -> None:
    if said is None:
        return
    if not isinstance(said, int) or isinstance(said, bool):
        raise ConfigurationError(f"limit is a {type(said).__name__}; it must be a whole number")
    if said < 0:
        raise ConfigurationError(f"limit is {said}; it cannot be negative")


def check_snapshot_id(said: object, argument: str) -> None:
    if said is not None and (not isinstance(said, int) or isinstance(said, bool)):
        raise ConfigurationError(f"{argument} is a {type(said).__name__}; it must be the number of a snapshot")
