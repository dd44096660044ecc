"""A table is read as a stream in bounded memory: by Arrow's own count of what it has allocated."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.lakes import open_manager

from floe_core.identifiers import TableIdentifier
from floe_iceberg import IcebergTableManager
from floe_iceberg.reading import streaming

EVENTS = TableIdentifier.from_string("bronze.events")
FILES, ROWS = 16, 150_000
FILE_BYTES = ROWS * 8  # numbers at random, which no codec makes smaller


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> IcebergTableManager:
    manager = open_manager(Path(tmp_path_factory.mktemp("streamed")))
    numbers = np.random.default_rng(7)
    manager.create_table(EVENTS, pa.schema([("n", pa.int64())]))
    for _ in range(FILES):
        manager.write_data(EVENTS, pa.table({"n": numbers.integers(0, 2**62, ROWS)}), mode="append")
    return manager


def await_reading_ahead() -> None:
    """Until Arrow's count has not changed for a while: the files that are read ahead are in memory."""
    seen, since = pa.total_allocated_bytes(), time.monotonic()
    while time.monotonic() - since < 0.1:
        time.sleep(0.005)
        now = pa.total_allocated_bytes()
        if now != seen:
            seen, since = now, time.monotonic()


def most_allocated(read: Callable[[], pa.RecordBatchReader]) -> tuple[int, int]:
    """The most that Arrow has allocated while a slow consumer reads, and the number of rows."""
    before, most, rows = pa.total_allocated_bytes(), 0, 0
    for number, batch in enumerate(read()):
        if number in (0, 3):
            await_reading_ahead()
        rows += len(batch)
        del batch
        most = max(most, pa.total_allocated_bytes() - before)
    return most, rows


@pytest.mark.parametrize("ahead", [2 * FILE_BYTES + 100_000, 0], ids=["small files", "large files"])
@pytest.mark.parametrize("kind", ["scan", "changes"])
def test_a_stream_holds_a_few_files_and_not_the_table(
    tables: IcebergTableManager, monkeypatch: pytest.MonkeyPatch, ahead: int, kind: str
) -> None:
    monkeypatch.setattr(streaming, "AHEAD", ahead, raising=False)
    if kind == "scan":
        most, rows = most_allocated(lambda: tables.scan(EVENTS).to_arrow_batch_reader())
        assert rows == FILES * ROWS
    else:
        first = tables.list_snapshots(EVENTS)[0].snapshot_id
        most, rows = most_allocated(lambda: tables.scan_changes(EVENTS, since=first).to_arrow_batch_reader())
        assert rows == (FILES - 1) * ROWS
    assert most < FILES / 2 * FILE_BYTES  # on a busy machine, Arrow frees what it read a moment later


def test_a_stream_has_the_rows_of_the_table_in_its_order(tables: IcebergTableManager) -> None:
    scan = tables.scan(EVENTS, row_filter="n > 1000000")
    assert scan.to_arrow_batch_reader().read_all().equals(scan.to_arrow())


@pytest.mark.parametrize("limit", [0, 1, ROWS, ROWS + 1, FILES * ROWS + 1])
def test_a_stream_ends_at_its_limit(tables: IcebergTableManager, limit: int) -> None:
    read: Any = tables.scan(EVENTS, limit=limit).to_arrow_batch_reader().read_all()
    assert len(read) == min(limit, FILES * ROWS)


def test_a_filter_may_ignore_case_where_the_scan_does(tables: IcebergTableManager) -> None:
    scan = tables.scan(EVENTS, limit=5).with_case_sensitive(False).filter("N >= 0")
    assert len(scan.to_arrow_batch_reader().read_all()) == len(scan.to_arrow()) == 5
