"""What differs between a session in this process and one on a Spark Connect server."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

from floe_core.errors import ConfigurationError

__all__ = ["forget_sessions", "is_remote", "session_with"]

# Unused sessions, by the session they were created from. Each has its own catalog, with its connections.
_FREE: WeakKeyDictionary[SparkSession, list[SparkSession]] = WeakKeyDictionary()
_LOCK = threading.Lock()


def is_remote(spark: SparkSession) -> bool:
    """Whether the session is on a Spark Connect server; it has no JVM in this process then."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


@contextmanager
def session_with(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """A second session with these additional settings, for exclusive use.

    It shares the tables and the global temporary views. The settings affect no other write, not even one of another
    thread; a session is reused only after they are unset.
    """
    with _LOCK:
        free = _FREE.setdefault(spark, [])
        other = free.pop() if free else None
    other = other if other is not None else _second_session(spark)
    _align(spark, other)
    for key, value in settings.items():
        other.conf.set(key, value)
    try:
        yield other
    finally:
        # If this fails, the session is discarded with its settings.
        for key in settings:
            other.conf.unset(key)
    with _LOCK:
        free.append(other)


def forget_sessions(spark: SparkSession) -> None:
    """Discard the unused sessions, which are connected with the earlier settings of the catalog."""
    with _LOCK:
        _FREE.pop(spark, None)


def _second_session(spark: SparkSession) -> SparkSession:
    if not is_remote(spark):
        return spark.newSession()
    clone = getattr(spark, "cloneSession", None)
    if clone is None:
        raise ConfigurationError(
            "upserts over Spark Connect need Spark 4.1 or newer, which can clone a session; update pyspark and the "
            "server, or run without spark.remote. Nothing was written"
        )
    session: SparkSession = clone()
    return session


def _align(spark: SparkSession, other: SparkSession) -> None:
    """Copy settings that changed since, such as the number of shuffle partitions."""
    theirs = _settings(other)
    for key, value in _settings(spark).items():
        # Spark reports settings of a catalog as not modifiable, because it does not know them before their use.
        of_catalog = key.startswith("spark.sql.catalog.")
        if theirs.get(key) != value and (of_catalog or other.conf.isModifiable(key)):
            other.conf.set(key, value)


def _settings(session: SparkSession) -> dict[str, str]:
    if hasattr(session.conf, "getAll"):
        return dict(session.conf.getAll)
    keys = [row.key for row in session.sql("SET").collect()]  # Spark 3.5; the values are masked there
    return {key: value for key in keys if (value := session.conf.get(key, None)) is not None}


@atexit.register
def _release() -> None:
    """Close connections: an open one keeps the interpreter from exiting."""
    for session in (session for free in _FREE.values() for session in free if is_remote(session)):
        client = getattr(session, "client")  # noqa: B009 - only sessions on a server have one
        with suppress(Exception):
            client.release_session()
        with suppress(Exception):
            client.close()
