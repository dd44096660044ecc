"""PyIceberg's exceptions in Floe's words: one table, by type, the cause kept."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from pyiceberg import exceptions as iceberg
from sqlalchemy.exc import DatabaseError

from floe_core import errors as floe
from floe_core.models import StorageErrorDetail
from floe_core.redaction import redact

__all__ = ["translated"]

# (type, Floe's error, message; {name} is the table or namespace at hand)
_TABLE: tuple[tuple[type[Exception], type[floe.FloeStorageError], str], ...] = (
    (
        iceberg.NoSuchTableError,
        floe.TableNotFoundError,
        "Table '{name}' not found in catalog. Check the name, or materialize it first with: floe run",
    ),
    (
        iceberg.TableAlreadyExistsError,
        floe.TableAlreadyExistsError,
        "table '{name}' exists already; load it, or choose another name",
    ),
    (
        iceberg.NoSuchNamespaceError,
        floe.NamespaceNotFoundError,
        "namespace '{name}' not found in catalog; create it, or check the name",
    ),
    (
        iceberg.NamespaceAlreadyExistsError,
        floe.NamespaceAlreadyExistsError,
        "namespace '{name}' exists already; use it, or choose another name",
    ),
    (
        iceberg.NamespaceNotEmptyError,
        floe.NamespaceNotEmptyError,
        "namespace '{name}' is not empty; drop what is in it first",
    ),
    (
        iceberg.CommitStateUnknownException,
        floe.CommitStateUnknownError,
        "the commit to '{name}' may have succeeded; look at its snapshots before trying again",
    ),
    (
        iceberg.CommitFailedException,
        floe.ConcurrencyConflictError,
        "somebody else changed '{name}' meanwhile; nothing was written: run it again",
    ),
    (
        FileNotFoundError,
        floe.FloeStorageError,
        "files of '{name}' are not where the catalog says; if the lake was moved or copied, see: floe doctor",
    ),
    *(
        (
            kind,
            floe.CatalogConnectionError,
            "the catalog database did not answer while working on '{name}'; is it a readable, writable SQLite file?",
        )
        for kind in (DatabaseError, sqlite3.Error)
    ),
)


@contextmanager
def translated(operation: str, name: object, *, namespace: bool = False) -> Iterator[None]:
    """Raise Floe's error from PyIceberg's; `name` is the table, or the namespace if `namespace`."""
    try:
        yield
    except Exception as exc:
        for kind, error, message in _TABLE:
            if isinstance(exc, kind):
                detail = StorageErrorDetail(
                    error_type=type(exc).__name__,
                    operation=operation,
                    table=None if namespace else str(name),
                    namespace=str(name) if namespace else None,
                    message=redact(str(exc)),
                    retryable=error in (floe.ConcurrencyConflictError, floe.CatalogConnectionError),
                )
                raise error(message.format(name=name), detail=detail) from exc
        raise
