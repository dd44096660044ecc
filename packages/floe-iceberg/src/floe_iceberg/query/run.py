"""A query on the tables of a lake, executed by DuckDB or by the compute plugin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

from floe_core.errors import ConfigurationError, IncompatibleLibraryError, QueryError, QueryRefusedError
from floe_core.plugins import ComputePlugin
from floe_iceberg.manager import IcebergTableManager
from floe_iceberg.query.result import QueryResult
from floe_iceberg.query.session import Sessions

if TYPE_CHECKING:
    from floe_iceberg.query.tables import FoundTable
    from floe_iceberg.snapshots import LakeBranch

__all__ = ["ENGINES", "require_parser", "run", "tables_read_now"]

ENGINES = ("duckdb", "spark")


class _Lake(Protocol):
    @property
    def tables(self) -> IcebergTableManager: ...

    @property
    def compute(self) -> ComputePlugin: ...


def run(lake: _Lake, text: str, *, engine: str, sessions: Sessions) -> QueryResult:
    """Start a query; its rows are computed while the result is read.

    Args:
        lake: The lake.
        text: The query, in the SQL of the engine.
        engine: `duckdb`, or `spark` for the compute plugin.
        sessions: The sessions of DuckDB that earlier queries of the lake have left.
    """
    if engine not in ENGINES:
        raise ConfigurationError(f"engine is {engine!r}; it must be {' or '.join(ENGINES)}")
    if not isinstance(text, str):
        raise ConfigurationError(f"the query is a {type(text).__name__}; it must be text")
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        raise QueryError(f"character {exc.start + 1} of the query is not valid text") from None
    require_parser()
    if engine == "spark":
        return _in_compute_plugin(lake, text)
    from floe_iceberg.query.duckdb_engine import run_in_duckdb
    from floe_iceberg.query.parsing import parse

    return run_in_duckdb(lake.tables, parse(text, "duckdb"), sessions)


def require_parser() -> None:
    """Refuse SQL if its parser is not installed."""
    try:
        import sqlglot  # noqa: F401 - large, and needed for queries only
    except ModuleNotFoundError as exc:
        raise IncompatibleLibraryError(
            "SQL needs sqlglot, which is not installed: pip install 'floe-iceberg[sql]'", name="sqlglot"
        ) from exc


def tables_read_now(text: str, *, engine: Literal["duckdb", "spark"]) -> list[str]:
    """The names of the tables that a query reads as they are now, without time travel.

    Args:
        text: The query.
        engine: `duckdb` or `spark`.
    """
    from floe_iceberg.query.parsing import parse

    return [use.name for use in parse(text, engine).tables if use.travel is None]


def _in_compute_plugin(lake: _Lake, text: str) -> QueryResult:
    """The query with the snapshot that Floe found in the place of each time travel."""
    from floe_iceberg.query.parsing import parse
    from floe_iceberg.query.tables import find_tables
    from floe_iceberg.query.text import Replacement, offset_of, problem, rewrite

    query = parse(text, "spark")
    found = find_tables(lake.tables, query, metadata_tables=True)
    places = [
        Replacement(use.travel.start, use.travel.end, f"VERSION AS OF {table.snapshot_id}")
        for use, table in zip(query.tables, found, strict=True)
        if use.travel is not None
    ]
    if lake.tables.at_branch is not None:  # Spark knows nothing of branches of the lake
        places += [
            Replacement(use.end, use.end, _version(table, lake.tables.at_branch))
            for use, table in zip(query.tables, found, strict=True)
            if use.travel is None
        ]
    rewritten = rewrite(query.plain, sorted(places, key=lambda place: place.start))
    tables = [(table.identifier, table.table, table.read_snapshot_id) for table in found]
    try:
        result: QueryResult = lake.compute.query(rewritten.text, tables)
    except QueryError as exc:
        if exc.line is None or exc.column is None:
            raise
        place = rewritten.original(offset_of(rewritten.text, exc.line, exc.column))
        raise problem(text, place, str(exc)) from exc
    return result


def _version(table: FoundTable, branch: LakeBranch) -> str:
    """The version of a table that a branch of the lake shows, in the SQL of Spark."""
    head = table.table.current_snapshot()
    if head is not None and head.schema_id == table.table.metadata.current_schema_id:
        return f" VERSION AS OF {head.snapshot_id}"
    if head is not None:  # written before the table gained columns, which a version by its id does not have
        return f" VERSION AS OF '{branch.name}'"
    if table.table.metadata.snapshots:
        raise QueryRefusedError(
            f"'{table.identifier}' had no rows when branch {branch.name!r} was pinned, and has some on main now, which "
            f"is what Spark would read; query it with engine duckdb, or let the branch read main as it is now: floe "
            f"branches update {branch.name}"
        )
    return ""
