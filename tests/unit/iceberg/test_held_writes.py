"""Which absence of a snapshot proves that a write was lost."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from tests.lakes import open_manager

from floe_core.identifiers import TableIdentifier
from floe_core.models import WriteMode
from floe_iceberg.snapshots.recorded_writes import BranchHistory, Loss, RecordedWrite

HOUR_MS = 3600 * 1000
UNKNOWN = 999  # a snapshot that the table does not have


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Three appends, with the write ids 0, 1 and 2."""
    tables, name = open_manager(tmp_path), TableIdentifier.from_string("bronze.orders")
    for number in range(3):
        tables.write_data(name, pa.table({"id": [number]}), mode=WriteMode.APPEND, write_id=str(number))
    return tables.load_table(name)


def expired(table: Table) -> Table:
    """The same, of which the first snapshot has expired."""
    table.maintenance.expire_snapshots().by_id(table.snapshots()[0].snapshot_id).commit()
    return table.refresh()


def test_a_whole_history_contains_every_write(table: Table) -> None:
    history, uuid = BranchHistory(table), str(table.metadata.table_uuid)
    assert [history.loss_of(RecordedWrite(one.snapshot_id, uuid)) for one in table.snapshots()] == [None] * 3
    assert history.loss_of(RecordedWrite(UNKNOWN, uuid)) is Loss.ROLLED_BACK
    assert history.loss_of(RecordedWrite(UNKNOWN)) is Loss.RECREATED
    assert history.loss_of(RecordedWrite(UNKNOWN, uuid, write_id="1")) is None
    assert history.loss_of(RecordedWrite(UNKNOWN, "another")) is Loss.RECREATED
    assert history.loss_of(RecordedWrite()) is None
    assert history.created_at is not None


def test_what_is_newer_than_the_oldest_snapshot_has_not_expired(table: Table) -> None:
    history, uuid = BranchHistory(expired(table)), str(table.metadata.table_uuid)
    oldest = table.snapshots()[0].timestamp_ms
    for committed, loss in (
        (oldest - 1, None),
        (oldest + HOUR_MS // 2, None),  # the clocks of two writers may differ
        (oldest + 2 * HOUR_MS, Loss.ROLLED_BACK),
        (None, None),
    ):
        assert history.loss_of(RecordedWrite(UNKNOWN, uuid, committed_ms=committed)) is loss
    assert history.created_at is None


def test_a_table_that_was_never_written_holds_nothing(tmp_path: Path) -> None:
    tables, name = open_manager(tmp_path), TableIdentifier.from_string("bronze.orders")
    history = BranchHistory(tables.create_table(name, pa.schema({"id": pa.int64()})))
    assert history.loss_of(RecordedWrite(UNKNOWN)) is Loss.RECREATED


def test_a_write_is_found_by_the_text_that_an_error_shows_and_is_none_where_it_created_no_table(tmp_path: Path) -> None:
    tables = open_manager(tmp_path)
    assert tables.find_write("bronze.orders", "w") is None
    made = tables.write_data(
        TableIdentifier.from_string("bronze.orders"), pa.table({"id": [1]}), mode=WriteMode.APPEND, write_id="w"
    )
    assert tables.find_write("bronze.orders", "w") == made
    assert tables.find_write("bronze.orders", "x") is None
