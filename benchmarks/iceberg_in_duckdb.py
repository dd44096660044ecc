"""Queries by DuckDB's own Iceberg reader, in an environment of its own.

python -m benchmarks.iceberg_in_duckdb [query SQL]     with no order, they come line by line
"""

from __future__ import annotations

import sys
import time
from functools import cache
from typing import Any

import duckdb

from benchmarks.worker import serve


@cache
def _connection() -> Any:
    from duckdb_extensions import import_extension  # type: ignore[import-not-found]  # of that environment

    connection = duckdb.connect()
    for name in ("avro", "iceberg"):  # the latter would download the former
        import_extension(name, con=connection)
    connection.execute("LOAD iceberg")
    return connection


def query(text: str) -> list[Any]:
    """The seconds it took, and the rows."""
    connection = _connection()
    started = time.perf_counter()
    rows = connection.execute(text).fetchall()
    return [time.perf_counter() - started, len(rows), str(rows[:1])]


if __name__ == "__main__":
    serve({"query": query}, sys.argv[1:])
