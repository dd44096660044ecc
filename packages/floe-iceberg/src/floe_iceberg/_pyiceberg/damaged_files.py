"""Patches of PyIceberg's readers: a damaged file of a table becomes one error that names the file and the remedy.

PyIceberg does not validate files. It ends an Avro file at the first missing entry, decodes past the end of a truncated
file, and raises the exceptions of its parsers without the name of the file. A manifest list that lost its
entries would read as an empty table, and an append to it would drop every row. Each reader is wrapped.
"""

from __future__ import annotations

import gzip
import io as streams
import json
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyiceberg.io.pyarrow as library
from pyiceberg.avro.file import AvroFile
from pyiceberg.exceptions import ValidationError
from pyiceberg.io import FileIO, InputFile
from pyiceberg.manifest import DataFile, FileFormat, ManifestEntry, ManifestFile
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import FileScanTask
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.puffin import PuffinFile
from pyiceberg.table.snapshots import Snapshot

from floe_core.engines import private_names
from floe_core.errors import DamagedFileError, FloeError

with private_names("pyiceberg", "a damaged data file is distinguished from an unreachable one"):
    from pyiceberg.io.pyarrow import _get_file_format

__all__ = ["REPLACEMENTS", "avro_problem"]

_METADATA = "metadata file"
_LIST = "manifest list"
_MANIFEST = "manifest"
_DATA = "data file"
_REMEDIES = {
    _METADATA: (
        "Restore the file from a backup or from an earlier version of the object. Without one, go back to an earlier "
        "metadata file of the same folder: drop_table without purge, then register_table with its address"
    ),
    _LIST: (
        "Restore the file from a backup or from an earlier version of the object. Without one, go back to a snapshot "
        "that does not need it with rollback_to_snapshot, and write what is missing again"
    ),
    _DATA: (
        "Restore the file from a backup or from an earlier version of the object. Without one, overwrite the "
        "partitions or the table that it belongs to: run the asset again"
    ),
}
_REMEDIES[_MANIFEST] = _REMEDIES[_LIST]
# The exceptions of the parsers for invalid content; an unreachable file raises OSError.
_UNPARSABLE = (
    ValueError,
    ValidationError,
    EOFError,
    KeyError,
    IndexError,
    TypeError,
    OverflowError,
    zlib.error,
    gzip.BadGzipFile,
)
_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_LONGEST_REASON = 200


def _damaged(kind: str, file: str, reason: str) -> DamagedFileError:
    return DamagedFileError(f"{kind} {file} is damaged: {reason}. {_REMEDIES[kind]}", file=file)


def _brief(exc: Exception) -> str:
    if isinstance(exc, _IncompleteError):
        return str(exc)
    lines = str(exc).strip().splitlines()
    return f"{type(exc).__name__}: {lines[0]}"[:_LONGEST_REASON] if lines else type(exc).__name__


@contextmanager
def _parsing(kind: str, file: str, io: FileIO) -> Iterator[None]:
    try:
        yield
    except FloeError:
        raise
    except _UNPARSABLE as exc:
        if str(exc).startswith("Unsupported codec"):
            raise
        # A FileIO that cannot read the file raises such errors too: a file is damaged only if its content can be read.
        with io.new_input(file).open() as opened:
            opened.read()
        raise _damaged(kind, file, _brief(exc)) from exc


# Avro ---------------------------------------------------------------------------------------------------------------


class _IncompleteError(ValueError):
    """The content is not a whole Avro file."""


