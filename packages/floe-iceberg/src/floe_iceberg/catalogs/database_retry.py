"""Which failures of a catalog database are transient, and a catalog that retries its calls by `catalog.retry`."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from sqlalchemy.exc import DBAPIError

from floe_core.retry import Retry
from floe_iceberg.catalogs.storage_catalog import StorageCatalog
from floe_iceberg.errors import sql_state

__all__ = ["NotConnectedError", "RetryingSqlCatalog", "is_away", "was_not_sent"]

Result = TypeVar("Result")

# The server accepts no connections now: it is starting, stopping, or at its connection limit.
_TAKES_NO_CONNECTION = ("57P03", "53300")
# The server closed the connection during a call.
_ENDED = ("57P01", "57P02", "57P05")


class NotConnectedError(Exception):
    """No connection was established, so nothing was sent. A base class for the exceptions of drivers."""


def is_away(exc: BaseException) -> bool:
    """Is the failure transient, so that a retry may succeed?"""
    if was_not_sent(exc):
        return True
    return isinstance(exc, DBAPIError) and (
        exc.connection_invalidated or sql_state(exc) in _ENDED or "network error" in str(exc.orig)
    )


def was_not_sent(exc: BaseException) -> bool:
    """Is it certain that the database did not execute the call?"""
    raised = exc.orig if isinstance(exc, DBAPIError) else exc
    locked = isinstance(raised, sqlite3.OperationalError) and "locked" in str(raised)
    return locked or isinstance(raised, NotConnectedError) or sql_state(exc) in _TAKES_NO_CONNECTION


def _retried(name: str, *, may_repeat: Callable[[BaseException], bool]) -> Any:
    method = getattr(StorageCatalog, name)

    @wraps(method)
    def call(self: RetryingSqlCatalog, *arguments: Any, **options: Any) -> Any:
        return self._call(lambda: method(self, *arguments, **options), may_repeat)

    return call


def _reading(name: str) -> Any:
    """A read-only method, which is always safe to retry."""
    return _retried(name, may_repeat=is_away)


def _writing(name: str) -> Any:
    """A method that is retried only if the database certainly did not execute it."""
    return _retried(name, may_repeat=was_not_sent)


class RetryingSqlCatalog(StorageCatalog):
    """A catalog whose calls go through retries and a circuit breaker; `connected_by` must be called first."""

    _retry: Retry
    _inside: threading.local

    def connected_by(self, retry: Retry) -> None:
        """Use this retry policy from now on."""
        self._retry, self._inside = retry, threading.local()

    def _call(self, act: Callable[[], Result], may_repeat: Callable[[BaseException], bool]) -> Result:
        if getattr(self._inside, "call", False):
            return self._call_nested(act, may_repeat)

        def attempt() -> Result:
            self._inside.call, self._inside.final = True, None
            try:
                return act()
            finally:
                self._inside.call = False

        def is_repeated(exc: BaseException) -> bool:
            return exc is not self._inside.final and may_repeat(exc)

        return self._retry.call(attempt, may_repeat=is_repeated)

    def _call_nested(self, act: Callable[[], Result], may_repeat: Callable[[BaseException], bool]) -> Result:
        """A call inside another call. Only this read is retried: the steps before it may have taken effect."""
        if may_repeat is not is_away:
            return act()
        try:
            return self._retry.call_unguarded(act)
        except Exception as exc:
            self._inside.final = exc
            raise

    list_namespaces = _reading("list_namespaces")
    list_tables = _reading("list_tables")
    load_namespace_properties = _reading("load_namespace_properties")
    load_table = _reading("load_table")
    load_tables = _reading("load_tables")
    namespace_exists = _reading("namespace_exists")
    table_exists = _reading("table_exists")

    # The caller resolves the outcome of a commit whose response was lost.
    commit_table = _writing("commit_table")
    commit_tables = _writing("commit_tables")
    create_namespace = _writing("create_namespace")
    create_table = _writing("create_table")
    drop_namespace = _writing("drop_namespace")
    drop_table = _writing("drop_table")
    drop_unchanged = _writing("drop_unchanged")
    register_table = _writing("register_table")
    rename_table = _writing("rename_table")
    update_namespace_properties = _writing("update_namespace_properties")
