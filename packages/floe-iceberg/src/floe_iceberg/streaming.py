"""Read a scan as a stream: PyIceberg's reads every file into memory as fast as it can, whatever its reader consumes."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa
from pyiceberg.io.pyarrow import ArrowScan, _read_all_delete_files, schema_to_pyarrow
from pyiceberg.table import DataScan, FileScanTask, IncrementalAppendScan

__all__ = ["AHEAD", "stream"]

# Bytes of small files, as they are stored, that are read before they are asked for; a larger file is read alone.
AHEAD = 8 * 2**20
_READERS = min(8, (os.cpu_count() or 1) + 4)


def stream(scan: DataScan | IncrementalAppendScan, tasks: Iterable[FileScanTask]) -> pa.RecordBatchReader:
    """The rows of these files, in their order. Memory holds a few small files, or a part of a large one."""
    listed, projection = list(tasks), scan.projection()
    source = _Source(scan.table_metadata, scan.io, projection, scan.row_filter, scan.case_sensitive)
    batches = _up_to(scan.limit, source.to_record_batches(listed))
    schema = schema_to_pyarrow(projection)
    return pa.RecordBatchReader.from_batches(schema, (_cast(batch, schema) for batch in batches))


class _Source(ArrowScan):
    """PyIceberg's, which reads no further ahead than `AHEAD`."""

    def to_record_batches(self, tasks: Iterable[FileScanTask]) -> Iterator[pa.RecordBatch]:
        coming, deletes = deque(tasks), _read_all_delete_files(self._io, tasks)

        def rows_of(task: FileScanTask) -> Iterator[pa.RecordBatch]:
            return self._record_batches_from_scan_tasks_and_deletes([task], deletes)

        waiting: deque[tuple[int, Future[list[pa.RecordBatch]]]] = deque()
        size = 0
        pool = ThreadPoolExecutor(_READERS, thread_name_prefix="floe-scan")
        try:
            while coming or waiting:
                while coming and size + coming[0].file.file_size_in_bytes <= AHEAD:
                    task = coming.popleft()
                    size += task.file.file_size_in_bytes
                    waiting.append((task.file.file_size_in_bytes, pool.submit(lambda one: list(rows_of(one)), task)))
                if not waiting:
                    yield from rows_of(coming.popleft())
                    continue
                own, future = waiting.popleft()
                rows = deque(future.result())
                del future  # or it would keep the rows that were given away
                while rows:
                    yield rows.popleft()
                size -= own
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _up_to(limit: int | None, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """As many rows as the limit allows; after them no file is read."""
    left = limit
    while left is None or left > 0:
        batch = next(batches, None)
        if batch is None:
            return
        batch = batch if left is None else batch.slice(0, left)
        left = None if left is None else left - len(batch)
        yield batch


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Files of one table may hold a column as `string` and as `large_string`."""
    return batch if batch.schema.equals(schema, check_metadata=True) else batch.cast(schema)
