"""What a commit costs does not grow with the history of the table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from pyiceberg.table import update as library
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import (
    RemovePropertiesUpdate,
    RemoveSnapshotsUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
)
from tests.lakes import open_manager

from floe_iceberg import IcebergTableManager
from floe_iceberg._pyiceberg.patches import ORIGINALS
from floe_iceberg.snapshots import ancestors_of

ROW = pa.table({"n": [1]})
FEW = {"write.metadata.previous-versions-max": "3"}
TARGET = "pyiceberg.table.update:update_table_metadata"


@pytest.fixture
def tables(tmp_path: Path) -> IcebergTableManager:
    return open_manager(tmp_path)


def written(tables: IcebergTableManager, name: str = "b.t", *, times: int = 3, **properties: str) -> Table:
    for number in range(times):
        tables.write_data(name, ROW, mode="append", properties=properties if number == 0 else None)
    return tables.load_table(name)


def test_an_append_parses_the_metadata_once_and_copies_no_snapshot(
    tables: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tables)
    parsed: list[Any] = []
    parse = TableMetadataUtil.parse_raw

    def counted(data: str) -> Any:
        parsed.append(parse(data))
        return parsed[-1]

    monkeypatch.setattr(TableMetadataUtil, "parse_raw", staticmethod(counted))

    tables.write_data("b.t", ROW, mode="append")

    assert len(parsed) == 1


def test_a_transaction_shares_the_snapshots_that_it_leaves_alone(tables: IcebergTableManager) -> None:
    table = written(tables)
    transaction = table.transaction()
    transaction.set_properties({"owner": "me"})
    after = transaction.table_metadata.snapshots
    assert all(one is before for one, before in zip(after, table.metadata.snapshots, strict=True))


def test_a_commit_to_a_table_that_others_changed_reads_it_again(tables: IcebergTableManager) -> None:
    stale = written(tables)
    tables.write_data("b.t", ROW, mode="append")

    with stale.transaction() as transaction:
        transaction.set_properties({"owner": "me"})

    loaded = tables.load_table("b.t")
    assert loaded.properties["owner"] == "me"
    assert len(loaded.metadata.snapshots) == 4


def updates_of(table: Table) -> list[tuple[TableUpdate, ...]]:
    first, last = table.metadata.snapshots[0], table.metadata.snapshots[-1]
    back = SetSnapshotRefUpdate(
        ref_name=MAIN_BRANCH,
        type="branch",
        snapshot_id=first.snapshot_id,
        max_ref_age_ms=None,
        max_snapshot_age_ms=None,
        min_snapshots_to_keep=None,
    )
    return [
        (),
        (SetPropertiesUpdate(updates={"owner": "me"}), RemovePropertiesUpdate(removals=["commit.retry.num-retries"])),
        (back, RemoveSnapshotsUpdate(snapshot_ids=[last.snapshot_id])),
    ]


def test_metadata_after_updates_is_what_pyiceberg_makes_of_it(tables: IcebergTableManager) -> None:
    table = written(tables)
    before = table.metadata.model_dump_json()

    for updates in updates_of(table):
        ours, theirs = (
            json.loads(made(table.metadata, updates, metadata_location=table.metadata_location).model_dump_json())
            for made in (library.update_table_metadata, ORIGINALS[TARGET])
        )
        for one in (ours, theirs):  # the time of the change
            del one["last-updated-ms"]
            for entry in one["snapshot-log"]:
                del entry["timestamp-ms"]
        assert ours == theirs
    assert table.metadata.model_dump_json() == before


def test_what_is_changed_afterwards_does_not_reach_the_metadata_before(tables: IcebergTableManager) -> None:
    table = written(tables)
    after = library.update_table_metadata(table.metadata, (SetPropertiesUpdate(updates={"a": "1"}),))

    after.properties["owner"] = "me"
    after.snapshots.clear()
    after.refs.clear()

    assert "owner" not in table.metadata.properties
    assert len(table.metadata.snapshots) == 3
    assert set(table.metadata.refs) == {MAIN_BRANCH}


def test_a_walk_through_the_history_searches_the_snapshots_once(
    tables: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = written(tables)
    monkeypatch.setattr(type(table.metadata), "snapshot_by_id", None)

    walked = [one.snapshot_id for one in ancestors_of(table.metadata.snapshots[-1], table.metadata)]

    assert walked == [one.snapshot_id for one in table.metadata.snapshots][::-1]


def metadata_files(table: Table) -> set[str]:
    return {one.name for one in (Path(table.location().removeprefix("file://")) / "metadata").glob("*.metadata.json")}


def test_metadata_files_that_fall_off_the_log_are_deleted(tables: IcebergTableManager) -> None:
    table = written(tables, times=8, **FEW)
    log = {one.metadata_file.rpartition("/")[2] for one in table.metadata.metadata_log}
    assert len(log) == 3
    assert metadata_files(table) == {*log, table.metadata_location.rpartition("/")[2]}
    assert (
        "write.metadata.delete-after-commit.enabled" not in table.properties
    )  # Java would obey it without Floe's rule


def test_metadata_files_stay_where_the_table_says_so(tables: IcebergTableManager) -> None:
    table = written(tables, times=8, **FEW, **{"write.metadata.delete-after-commit.enabled": "false"})
    assert len(metadata_files(table)) == 8


def test_metadata_files_of_tables_of_others_stay(tables: IcebergTableManager) -> None:
    table = written(tables, times=1, **FEW)
    with table.transaction() as transaction:
        transaction.remove_properties("floe.created-ms")
    assert len(metadata_files(written(tables, times=6))) == 8


def test_the_metadata_of_a_copy_stays_while_the_table_moves_on(tables: IcebergTableManager) -> None:
    table = written(tables, times=2, **FEW)
    tables.register_table("b.copy", table.metadata_location)

    written(tables, times=8)

    assert tables.load_table("b.copy").metadata_location == table.metadata_location
    assert tables.scan("b.copy").count() == 2
    assert tables.scan("b.t").count() == 10
