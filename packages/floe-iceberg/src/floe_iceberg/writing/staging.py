"""Data files written before the commit that makes them visible, in memory that does not grow with the data."""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol, runtime_checkable

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import FileIO, OutputFile
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestEntryStatus
from pyiceberg.partitioning import PartitionFieldValue, PartitionKey, partition_record_value
from pyiceberg.schema import Schema, sanitize_column_names
from pyiceberg.table import FileScanTask, Table, TableProperties
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.utils.concurrent import ExecutorFactory

from floe_core.errors import ConfigurationError, SchemaEvolutionError
from floe_iceberg.catalogs.foreign_tables import refuse_location_provider
from floe_iceberg.partition_values import partition_key, plain
from floe_iceberg.schema.types import ArrowCaster
from floe_iceberg.snapshots.snapshots import ancestors_of
from floe_iceberg.writing.file_layout import FileLayout, RowOrder, SizedWriter, portions, transformed

__all__ = ["Made", "Staged", "Stager", "files_since", "read_rows"]

# The maximum number of bytes that are buffered for all partitions together.
_WAITING_BYTES = 192 * 2**20
_OPEN_FILES = 64
_WRITERS = max(2, os.cpu_count() or 2)


@dataclass(frozen=True)
class Staged:
    """Files that wait for their commit, the metadata they were written for, and the FileIO that wrote them."""

    metadata: TableMetadata
    files: tuple[DataFile, ...]
    io: FileIO

    def discard(self) -> None:
        """Delete the files. Only for files that no commit was ever sent for."""
        for file in self.files:
            with suppress(OSError):  # a file that remains is an orphan, which maintenance removes
                self.io.delete(file.file_path)


class _Key(PartitionKey):
    """A partition key that may hold one column under two transforms, and keeps transformed values as they are."""

    @cached_property
    def partition(self) -> Record:
        return Record(
            *(
                plain(partition_record_value(item.field, item.value, self.schema))
                if isinstance(item.field.transform, IdentityTransform)
                else item.value
                for item in self.field_values
            )
        )


