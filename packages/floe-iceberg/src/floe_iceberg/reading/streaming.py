"""Stream a scan in bounded memory: PyIceberg's own stream loads files without regard to the pace of its consumer."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import DataScan, FileScanTask, IncrementalAppendScan

from floe_iceberg._pyiceberg.files import TaskScan

__all__ = ["AHEAD", "stream"]

# Read-ahead, in stored bytes of small files; a larger file is read alone.
AHEAD = 8 * 2**20
_READERS = min(8, (os.cpu_count() or 1) + 4)


def stream(scan: DataScan | IncrementalAppendScan, tasks: Iterable[FileScanTask]) -> pa.RecordBatchReader:
    """The rows of these files, in their order. Memory holds a few small files, or a part of a large one."""
    listed, projection = list(tasks), scan.projection()
    source = _Source(scan.table_metadata, scan.io, projection, scan.row_filter, scan.case_sensitive)
    # How many rows of a file match a filter is not known before it is read.
    enough = scan.limit if scan.row_filter == AlwaysTrue() else None
    batches = _up_to(scan.limit, source.to_record_batches(listed, enough))
    schema = schema_to_pyarrow(projection)
    return pa.RecordBatchReader.from_batches(schema, (_cast(batch, schema) for batch in batches))


class _Source(TaskScan):
    """PyIceberg's scan, with a read-ahead of at most `AHEAD`."""

    def to_record_batches(self, tasks: Iterable[FileScanTask], enough: int | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of these files; no file is read ahead if those before it have `enough` rows."""
        coming, deletes = deque(tasks), self.deletes_of(tasks)

        waiting: deque[tuple[int, Future[list[pa.RecordBatch]]]] = deque()
        size = rows_begun = 0
        pool = ThreadPoolExecutor(_READERS, thread_name_prefix="floe-scan")
        try:
            while coming or waiting:
                while (
                    coming
                    and size + coming[0].file.file_size_in_bytes <= AHEAD
                    and (enough is None or rows_begun < enough)
                ):
                    task = coming.popleft()
                    size += task.file.file_size_in_bytes
                    rows_begun += 0 if task.delete_files else task.file.record_count
                    waiting.append(
                        (task.file.file_size_in_bytes, pool.submit(lambda own: list(self.rows_of(own, deletes)), task))
                    )
                if not waiting:
                    yield from self.rows_of(coming.popleft(), deletes)
                    continue
                own, future = waiting.popleft()
                rows = deque(future.result())
                del future  # or it would keep the yielded rows in memory
                while rows:
                    yield rows.popleft()
                size -= own
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _up_to(limit: int | None, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """As many rows as the limit allows; no file is read after them."""
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
