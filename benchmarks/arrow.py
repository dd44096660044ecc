"""What Floe's promises cost over bare PyIceberg, and how much memory a long stream takes."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from benchmarks.measurement import Row, compare
from benchmarks.stream import BATCH_ROWS, SCHEMA, open_lake, stream
from floe_core.identifiers import TableIdentifier
from floe_core.models import PartitionTransform, PartitionTransformType, WriteMode
from floe_iceberg import IcebergTableManager

__all__ = ["measure", "measure_memory", "measure_reads"]

ROWS = 1_000_000
COMMITS = 300
STREAM_BYTES = 5 * 10**9
BY_DAY = [PartitionTransform(source_column="at", transform_type=PartitionTransformType.DAY)]


def _rows() -> pa.Table:
    return pa.Table.from_batches(itertools.islice(stream(sys.maxsize), ROWS // BATCH_ROWS), schema=SCHEMA)


def _name(table: str) -> TableIdentifier:
    return TableIdentifier.from_string(f"bench.{table}")


def measure() -> Iterator[Row]:
    warnings.simplefilter("ignore")  # PyIceberg's, about a property that it does not know
    with tempfile.TemporaryDirectory() as folder:
        manager = open_lake(Path(folder))
        data = _rows()
        for words, partition_by in (("", []), (" by day", BY_DAY)):
            ours, bare = _name(f"ours{len(partition_by)}"), _name(f"bare{len(partition_by)}")
            for table in (ours, bare):
                manager.create_table(table, SCHEMA, partition_by=partition_by)
            yield compare(
                f"append {ROWS:,} rows{words}",
                lambda ours=ours: manager.write_data(ours, data, mode=WriteMode.APPEND),  # type: ignore[misc]
                "pyiceberg Table.append",
                lambda bare=bare: manager.load_table(bare).append(data),  # type: ignore[misc]
                times=7,
                target="at most 1.15",
            )
        yield from _metadata(manager)
        yield _long_history(manager)


def _long_history(manager: IcebergTableManager) -> Row:
    """A small append to a table with a past."""
    data = pa.table({"id": [1, 2, 3]})
    ours, bare = _name("long_ours"), _name("long_bare")
    for table in (ours, bare):
        for _ in range(COMMITS):
            manager.write_data(table, data, mode=WriteMode.APPEND)
    return compare(
        f"append 3 rows after {COMMITS} commits",
        lambda: manager.write_data(ours, data, mode=WriteMode.APPEND),
        "pyiceberg Table.append",
        lambda: manager.load_table(bare).append(data),
        times=15,
        target="at most 1.15",
    )


def _metadata(manager: IcebergTableManager) -> Iterator[Row]:
    catalog = manager._catalog  # noqa: SLF001 - the bare catalog to compare with
    table = _name("ours0")
    key = (*table.namespace, table.name)
    numbers = itertools.count()
    properties = dict(manager.config.table_properties)

    def create_bare() -> object:
        number = next(numbers)
        place = f"{manager.storage_plugin.get_warehouse_uri('bench')}/bare_{number}"
        return catalog.create_table(("bench", f"bare_{number}"), SCHEMA, place, properties=properties)

    def tag_bare() -> None:
        loaded = catalog.load_table(key)
        head = loaded.current_snapshot()
        assert head is not None
        loaded.manage_snapshots().create_tag(head.snapshot_id, f"bare{next(numbers)}").commit()

    target = "at most 1.2, under 2 s"
    yield compare(
        "create a table",
        lambda: manager.create_table(_name(f"made_{next(numbers)}"), SCHEMA),
        "pyiceberg create_table",
        create_bare,
        times=15,
        target=target,
    )
    yield compare(
        "load a table",
        lambda: manager.load_table(table),
        "pyiceberg load_table",
        lambda: catalog.load_table(key),
        times=31,
        target=target,
    )
    yield compare(
        "list snapshots",
        lambda: manager.list_snapshots(table),
        "pyiceberg snapshots()",
        lambda: catalog.load_table(key).snapshots(),
        times=31,
        target=target,
    )
    yield compare(
        "tag a snapshot",
        lambda: manager.create_tag(table, f"ours{next(numbers)}"),
        "pyiceberg create_tag",
        tag_bare,
        times=15,
        target=target,
    )


def measure_reads() -> Iterator[Row]:
    """The past costs what the present costs, and a column what it weighs."""
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        manager = open_lake(Path(folder))
        table = _name("past")
        old = manager.write_data(table, _rows(), mode=WriteMode.APPEND, partition_by=BY_DAY)
        manager.write_data(table, _rows(), mode=WriteMode.OVERWRITE)
        yield compare(
            "read an old snapshot by id",
            lambda: manager.scan(table, snapshot_id=old.snapshot_id).to_arrow(),
            "read the current one",
            lambda: manager.scan(table).to_arrow(),
            times=9,
            target="near 1",
        )
        yield compare(
            "read an old snapshot by its moment",
            lambda: manager.scan(table, as_of=old.timestamp).to_arrow(),
            "read the current one",
            lambda: manager.scan(table).to_arrow(),
            times=9,
            target="near 1",
        )
        yield compare(
            "scan through Floe",
            lambda: manager.scan(table).to_arrow(),
            "pyiceberg scan",
            lambda: manager.load_table(table).scan().to_arrow(),
            times=9,
            target="near 1",
        )


def measure_memory() -> str:
    """A stream of 5 GB into 30 days, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.stream", folder, str(STREAM_BYTES)]
        told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return (
        f"a stream of {STREAM_BYTES / 10**9:.0f} GB ({told['rows']:,} rows) into a table of 30 days: "
        f"{told['snapshots']} snapshot, {told['files']} files, {told['seconds']:.0f} s, "
        f"peak {told['peak_bytes'] / 10**6:.0f} MB resident (target: under 1000 MB)"
    )