class Stager:
    """Writes batches, already in the table's schema, into files by partition.

    Rows are buffered until their partition has a full row group or all partitions together exceed the limit; row groups
    go to files that stay open until they reach the table's target size. If the table has a sort order, the buffered
    rows of a partition are sorted and become a file of their own.
    """

    def __init__(self, metadata: TableMetadata, io: FileIO) -> None:
        self.metadata = metadata
        self.rows = 0
        self.schema = metadata.schema()
        self.arrow_schema = schema_to_pyarrow(self.schema)
        self._io = io
        self._spec = metadata.spec()
        self._write_uuid = uuid.uuid4()
        self._numbers = itertools.count()
        _refuse_other_formats(metadata)
        self._layout = FileLayout.of(metadata)
        self._file_schema = _file_schema(self.schema)
        renamed = self._file_schema != self.schema
        self._renaming = ArrowCaster(schema_to_pyarrow(self._file_schema), by_position=True) if renamed else None
        refuse_location_provider(metadata.properties, f"the table at {metadata.location}")
        self._locations = load_location_provider(metadata.location, metadata.properties)
        self._waiting: dict[tuple[object, ...], _Waiting] = {}
        self._waiting_bytes = 0
        self._partitions: dict[tuple[object, ...], tuple[object, ...]] = {}  # their values, by key
        self._idle: list[_OpenFile] = []  # the longest idle first
        self._writing: dict[Future[None], tuple[_OpenFile, int]] = {}
        self._all: list[_OpenFile] = []

    @property
    def partitions(self) -> list[Record]:
        """The partitions that rows were added to."""
        return [self._record(values) for values in self._partitions.values()]

    @property
    def bytes(self) -> int:
        """The bytes of row groups written so far."""
        return sum(file.size for file in list(self._all))

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[Record, pa.RecordBatch]]:
        """The rows of a batch by partition."""
        return ((self._record(values), rows) for values, rows in self._by_partition(batch))

    def add(self, batch: pa.RecordBatch) -> None:
        self.rows += len(batch)
        self._close_before_credentials_end()
        for values, whole in self._by_partition(batch):
            key = partition_key(values)
            self._partitions[key] = values
            for rows in portions(whole, self._layout.portion):
                waiting = self._waiting.setdefault(key, _Waiting())
                waiting.batches.append(rows)
                waiting.size += rows.nbytes
                self._waiting_bytes += rows.nbytes
                if waiting.size + rows.nbytes // 2 >= self._layout.portion:  # nearer to it than with as many rows again
                    self._write(key)
        while self._waiting_bytes > _WAITING_BYTES:
            largest = max(self._waiting, key=lambda partition: self._waiting[partition].size, default=None)
            if largest is None:
                self._await_writes(len(self._writing) - 1)
            else:
                self._write(largest)

    def finish(self) -> Staged:
        """Write the buffered rows and close every file."""
        for key in list(self._waiting):
            self._write(key)
        self._await_writes(0)
        list(ExecutorFactory.get_or_create().map(_OpenFile.close, self._all))
        return Staged(self.metadata, tuple(file.close() for file in self._all), self._io)

    def abandon(self) -> None:
        """Close and delete the files: none of them was committed."""
        with suppress(Exception):
            self._await_writes(0)
        for file in self._all:
            with suppress(Exception):
                file.close()
            with suppress(Exception):
                self._io.delete(file.output.location)

    def _by_partition(self, batch: pa.RecordBatch) -> Iterator[tuple[tuple[object, ...], pa.RecordBatch]]:
        if not len(batch):
            return
        if self._spec.is_unpartitioned():
            yield (), batch
            return
        keys = [self._partition_values(batch, number) for number in range(len(self._spec.fields))]
        encoded = [column.dictionary_encode(null_encoding="encode") for column in keys]
        codes = encoded[0].indices.cast(pa.int64())
        for column in encoded[1:]:
            codes = pc.add(pc.multiply(codes, len(column.dictionary)), column.indices.cast(pa.int64()))
            # Renumbered from zero: for five fields with many values each, the product would overflow.
            codes = codes.dictionary_encode().indices.cast(pa.int64())
        order = pc.sort_indices(codes)
        runs = pc.run_end_encode(codes.take(order), run_end_type=pa.int64())
        start = 0
        for end in runs.run_ends.to_pylist():
            positions = order.slice(start, end - start)
            first = positions[0].as_py()
            values = tuple(plain(column.dictionary[column.indices[first].as_py()].as_py()) for column in encoded)
            # A copy, so that a few buffered rows do not keep the whole batch in memory.
            yield values, batch if len(positions) == len(batch) else batch.take(positions)
            start = end

    def _partition_values(self, batch: pa.RecordBatch, number: int) -> pa.Array:
        partition_field = self._spec.fields[number]
        source = self.schema.find_field(partition_field.source_id)
        name = self.schema.find_column_name(partition_field.source_id) or ""
        return transformed(batch, name, partition_field.transform, source.field_type)

    def _write(self, key: tuple[object, ...]) -> None:
        waiting = self._waiting.pop(key)
        self._await_writes(_WRITERS - 1)
        file = self._file_for(key)
        future = ExecutorFactory.get_or_create().submit(file.write, waiting.batches)
        self._writing[future] = (file, waiting.size)

    def _await_writes(self, at_most: int) -> None:
        """Wait until no more than this many row groups are being written."""
        while len(self._writing) > at_most:
            done, _ = wait(self._writing, return_when=FIRST_COMPLETED)
            self._complete_writes(done)
        while len(self._idle) > _OPEN_FILES:
            self._idle.pop(0).close()

    def _complete_writes(self, done: Iterable[Future[None]]) -> None:
        for future in done:
            file, size = self._writing.pop(future)
            self._waiting_bytes -= size
            future.result()
            self._layout.learn(file.size, file.in_memory)
            if self._layout.is_full(file.size):
                file.close()
            else:
                self._idle.append(file)

    def _close_before_credentials_end(self) -> None:
        """An open file keeps its first credentials, which may expire while it is idle: close it after a renewal."""
        self._complete_writes([future for future in self._writing if future.done()])
        renewals = _renewals(self._io)
        outdated = [file for file in self._idle if file.renewals < renewals]
        self._idle = [file for file in self._idle if file.renewals == renewals]
        for file in outdated:
            file.close()

    def _file_for(self, key: tuple[object, ...]) -> _OpenFile:
        for position, file in enumerate(self._idle):
            if file.key == key:
                return self._idle.pop(position)
        partition = self._key(self._partitions[key]) if key else None
        name = f"00000-{next(self._numbers)}-{self._write_uuid}.parquet"
        location = self._locations.new_data_location(name, partition)
        file = _OpenFile(
            key=key,
            partition=partition.partition if partition else Record(),
            spec_id=self.metadata.default_spec_id,
            renewals=_renewals(self._io),
            output=(output := self._io.new_output(location)),
            writer=SizedWriter(output, self._file_schema, self.metadata.properties, self._layout.group),
            order=self._layout.order,
            schema=self._renaming.target if self._renaming is not None else self.arrow_schema,
            renaming=self._renaming,
        )
        self._all.append(file)
        return file

    def _key(self, values: tuple[object, ...]) -> _Key:
        fields = [PartitionFieldValue(*pair) for pair in zip(self._spec.fields, values, strict=True)]
        return _Key(fields, self._spec, self.schema)

    def _record(self, values: tuple[object, ...]) -> Record:
        return self._key(values).partition


