"""A scan that was made before its files were deleted says what happened to the table since."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table import DataScan
from tests.faults.files import files_on_disk, files_reached
from tests.lakes import open_manager

from floe_core.errors import ConcurrencyConflictError, FloeStorageError, TableNotFoundError
from floe_core.identifiers import TableIdentifier
from floe_iceberg import IcebergTableManager

T = TableIdentifier.from_string("bronze.orders")
ROWS = pa.table({"n": [1, 2, 3]})
READS: dict[str, Callable[[DataScan], object]] = {
    "to_arrow": lambda scan: scan.to_arrow(),
    "a reader": lambda scan: scan.to_arrow_batch_reader().read_all(),
    "pandas": lambda scan: scan.to_pandas(),
}


@pytest.fixture
def manager(tmp_path: Path) -> IcebergTableManager:
    opened = open_manager(tmp_path)
    opened.write_data(T, ROWS, mode="append")
    return opened


def data_files(root: Path) -> list[Path]:
    return list((root / ".floe" / "warehouse").rglob("*.parquet"))


def expire_all_but_the_head(manager: IcebergTableManager, root: Path) -> None:
    """What an expiry does: forget the snapshots, then delete the files that nothing leads to any more."""
    old = [one.snapshot_id for one in manager.list_snapshots(T)[:-1]]
    manager.load_table(T).maintenance.expire_snapshots().by_ids(old).commit()
    kept = files_reached(manager.load_table(T))
    for path in files_on_disk(root / ".floe" / "warehouse") - kept:
        path.unlink()


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_scan_made_before_an_expiry_says_that_its_snapshot_expired(
    manager: IcebergTableManager, tmp_path: Path, read: Callable[[DataScan], object]
) -> None:
    scan = manager.scan(T)
    (first,) = manager.list_snapshots(T)
    manager.write_data(T, pa.table({"n": [4]}), mode="overwrite")
    expire_all_but_the_head(manager, tmp_path)
    told = rf"snapshot {first.snapshot_id} of 'bronze.orders' expired after this scan was made.*make the scan again"
    with pytest.raises(FloeStorageError, match=told) as raised:
        read(scan)
    assert "moved" not in str(raised.value)
    assert manager.scan(T).to_arrow().num_rows == 1


def test_a_scan_of_a_table_that_was_purged_since_says_that_it_was_dropped(manager: IcebergTableManager) -> None:
    scan = manager.scan(T)
    manager.drop_table(T, purge=True)
    with pytest.raises(TableNotFoundError, match=r"'bronze\.orders' was dropped after this scan was made"):
        scan.to_arrow()


def test_a_scan_of_a_table_that_was_created_again_since_is_a_conflict(manager: IcebergTableManager) -> None:
    scan = manager.scan(T)
    manager.drop_table(T, purge=True)
    manager.write_data(T, ROWS, mode="append")
    with pytest.raises(ConcurrencyConflictError, match="dropped and created again after this scan was made"):
        scan.to_arrow()


def test_files_that_are_missing_though_the_snapshot_is_there_are_not_called_expired(
    manager: IcebergTableManager, tmp_path: Path
) -> None:
    scan = manager.scan(T)
    for path in data_files(tmp_path):
        path.unlink()
    with pytest.raises(FloeStorageError, match="not where the catalog expects them"):
        scan.to_arrow()
