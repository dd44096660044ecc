"""What a read takes from the file system: only the columns and the snapshot that were asked for."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.lakes import open_manager

from floe_core.identifiers import TableIdentifier
from floe_iceberg import IcebergTableManager

T = TableIdentifier.from_string("bronze.wide")
COLUMNS = [f"c{number}" for number in range(10)]
ROWS = 100_000
COLUMN_BYTES = 8 * ROWS


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory) -> IcebergTableManager:
    """Ten columns of numbers that do not compress, and three snapshots: one file, two, and one of other rows."""
    root = tmp_path_factory.mktemp("cost")
    opened = open_manager(root)
    opened.create_table(T, pa.schema([(name, pa.int64()) for name in COLUMNS]))
    opened.load_table(T).append(noise(1))
    opened.load_table(T).append(noise(2))
    opened.load_table(T).overwrite(noise(3))
    opened.scan(T).to_arrow()  # the first read of a process imports modules, and their bytes would be counted
    return opened


def noise(first: int) -> pa.Table:
    columns = {
        name: pa.Array.from_buffers(pa.int64(), ROWS, [None, pa.py_buffer(os.urandom(8 * ROWS))]) for name in COLUMNS
    }
    return pa.table({**columns, "c0": pa.array([first] * ROWS)})


def bytes_read(action: Callable[[], object]) -> int:
    """What this process reads by system calls meanwhile."""

    def so_far() -> int:
        lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
        return int(next(line for line in lines if line.startswith("rchar:")).split()[1])

    before = so_far()
    action()
    return so_far() - before


def cost(manager: IcebergTableManager, **options: Any) -> int:
    scan = manager.scan(T, **options)
    return bytes_read(scan.to_arrow)


@pytest.mark.parametrize("count", [1, 3, 5, 9])
def test_a_projection_reads_its_share_of_the_bytes(manager: IcebergTableManager, count: int) -> None:
    everything = cost(manager, columns=COLUMNS[1:])
    assert everything > 9 * COLUMN_BYTES
    share = cost(manager, columns=COLUMNS[1 : count + 1]) / everything
    assert share == pytest.approx(count / 9, abs=0.02)


def test_a_stream_reads_its_share_too(manager: IcebergTableManager) -> None:
    def read(columns: list[str]) -> int:
        scan = manager.scan(T, columns=columns)
        return bytes_read(lambda: [batch.num_rows for batch in scan.to_arrow_batch_reader()])

    assert read(["c1"]) / read(COLUMNS[1:]) == pytest.approx(1 / 9, abs=0.02)


def test_a_stream_with_a_limit_reads_only_the_files_that_have_the_rows(manager: IcebergTableManager) -> None:
    second = manager.list_snapshots(T)[1].snapshot_id

    def read(**options: Any) -> int:
        scan = manager.scan(T, snapshot_id=second, **options)
        return bytes_read(lambda: [batch.num_rows for batch in scan.to_arrow_batch_reader()])

    everything = read()
    assert read(limit=1) == pytest.approx(everything / 2, rel=0.05)
    assert read(limit=ROWS) == pytest.approx(everything / 2, rel=0.05)
    assert read(limit=ROWS + 1) == pytest.approx(everything, rel=0.05)


def test_the_past_is_read_by_id_and_by_moment_for_the_bytes_of_its_own_files(manager: IcebergTableManager) -> None:
    first, second, *_ = manager.list_snapshots(T)

    def values(**options: Any) -> set[object]:
        return set(manager.scan(T, columns=["c0"], **options).to_arrow()["c0"].to_pylist())

    assert values() == {3}
    for snapshot, expected in ((first, {1}), (second, {1, 2})):
        assert values(snapshot_id=snapshot.snapshot_id) == expected
        assert values(as_of=snapshot.timestamp) == expected
    assert values(as_of=second.timestamp - timedelta(milliseconds=1)) == {1}

    now, once = cost(manager), cost(manager, snapshot_id=first.snapshot_id)
    assert once == pytest.approx(now, rel=0.02)
    assert cost(manager, as_of=first.timestamp) == pytest.approx(now, rel=0.02)
    assert cost(manager, snapshot_id=second.snapshot_id) == pytest.approx(2 * now, rel=0.02)
