"""A PostgreSQL database under the `sql` catalog: PyIceberg opens it with pg8000, Spark with its JDBC driver."""

from __future__ import annotations

import os
import socket
import ssl
import weakref
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import quote

import pg8000  # type: ignore[import-untyped]  # it ships no types
from pyiceberg.exceptions import CommitFailedException
from sqlalchemy import URL, Engine, create_engine, event
from sqlalchemy.engine import ExceptionContext

from floe_core.config import PostgresAddress
from floe_core.errors import ConfigurationError
from floe_core.jvm import POSTGRESQL_JDBC
from floe_iceberg.catalogs.database_retry import NotConnectedError
from floe_iceberg.errors import sql_state

__all__ = ["ANSWER_SECONDS", "CONNECT_SECONDS", "PostgresDatabase"]

# How long both engines wait for a connection, and for the response to a statement.
CONNECT_SECONDS = 10
ANSWER_SECONDS = 30

# The server rolled the whole transaction back: serialization failure and deadlock.
_ROLLED_BACK = ("40001", "40P01")
# The server is shutting down, or closed this connection: Iceberg reconnects only for the codes it is configured with.
_ENDED = ("57P01", "57P02", "57P03", "57P05")


@dataclass(frozen=True)
class PostgresDatabase:
    """The database, which both engines open by its address."""

    address: PostgresAddress
    jdbc_jar: ClassVar[str] = POSTGRESQL_JDBC

    def __str__(self) -> str:
        return str(self.address)

    def open(self) -> Engine:
        address = self.address
        if address.sslrootcert is not None and not address.sslrootcert.is_file():
            raise ConfigurationError(
                f"catalog.uri: sslrootcert: there is no file {address.sslrootcert}; check the path"
            )
        # The URL has neither user nor password: SQLAlchemy prints it.
        url = URL.create("postgresql+pg8000", host=address.host, port=address.port, database=address.database)
        engine = create_engine(
            url,
            creator=lambda: _connected(address),
            pool_pre_ping=True,  # a server may have closed an idle connection, or have been restarted
            isolation_level="READ COMMITTED",  # an UPDATE that lost a race finds no row instead of failing
        )
        event.listen(engine, "handle_error", _explain, retval=True)
        _engines.add(engine)
        return engine

    def jdbc_settings(self) -> dict[str, str]:
        address = self.address
        settings = {
            "uri": f"jdbc:postgresql://{address.authority}/{quote(address.database, safe='')}",
            "jdbc.user": address.user,
            "jdbc.sslmode": address.sslmode,
            "jdbc.connectTimeout": str(CONNECT_SECONDS),
            "jdbc.socketTimeout": str(ANSWER_SECONDS),
            "jdbc.tcpKeepAlive": "true",
            "retryable_status_codes": ",".join(_ENDED),
        }
        if address.password is not None:
            settings["jdbc.password"] = address.password
        if address.sslrootcert is not None:
            settings["jdbc.sslrootcert"] = str(address.sslrootcert)
        return settings


class _NoConnectionError(pg8000.InterfaceError, NotConnectedError):  # type: ignore[misc]  # it ships no types
    """No connection was established."""


class _Connection(pg8000.Connection):  # type: ignore[misc]  # it ships no types
    """pg8000's connection, with an InterfaceError for resets and timeouts: no pool handles the OSError it raises."""

    def handle_messages(self, context: Any) -> None:
        try:
            super().handle_messages(context)
        except OSError as exc:
            raise pg8000.InterfaceError(f"network error: {exc}") from exc

    def close(self) -> None:
        with suppress(pg8000.InterfaceError, OSError):  # the server may have closed it first
            super().close()


def _connected(address: PostgresAddress) -> _Connection:
    try:
        opened = socket.create_connection((address.host, address.port), CONNECT_SECONDS)
        try:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            opened.settimeout(ANSWER_SECONDS)
            return _Connection(
                user=address.user,
                password=address.password,
                host=address.host,
                database=address.database,
                sock=opened,
                ssl_context=_encryption(address),
            )
        except BaseException:
            opened.close()
            raise
    except (OSError, pg8000.InterfaceError) as exc:
        if str(exc) == "Server refuses SSL":
            raise ConfigurationError(
                f"the PostgreSQL server at {address.authority} accepts no encrypted connections (Server refuses SSL), "
                f"and sslmode is {address.sslmode}. Enable TLS on the server, or append ?sslmode=disable to "
                f"catalog.uri if the network is trusted"
            ) from exc
        if isinstance(exc, pg8000.InterfaceError) and "network error" not in str(exc):
            raise  # not transient, such as a server without encryption
        raise _NoConnectionError(f"no connection to {address.authority}: {exc}") from exc


def _encryption(address: PostgresAddress) -> ssl.SSLContext | bool | None:
    """pg8000's `ssl_context`: None tries TLS, True requires it, False does without."""
    if address.sslrootcert is None:
        return {"disable": False, "prefer": None, "require": True}[address.sslmode]
    context = ssl.create_default_context(cafile=str(address.sslrootcert))
    context.check_hostname = address.sslmode == "verify-full"
    return context


def _explain(context: ExceptionContext) -> Exception | None:
    """PyIceberg's exception for a transaction that was rolled back; pg8000 has no class for that."""
    state = sql_state(context.original_exception)
    if state not in _ROLLED_BACK:
        return None
    return CommitFailedException(f"the database rolled the transaction back: {state}")


# A forked process must not share the connections of its parent: it opens its own.
_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


def _forget_connections() -> None:
    for engine in list(_engines):
        engine.dispose(close=False)


os.register_at_fork(after_in_child=_forget_connections)