@dataclass
class _Waiting:
    batches: list[pa.RecordBatch] = field(default_factory=list)
    size: int = 0


@dataclass
class _OpenFile:
    """One data file that grows by row groups."""

    key: tuple[object, ...]
    partition: Record
    spec_id: int
    renewals: int  # the number of credential renewals before the file was opened
    output: OutputFile
    writer: SizedWriter | None
    schema: pa.Schema
    renaming: ArrowCaster | None
    order: RowOrder | None
    size: int = 0
    in_memory: int = 0
    file: DataFile | None = None

    def write(self, batches: list[pa.RecordBatch]) -> None:
        if self.order is not None:  # a sorted file is written at once, and closed afterwards
            batches = self.order.sort(pa.Table.from_batches(batches)).to_batches()
        if self.renaming is not None:
            batches = [self.renaming.fit(batch) for batch in batches]
        # The schema, not the batches, carries the field ids by which readers find the columns.
        table = pa.Table.from_batches(batches, schema=self.schema)
        if self.writer is None:
            raise AssertionError("a file is written to until it is closed")
        self.writer.write(table)
        self.size = self.writer.written
        self.in_memory += table.nbytes

    def close(self) -> DataFile:
        if self.file is None and self.writer is not None:
            statistics = self.writer.close()
            self.writer = None  # it holds more than a megabyte, and there may be thousands of files
            self.file = DataFile.from_args(
                content=DataFileContent.DATA,
                file_path=self.output.location,
                file_format=FileFormat.PARQUET,
                partition=self.partition,
                file_size_in_bytes=len(self.output),
                sort_order_id=None if self.order is None else self.order.order_id,
                equality_ids=None,
                key_metadata=None,
                **statistics.to_serialized_dict(),
            )
            self.file.spec_id = self.spec_id
        if self.file is None:
            raise AssertionError("closing it failed before")
        return self.file


@runtime_checkable
class _Renewing(Protocol):
    """A FileIO whose credentials are renewed."""

    def renewals(self) -> int: ...


def _renewals(io: FileIO) -> int:
    return io.renewals() if isinstance(io, _Renewing) else 0


def _file_schema(schema: Schema) -> Schema:
    try:
        return sanitize_column_names(schema)
    except ValueError as exc:  # `a b` is a_x20b in a file, and so is a_x20b
        raise SchemaEvolutionError(
            f"two columns would have one name in the table's files: {exc}; rename one of them. Nothing was written"
        ) from exc


def _refuse_other_formats(metadata: TableMetadata) -> None:
    name = metadata.properties.get(TableProperties.WRITE_FILE_FORMAT, TableProperties.WRITE_FILE_FORMAT_DEFAULT)
    if name.lower() != "parquet":
        raise ConfigurationError(
            f"the table's files are {name} (write.format.default); Arrow writes parquet: write it with Spark"
        )


def read_rows(metadata: TableMetadata, io: FileIO, task: FileScanTask) -> Iterator[pa.RecordBatch]:
    """The rows of one data file, deletes applied, in the table's current schema."""
    caster = ArrowCaster(schema_to_pyarrow(metadata.schema()))
    for batch in ArrowScan(metadata, io, metadata.schema(), AlwaysTrue()).to_record_batches([task]):
        yield caster.fit(batch)


@dataclass(frozen=True)
class Made:
    """The files that the commits of a branch added and removed."""

    added: tuple[DataFile, ...]
    removed: frozenset[str]


def files_since(table: Table, head: Snapshot, branch: str) -> Made | None:
    """The files that a branch added and removed since a snapshot.

    None if they cannot be committed again as they are: they delete rows without removing files, the partition spec of
    the table has changed since, or they replace files and the snapshot expired, so that nothing shows what changed.
    """
    added: list[DataFile] = []
    removed: set[str] = set()
    for snapshot in ancestors_of(table.snapshot_by_name(branch), table.metadata):
        if snapshot.snapshot_id == head.snapshot_id:
            break
        for manifest in snapshot.manifests(table.io):
            if manifest.added_snapshot_id != snapshot.snapshot_id:
                continue
            if manifest.content != ManifestContent.DATA:
                return None
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
                if entry.snapshot_id == snapshot.snapshot_id and entry.status == ManifestEntryStatus.ADDED:
                    added.append(entry.data_file)
                elif entry.snapshot_id == snapshot.snapshot_id and entry.status == ManifestEntryStatus.DELETED:
                    removed.add(entry.data_file.file_path)
    if any(file.spec_id != table.metadata.default_spec_id for file in added):
        return None
    if removed and table.snapshot_by_id(head.snapshot_id) is None:
        return None
    return Made(tuple(added), frozenset(removed))
