"""Reading and writing files: deletes and rows of a scan, the Parquet writer, file systems."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
from pyarrow.fs import FileSystem
from pyiceberg.io.pyarrow import ArrowScan, ParquetFormatWriter, PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask

from floe_core.engines import private_names, require_members

_STREAMS = "scans are read in bounded memory"
with private_names("pyiceberg", _STREAMS):
    from pyiceberg.io.pyarrow import _read_all_delete_files

__all__ = ["ArrowFileIO", "MeasuredWriter", "TaskScan"]

_SIZES = "data files have the size that the table asks for"
require_members("pyiceberg", ArrowScan, "_io", "_record_batches_from_scan_tasks_and_deletes", promise=_STREAMS)
require_members("pyiceberg", ParquetFormatWriter, "_fos", "_parquet_writer_kwargs", promise=_SIZES)
require_members("pyiceberg", PyArrowFileIO, "_initialize_fs", promise="vended credentials are renewed before they end")


class TaskScan(ArrowScan):
    """PyIceberg's scan, which can be read file by file."""

    def deletes_of(self, tasks: Iterable[FileScanTask]) -> dict[str, list[pa.ChunkedArray]]:
        """The positions of deleted rows, by data file."""
        return _read_all_delete_files(self._io, tasks)

    def rows_of(self, task: FileScanTask, deletes: dict[str, list[pa.ChunkedArray]]) -> Iterator[pa.RecordBatch]:
        """The rows of one file."""
        return self._record_batches_from_scan_tasks_and_deletes([task], deletes)


class MeasuredWriter(ParquetFormatWriter):
    """PyIceberg's writer, which reports the size of the file so far, and stores no Arrow schema in it.

    With Arrow's own schema in the file, PyArrow would read every text as large_string, and the same text from a file
    of Spark or PyIceberg as string.
    """

    def __init__(self, output: object, schema: Schema, properties: Mapping[str, str]) -> None:
        super().__init__(output, schema, dict(properties))  # type: ignore[arg-type]
        self._parquet_writer_kwargs["store_schema"] = False

    @property
    def written(self) -> int:
        return 0 if self._fos is None else self._fos.tell()


class ArrowFileIO(PyArrowFileIO):
    """PyIceberg's FileIO, with a public method that creates a file system."""

    def new_file_system(self, scheme: str, netloc: str | None) -> FileSystem:
        return self._initialize_fs(scheme, netloc)
