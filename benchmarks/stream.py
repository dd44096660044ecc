"""A stream of Arrow data of any length into a table partitioned by day, in a process of its own.

python -m benchmarks.stream FOLDER BYTES     prints rows, files, seconds and the peak of memory as JSON
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from floe_core.config import LocalStorageConfig, SqlCatalogConfig
from floe_core.identifiers import TableIdentifier
from floe_core.models import PartitionTransform, PartitionTransformType, WriteMode
from floe_core.plugins import start
from floe_iceberg import IcebergTableManager
from floe_iceberg.catalogs import SqlCatalogPlugin
from floe_iceberg.storage import LocalStoragePlugin

__all__ = ["open_lake", "stream"]

DAYS = 30
BATCH_ROWS = 100_000
SCHEMA = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("x", pa.float64()), ("note", pa.string())])
_FIRST = 1_767_225_600_000_000
_MICROSECONDS = DAYS * 86_400_000_000


def open_lake(folder: Path) -> IcebergTableManager:
    """The embedded catalog in a folder, without a JVM."""
    storage = LocalStoragePlugin(LocalStorageConfig(), root=folder)
    start(storage)
    return IcebergTableManager(SqlCatalogPlugin(SqlCatalogConfig(), root=folder), storage)


def stream(size: int) -> Iterator[pa.RecordBatch]:
    """Batches whose rows lie scattered over all days, at least `size` bytes in all."""
    made = 0
    for number in range(size):
        if made >= size:
            return
        ids = pa.array(range(number * BATCH_ROWS, (number + 1) * BATCH_ROWS), pa.int64())
        scattered = pc.bit_wise_and(pc.multiply(ids, 0x9E3779B97F4A7C1), (1 << 62) - 1)
        moments = pc.add(
            pc.subtract(scattered, pc.multiply(pc.divide(scattered, _MICROSECONDS), _MICROSECONDS)), _FIRST
        )
        notes = pc.binary_join_element_wise("note number", ids.cast(pa.string()), "of many", " ")
        columns = [
            ids,
            moments.cast(pa.timestamp("us", "UTC")),
            pc.divide(scattered.cast(pa.float64(), safe=False), 7.0),
            notes,
        ]
        batch = pa.record_batch(columns, schema=SCHEMA)
        made += batch.nbytes
        yield batch


def main(folder: str, size: str) -> None:
    manager = open_lake(Path(folder))
    table = TableIdentifier.from_string("bench.stream")
    by_day = PartitionTransform(source_column="at", transform_type=PartitionTransformType.DAY)
    started = time.perf_counter()
    reader = pa.RecordBatchReader.from_batches(SCHEMA, stream(int(size)))
    made = manager.write_data(table, reader, mode=WriteMode.APPEND, partition_by=[by_day])
    told = {
        "rows": made.count("added-records"),
        "files": made.count("added-data-files"),
        "snapshots": len(manager.list_snapshots(table)),
        "seconds": round(time.perf_counter() - started, 1),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
