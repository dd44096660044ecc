"""Checks of arguments before a table is loaded: errors name the argument and what it must be."""

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


def choice(kind: type[_Choice], given: object, argument: str) -> _Choice:
    """A member of an enumeration, given as itself or by its value."""
    try:
        return kind(given)
    except ValueError:
        valid = ", ".join(str(member.value) for member in kind)
        raise ConfigurationError(f"{argument} is {given!r}; it must be one of {valid}") from None


def names_of(given: Sequence[str], argument: str) -> tuple[str, ...]:
    """Column names; a string is one name, not a sequence of letters."""
    names = (given,) if isinstance(given, str) else tuple(given)
    wrong = [name for name in names if not isinstance(name, str)]
    if wrong:
        raise ConfigurationError(f"{argument} are names of columns; {wrong[0]!r} is a {type(wrong[0]).__name__}")
    return names


def property_texts(properties: Mapping[str, object], argument: str) -> dict[str, str]:
    """Properties as Iceberg stores them; numbers and booleans become strings."""
    texts = {}
    for key, value in properties.items():
        if not isinstance(key, str) or not key or not isinstance(value, str | int | float):
            raise ConfigurationError(f"{argument}: a property is a name and a text; {key!r}: {value!r} is not")
        texts[key] = str(value).lower() if isinstance(value, bool) else str(value)
    return texts


def identifier_of(name: TableName) -> TableIdentifier:
    """The identifier of a table, given as itself, as a string such as `bronze.orders`, or as a table of PyIceberg."""
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
    """A namespace, given as itself or as a string such as `bronze.raw`."""
    if isinstance(name, Namespace):
        return name
    if isinstance(name, str):
        return Namespace.from_string(name)
    raise ConfigurationError(
        f"namespace is a {type(name).__name__}; write 'bronze.raw', or Namespace.from_string('bronze.raw')"
    )


def check_slice(given: object) -> None:
    if given is not None and not isinstance(given, TableSlice):
        raise ConfigurationError(
            f"slice is a {type(given).__name__}; write TableSlice.of_windows('at', [(start, end)]), or pass a string "
            f"as overwrite_filter"
        )


def check_transforms(given: Sequence[PartitionTransform]) -> None:
    wrong = [item for item in given if not isinstance(item, PartitionTransform)]
    if wrong:
        raise ConfigurationError(
            f"partition_by is a list of PartitionTransform; {wrong[0]!r} is a {type(wrong[0]).__name__}: write "
            f"[PartitionTransform(source_column='at', transform_type='day')]"
        )


def check_moment(given: object) -> None:
    if given is not None and not isinstance(given, datetime):
        raise ConfigurationError(
            f"as_of is a {type(given).__name__}; it must be a datetime with a time zone, such as "
            f"datetime(2026, 1, 31, tzinfo=timezone.utc)"
        )


def check_limit(given: object) -> None:
    if given is None:
        return
    if not isinstance(given, int) or isinstance(given, bool):
        raise ConfigurationError(f"limit is a {type(given).__name__}; it must be a whole number")
    if given < 0:
        raise ConfigurationError(f"limit is {given}; it cannot be negative")


def check_snapshot_id(given: object, argument: str) -> None:
    if given is not None and (not isinstance(given, int) or isinstance(given, bool)):
        raise ConfigurationError(f"{argument} is a {type(given).__name__}; it must be a snapshot id")
