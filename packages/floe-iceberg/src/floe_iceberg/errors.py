"""Translates exceptions of PyIceberg, Arrow and the operating system to Floe's: one table, by type, the cause kept."""

from __future__ import annotations

import errno
import re
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pyiceberg import exceptions as iceberg
from sqlalchemy.exc import DBAPIError

from floe_core import errors as floe
from floe_core.models import StorageErrorDetail
from floe_core.security import redact

__all__ = ["complete_detail", "is_full", "replaced", "sql_state", "translated"]

# (Floe's error, message; {name} is the table or namespace, {reason} the text of the original exception)
_Meaning = tuple[type[floe.FloeStorageError], str]

_REPLACED: _Meaning = (
    floe.ConcurrencyConflictError,
    "another process replaced '{name}' by another table; nothing was written: check the new table, then run it again",
)

_NO_ANSWER: _Meaning = (
    floe.CatalogConnectionError,
    "the catalog did not answer about '{name}'; check that it runs, and whether your change was applied, then retry",
)

_FULL: _Meaning = (
    floe.FloeStorageError,
    "no space left where the files of '{name}' are written; free some, then run it again. Nothing was committed",
)

_NOT_ALLOWED: _Meaning = (
    floe.StorageAuthenticationError,
    "this user has no permission to read or write the files of '{name}': {reason}. Nothing was committed",
)

_STORE_REFUSED: _Meaning = (
    floe.StorageAuthenticationError,
    (
        "the catalog agreed and the object store did not (files of '{name}'): {reason}. Nothing was committed. Check "
        "the keys in storage, or the permissions of the catalog's own role on its store"
    ),
)
_STORE_REFUSED_WRITE: _Meaning = (
    floe.StorageAuthenticationError,
    (
        "the catalog agreed and the object store did not let '{name}' be written: {reason}. Nothing was committed. "
        "Where the catalog vends the keys, grant its principal TABLE_WRITE_DATA: with TABLE_READ_DATA alone they can "
        "only read. Otherwise check the keys in storage, or the permissions of the catalog's own role on its store"
    ),
)
_STORE_FAILED: _Meaning = (
    floe.FloeStorageError,
    (
        "the object store failed a request for the files of '{name}': {reason}. Nothing was committed. Check "
        "storage.endpoint and storage.bucket in floe.yaml, and that the store runs"
    ),
)
# Arrow's texts for an object store that refused access.
_STORE_DENIED = re.compile(
    r"(?i)AWS Error (ACCESS_DENIED|EXPIRED_TOKEN|INVALID_ACCESS_KEY_ID|SIGNATURE_DOES_NOT_MATCH|INVALID_SIGNATURE"
    r"|INVALID_CLIENT_TOKEN_ID|UNRECOGNIZED_CLIENT|MISSING_AUTHENTICATION_TOKEN|REQUEST_EXPIRED|REQUEST_TIME_TOO_SKEWED)"
    r"|ExpiredToken|InvalidAccessKeyId|InvalidToken|AWS Error [A-Z_]+ .*HTTP status 403"
)

_STORE_WRITES = re.compile(
    r"ACCESS_DENIED during (Create|Complete)?(MultipartUpload|PutObject|UploadPart|CopyObject|DeleteObjects?)\b"
)

# Errors of the operating system, raised directly or passed on by Arrow.
_BY_ERRNO: dict[int, _Meaning] = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EROFS: (
        floe.FloeStorageError,
        "the files of '{name}' are on a read-only file system; choose another location. Nothing was committed",
    ),
    errno.ENAMETOOLONG: (
        floe.FloeStorageError,
        "a partition of '{name}' makes too long a file name; use truncate or bucket. Nothing was committed",
    ),
    errno.EACCES: _NOT_ALLOWED,
    errno.EPERM: _NOT_ALLOWED,
}

_NO_DATABASE: _Meaning = (
    floe.CatalogConnectionError,
    (
        "the catalog database did not answer while working on '{name}': {reason}. Check that it runs, and check "
        "catalog.uri; if you made a change, check whether it was applied before you repeat it"
    ),
)

