"""Rows in the form that was asked for, written while they are read."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import click
import pyarrow as pa

from floe_core.errors import ConfigurationError, FloeError
from floe_core.formatting import counted
from floe_iceberg.reading import csv_array, json_values
from floe_runtime.cli.common import console, print_json
from floe_runtime.cli.rows.options import Wanted
from floe_runtime.cli.rows.table import COUNTED, print_table

__all__ = ["Rows", "write_rows"]


@dataclass(frozen=True)
class Rows:
    """Rows that are read when they are written.

    Attributes:
        schema: The columns as Arrow types.
        types: The type of each column, by its name in the catalog or the engine.
        read: Reads the rows; at most so many, if a number is given.
        facts: About the rows, for the JSON document.
        total: How many there are, if that is known without reading them.
        fewer: How to choose columns.
    """

    schema: pa.Schema
    types: Sequence[str]
    read: Callable[[int | None], Iterator[pa.RecordBatch]]
    facts: Mapping[str, Any]
    fewer: str
    total: int | None = None


def write_rows(rows: Rows, wanted: Wanted) -> None:
    """Write rows to standard output or to a file."""
    if wanted.output in ("json", "parquet"):
        _refuse_same_names(rows, wanted.output)
    if wanted.file is not None:
        _write_file(rows, wanted, wanted.file)
    elif wanted.output == "table":
        limit = wanted.limit or 0
        batches = rows.read(limit if rows.total is not None else limit + COUNTED + 1)
        print_table(console(), rows.schema, batches, limit=limit, total=rows.total, fewer=rows.fewer)
    elif wanted.as_json:
        _write_document(rows, wanted.limit)
    else:
        sys.stdout.flush()
        _WRITERS[wanted.output](sys.stdout.buffer, rows, rows.read(wanted.limit))
        sys.stdout.buffer.flush()


def _refuse_same_names(rows: Rows, output: str) -> None:
    names = rows.schema.names
    twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if twice is not None:
        raise ConfigurationError(f"two columns are called {twice!r}, which {output} cannot hold; give one an alias: AS")


def _columns(rows: Rows) -> list[dict[str, str]]:
    return [{"name": name, "type": kind} for name, kind in zip(rows.schema.names, rows.types, strict=True)]


def _objects(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[str]:
    """Each row as a JSON object on one line."""
    keys = [json.dumps(name) for name in schema.names]
    for batch in batches:
        columns = [[json.dumps(value) for value in json_values(column)] for column in batch.columns]
        for row in zip(*columns, strict=True):
            yield f"{{{', '.join(f'{key}: {value}' for key, value in zip(keys, row, strict=True))}}}"


def _write_json(file: IO[bytes], rows: Rows, batches: Iterator[pa.RecordBatch]) -> int:
    """An array with one row on each line."""
    count = 0
    file.write(b"[")
    for line in _objects(rows.schema, batches):
        file.write(f"{',' if count else ''}\n{line}".encode())
        count += 1
    file.write(b"\n]\n")
    return count


def _write_csv(file: IO[bytes], rows: Rows, batches: Iterator[pa.RecordBatch]) -> int:
    """A header and one line for each row; NULL is empty, and an empty text is quoted."""
    import pyarrow.csv

    count = 0
    empty = pa.RecordBatch.from_pylist([], schema=rows.schema)
    for with_header, batch in _with_first(empty, batches):
        table = pa.Table.from_arrays([csv_array(column) for column in batch.columns], names=rows.schema.names)
        target = pa.BufferOutputStream()
        pyarrow.csv.write_csv(table, target, pyarrow.csv.WriteOptions(include_header=with_header))
        file.write(target.getvalue())
        count += batch.num_rows
    return count


def _with_first(empty: pa.RecordBatch, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[bool, pa.RecordBatch]]:
    yield True, empty
    for batch in batches:
        yield False, batch


def _write_parquet(file: IO[bytes], rows: Rows, batches: Iterator[pa.RecordBatch]) -> int:
    import pyarrow.parquet

    count = 0
    try:
        writer = pyarrow.parquet.ParquetWriter(file, rows.schema)
    except pa.ArrowNotImplementedError as exc:
        raise ConfigurationError(f"parquet cannot hold a column of this result: {exc}; cast it, or use csv") from exc
    with writer:
        for batch in batches:
            writer.write_batch(batch)
            count += batch.num_rows
    return count


_WRITERS = {"csv": _write_csv, "json": _write_json, "parquet": _write_parquet}


def _write_document(rows: Rows, limit: int | None) -> None:
    """One JSON document, written while the rows are read: `ok` comes last, because only then it is known."""
    head = json.dumps({**rows.facts, "columns": _columns(rows)}, indent=2, default=str)
    batches = rows.read(limit)
    first = next(batches, None)  # an error before the first row is reported as for any command
    sys.stdout.write(f'{head.removesuffix("}").rstrip()},\n  "rows": [')
    separator = ""
    error: str | None = None
    code = 0
    try:
        for line in _objects(rows.schema, batches if first is None else _after(first, batches)):
            sys.stdout.write(f"{separator}\n    {line}")
            separator = ","
    except FloeError as exc:
        error, code = str(exc), 1
    except KeyboardInterrupt:
        error, code = "interrupted", 130
    end = {"ok": True} if error is None else {"ok": False, "error": error, "problems": []}
    sys.stdout.write(f"\n  ],\n  {json.dumps(end)[1:-1]}\n}}\n")
    if error is not None:
        raise click.exceptions.Exit(code)


def _after(first: pa.RecordBatch, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from batches


def _write_file(rows: Rows, wanted: Wanted, path: Path) -> None:
    if wanted.output == "table":
        raise click.UsageError("--to writes csv, json or parquet: say which with --output.")
    with _new_file(path) as file:
        count = _WRITERS[wanted.output](file, rows, rows.read(wanted.limit))
    if wanted.as_json:
        document = {"ok": True, **rows.facts, "columns": _columns(rows), "file": str(path), "rows_written": count}
        print_json(document)
    else:
        click.echo(f"wrote {counted(count, 'row')} to {path}")


@contextmanager
def _new_file(path: Path) -> Iterator[IO[bytes]]:
    """A file that appears under its name when it is complete, and not at all if it is not."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        umask = os.umask(0)
        os.umask(umask)
        Path(name).chmod(0o666 & ~umask)
        Path(name).replace(path)
    except BaseException:
        with suppress(FileNotFoundError):
            Path(name).unlink()
        raise
