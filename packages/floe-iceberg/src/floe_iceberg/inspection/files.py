"""The files of a snapshot and its partitions, as its manifests list them; no data file is read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any
from uuid import UUID

from pyiceberg.manifest import DataFileContent, ManifestEntry, ManifestFile
from pyiceberg.partitioning import PartitionField
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import VoidTransform
from pyiceberg.typedef import Record
from pyiceberg.types import IcebergType, UUIDType

from floe_core.notebooks import Listing
from floe_iceberg.partition_values import partition_key, plain

__all__ = [
    "FileEntry",
    "FileListing",
    "Found",
    "Partition",
    "PartitionTexts",
    "entries_of",
    "list_files",
    "list_partitions",
    "partition_order",
    "partition_rank",
    "size_of",
]

_CONTENT = {
    DataFileContent.DATA: "data",
    DataFileContent.POSITION_DELETES: "position deletes",
    DataFileContent.EQUALITY_DELETES: "equality deletes",
}


@dataclass(frozen=True)
class FileEntry:
    """A data or delete file.

    Attributes:
        path: The address of the file.
        content: data, position deletes or equality deletes.
        partition: The partition by field name, values as text; None is NULL. Empty if the table had no partitioning.
        rows: Its rows, or its deletes.
        bytes: Its size.
    """

    path: str
    content: str
    partition: dict[str, str | None]
    rows: int
    bytes: int


@dataclass(frozen=True)
class FileListing:
    """The first files of a snapshot, and how many it has in all."""

    snapshot_id: int | None
    files: Listing[FileEntry]
    total: int

    def _repr_html_(self) -> str:
        return f"{self.files._repr_html_()}<p>{len(self.files):,} of {self.total:,}</p>"


@dataclass(frozen=True)
class Partition:
    """The files of one partition.

    Attributes:
        partition: The partition by field name, values as text; None is NULL. Empty if the table had no partitioning.
        rows: The rows in its data files; delete files are not subtracted.
        files: The number of data files.
        delete_files: The number of delete files.
        bytes: The size of all its files.
        last_change: When its newest file was added; None if the snapshots that added its files have expired.
    """

    partition: dict[str, str | None]
    rows: int
    files: int
    delete_files: int
    bytes: int
    last_change: datetime | None


@dataclass(frozen=True)
class Found:
    """An entry of a manifest, and the partition of its file; `key` is equal only for the same partition."""

    entry: ManifestEntry
    partition: dict[str, str | None]
    key: tuple[object, ...]

    @property
    def is_data(self) -> bool:
        return self.entry.data_file.content == DataFileContent.DATA  # a plain number in format version 1


class PartitionTexts:
    """Partition values of a table as text: a day as its date, as Iceberg's own tools show it."""

    def __init__(self, table: Table) -> None:
        self._specs = table.specs()
        self._kinds = _source_types(table)

    def of(self, spec_id: int, values: Record) -> dict[str, str | None]:
        """The values by field name. Fields that were dropped in format version 1 hold nothing and are left out."""
        return {
            field.name: self._text(field, values[place])
            for place, field in enumerate(self._specs[spec_id].fields)
            if not isinstance(field.transform, VoidTransform)
        }

    def _text(self, field: PartitionField, value: Any) -> str | None:
        if value is None:
            return None
        kind = self._kinds.get(field.source_id)
        if isinstance(kind, UUIDType) and isinstance(value, bytes):
            return str(UUID(bytes=value))
        return str(field.transform.to_human_string(kind, value)) if kind is not None else str(value)


def _source_types(table: Table) -> dict[int, IcebergType]:
    """The type of each partition source by column id, dropped columns included."""
    sources = {field.source_id for spec in table.specs().values() for field in spec.fields}
    schemas = [*table.schemas().values(), table.schema()]
    return {
        source: schema.find_type(source)
        for schema in schemas
        for source in sources
        if schema.find_column_name(source) is not None
    }


def list_files(table: Table, snapshot: Snapshot | None, limit: int | None) -> FileListing:
    """The files of a snapshot, at most `limit`; manifests beyond it are not read."""
    files: list[FileEntry] = []
    total = 0
    texts = PartitionTexts(table)
    for manifest in snapshot.manifests(table.io) if snapshot else ():
        counts = manifest.added_files_count, manifest.existing_files_count
        if limit is not None and len(files) >= limit and None not in counts:
            total += sum(count or 0 for count in counts)
            continue
        found = list(_entries(table, manifest, texts))
        total += len(found)
        files += [_file(item) for item in found[: None if limit is None else max(0, limit - len(files))]]
    return FileListing(snapshot.snapshot_id if snapshot else None, Listing(files), total)


def _file(found: Found) -> FileEntry:
    file = found.entry.data_file
    return FileEntry(
        file.file_path, _CONTENT[file.content], found.partition, file.record_count, file.file_size_in_bytes
    )


def list_partitions(table: Table, snapshot: Snapshot | None) -> list[Partition]:
    """The partitions of a snapshot, in the order of their values."""
    times = {item.snapshot_id: item.timestamp_ms for item in table.metadata.snapshots}
    groups: dict[tuple[object, ...], list[Found]] = {}
    for found in entries_of(table, snapshot.manifests(table.io) if snapshot else ()):
        groups.setdefault(found.key, []).append(found)
    return [_partition(group, times) for group in sorted(groups.values(), key=lambda group: partition_order(group[0]))]


def partition_order(found: Found) -> tuple[object, ...]:
    """Sorts files by partition: by spec, then by value; NULL first, NaN last."""
    return partition_rank(found.key[0], found.entry.data_file.partition)


def partition_rank(spec: object, values: Record) -> tuple[object, ...]:
    """The place of a partition among others: by spec, then by value; NULL first, NaN last."""
    return (spec, *(_rank(values[place]) for place in range(len(values))))


def _rank(value: Any) -> tuple[int, Any]:
    if value is None:
        return 0, 0
    return (2, 0) if isinstance(value, float) and math.isnan(value) else (1, value)


def _partition(group: list[Found], times: dict[int, int]) -> Partition:
    data = [found for found in group if found.is_data]
    deletes = {found.entry.data_file.file_path for found in group if not found.is_data}
    added = [times[found.entry.snapshot_id] for found in group if found.entry.snapshot_id in times]
    return Partition(
        partition=group[0].partition,
        rows=sum(found.entry.data_file.record_count for found in data),
        files=len(data),
        delete_files=len(deletes),
        bytes=size_of(group),
        last_change=datetime.fromtimestamp(max(added) / 1000, timezone.utc) if added else None,
    )


def size_of(found: Iterable[Found]) -> int:
    """The size of the files of these entries; a file may hold several deletion vectors, each with an entry."""
    files = (item.entry.data_file for item in found)
    return sum({file.file_path: file.file_size_in_bytes for file in files}.values())


def entries_of(table: Table, manifests: Iterable[ManifestFile]) -> Iterator[Found]:
    """The live files in these manifests."""
    texts = PartitionTexts(table)
    for manifest in manifests:
        yield from _entries(table, manifest, texts)


def _entries(table: Table, manifest: ManifestFile, texts: PartitionTexts) -> Iterator[Found]:
    spec_id = manifest.partition_spec_id
    for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
        values = entry.data_file.partition
        yield Found(entry, texts.of(spec_id, values), (spec_id, *map(plain, partition_key(values))))
