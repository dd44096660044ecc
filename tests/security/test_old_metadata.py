"""A commit deletes only metadata files that fell off its own log and that nothing else uses, wherever they lie."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from tests.lakes import open_manager

from floe_core.identifiers import TableIdentifier
from floe_iceberg import IcebergTableManager
from floe_iceberg.maintenance.leases import leased

ROWS = pa.table({"id": [1, 2]})
T, COPY = "bronze.orders", "bronze.copy"
ONE = {"write.metadata.previous-versions-max": "1"}


@pytest.fixture
def manager(tmp_path: Path) -> IcebergTableManager:
    return open_manager(tmp_path / "lake")


def path_of(address: str) -> Path:
    return Path(address.removeprefix("file://"))


def newest(manager: IcebergTableManager, name: str = T) -> Path:
    return path_of(manager.load_table(name).metadata_location)


def log_of(manager: IcebergTableManager, name: str) -> list[Path]:
    return [path_of(entry.metadata_file) for entry in manager.load_table(name).metadata.metadata_log]


def set_properties(manager: IcebergTableManager, name: str = T, **properties: str) -> None:
    with manager.load_table(name).transaction() as changes:
        changes.set_properties(properties)


def commit(manager: IcebergTableManager, times: int, name: str = T) -> None:
    for _ in range(times):
        set_properties(manager, name, note=str(uuid.uuid4()))


def appended(manager: IcebergTableManager, times: int, name: str = T) -> None:
    for _ in range(times):
        manager.write_data(name, ROWS, mode="append")


@pytest.mark.parametrize("linked", ["metadata", "elsewhere"])
def test_metadata_of_another_lake_stays_behind_a_linked_folder(
    manager: IcebergTableManager, tmp_path: Path, linked: str
) -> None:
    appended(manager, 2)
    other = open_manager(tmp_path / "other")
    appended(other, 4)
    victim = newest(other)
    own = newest(manager).parent
    link = own.parent / linked
    if link == own:
        shutil.copytree(own, victim.parent, dirs_exist_ok=True)
        shutil.rmtree(own)
    link.symlink_to(victim.parent)
    file = newest(manager)
    metadata = json.loads(file.read_text())
    metadata["properties"] |= {**ONE, "write.metadata.path": link.as_uri()}
    metadata["metadata-log"] = [{**metadata["metadata-log"][0], "metadata-file": (link / victim.name).as_uri()}]
    file.write_text(json.dumps(metadata))
    appended(manager, 2)
    assert victim.exists()
    assert other.scan(T).to_arrow().num_rows == 8


def test_the_log_of_a_copy_stays_whose_metadata_lies_elsewhere(manager: IcebergTableManager) -> None:
    appended(manager, 2)
    set_properties(manager, **ONE)
    manager.register_table(COPY, newest(manager).as_uri())
    elsewhere = newest(manager).parents[1] / "of_the_copy"
    set_properties(manager, COPY, **{"write.metadata.path": elsewhere.as_uri()})
    log = log_of(manager, COPY)
    commit(manager, 4)
    assert [file.exists() for file in log] == [True]


def test_the_log_of_a_copy_stays_when_the_table_moves_its_metadata(manager: IcebergTableManager) -> None:
    appended(manager, 3)
    manager.register_table(COPY, newest(manager).as_uri())
    commit(manager, 1, COPY)
    log = log_of(manager, COPY)
    elsewhere = newest(manager).parents[1] / "elsewhere"
    set_properties(manager, **ONE, **{"write.metadata.path": elsewhere.as_uri()})
    commit(manager, 4)
    assert [file.exists() for file in log] == [True] * 3


def test_a_copy_keeps_the_log_of_its_original(manager: IcebergTableManager) -> None:
    appended(manager, 3)
    manager.register_table(COPY, newest(manager).as_uri())
    log = log_of(manager, T)
    elsewhere = newest(manager).parents[1] / "of_the_copy"
    set_properties(manager, COPY, **ONE, **{"write.metadata.path": elsewhere.as_uri()})
    commit(manager, 4, COPY)
    assert [file.exists() for file in log] == [True] * 2
    assert newest(manager).exists()


def test_a_handle_older_than_the_table_deletes_no_metadata(manager: IcebergTableManager) -> None:
    """The table was rolled back: dropped, and registered again with an earlier metadata file."""
    appended(manager, 6)
    stale, log = manager.load_table(T), log_of(manager, T)
    manager.drop_table(T)
    manager.register_table(T, log[2].as_uri())
    with stale.transaction() as changes:
        changes.set_properties({"owner": "me"})
    assert [file.exists() for file in log] == [True] * 5


def test_metadata_of_a_table_that_shares_its_files_stays(manager: IcebergTableManager, tmp_path: Path) -> None:
    manager.create_table(T, ROWS.schema, properties={**ONE, "gc.enabled": "false"})
    appended(manager, 1)
    other = open_manager(tmp_path / "other")
    other.register_table(T, newest(manager).as_uri())
    commit(manager, 3)
    assert other.load_table(T).metadata.current_snapshot() is not None


def test_metadata_of_a_table_that_floe_adopted_stays_after_its_maintenance(
    manager: IcebergTableManager, tmp_path: Path
) -> None:
    warehouse = (tmp_path / "lake" / ".floe" / "warehouse").as_uri()
    theirs = SqlCatalog("theirs", uri=f"sqlite:///{tmp_path}/theirs.db", warehouse=warehouse)
    theirs.create_namespace("bronze")
    created = theirs.create_table(T, ROWS.schema, properties=ONE)
    created.append(ROWS)
    manager.register_table(T, created.metadata_location)
    with leased(manager, TableIdentifier.from_string(T)):
        pass
    commit(manager, 3)
    assert path_of(created.metadata_location).exists()


def test_the_tables_own_metadata_is_deleted_with_a_log_of_one_version(manager: IcebergTableManager) -> None:
    manager.create_table(T, ROWS.schema, properties=ONE)
    appended(manager, 4)
    assert {file.name for file in newest(manager).parent.glob("*.metadata.json")} == {
        newest(manager).name,
        *(file.name for file in log_of(manager, T)),
    }
