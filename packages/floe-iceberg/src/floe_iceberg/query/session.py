"""DuckDB for one query: in memory, in UTC, without files, addresses, extensions or variables of Python."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any, TypeVar

from floe_core.errors import IncompatibleLibraryError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = ["Session", "quoted", "quoted_text"]

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


def quoted(name: str) -> str:
    """A name in SQL, whatever it holds."""
    return f'"{name.replace(chr(34), chr(34) * 2)}"'


def quoted_text(text: str) -> str:
    """A text in SQL."""
    return f"'{text.replace(chr(39), chr(39) * 2)}'"


class Session:
    """A connection of its own for one query; `lock` before the query runs."""

    def __init__(self) -> None:
        duckdb = _library()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="floe-sql")
        self._spill = tempfile.TemporaryDirectory(prefix="floe-sql-", ignore_cleanup_errors=True)
        settings: Mapping[str, Any] = {**_AT_START, "temp_directory": self._spill.name}
        self.connection: DuckDBPyConnection = duckdb.connect(":memory:", config=settings)
        for name, value in _MEANING.items():
            self.connection.execute(f"SET {name} = {value}")

    def allow_only(self, files: Iterable[str]) -> None:
        """From here on, only these files can be opened, and files of the folder for data that exceeds the memory."""
        listed = ", ".join(quoted_text(file) for file in files)
        self.connection.execute(f"SET allowed_paths = [{listed}]")
        self.connection.execute("SET enable_external_access = false")

    def keywords(self) -> set[str]:
        """The words that cannot be names of columns without quotes, in lower case."""
        words = "SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category IN ('reserved', 'type_function')"
        return {str(word) for (word,) in self.connection.execute(words).fetchall()}

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
        self._spill.cleanup()


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