class _Cursor:
    """Reads the structure of an Avro file, never past its end."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.position = 0

    def take(self, size: int) -> bytes:
        end = self.position + size
        if size < 0 or end > len(self._content):
            raise _IncompleteError("it was cut off, or overwritten")
        taken = self._content[self.position : end]
        self.position = end
        return taken

    def skip(self, size: int) -> None:
        if size < 0 or self.position + size > len(self._content):
            raise _IncompleteError("it was cut off, or overwritten")
        self.position += size

    def number(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            if shift > 63:
                raise _IncompleteError("it was overwritten")

    def header(self) -> bytes:
        """Skip the header and return its sync marker."""
        if self.take(len(_MAGIC)) != _MAGIC:
            raise _IncompleteError("it does not begin like an Avro file")
        while count := self.number():
            if count < 0:
                self.number()  # the size of this part of the map in bytes
            for _ in range(2 * abs(count)):
                self.skip(self.number())
        return self.take(_SYNC_BYTES)


def avro_problem(content: bytes) -> str | None:
    """Why this is not a complete Avro file, or None."""
    if not content:
        return "it is empty"
    cursor = _Cursor(content)
    try:
        sync = cursor.header()
        while cursor.position < len(content):
            cursor.number()
            cursor.skip(cursor.number())
            if cursor.take(_SYNC_BYTES) != sync:
                return "it was overwritten"
    except ValueError as exc:
        return str(exc)
    return None


class _InMemory:
    """An input file whose content is already in memory."""

    def __init__(self, location: str, content: bytes) -> None:
        self.location = location
        self._content = content

    def open(self, seekable: bool = True) -> streams.BytesIO:
        del seekable
        return streams.BytesIO(self._content)


_original_enter = AvroFile.__enter__


def _enter_checked(self: AvroFile[Any]) -> AvroFile[Any]:
    with self.input_file.open() as file:
        content = file.read()
    problem = avro_problem(content)
    if problem is not None:
        raise _IncompleteError(problem)
    self.input_file = _InMemory(self.input_file.location, content)  # type: ignore[assignment]
    return _original_enter(self)


_original_manifests = Snapshot.manifests
_original_fetch = ManifestFile.fetch_manifest_entry


def _manifests_checked(self: Snapshot, io: FileIO) -> list[ManifestFile]:
    with _parsing(_LIST, self.manifest_list, io):
        manifests = _original_manifests(self, io)
    if not manifests and self.summary is not None:
        summary = self.summary.additional_properties
        counts = [summary.get(key) or "0" for key in ("added-data-files", "total-data-files")]
        if any(count.isdecimal() and int(count) > 0 for count in counts):
            reason = f"it has no entries, and its snapshot {self.snapshot_id} has data files"
            raise _damaged(_LIST, self.manifest_list, reason)
    return manifests


def _entries_checked(self: ManifestFile, io: FileIO, discard_deleted: bool = True) -> list[ManifestEntry]:
    with _parsing(_MANIFEST, self.manifest_path, io):
        entries = _original_fetch(self, io, discard_deleted)
    counts = [self.added_files_count, self.existing_files_count]
    expected = sum(count for count in counts if count is not None)
    if len(entries) < expected:
        reason = f"it has {len(entries)} entries where its manifest list counts {expected}"
        raise _damaged(_MANIFEST, self.manifest_path, reason)
    return entries


# Metadata -----------------------------------------------------------------------------------------------------------

_original_table_metadata = FromInputFile.table_metadata


def _metadata_checked(input_file: InputFile, encoding: str = "utf-8") -> TableMetadata:
    try:
        return _original_table_metadata(input_file, encoding)
    except _UNPARSABLE as exc:
        file = input_file.location
        if not _is_object(input_file, encoding):
            raise _damaged(_METADATA, file, "it is empty, cut off or overwritten, and not JSON") from exc
        raise DamagedFileError(
            f"{_METADATA} {file} is JSON that PyIceberg does not understand: {_brief(exc)}. It was written by a newer "
            f"version of Iceberg, or edited: update Floe, or restore the file",
            file=file,
        ) from exc


def _is_object(input_file: InputFile, encoding: str) -> bool:
    with input_file.open() as file:
        content = file.read()
    try:
        if input_file.location.endswith(".gz.metadata.json"):
            content = gzip.decompress(content)
        return isinstance(json.loads(content.decode(encoding)), dict)
    except _UNPARSABLE:
        return False


# Data ---------------------------------------------------------------------------------------------------------------

_PARSED = (FileFormat.PARQUET, FileFormat.ORC, FileFormat.PUFFIN)
# How Arrow reports errors of an object store, or of the connection to it.
_STORE_ERRORS = re.compile(r"AWS Error|google::cloud|Azure|(?i:\bcurl|\bhttp)")
_original_batches = library._task_to_record_batches
_original_deletes = library._read_deletes


def _batches_checked(io: FileIO, task: FileScanTask, *args: Any, **kwargs: Any) -> Iterator[pa.RecordBatch]:
    with _reading(io, task.file):
        yield from _original_batches(io, task, *args, **kwargs)


def _deletes_checked(io: FileIO, data_file: DataFile) -> dict[str, pa.ChunkedArray]:
    with _reading(io, data_file):
        return _original_deletes(io, data_file)


@contextmanager
def _reading(io: FileIO, file: DataFile) -> Iterator[None]:
    try:
        yield
    except (OSError, *_UNPARSABLE) as exc:
        # A filter or a cast may have failed instead: a file is damaged only if a plain read of it fails.
        if _is_unreachable(exc) or not _is_unreadable(io, file):
            raise
        raise _damaged(_DATA, file.file_path, _brief(exc)) from exc


def _is_unreachable(exc: Exception) -> bool:
    """Did the system, the network or the store fail, rather than the decoding of the content?

    Arrow raises a plain OSError without an errno for content that it cannot decode.
    """
    if isinstance(exc, OSError):
        return type(exc) is not OSError or exc.errno is not None or _STORE_ERRORS.search(str(exc)) is not None
    return isinstance(exc, FloeError)


def _is_unreadable(io: FileIO, file: DataFile) -> bool:
    """Can the file be opened but not parsed? False for a format that PyIceberg does not read."""
    if file.file_format not in _PARSED:
        return False
    try:
        content = io.new_input(file.file_path).open()
    except Exception:  # noqa: BLE001 - whatever the error, no content was read
        return False
    try:
        with content as opened:
            if file.file_format == FileFormat.PUFFIN:
                PuffinFile(opened.read())
                return False
            fragment = _get_file_format(file.file_format).make_fragment(opened)
            for _ in fragment.to_batches():
                pass
    except (OSError, *_UNPARSABLE) as exc:
        return not _is_unreachable(exc)
    return False


REPLACEMENTS: dict[str, Any] = {
    "pyiceberg.avro.file:AvroFile.__enter__": _enter_checked,
    "pyiceberg.table.snapshots:Snapshot.manifests": _manifests_checked,
    "pyiceberg.manifest:ManifestFile.fetch_manifest_entry": _entries_checked,
    "pyiceberg.serializers:FromInputFile.table_metadata": staticmethod(_metadata_checked),
    "pyiceberg.io.pyarrow:_task_to_record_batches": _batches_checked,
    "pyiceberg.io.pyarrow:_read_deletes": _deletes_checked,
}
