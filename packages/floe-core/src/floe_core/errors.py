"""Every error Floe raises.

FloeError
├── ConfigurationError                 fix floe.yaml
├── PluginError                        install or mend a plugin
├── UntrustedJarError                  a jar is not the one that Floe pins; it was not run
└── FloeStorageError
    ├── CatalogConnectionError         the catalog cannot be reached; retried
    ├── CatalogAuthenticationError     fix the catalog credentials; never retried
    ├── PermissionDeniedError          authenticated, but the role lacks a privilege
    ├── StorageAuthenticationError     the catalog let you in, the object store did not
    ├── NamespaceNotFoundError
    ├── NamespaceNotEmptyError
    ├── NamespaceAlreadyExistsError
    ├── TableNotFoundError
    ├── TableAlreadyExistsError
    ├── SchemaEvolutionError           lists the fields
    ├── PartitionMismatchError         rows outside the slice
    ├── DamagedFileError               restore the file that it names
    ├── ConcurrencyConflictError       somebody else changed the same rows
    └── CommitStateUnknownError        may have committed: inspect, do not retry blindly
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from floe_core.models import StorageErrorDetail

__all__ = [
    "CatalogAuthenticationError",
    "CatalogConnectionError",
    "CommitStateUnknownError",
    "ConcurrencyConflictError",
    "ConfigurationError",
    "DamagedFileError",
    "FloeError",
    "FloeStorageError",
    "NamespaceAlreadyExistsError",
    "NamespaceNotEmptyError",
    "NamespaceNotFoundError",
    "PartitionMismatchError",
    "PermissionDeniedError",
    "PluginError",
    "Problem",
    "SchemaEvolutionError",
    "StorageAuthenticationError",
    "TableAlreadyExistsError",
    "TableNotFoundError",
    "UntrustedJarError",
]


class FloeError(Exception):
    """Something Floe refuses or could not do; the message says what to do next."""


@dataclass(frozen=True)
class Problem:
    """One thing wrong with floe.yaml, and where."""

    message: str
    file: str = "floe.yaml"
    line: int | None = None
    path: str = ""

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.path}: {self.message}" if self.path else f"{place}: {self.message}"


class ConfigurationError(FloeError):
    """The configuration is wrong: fix floe.yaml, or the argument that the message names."""

    def __init__(self, message: str, *, problems: Sequence[Problem] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems)

    @classmethod
    def of(cls, problems: Sequence[Problem]) -> ConfigurationError:
        """All problems at once, one a line."""
        return cls("\n".join(str(problem) for problem in problems), problems=problems)


class PluginError(FloeError):
    """A plugin is missing, broken, ambiguous or made for another version of Floe."""


class UntrustedJarError(FloeError):
    """A jar differs from the one whose digest Floe pins; Spark was not started with it."""


class FloeStorageError(FloeError):
    """A catalog, a table or its files could not do what was asked."""

    def __init__(self, message: str, *, detail: StorageErrorDetail | None = None) -> None:
        super().__init__(message)
        self.detail = detail


class CatalogConnectionError(FloeStorageError):
    """The catalog cannot be reached."""


class CatalogAuthenticationError(FloeStorageError):
    """The catalog refused the credentials."""


class PermissionDeniedError(FloeStorageError):
    """Authenticated, but the role lacks a privilege."""


class StorageAuthenticationError(FloeStorageError):
    """The catalog agreed, the object store refused."""


class NamespaceNotFoundError(FloeStorageError):
    """No such namespace."""


class NamespaceNotEmptyError(FloeStorageError):
    """The namespace still holds tables or namespaces."""


class NamespaceAlreadyExistsError(FloeStorageError):
    """The namespace is there already."""


class TableNotFoundError(FloeStorageError):
    """No such table."""


class TableAlreadyExistsError(FloeStorageError):
    """The table is there already."""


class SchemaEvolutionError(FloeStorageError):
    """The data does not fit the table; the message names every field."""


class PartitionMismatchError(FloeStorageError):
    """Rows lie outside the slice being written; nothing was written."""


class DamagedFileError(FloeStorageError):
    """A file of a table cannot be parsed; the message names it and how to go on."""

    def __init__(self, message: str, *, file: str = "", detail: StorageErrorDetail | None = None) -> None:
        super().__init__(message, detail=detail)
        self.file = file


class ConcurrencyConflictError(FloeStorageError):
    """Somebody else changed the same rows meanwhile; nothing was written."""


class CommitStateUnknownError(FloeStorageError):
    """The commit may have succeeded. Inspect the table; do not retry blindly."""