_DAMAGED: _Meaning = (
    floe.CatalogConnectionError,
    (
        "the SQLite file of the catalog is damaged (at '{name}'): {reason}. The files of the tables are separate from "
        "it and still there. Move the damaged file aside, together with its -wal and -shm files, and keep them. Then "
        "replace it by a backup, or by what can be recovered (sqlite3 DAMAGED .recover | sqlite3 NEW), or register the "
        "tables again from their metadata files: 'A damaged catalog' in the guide to tables shows how"
    ),
)
_DAMAGE = re.compile(r"file is not a database|malformed|disk image")
_DATABASE_FULL: _Meaning = (
    floe.FloeStorageError,
    (
        "no space left on the disk with the catalog database, working on '{name}' ({reason}). Nothing was committed: "
        "free some space, then run it again"
    ),
)
_DATABASE_READ_ONLY: _Meaning = (
    floe.FloeStorageError,
    (
        "the catalog database cannot be written, working on '{name}' ({reason}): the file, its folder or its disk is "
        "read-only for this user. Nothing was changed: make it writable, or set catalog.uri in floe.yaml to a "
        "writable location"
    ),
)
_DATABASE_DISK: _Meaning = (
    floe.FloeStorageError,
    (
        "the disk with the catalog database failed, working on '{name}' ({reason}): it has no space left, or is "
        "broken. Nothing was committed: free some space, then run it again"
    ),
)
_DATABASE_LOCKED: _Meaning = (
    floe.CatalogConnectionError,
    (
        "another process has locked the catalog database, working on '{name}' ({reason}). Nothing was committed: wait "
        "until it is done, or end it, then run it again"
    ),
)
# SQLite's errors, by their text: before Python 3.11 they carry no code.
_SQLITE: tuple[tuple[str, _Meaning], ...] = (
    ("disk is full", _DATABASE_FULL),
    ("disk I/O error", _DATABASE_DISK),
    ("readonly database", _DATABASE_READ_ONLY),
    ("unable to open database file", _DATABASE_READ_ONLY),
    ("is locked", _DATABASE_LOCKED),
)

# PostgreSQL's errors, by SQLSTATE or its class (the first two characters).
_BY_SQL_STATE: dict[str, _Meaning] = {
    "28": (
        floe.CatalogAuthenticationError,
        "the catalog database refused the user or the password (at '{name}'): {reason}. Check catalog.uri in floe.yaml",
    ),
    "3D": (
        floe.CatalogConnectionError,
        "the catalog database does not exist (at '{name}'): {reason}. Create it, or correct catalog.uri in floe.yaml",
    ),
    "42501": (
        floe.PermissionDeniedError,
        "the database user has no permission for this operation on '{name}': {reason}. Ask for that privilege",
    ),
}

# The first match wins: CommitStateUnknownException is a RESTError.
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
        "the commit to '{name}' may have succeeded; check its snapshots before you retry",
    ),
    (
        iceberg.CommitFailedException,
        floe.ConcurrencyConflictError,
        "another writer changed '{name}' during this write; nothing was written: run it again",
    ),
    (
        iceberg.ValidationException,
        floe.ConcurrencyConflictError,
        "another writer changed the same rows of '{name}' during this write; nothing was written: run it again",
    ),
    *(
        (
            kind,
            floe.CatalogAuthenticationError,
            "the catalog refused the credentials (at '{name}'); check catalog.credentials in floe.yaml",
        )
        for kind in (iceberg.UnauthorizedError, iceberg.AuthorizationExpiredError, iceberg.OAuthError)
    ),
    (
        iceberg.ForbiddenError,
        floe.PermissionDeniedError,
        "the catalog accepted your credentials and denied this operation on '{name}': {reason}. Ask for that privilege",
    ),
    *(
        (kind, *_NO_ANSWER)
        for kind in (
            iceberg.ServiceUnavailableError,
            iceberg.TooManyRequestsError,
            iceberg.ServerError,
        )
    ),
    (
        iceberg.RESTError,
        floe.FloeStorageError,
        "the catalog refused a request about '{name}': {reason}",
    ),
    (
        FileNotFoundError,
        floe.FloeStorageError,
        (
            "files of '{name}' are not where the catalog expects them; if the folder of the lake was moved or copied, "
            "rewrite its paths with floe move, which shows them first; otherwise see: floe doctor"
        ),
    ),
    (
        sqlite3.Error,
        floe.CatalogConnectionError,
        "the catalog database did not answer while working on '{name}'; is it a readable, writable SQLite file?",
    ),
)


def replaced(name: object) -> floe.ConcurrencyConflictError:
    return floe.ConcurrencyConflictError(_REPLACED[1].format(name=name))


@contextmanager
def translated(operation: str, name: object, *, namespace: bool = False) -> Iterator[None]:
    """Raise Floe's error from the library's; `name` is the table, or the namespace if `namespace`."""
    try:
        yield
    except floe.DamagedFileError as exc:
        if namespace or exc.detail is not None:
            raise
        raise _of_table(exc, operation, name) from exc
    except floe.FloeStorageError as exc:
        complete_detail(exc, operation, name, namespace=namespace)
        raise
    except floe.FloeError:
        raise
    except Exception as exc:
        meaning = _meaning(exc)
        if meaning is None:
            raise
        error, message = meaning
        reason = redact(_reason(exc))
        detail = StorageErrorDetail(
            error_type=type(exc).__name__,
            operation=operation,
            table=None if namespace else str(name),
            namespace=str(name) if namespace else None,
            message=reason,
            retryable=error in (floe.ConcurrencyConflictError, floe.CatalogConnectionError),
        )
        raise error(message.format(name=name, reason=reason), detail=detail) from exc


