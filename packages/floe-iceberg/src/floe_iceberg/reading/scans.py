"""Scans of a table: columns, filter and snapshot are checked before any file is opened."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from functools import partial
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.schema import Schema
from pyiceberg.table import DataScan, FileScanTask, Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.types import UUIDType

from floe_core.errors import ConfigurationError
from floe_core.identifiers import TableIdentifier
from floe_iceberg.arguments import check_limit, check_moment, check_snapshot_id, names_of
from floe_iceberg.errors import translated
from floe_iceberg.expressions.filters import condition_of
from floe_iceberg.reading.missing_files import reading_files
from floe_iceberg.reading.streaming import stream
from floe_iceberg.reading.traced_reads import CountedReads
from floe_iceberg.schema.columns import no_column
from floe_iceberg.snapshots.refs import known_snapshot, snapshot_at
from floe_iceberg.snapshots.run_branches import refuse_unpublished

__all__ = ["scan", "selected"]


def scan(
    table: Table,
    identifier: TableIdentifier,
    *,
    columns: Sequence[str] | None = None,
    row_filter: str | BooleanExpression | None = None,
    snapshot_id: int | None = None,
    as_of: datetime | None = None,
    ref: str | None = None,
    limit: int | None = None,
    traced: bool = True,
) -> DataScan:
    """A scan of the current table, or of a snapshot, a point in time, a tag or a branch.

    Args:
        traced: Record each read as a span. False for reads that belong to another operation.
    """
    check_limit(limit)
    check_moment(as_of)
    check_snapshot_id(snapshot_id, "snapshot_id")
    chosen = _snapshot(table, identifier, snapshot_id, as_of, ref)
    schema = table.scan(snapshot_id=chosen).projection()
    condition = condition_of(row_filter, schema, identifier)
    names = selected(columns, schema, identifier)
    then = _with_schema(table, schema)
    planned = then.scan(row_filter=condition, selected_fields=names, snapshot_id=chosen, limit=limit)
    return _CountedScan.of(planned, str(identifier), row_filter) if traced else _Scan(**vars(planned))


class _Scan(DataScan):
    """PyIceberg's scan, with Floe's errors while it reads.

    A filter that Arrow cannot apply is refused when Arrow reads, not before: Spark may be able to apply it.
    """

    def to_arrow(self, dictionary_columns: tuple[str, ...] = ()) -> pa.Table:
        self._refuse_uuids()
        with self._translated():
            return super().to_arrow(dictionary_columns)

    def to_arrow_batch_reader(
        self, dictionary_columns: tuple[str, ...] = (), *, tasks: Sequence[FileScanTask] | None = None
    ) -> pa.RecordBatchReader:
        """The rows as a stream; of some planned files only, if `tasks` are given."""
        self._refuse_uuids()
        with self._translated():
            # Dictionary columns need PyIceberg's own reader, which reads every file ahead.
            reader = (
                super().to_arrow_batch_reader(dictionary_columns)
                if dictionary_columns
                else stream(self, self.plan_files() if tasks is None else tasks)
            )
        return pa.RecordBatchReader.from_batches(reader.schema, self._each(reader))

    def count(self) -> int:
        self._refuse_uuids()
        with self._translated():
            return super().count()

    def plan_files(self) -> Iterable[FileScanTask]:
        with self._translated():
            return super().plan_files()

    def _each(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with self._translated():
            yield from batches

    def _translated(self) -> AbstractContextManager[None]:
        identifier, catalog, read = self.table_identifier, self.catalog, self.snapshot()
        if identifier is None or catalog is None:
            return translated("scan", ".".join(identifier or ()))
        snapshot_id = read.snapshot_id if read is not None else None
        load = partial(catalog.load_table, identifier)
        return reading_files(".".join(identifier), self.table_metadata, snapshot_id, load)

    def _refuse_uuids(self) -> None:
        schema = self.table_metadata.schema()
        ids = extract_field_ids(bind(schema, self.row_filter, case_sensitive=self.case_sensitive))
        uuids = sorted(schema.find_field(item).name for item in ids if isinstance(schema.find_type(item), UUIDType))
        if uuids:
            raise ConfigurationError(
                f"row_filter compares {', '.join(map(repr, uuids))}, which is a uuid, and Arrow cannot do that while "
                f"it reads; filter the rows after reading, or read with Spark"
            )


class _CountedScan(CountedReads, _Scan):
    """A scan whose reads are spans."""

    def _facts(self) -> dict[str, Any]:
        head = self.snapshot()
        return {**super()._facts(), "snapshot_id": head.snapshot_id if head is not None else None}


def _with_schema(table: Table, schema: Schema) -> Table:
    """The table with this current schema: PyIceberg plans with the current names, whichever snapshot is read."""
    metadata = table.metadata.model_copy(update={"current_schema_id": schema.schema_id})
    return Table(table.name(), metadata, table.metadata_location, table.io, table.catalog)


def _snapshot(
    table: Table, identifier: TableIdentifier, snapshot_id: int | None, as_of: datetime | None, ref: str | None
) -> int | None:
    if sum(selector is not None for selector in (snapshot_id, as_of, ref)) > 1:
        raise ConfigurationError("snapshot_id, as_of and ref are mutually exclusive: set one of them")
    if as_of is not None:
        return snapshot_at(table, identifier, as_of).snapshot_id
    if ref is not None:
        found = table.metadata.refs.get(ref)
        if found is None:
            there = ", ".join(table.metadata.refs) or "none"
            raise ConfigurationError(f"table '{identifier}' has no tag or branch {ref!r} (there: {there})")
        if ref == MAIN_BRANCH:
            refuse_unpublished(table, identifier)
        return found.snapshot_id
    if snapshot_id is None:
        refuse_unpublished(table, identifier)
    return None if snapshot_id is None else known_snapshot(table, identifier, snapshot_id).snapshot_id


def selected(columns: Sequence[str] | None, schema: Schema, identifier: TableIdentifier) -> tuple[str, ...]:
    """The columns to read, as PyIceberg expects them; all if `columns` is None."""
    if columns is None:
        return ("*",)
    names = names_of(columns, "columns")
    if not names:
        raise ConfigurationError("columns is empty; name at least one, or leave it out to read them all")
    unknown = no_column(names, schema)
    if unknown:
        raise ConfigurationError(f"table '{identifier}' has {unknown}")
    return names
