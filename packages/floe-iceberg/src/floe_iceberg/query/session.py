"""DuckDB for the queries on the same files: in memory, in UTC, without other files, addresses, extensions or variables
of Python.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor, wait
from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any, TypeVar

from floe_core.errors import IncompatibleLibraryError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = ["Session", "Sessions", "StoredFile", "quoted", "quoted_text"]

_T = TypeVar("_T")

_INSTALL = "pip install 'floe-iceberg[sql]'"
_MAJOR = "2"

_AT_START = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_persistent_secrets": "false",
    "python_enable_replacements": "false",
    # DuckDB's own limit is 80 % of the memory; Arrow data of the same query is beside it.
    "memory_limit": "50%",
}
# As Spark has them, so that one query means the same to both engines: UTC, NULL first in ascending order, and an error
# for a division by zero.
_MEANING = {
    "TimeZone": "'UTC'",
    "default_null_order": "'NULLS_FIRST_ON_ASC_LAST_ON_DESC'",
    "ieee_floating_point_ops": "false",
    "error_on_division_by_zero": "true",
    # Errors as data, with the place in the query.
    "errors_as_json": "true",
    # The columns of each file are inspected before it is read.
    "parquet_metadata_cache": "true",
}


# Of DuckDB's grammar, so the same in every session.
_keywords: set[str] = set()

# A file as it is stored: its path, its size, and the times of its last changes.
StoredFile = tuple[str, int, int, int]


def quoted(name: str) -> str:
    """A name in SQL, whatever it holds."""
    return f'"{name.replace(chr(34), chr(34) * 2)}"'


def quoted_text(text: str) -> str:
    """A text in SQL."""
    return f"'{text.replace(chr(39), chr(39) * 2)}'"


class Session:
    """A connection for one query at a time; `lock` before the first one runs.

    Attributes:
        files: The files that all its queries read, if it may be used again.
        columns: The columns that were found in files, by the paths of these.
    """

    def __init__(self) -> None:
        duckdb = _library()
        self.files: frozenset[StoredFile] | None = None
        self.columns: dict[tuple[str, ...], list[tuple[Any, ...]]] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="floe-sql")
        spill = tempfile.mkdtemp(prefix="floe-sql-")
        self._remove_spill = weakref.finalize(self, shutil.rmtree, spill, ignore_errors=True)
        settings: Mapping[str, Any] = {**_AT_START, "temp_directory": spill}
        self.connection: DuckDBPyConnection = duckdb.connect(":memory:", config=settings)
        for name, value in _MEANING.items():
            self.connection.execute(f"SET {name} = {value}")

    def allow_only(self, files: Iterable[str]) -> None:
        """From here on, only these files can be opened, and files of the folder for data that exceeds the memory."""
        listed = ", ".join(quoted_text(file) for file in files)
        self.connection.execute(f"SET allowed_paths = [{listed}]")
        self.connection.execute("SET enable_external_access = false")

    def keywords(self) -> AbstractSet[str]:
        """The words that cannot be names of columns without quotes, in lower case."""
        if not _keywords:
            words = "SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category IN ('reserved', 'type_function')"
            _keywords.update(str(word) for (word,) in self.connection.execute(words).fetchall())
        return _keywords

    def lock(self) -> None:
        """Let no later statement change a setting."""
        self.connection.execute("SET lock_configuration = true")

    def call(self, function: Callable[[], _T]) -> _T:
        """Call a function that waits for DuckDB, in another thread, so that Ctrl-C ends it."""
        future = self._thread.submit(function)
        try:
            return future.result()
        except KeyboardInterrupt:
            self.connection.interrupt()
            wait([future])
            raise

    def close(self) -> None:
        self.connection.interrupt()  # a query that is not read to its end would go on
        self._thread.shutdown(wait=True)
        self.connection.close()
        self._remove_spill()


class Sessions:
    """Sessions between two queries on exactly the same files: opening one takes longer than a small query.

    What a session may open is set once, so a query that reads other files gets a session of its own.
    """

    def __init__(self) -> None:
        # Changed by single operations only, which are atomic.
        self._idle: list[Session] = []
        self._closed = False
        _all.add(self)

    def take(self, files: frozenset[StoredFile]) -> Session | None:
        """A session that may open these files, and no others."""
        for session in tuple(self._idle):
            if session.files == files:
                try:
                    self._idle.remove(session)
                except ValueError:  # another thread has it
                    continue
                return session
        return None

    def give(self, session: Session) -> None:
        """Keep a session whose query has ended, in the place of the oldest one."""
        self._idle.append(session)
        self._close_idle(0 if self._closed else _KEPT)

    def close(self) -> None:
        self._closed = True
        self._close_idle(0)

    def _close_idle(self, kept: int = 0) -> None:
        while len(self._idle) > kept:
            try:
                session = self._idle.pop(0)
            except IndexError:  # another thread has it
                return
            session.close()


_KEPT = 2  # some 6 MB each
_all: weakref.WeakSet[Sessions] = weakref.WeakSet()


def _before_fork() -> None:
    """A forked process that ends as usual would crash: it has the memory of a session, but none of its threads."""
    for sessions in tuple(_all):
        sessions._close_idle()  # noqa: SLF001 - of this module


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(before=_before_fork)


def _library() -> Any:
    """DuckDB, if it is installed in a release whose settings are known."""
    try:
        duckdb = import_module("duckdb")
        version = metadata.version("duckdb")
    except (ModuleNotFoundError, metadata.PackageNotFoundError):
        raise IncompatibleLibraryError(
            f"SQL without Spark needs DuckDB {_MAJOR}, which is not installed: {_INSTALL} (on Python 3.11 or newer), "
            f"or use --engine spark",
            name="duckdb",
        ) from None
    if version.partition(".")[0] != _MAJOR:
        raise IncompatibleLibraryError(
            f"duckdb {version} is installed, and this Floe supports duckdb>={_MAJOR},<{int(_MAJOR) + 1}: {_INSTALL}, "
            f"or use --engine spark",
            name="duckdb",
        )
    return duckdb
