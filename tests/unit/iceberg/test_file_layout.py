"""Files as the table says: sizes, row groups, the order of the rows, and manifests that something leads to."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile
from pyiceberg.table.sorting import NullOrder, SortDirection
from pyiceberg.transforms import BucketTransform
from tests.engines import BY_DAY, day, events, transform
from tests.lakes import open_manager

from floe_core.errors import ConfigurationError
from floe_core.identifiers import TableIdentifier
from floe_core.models import SortField
from floe_iceberg import IcebergTableManager
from floe_iceberg.files.reachable import reached_files
from floe_iceberg.writing import file_layout, staging

T = TableIdentifier.from_string("bronze.events")
NAN = float("nan")


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> IcebergTableManager:
    monkeypatch.setattr(staging, "_WRITERS", 1)  # several write to a file each
    return open_manager(tmp_path)


def files_of(manager: IcebergTableManager) -> list[DataFile]:
    return [task.file for task in manager.load_table(T).scan().plan_files()]


def opened(file: DataFile) -> pq.ParquetFile:
    return pq.ParquetFile(file.file_path.removeprefix("file://"))


def noise(rows: int) -> pa.Table:
    """About 100 bytes a row, which no codec makes smaller."""
    chance = random.Random(7)
    return pa.table({"id": list(range(rows)), "noise": [chance.randbytes(92) for _ in range(rows)]})


@pytest.mark.parametrize("chunk", [None, 1000])
def test_files_are_as_large_as_the_table_says(manager: IcebergTableManager, chunk: int | None) -> None:
    data = noise(50_000)
    properties = {"write.target-file-size-bytes": str(2**20)}
    manager.write_data(T, data if chunk is None else data.to_reader(chunk), mode="append", properties=properties)
    sizes = sorted(file.file_size_in_bytes for file in files_of(manager))
    assert sum(sizes) > 4.5 * 2**20
    assert sizes[-1] < 1.3 * 2**20
    assert sizes[1] > 0.75 * 2**20, "all but the last are not small either"
    assert manager.scan(T).to_arrow().sort_by("id").equals(data.cast(manager.scan(T).to_arrow().schema))


def test_the_target_is_the_size_on_disk_and_not_in_memory(manager: IcebergTableManager) -> None:
    data = pa.table({"id": list(range(400_000)), "note": ["the same words in every row"] * 400_000})
    assert data.nbytes > 12 * 2**20
    manager.write_data(T, data.to_reader(10_000), mode="append", properties={"write.target-file-size-bytes": "4194304"})
    (file,) = files_of(manager)
    assert file.file_size_in_bytes < 4 * 2**20


def test_sorted_files_grow_to_the_target_as_their_compression_is_learned(manager: IcebergTableManager) -> None:
    # Twice random digits in hex: about a quarter of the bytes in memory remain on disk.
    chance = random.Random(7)
    data = pa.table({"id": list(range(40_000)), "text": [chance.randbytes(50).hex() * 2 for _ in range(40_000)]})
    manager.create_table(
        T, data.schema, sort_by=[SortField(column="id")], properties={"write.target-file-size-bytes": str(2**18)}
    )
    manager.write_data(T, data.to_reader(500), mode="append")
    sizes = sorted(file.file_size_in_bytes for file in files_of(manager))
    assert sizes[len(sizes) // 2] > 0.7 * 2**18
    assert sizes[-1] < 1.3 * 2**18


def test_row_groups_and_pages_are_as_the_table_says(manager: IcebergTableManager) -> None:
    properties = {"write.parquet.row-group-size-bytes": "500000", "write.parquet.page-size-bytes": "20000"}
    manager.write_data(T, noise(20_000), mode="append", properties=properties)
    (file,) = files_of(manager)
    found = opened(file).metadata
    assert found.num_row_groups >= 4
    assert max(found.row_group(one).total_byte_size for one in range(found.num_row_groups)) < 700_000


def test_row_groups_have_at_most_as_many_rows_as_the_table_says(manager: IcebergTableManager) -> None:
    manager.write_data(T, noise(1000), mode="append", properties={"write.parquet.row-group-limit": "300"})
    (file,) = files_of(manager)
    found = opened(file).metadata
    assert [found.row_group(one).num_rows for one in range(found.num_row_groups)] == [300, 300, 300, 100]


@pytest.mark.parametrize("kind", ["whole", "stream"])
def test_rows_are_written_in_the_order_of_the_table(manager: IcebergTableManager, kind: str) -> None:
    order = [SortField(column="n", descending=True, nulls_last=True), SortField(column="x"), SortField(column="s")]
    rows = pa.table(
        {
            "n": pa.array([1, 2, None, 2, 1, 2, 2], pa.int64()),
            "x": pa.array([1.0, NAN, 5.0, None, -1.0, 7.0, float("inf")]),
            "s": ["a", "b", "c", "d", "e", "f", "é"],
        }
    )
    manager.create_table(T, rows.schema, sort_by=order)
    manager.write_data(T, rows if kind == "whole" else rows.to_reader(2), mode="append")
    (file,) = files_of(manager)
    assert opened(file).read(columns=["s"])["s"].to_pylist() == ["d", "f", "é", "b", "e", "a", "c"]
    assert file.sort_order_id == manager.load_table(T).sort_order().order_id == 1


def test_a_sort_order_of_somebody_else_is_kept_and_an_unsorted_file_says_nothing(manager: IcebergTableManager) -> None:
    data = events(0, rows=200)
    manager.write_data(T, data, mode="append")
    with manager.load_table(T).update_sort_order() as update:
        update.desc("id", BucketTransform(4), NullOrder.NULLS_LAST).asc("at", update_identity(), NullOrder.NULLS_FIRST)
    manager.write_data(T, data, mode="append")
    before, after = sorted(files_of(manager), key=lambda file: file.sort_order_id or 0)
    assert before.sort_order_id is None
    assert after.sort_order_id == manager.load_table(T).sort_order().order_id
    kind = manager.load_table(T).schema().find_type("id")
    bucket = BucketTransform(4).transform(kind)
    found = [(-(bucket(row["id"]) or 0), row["at"]) for row in opened(after).read().to_pylist()]
    assert found == sorted(found)
    assert {SortDirection.DESC, SortDirection.ASC} == {
        one.direction for one in manager.load_table(T).sort_order().fields
    }


def update_identity() -> Any:
    from pyiceberg.transforms import IdentityTransform

    return IdentityTransform()


def test_a_sorted_stream_over_partitions_is_sorted_in_each_file_in_bounded_memory(
    manager: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "_WAITING_BYTES", 60_000)
    monkeypatch.setattr(file_layout, "LARGEST_PORTION", 20_000)
    chance = random.Random(3)
    ids = chance.sample(range(10**6), 6000)
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    manager.create_table(T, schema, partition_by=BY_DAY, sort_by=[SortField(column="id")])
    waiting: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, len(ids), 200):
            part = ids[start : start + 200]
            moments = [day(one % 3) + timedelta(seconds=one % 86_400) for one in part]
            yield pa.record_batch([pa.array(part), pa.array(moments, pa.timestamp("us", "UTC"))], schema=schema)

    await_writes = staging.Stager._await_writes

    def watched(self: staging.Stager, at_most: int) -> None:
        waiting.append(self._waiting_bytes)
        await_writes(self, at_most)

    monkeypatch.setattr(staging.Stager, "_await_writes", watched)
    manager.write_data(T, pa.RecordBatchReader.from_batches(schema, batches()), mode="append")
    files = files_of(manager)
    assert len(files) > 3, "more than one file for a day"
    for file in files:
        found = opened(file).read(columns=["id"])["id"].to_pylist()
        assert found == sorted(found)
        assert file.sort_order_id == 1
    assert max(waiting) < 60_000 + 2 * 20_000
    assert sorted(manager.scan(T).to_arrow()["id"].to_pylist()) == sorted(ids)


def test_a_stream_over_many_partitions_buffers_a_limited_number_of_bytes_for_all_of_them(
    manager: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = 200_000
    monkeypatch.setattr(staging, "_WAITING_BYTES", limit)
    rows = noise(10_000)
    rows = rows.append_column("city", pa.array([number % 40 for number in range(len(rows))]))
    manager.create_table(T, rows.schema, partition_by=[transform("identity", "city")])
    table = manager.load_table(T)
    stager = staging.Stager(table.metadata, table.io)
    waiting = []
    for batch in rows.cast(stager.arrow_schema).to_batches(max_chunksize=200):
        stager.add(batch)
        waiting.append(stager._waiting_bytes)
    written = sum(file.record_count for file in stager.finish().files)
    assert rows.nbytes > 5 * limit, "the stream is longer than what may be buffered"
    assert limit / 2 < max(waiting) <= limit
    assert (stager.rows, written) == (len(rows), len(rows))


def test_files_that_are_rewritten_are_sorted_too(manager: IcebergTableManager) -> None:
    manager.create_table(T, events(0).schema, sort_by=[SortField(column="id", descending=True)])
    manager.write_data(T, events(0, rows=50), mode="append")
    manager.write_data(T, events(0, rows=50).slice(10, 5), mode="overwrite", overwrite_filter="id >= 10 AND id < 30")
    for file in files_of(manager):
        found = opened(file).read(columns=["id"])["id"].to_pylist()
        assert found == sorted(found, reverse=True)


@pytest.mark.parametrize("said", [{}, {"commit.manifest-merge.enabled": "true"}])
def test_merging_leaves_no_manifest_that_nothing_leads_to(
    manager: IcebergTableManager, tmp_path: Path, said: dict[str, str]
) -> None:
    with_defaults = {"commit.manifest.min-count-to-merge": "2", **said}
    for _ in range(4):
        manager.write_data(T, events(0), mode="append", commit_strategy="merge", properties=with_defaults)
        with manager.load_table(T).transaction() as changes:
            if not said:  # as in a table of somebody else
                changes.set_properties({"owner": "them"})
    assert len(manager.inspect(T).manifests()) == 1
    reached = {path.removeprefix("file://") for path in reached_files(manager.load_table(T))}
    there = {str(path) for path in (tmp_path / ".floe" / "warehouse").rglob("*.avro")}
    assert there <= reached


def test_a_table_of_somebody_else_that_says_nothing_is_merged(manager: IcebergTableManager) -> None:
    manager.write_data(T, events(0), mode="append", properties={"commit.manifest.min-count-to-merge": "2"})
    with manager.load_table(T).transaction() as changes:
        changes.remove_properties("commit.manifest-merge.enabled")
    for _ in range(2):
        manager.write_data(T, events(0), mode="append", commit_strategy="merge")
    assert len(manager.inspect(T).manifests()) == 1


def test_merging_is_refused_where_the_table_forbids_it(manager: IcebergTableManager) -> None:
    never = {"commit.manifest-merge.enabled": "false"}
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=re.escape("sets commit.manifest-merge.enabled=false")):
            manager.write_data(T, events(0), mode="append", commit_strategy="merge", properties=never)
        manager.write_data(T, events(0), mode="append", properties=never)


BAD = {
    "write.target-file-size-bytes": "abc",
    "write.parquet.row-group-size-bytes": "0",
    "write.parquet.row-group-limit": "-1",
    "write.parquet.page-size-bytes": "1MB",
    "write.parquet.page-row-limit": "",
    "write.parquet.dict-size-bytes": "1.5",
    "write.parquet.compression-level": "high",
    "write.parquet.compression-codec": "zip",
    "commit.manifest-merge.enabled": "maybe",
    "commit.manifest.min-count-to-merge": "few",
}


@pytest.mark.parametrize("name", BAD)
def test_a_property_with_a_bad_value_is_named(manager: IcebergTableManager, name: str) -> None:
    told = rf"table property {name}( of '{T}')? is {re.escape(repr(BAD[name]))}; it must be .* Nothing was written"
    with pytest.raises(ConfigurationError, match=told):
        manager.write_data(T, events(0), mode="append", properties={name: BAD[name]})
    manager.write_data(T, events(0), mode="append", partition_by=[transform("day")])
    with manager.load_table(T).transaction() as changes:
        changes.set_properties({name: BAD[name]})
    with pytest.raises(ConfigurationError, match=told):
        manager.write_data(T, events(0), mode="append")
    assert len(manager.list_snapshots(T)) == 1
