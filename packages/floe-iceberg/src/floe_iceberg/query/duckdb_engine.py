"""A query executed by DuckDB, without a JVM: planned by Iceberg, read by DuckDB where it can, else as Arrow data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import DataScan, FileScanTask
from sqlglot import exp

from floe_core.errors import FloeError, QueryError
from floe_core.observability import Operation, begin
from floe_iceberg.errors import translated
from floe_iceberg.query.dataset import TableDataset
from floe_iceberg.query.failures import query_failure, reported
from floe_iceberg.query.parquet_files import FileGroup, local_path, readable, split
from floe_iceberg.query.parsing import ParsedQuery
from floe_iceberg.query.pushdown import either, row_filters
from floe_iceberg.query.result import QueryResult
from floe_iceberg.query.session import Session, Sessions, StoredFile, quoted
from floe_iceberg.query.tables import FoundTable, Tables, find_tables
from floe_iceberg.query.text import Rewritten
from floe_iceberg.query.views import name_views, view_sql, with_views
from floe_iceberg.reading import scan

if TYPE_CHECKING:
    from duckdb import DuckDBPyRelation
    from duckdb.sqltypes import DuckDBPyType
    from pyiceberg.expressions import BooleanExpression

__all__ = ["run_in_duckdb"]

_BATCH_ROWS = 10_000
_EXPLAIN = "EXPLAIN "
# Types that Arrow does not have: their values would arrive as other ones.
_NOT_IN_ARROW = {"time with time zone", "uhugeint", "bit", "bignum", "union", "variant"}
_NESTED = {"array", "list", "map", "struct"}
# A session of more files is not kept: DuckDB keeps a part of each of them in memory.
_MOST_FILES = 1_000
# DuckDB's types by the schema of a table.
_types: dict[pa.Schema, Mapping[str, str]] = {}
_MOST_TYPES = 256


def run_in_duckdb(tables: Tables, query: ParsedQuery, sessions: Sessions) -> QueryResult:
    """Start a query; its rows are computed while the result is read.

    Args:
        tables: The manager of the tables.
        query: The query, parsed in DuckDB's dialect.
        sessions: Where its session may come from, and goes afterwards.
    """
    op = begin("iceberg.sql", engine="duckdb", tables=sorted({use.name for use in query.tables}))
    with ExitStack() as undo:
        undo.push(lambda _kind, exc, _trace: _end_operation(op, exc))
        with op.active():
            found = find_tables(tables, query)
            run = _Run(sessions, query, op)
            undo.callback(run.discard)
            run.plan(found)
            result = run.start(found)
        undo.pop_all()
    return result


def _end_operation(op: Operation, error: BaseException | None) -> None:
    """End the span; a mistake in the query is not logged, because its author gets the error."""
    if isinstance(error, QueryError):
        op.reported()
    op.end(error)


@dataclass
class _Read:
    """A table of a query: its planned files, those that DuckDB reads itself, and a dataset of the others."""

    found: FoundTable
    schema: Schema
    planned: DataScan
    dataset: TableDataset
    name: str
    own: Mapping[str, FileScanTask]
    groups: list[FileGroup] = field(default_factory=list)

    @property
    def rest(self) -> bool:
        """Whether there are rows that DuckDB reads from the dataset; an empty table is read from it, too."""
        return bool(self.dataset.tasks) or not self.groups

    def task_of(self, message: str) -> FileScanTask | None:
        """The file that a message of DuckDB names, if DuckDB reads it itself."""
        tasks = chain.from_iterable(group.tasks for group in self.groups)
        return next((task for task in tasks if (local_path(task) or message) in message), None)


class _Run:
    """One query in a session of its own, or in one that read the same files before."""

    def __init__(self, sessions: Sessions, query: ParsedQuery, op: Operation) -> None:
        self._sessions = sessions
        self._opened: Session | None = None
        self._query = query
        self._op = op
        self._reads: list[_Read] = []
        self._schemas: set[str] = set()
        self._columns: list[str] = []
        self._ended = False
        self._read_to_end = False

    @property
    def _session(self) -> Session:
        assert self._opened is not None  # noqa: S101 - `plan` opens it
        return self._opened

    def plan(self, found: list[FoundTable]) -> None:
        """Plan each table once, with the conditions of all its occurrences, and create the views."""
        schemas = {place: table.schema for place, table in enumerate(found)}
        conditions = row_filters(self._query.tree, self._query.tables, schemas)
        places: dict[tuple[str, int | None], list[int]] = {}
        for place, table in enumerate(found):
            places.setdefault(table.key, []).append(place)
        for own in places.values():
            table, schema = found[own[0]], schemas[own[0]]
            _refuse_same_names(table, schema)
            self._columns += [column.name for column in schema.fields]
            self._reads.append(self._planned(table, schema, either([conditions.get(place) for place in own])))
        files = _stored([path for read in self._reads for path in read.own])
        session = None if files is None else self._sessions.take(files)
        self._opened = session or Session()
        for read in self._reads:
            with translated("scan", read.found.identifier):
                self._split(read)
        if session is None:
            self._session.allow_only(path for read in self._reads for group in read.groups for path in group.paths)
            self._session.files = files
        if any(read.rest for read in self._reads) or _has_memory(self._query):
            self._session.files = None
        views = name_views(found)
        for read in self._reads:
            view, columns = views[read.found.key], read.dataset.schema.names
            rest = read.name if read.rest else None
            self._schemas.add(view[0])
            self._session.connection.execute(f"CREATE SCHEMA IF NOT EXISTS memory.{quoted(view[0])}")
            self._session.connection.execute(view_sql(view, columns, read.groups, rest))
        if session is None:
            self._session.lock()

    def _planned(self, table: FoundTable, schema: Schema, condition: BooleanExpression) -> _Read:
        identifier, name = table.identifier, f"floe_{len(self._reads)}"
        with translated("scan", identifier):
            planned = scan(table.table, identifier, row_filter=condition, snapshot_id=table.snapshot_id)
            tasks = list(planned.plan_files())
            own = readable(tasks, table.table.io)
            return _Read(table, schema, planned, TableDataset(planned, tasks), name, own)

    def _split(self, read: _Read) -> None:
        """Find out which of the files DuckDB reads itself; the others are those of the dataset."""
        types, tasks = self._types(read), list(read.dataset.tasks)
        try:
            read.groups, rest = split(self._session, tasks, read.own, read.found.table.metadata, read.schema, types)
        except Exception as exc:
            if not type(exc).__module__.startswith(("duckdb", "_duckdb")):
                raise
            rest = tasks  # a file that DuckDB cannot open; reading it says what is wrong
        read.dataset.tasks = tuple(rest)
        if read.rest:
            self._session.connection.register(read.name, read.dataset)

    def _types(self, read: _Read) -> Mapping[str, str]:
        """DuckDB's type of each column; the same in every session."""
        schema = read.dataset.schema
        known = _types.get(schema)
        if known is None:
            connection = self._session.connection
            connection.register(read.name, schema.empty_table())
            described = connection.execute(f"DESCRIBE {quoted(read.name)}").fetchall()
            connection.unregister(read.name)
            if len(_types) >= _MOST_TYPES:
                _types.clear()
            known = _types[schema] = {str(column[0]): str(column[1]) for column in described}
        return known

    def start(self, found: list[FoundTable]) -> QueryResult:
        views = name_views(found)
        reserved = self._session.keywords() & {column.lower() for column in self._columns}
        rewritten = with_views(self._query, [views[table.key] for table in found], reserved=reserved)
        connection = self._session.connection
        try:
            relation = connection.sql(rewritten.text)
            types = [str(kind) for kind in relation.types]
            _refuse_types(relation)
            reader = self._session.call(lambda: relation.to_arrow_reader(_BATCH_ROWS))
        except FloeError:
            raise
        except Exception as exc:
            raise self._explained(exc, rewritten) from exc
        snapshots: dict[str, int | None] = {}
        for table in found:
            snapshots.setdefault(str(table.identifier), table.read_snapshot_id)
        return QueryResult(
            reader.schema,
            types,
            lambda _limit: self._batches(reader, rewritten),
            snapshots=snapshots,
            close=self._close,
        )

    def _batches(self, reader: pa.RecordBatchReader, rewritten: Rewritten) -> Iterator[pa.RecordBatch]:
        rows, batches = 0, iter(reader)
        while True:
            try:
                batch = self._session.call(lambda: next(batches, None))
            except Exception as exc:
                error = self._failure(exc, rewritten)
                self._end(error)
                raise error from exc
            if batch is None:
                break
            rows += batch.num_rows
            yield batch
        self._op.set(num_rows=rows)
        self._read_to_end = True

    def _close(self) -> None:
        self._end()
        if self._read_to_end and self._session.files is not None:
            for schema in self._schemas:
                self._session.connection.execute(f"DROP SCHEMA memory.{quoted(schema)} CASCADE")
            self._sessions.give(self._session)
        else:
            self.discard()

    def discard(self) -> None:
        if self._opened is not None:
            self._opened.close()

    def _end(self, error: BaseException | None = None) -> None:
        if not self._ended:
            self._ended = True
            _end_operation(self._op, error)

    def _explained(self, exc: Exception, rewritten: Rewritten) -> Exception:
        """The error of a query that did not start; explaining it reports the place, which starting it does not."""
        try:
            self._session.connection.execute(f"{_EXPLAIN}{rewritten.text}")
        except Exception as again:  # noqa: BLE001 - the same error, with more detail
            return self._failure(again, rewritten, offset=len(_EXPLAIN))
        return self._failure(exc, rewritten)

    def _failure(self, exc: Exception, rewritten: Rewritten, *, offset: int = 0) -> Exception:
        for read in self._reads:
            if read.dataset.failures:
                return read.dataset.failures[0]
        if isinstance(exc, FloeError):
            return exc
        error = reported(exc)
        message = str(error.get("exception_message", ""))
        for read in self._reads:
            task = read.task_of(message)
            problem = None if task is None else _damage(read, task)
            if problem is not None:
                return problem
        return query_failure(error, self._query, rewritten, self._columns, offset=offset)


