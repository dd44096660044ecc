"""A damaged file of a table is one error that names the table, the file and the remedy, wherever it is met."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
import requests
from pyiceberg.io.pyarrow import ArrowScan, PyArrowFile, PyArrowFileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import FileScanTask, Table
from pyiceberg.typedef import Record
from tests.faults.damage import TABLE_FILES, damage, header_only
from tests.lakes import open_manager

from floe_core.errors import DamagedFileError
from floe_core.identifiers import TableIdentifier
from floe_iceberg import IcebergTableManager

ORDERS = TableIdentifier.from_string("bronze.orders")
ROWS = pa.table({"id": [1, 2], "city": ["Oslo", "Bergen"]})

Action = Callable[[IcebergTableManager], object]

READS: dict[str, Action] = {
    "read": lambda tables: tables.scan(ORDERS).to_arrow(),
    "batches": lambda tables: tables.scan(ORDERS).to_arrow_batch_reader().read_all(),
    "count": lambda tables: tables.scan(ORDERS, row_filter="id > 1").count(),
}
WRITES: dict[str, Action] = {
    "append": lambda tables: tables.write_data(ORDERS, ROWS, mode="append"),
    "merge": lambda tables: tables.write_data(ORDERS, ROWS, mode="append", commit_strategy="merge"),
    "overwrite": lambda tables: tables.write_data(ORDERS, ROWS, mode="overwrite"),
    "filter": lambda tables: tables.write_data(ORDERS, ROWS.slice(0, 1), mode="overwrite", overwrite_filter="id = 1"),
    "upsert": lambda tables: tables.write_data(ORDERS, ROWS, mode="upsert", keys=["id"]),
}
# What an action reads of a table: an append leaves manifests as they are, and an overwrite the data that it drops.
NEEDED = {
    **dict.fromkeys(READS, TABLE_FILES),
    "append": ("metadata", "manifest list"),
    "merge": ("metadata", "manifest list"),
    "overwrite": ("metadata", "manifest list", "manifest"),
    "filter": TABLE_FILES,
    "upsert": TABLE_FILES,
}
CASES = [(name, kind, how) for name, kinds in NEEDED.items() for kind in kinds for how in ("half", "empty")]
CASES += [("read", kind, how) for kind in TABLE_FILES for how in ("garbage", "zeros")]


@pytest.fixture
def tables(tmp_path: Path) -> IcebergTableManager:
    made = open_manager(tmp_path)
    made.write_data(ORDERS, ROWS, mode="append")
    made.write_data(ORDERS, ROWS, mode="append")
    return made


def head(tables: IcebergTableManager) -> Table:
    return tables.load_table(ORDERS)


@pytest.mark.parametrize(("name", "kind", "how"), CASES)
def test_a_damaged_file_is_named_with_its_table_and_a_remedy(
    tables: IcebergTableManager, name: str, kind: str, how: str
) -> None:
    path = damage(head(tables), kind, how)
    with pytest.raises(DamagedFileError) as caught:
        {**READS, **WRITES}[name](tables)
    message = str(caught.value)
    assert "'bronze.orders'" in message
    assert str(path) in message
    assert "restore" in message.lower()
    assert caught.value.file.endswith(str(path))
    assert caught.value.detail is not None
    assert caught.value.detail.table == "bronze.orders"


@pytest.mark.parametrize("name", [*READS, *WRITES])
def test_a_manifest_list_that_lost_its_entries_is_damaged(tables: IcebergTableManager, name: str) -> None:
    header_only(head(tables), "manifest list")
    snapshots = len(head(tables).snapshots())
    with pytest.raises(DamagedFileError, match="manifest list"):
        {**READS, **WRITES}[name](tables)
    assert len(head(tables).snapshots()) == snapshots


@pytest.mark.parametrize("name", [*READS, "overwrite", "upsert"])
def test_a_manifest_that_lost_its_entries_is_damaged(tables: IcebergTableManager, name: str) -> None:
    header_only(head(tables), "manifest")
    with pytest.raises(DamagedFileError, match="manifest"):
        {**READS, **WRITES}[name](tables)


def test_a_table_whose_rows_were_all_deleted_is_not_damaged(tables: IcebergTableManager) -> None:
    tables.write_data(ORDERS, ROWS.slice(0, 0), mode="overwrite", allow_empty=True)
    tables.write_data(ORDERS, ROWS, mode="append")
    tables.write_data(ORDERS, ROWS.slice(0, 0), mode="overwrite", allow_empty=True)
    assert tables.scan(ORDERS).to_arrow().num_rows == 0
    tables.write_data(ORDERS, ROWS, mode="append")
    assert tables.scan(ORDERS).to_arrow().num_rows == 2


@pytest.mark.parametrize("kind", ["manifest list", "manifest"])
def test_the_remedy_of_a_damaged_manifest_works(tables: IcebergTableManager, kind: str) -> None:
    first = tables.list_snapshots(ORDERS)[0].snapshot_id
    damage(head(tables), kind, "empty")
    with pytest.raises(DamagedFileError, match="rollback_to_snapshot"):
        tables.scan(ORDERS).to_arrow()
    tables.rollback_to_snapshot(ORDERS, first)
    assert tables.scan(ORDERS).to_arrow().num_rows == 2
    tables.write_data(ORDERS, ROWS, mode="append")
    assert tables.scan(ORDERS).to_arrow().num_rows == 4


def test_the_remedy_of_a_damaged_metadata_file_works(tables: IcebergTableManager) -> None:
    earlier = head(tables).metadata.metadata_log[-1].metadata_file
    damage(head(tables), "metadata", "half")
    with pytest.raises(DamagedFileError, match="register_table"):
        tables.load_table(ORDERS)
    tables.drop_table(ORDERS)
    tables.register_table(ORDERS, earlier)
    assert tables.scan(ORDERS).to_arrow().num_rows == 2


def test_the_remedy_of_a_damaged_data_file_works(tables: IcebergTableManager) -> None:
    damage(head(tables), "data", "garbage")
    with pytest.raises(DamagedFileError, match="overwrite"):
        tables.scan(ORDERS).to_arrow()
    tables.write_data(ORDERS, ROWS, mode="overwrite")
    assert tables.scan(ORDERS).to_arrow().num_rows == 2


def test_metadata_of_an_unknown_format_is_not_called_damaged(tables: IcebergTableManager) -> None:
    path = Path(head(tables).metadata_location.removeprefix("file://"))
    path.write_text(path.read_text(encoding="utf-8").replace('"format-version":2', '"format-version":9'), "utf-8")
    with pytest.raises(DamagedFileError, match=r"'bronze\.orders'.*does not understand") as caught:
        tables.load_table(ORDERS)
    assert "damaged" not in str(caught.value)


def test_a_file_that_is_gone_is_not_called_damaged(tables: IcebergTableManager) -> None:
    damage(head(tables), "manifest", "gone")
    with pytest.raises(Exception, match="not where the catalog expects them") as caught:
        tables.scan(ORDERS).to_arrow()
    assert not isinstance(caught.value, DamagedFileError)


class _AwayFileIO(PyArrowFileIO):
    """Files that cannot be reached now."""

    def __init__(self, failure: Exception) -> None:
        super().__init__()
        self._failure = failure

    def new_input(self, location: str) -> PyArrowFile:
        del location
        raise self._failure


@pytest.mark.parametrize(
    "failure",
    [
        TimeoutError("timed out"),
        ConnectionResetError("the connection was reset"),
        requests.ConnectionError("no route"),
        OSError("google::cloud::Status(UNAVAILABLE: try again)"),
        OSError("Opening a blob failed. Azure Error: [ServerBusy]"),
        ValueError("Unrecognized filesystem type in URI: wasb"),
    ],
    ids=str,
)
def test_a_file_that_cannot_be_reached_is_not_called_damaged(tables: IcebergTableManager, failure: Exception) -> None:
    table, away = head(tables), _AwayFileIO(failure)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    manifest, scan = snapshot.manifests(table.io)[0], table.scan()
    tasks = list(scan.plan_files())
    rows = ArrowScan(table.metadata, away, scan.projection(), scan.row_filter)
    for read in (lambda: snapshot.manifests(away), lambda: manifest.fetch_manifest_entry(away)):
        with pytest.raises(type(failure), match=re.escape(str(failure))):
            read()
    with pytest.raises(type(failure), match=re.escape(str(failure))):
        rows.to_table(tasks)


def test_a_data_file_of_a_format_that_pyiceberg_does_not_read_is_not_called_damaged(
    tables: IcebergTableManager,
) -> None:
    scan = tables.scan(ORDERS)
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=next(iter(scan.plan_files())).file.file_path,
        file_format=FileFormat.AVRO,
        partition=Record(),
        record_count=2,
        file_size_in_bytes=1,
    )
    file.spec_id = 0
    with pytest.raises(ValueError, match="Unsupported file format"):
        ArrowScan(scan.table_metadata, scan.io, scan.projection(), scan.row_filter).to_table([FileScanTask(file)])