def complete_detail(exc: floe.FloeStorageError, operation: str, name: object, *, namespace: bool = False) -> None:
    """Add the table or namespace to the detail of an error that was raised without it."""
    detail = exc.detail or StorageErrorDetail(
        error_type=type(exc).__name__,
        operation=operation,
        message=redact(str(exc)),
        retryable=isinstance(exc, (floe.ConcurrencyConflictError, floe.CatalogConnectionError)),
    )
    if detail.table is None and detail.namespace is None:
        detail = detail.model_copy(update={"namespace" if namespace else "table": str(name)})
    exc.detail = detail


def _of_table(exc: floe.DamagedFileError, operation: str, name: object) -> floe.DamagedFileError:
    """The same error with the table that the file belongs to."""
    message = redact(str(exc))
    detail = StorageErrorDetail(
        error_type=type(exc).__name__, operation=operation, table=str(name), message=message, retryable=False
    )
    return floe.DamagedFileError(f"table '{name}': {message}", file=exc.file, detail=detail)


def is_full(exc: BaseException | None) -> bool:
    """Is a full disk the error, or a cause of it?"""
    while exc is not None:
        if isinstance(exc, OSError) and _errno(exc) in (errno.ENOSPC, errno.EDQUOT):
            return True
        if _sqlite_meaning(_raised(exc)) in (_DATABASE_FULL, _DATABASE_DISK):
            return True
        exc = exc.__cause__
    return False


def sql_state(exc: BaseException | None) -> str:
    """The SQLSTATE of a PostgreSQL error, as pg8000 reports it; empty if there is none."""
    return _postgres_fields(exc).get("C", "")


def _postgres_fields(exc: BaseException | None) -> dict[str, str]:
    """The fields of PostgreSQL's error response."""
    arguments = _raised(exc).args[:1] if exc is not None else ()
    return arguments[0] if arguments and isinstance(arguments[0], dict) else {}


def _raised(exc: BaseException) -> BaseException:
    """The driver's exception, without SQLAlchemy's wrapper."""
    return exc.orig if isinstance(exc, DBAPIError) and exc.orig is not None else exc


def _reason(exc: Exception) -> str:
    return _postgres_fields(exc).get("M") or str(_raised(exc))


def _meaning(exc: Exception) -> _Meaning | None:
    raised = _raised(exc)
    if isinstance(raised, sqlite3.DatabaseError) and _DAMAGE.search(str(raised)):
        return _DAMAGED
    sqlite_meaning = _sqlite_meaning(raised)
    if sqlite_meaning is not None:
        return sqlite_meaning
    if _is_lost_connection(raised):
        return _NO_ANSWER
    for kind, error, message in _TABLE:
        if isinstance(raised, kind):
            return error, message
    if isinstance(exc, DBAPIError):
        state = sql_state(exc)
        return _BY_SQL_STATE.get(state) or _BY_SQL_STATE.get(state[:2]) or _NO_DATABASE
    if isinstance(exc, OSError) and _STORE_DENIED.search(str(exc)):
        return _STORE_REFUSED_WRITE if _STORE_WRITES.search(str(exc)) else _STORE_REFUSED
    if isinstance(exc, OSError):
        local = _BY_ERRNO.get(_errno(exc) or 0) or (_NOT_ALLOWED if isinstance(exc, PermissionError) else None)
        return local or (_STORE_FAILED if "AWS Error" in str(exc) else None)
    # PyIceberg raises a bare ValueError when a reloaded table has another UUID.
    if isinstance(exc, ValueError) and str(exc).startswith("Table UUID does not match"):
        return _REPLACED
    return None


def _is_lost_connection(raised: BaseException) -> bool:
    """Is it an error of requests, which only catalog servers need: if it was not imported, it raised nothing."""
    requests = sys.modules.get("requests")
    return requests is not None and isinstance(
        raised, requests.ConnectionError | requests.Timeout | requests.exceptions.ChunkedEncodingError
    )


def _sqlite_meaning(raised: BaseException) -> _Meaning | None:
    if not isinstance(raised, sqlite3.Error):
        return None
    return next((meaning for text, meaning in _SQLITE if text in str(raised)), None)


def _errno(exc: OSError) -> int | None:
    """The errno of a system error; Arrow and fsspec sometimes leave it in the text only."""
    if exc.errno is not None:
        return exc.errno
    match = re.search(r"\[errno (\d+)\]", str(exc), re.IGNORECASE)
    return int(match.group(1)) if match else None