def _stored(paths: Sequence[str]) -> frozenset[StoredFile] | None:
    """The files as they are stored; None if they are too many, or one of them is gone."""
    if len(paths) > _MOST_FILES:
        return None
    try:
        found = [(path, Path(path).stat()) for path in paths]
    except OSError:
        return None
    return frozenset((path, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns) for path, stat in found)


def _has_memory(query: ParsedQuery) -> bool:
    """Whether the query leaves something behind in its session: the state of random()."""
    return any(function.name.casefold() == "setseed" for function in query.tree.find_all(exp.Anonymous))


def _damage(read: _Read, task: FileScanTask) -> Exception | None:
    """What Floe's own reader says about a file that DuckDB cannot read."""
    try:
        for _batch in read.planned.update(selected_fields=("*",)).to_arrow_batch_reader(tasks=[task]):  # type: ignore[call-arg]
            pass
    except Exception as exc:  # noqa: BLE001 - whatever is wrong with the file is what to report
        return exc
    return None


def _refuse_same_names(table: FoundTable, schema: Schema) -> None:
    seen: dict[str, str] = {}
    for column in schema.fields:
        other = seen.setdefault(column.name.casefold(), column.name)
        if other != column.name:
            raise QueryError(
                f"columns {other!r} and {column.name!r} of table '{table.identifier}' differ only in case, which SQL "
                f"cannot tell apart; rename one of them, or read the table without SQL: floe read {table.identifier}"
            )


def _refuse_types(relation: DuckDBPyRelation) -> None:
    for name, kind in zip(relation.columns, relation.types, strict=True):
        if not _is_in_arrow(kind):
            raise QueryError(f"column {name!r} is of type {kind}, which a result cannot hold; cast it to VARCHAR")


def _is_in_arrow(kind: DuckDBPyType) -> bool:
    if kind.id not in _NESTED:
        return kind.id not in _NOT_IN_ARROW
    # An array also has its size.
    return all(_is_in_arrow(part) for _, part in kind.children if not isinstance(part, int | list))
