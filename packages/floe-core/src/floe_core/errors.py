"""Every error Floe raises.

FloeError
├── ConfigurationError                 fix floe.yaml
├── PluginError                        install or repair a plugin
├── UntrustedJarError                  a jar differs from the one that Floe pins; it was not run
├── IncompatibleLibraryError           install a supported release; an ImportError too
├── QueryError                         fix the query
│   └── QueryRefusedError              it writes, or reads something else than tables: it was not run
├── CheckFailedError                   look at the rows that break the check
├── TimeLimitError                     allow more time, or make it faster
└── FloeStorageError
    ├── CatalogConnectionError         the catalog cannot be reached; retried
    ├── CatalogAuthenticationError     fix the catalog credentials; never retried
    ├── PermissionDeniedError          authenticated, but the role lacks a privilege
    ├── StorageAuthenticationError     the catalog granted access, the object store refused it
    ├── NamespaceNotFoundError
    ├── NamespaceNotEmptyError
    ├── NamespaceAlreadyExistsError
    ├── TableNotFoundError
    ├── TableAlreadyExistsError
    ├── SchemaEvolutionError           lists the fields
    ├── PartitionMismatchError         rows outside the slice
    ├── DamagedFileError               restore the file that it names
    ├── ConcurrencyConflictError       another writer changed the same rows
    └── CommitStateUnknownError        may have committed: inspect, do not retry blindly
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from floe_core.models import StorageErrorDetail

__all__ = [
    "CatalogAuthenticationError",
    "CatalogConnectionError",
    "CheckFailedError",
    "CommitStateUnknownError",
    "ConcurrencyConflictError",
    "ConfigurationError",
    "DamagedFileError",
    "FloeError",
    "FloeStorageError",
    "IncompatibleLibraryError",
    "NamespaceAlreadyExistsError",
    "NamespaceNotEmptyError",
    "NamespaceNotFoundError",
    "PartitionMismatchError",
    "PermissionDeniedError",
    "PluginError",
    "Problem",
    "QueryError",
    "QueryRefusedError",
    "SchemaEvolutionError",
    "StorageAuthenticationError",
    "TableAlreadyExistsError",
    "TableNotFoundError",
    "TimeLimitError",
    "UntrustedJarError",
]


class FloeError(Exception):
    """The base class of all errors that Floe raises; the message says what to do next.

    Example:
        >>> from pathlib import Path
        >>> from floe_core import FloeError, compile_project
        >>> _ = Path("floe.yaml").write_text("name: shop\\ncatlog: {}")
        >>> try:
        ...     compile_project(Path())
        ... except FloeError as exc:
        ...     print(exc)
        floe.yaml:2: catlog: ...
    """


@dataclass(frozen=True)
class Problem:
    """A problem in floe.yaml and its location."""

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
        """All problems at once, one per line."""
        return cls("\n".join(str(problem) for problem in problems), problems=problems)


class PluginError(FloeError):
    """A plugin is missing, broken, ambiguous or made for another version of Floe."""


class UntrustedJarError(FloeError):
    """A jar differs from the one whose digest Floe pins; Spark was not started with it."""


class IncompatibleLibraryError(FloeError, ImportError):
    """A library is not a release that Floe supports, or its code is not what Floe patches: install another release."""


class QueryError(FloeError):
    """A query in SQL is wrong; the message shows the place in it.

    Args:
        message: What is wrong, and what to write instead.
        line: The line in the query, from 1; None if the place is not known.
        column: The character in that line, from 1.
    """

    def __init__(self, message: str, *, line: int | None = None, column: int | None = None) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


class QueryRefusedError(QueryError):
    """A statement is not a query of tables: it writes, or reads files, addresses or settings. It was not run."""


class CheckFailedError(FloeError):
    """Rows break a check, so they were not published.

    Args:
        message: The checks that failed, and where the rows are.
        outcomes: What each check found.
    """

    def __init__(self, message: str, outcomes: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.outcomes = tuple(outcomes)


class TimeLimitError(FloeError):
    """A check took longer than it may, and was stopped."""


class FloeStorageError(FloeError):
    """An operation on a catalog, a table or its files was refused or failed.

    Args:
        message: What happened, and what to do next.
        detail: The same failure for the log, as data.

    Example:
        >>> from floe_core import FloeStorageError
        >>> try:
        ...     tables.load_table("bronze.orders")
        ... except FloeStorageError as exc:
        ...     print(type(exc).__name__, exc.detail.operation)
        TableNotFoundError load_table
    """

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
    """The catalog granted access, the object store refused it."""


class NamespaceNotFoundError(FloeStorageError):
    """No such namespace."""


class NamespaceNotEmptyError(FloeStorageError):
    """The namespace still holds tables or namespaces."""


class NamespaceAlreadyExistsError(FloeStorageError):
    """The namespace already exists."""


class TableNotFoundError(FloeStorageError):
    """No such table."""


class TableAlreadyExistsError(FloeStorageError):
    """The table already exists."""


class SchemaEvolutionError(FloeStorageError):
    """The data does not fit the table; the message names every field."""


class PartitionMismatchError(FloeStorageError):
    """Rows lie outside the slice being written; nothing was written."""


class DamagedFileError(FloeStorageError):
    """A file of a table cannot be parsed; the message names the file and the next step."""

    def __init__(self, message: str, *, file: str = "", detail: StorageErrorDetail | None = None) -> None:
        super().__init__(message, detail=detail)
        self.file = file


class ConcurrencyConflictError(FloeStorageError):
    """Another writer changed the same rows during this write; nothing was written."""


class CommitStateUnknownError(FloeStorageError):
    """The commit may have succeeded. Inspect the table; do not retry blindly."""
