"""What callers hand in by mistake: each is refused with its name, and nothing is written."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.lakes import open_manager

from floe_core.errors import ConcurrencyConflictError, ConfigurationError, FloeStorageError, PluginError
from floe_core.identifiers import TableIdentifier
from floe_core.models import PartitionTransform
from floe_core.security.redaction import protect
from floe_iceberg import IcebergTableManager
from floe_iceberg.schema.changes import DropColumn, RenameColumn

T = TableIdentifier.from_string("bronze.orders")
DATA = pa.table({"k": [1, 2], "note": ["a", "b"]})


@pytest.fixture
def manager(tmp_path: Path) -> IcebergTableManager:
    return open_manager(tmp_path)


def rows(manager: IcebergTableManager, **options: Any) -> list[dict[str, Any]]:
    return sorted(manager.scan(T, **options).to_arrow().to_pylist(), key=str)


WRITES: dict[str, tuple[dict[str, Any], str]] = {
    "mode": ({"mode": "replace"}, "mode is 'replace'; it must be one of append, overwrite, upsert"),
    "strategy": ({"mode": "append", "commit_strategy": "x"}, "commit_strategy is 'x'; it must be one of "),
    "strategy of an overwrite": (
        {"mode": "overwrite", "commit_strategy": "merge"},
        "commit_strategy is for appends; mode is overwrite",
    ),
    "slice": ({"mode": "overwrite", "slice": "2026-01-01"}, "slice is a str; write TableSlice"),
    "partition_by": ({"mode": "append", "partition_by": "k"}, "partition_by is a list of PartitionTransform; 'k' is"),
    "keys": ({"mode": "upsert", "keys": [1]}, "keys are names of columns; 1 is a int"),
    "write_id": ({"mode": "append", "write_id": ""}, "write_id is ''; it must be a text that is not empty"),
    "write_id of a number": ({"mode": "append", "write_id": 5}, "write_id is 5; it must be a text"),
    "validate_from": ({"mode": "upsert", "keys": ["k"], "validate_from": "5"}, "validate_from is a str; it must be"),
    "validate_from of an append": ({"mode": "append", "validate_from": 5}, "an append replaces none: leave it out"),
    **{
        key: ({"mode": "append", "snapshot_properties": {key: "1"}}, f"must not set '{key}': Iceberg and Floe")
        for key in ("operation", "added-records", "total-records", "deleted-x", "removed-y", "changed-partition-count")
    },
    "id": ({"mode": "append", "snapshot_properties": {"floe.write-id": "1"}}, r"must not set 'floe\.write-id'"),
    "version": ({"mode": "append", "snapshot_properties": {"floe.version": "1"}}, r"must not set 'floe\.version'"),
}


@pytest.mark.parametrize("kind", WRITES)
def test_a_write_names_the_argument_that_is_wrong(manager: IcebergTableManager, kind: str) -> None:
    options, words = WRITES[kind]
    manager.write_data(T, DATA, mode="append")
    with pytest.raises(ConfigurationError, match=words):
        manager.write_data(T, DATA, **options)
    assert len(manager.list_snapshots(T)) == 1


SCANS: dict[str, tuple[dict[str, Any], str]] = {
    "a day": ({"as_of": date(2026, 1, 1)}, "as_of is a date; it must be a datetime with a time zone"),
    "a text": ({"as_of": "2026-01-01"}, "as_of is a str; it must be a datetime"),
    "a limit in words": ({"limit": "5"}, "limit is a str; it must be a whole number"),
    "half a row": ({"limit": 1.5}, "limit is a float; it must be a whole number"),
    "no columns": ({"columns": []}, "columns is empty; name at least one"),
    "a snapshot in words": ({"snapshot_id": "5"}, "snapshot_id is a str; it must be a snapshot id"),
}


@pytest.mark.parametrize("kind", SCANS)
def test_a_scan_names_the_argument_that_is_wrong(manager: IcebergTableManager, kind: str) -> None:
    options, words = SCANS[kind]
    manager.write_data(T, DATA, mode="append")
    with pytest.raises(ConfigurationError, match=words):
        manager.scan(T, **options)


def test_a_number_is_no_identifier(manager: IcebergTableManager) -> None:
    said: Any = 7
    with pytest.raises(ConfigurationError, match=r"identifier is a int; write 'bronze\.orders'"):
        manager.write_data(said, DATA, mode="append")
    with pytest.raises(ConfigurationError, match="table 'orders' has no namespace"):
        manager.load_table("orders")


def test_every_method_takes_a_text_and_a_table_of_pyiceberg_as_identifier(manager: IcebergTableManager) -> None:
    manager.create_namespace("bronze.raw")
    assert manager.namespace_exists("bronze.raw")
    assert [str(one) for one in manager.list_namespaces("bronze")] == ["bronze.raw"]
    assert manager.update_namespace("bronze.raw", set={"owner": "me"})["owner"] == "me"
    assert manager.load_namespace("bronze.raw").properties["owner"] == "me"
    manager.drop_namespace("bronze.raw")
    created = manager.create_table("bronze.orders", DATA.schema)
    for said in ("bronze.orders", created):
        first = manager.write_data(said, DATA, mode="append").snapshot_id
        assert manager.table_exists(said)
        manager.create_tag(said, "v1")
        manager.create_branch(said, "audit")
        manager.fast_forward(said, "audit", remove=True)
        manager.evolve_schema(said, RenameColumn("note", "text"))
        manager.evolve_schema(said, RenameColumn("text", "note"))
        manager.evolve_partitions(said, [])
        manager.rollback_to_snapshot(said, first)
        manager.remove_tag(said, "v1")
        assert manager.current_snapshot(said) is not None
        assert manager.scan(said).count() == manager.load_table(said).scan().count()
        assert manager.scan_changes(said, since=first).to_arrow().num_rows == 0
        assert manager.inspect(said).files().num_rows == len(manager.list_snapshots(said))
        with pytest.raises(PluginError, match="done by Spark"):  # the identifier is taken, an engine is missing
            manager.expire_snapshots(said, older_than_days=7)
        with pytest.raises(PluginError, match="done by Spark"):
            manager.compact_table(said)
    assert [str(one) for one in manager.list_tables("bronze")] == ["bronze.orders"]
    renamed = manager.rename_table("bronze.orders", "bronze.sales")
    metadata = renamed.metadata_location
    manager.drop_table(renamed)
    manager.register_table("bronze.again", metadata)
    assert manager.scan("bronze.again").count() == 4


def test_a_text_is_one_key_and_one_column(manager: IcebergTableManager) -> None:
    manager.write_data(T, DATA, mode="append")
    manager.write_data(T, DATA.slice(0, 1), mode="upsert", keys="note")
    assert rows(manager, columns="note") == [{"note": "a"}, {"note": "b"}]


def test_what_lies_inside_a_list_is_no_partition(manager: IcebergTableManager) -> None:
    inside = PartitionTransform.model_validate({"source_column": "l.element", "transform_type": "identity"})
    with pytest.raises(ConfigurationError, match=r"'l\.element' lies inside a list or a map"):
        manager.write_data(T, pa.table({"l": [[1]]}), mode="append", partition_by=[inside])


def test_an_upsert_sees_that_its_rows_changed_since_they_were_read(manager: IcebergTableManager) -> None:
    read = manager.write_data(T, DATA, mode="append").snapshot_id
    manager.write_data(T, DATA.slice(0, 1).set_column(1, "note", pa.array(["other"])), mode="upsert", keys=["k"])
    with pytest.raises(ConcurrencyConflictError, match="changed the same rows"):
        manager.write_data(T, DATA, mode="upsert", keys=["k"], validate_from=read)
    assert [row["note"] for row in rows(manager)] == ["other", "b"]
    head = manager.list_snapshots(T)[-1].snapshot_id
    manager.write_data(T, DATA, mode="upsert", keys=["k"], validate_from=head)
    assert [row["note"] for row in rows(manager)] == ["a", "b"]


@pytest.mark.parametrize("there", [True, False], ids=["a table", "no table"])
@pytest.mark.parametrize("options", [{"mode": "upsert", "keys": ["k"]}, {"mode": "overwrite"}], ids=str)
def test_a_snapshot_to_validate_from_must_be_there(
    manager: IcebergTableManager, options: dict[str, Any], there: bool
) -> None:
    if there:
        manager.write_data(T, DATA, mode="append")
    with pytest.raises(ConfigurationError, match=r"has no snapshot 42 to validate from.*Nothing was written"):
        manager.write_data(T, DATA, **options, validate_from=42)
    assert manager.table_exists(T) is there


def test_the_past_is_filtered_by_the_names_it_had(manager: IcebergTableManager) -> None:
    by_note = PartitionTransform.model_validate({"source_column": "note", "transform_type": "identity"})
    data = pa.table({"a": [1, 2], "b": [100, 200], "c": [5, 6], "note": ["x", "y"]})
    read = manager.write_data(T, data, mode="append", partition_by=[by_note]).snapshot_id
    manager.evolve_schema(T, RenameColumn("a", "z"))
    manager.evolve_schema(T, RenameColumn("b", "a"))
    manager.evolve_schema(T, RenameColumn("z", "b"), RenameColumn("note", "text"))
    manager.evolve_schema(T, DropColumn("c"), allow_incompatible_changes=True)
    first = [data.to_pylist()[0]]
    for row_filter in ("a = 1", "b = 100", "c = 5", "note = 'x'", "a = 1 AND note = 'x'"):
        assert rows(manager, snapshot_id=read, row_filter=row_filter) == first, row_filter
    assert rows(manager, snapshot_id=read, row_filter="a = 100") == []
    assert rows(manager, snapshot_id=read, row_filter="c = 5", columns=["a"]) == [{"a": 1}]
    assert rows(manager, row_filter="a = 100") == [{"b": 1, "a": 100, "text": "x"}]
    with pytest.raises(ConfigurationError, match="no column 'text'"):
        manager.scan(T, snapshot_id=read, row_filter="text = 'x'")


def test_a_renamed_table_was_not_moved(manager: IcebergTableManager) -> None:
    deep, short = (TableIdentifier.from_string(name) for name in ("a.n.t", "n.t"))
    manager.write_data(deep, DATA, mode="append")
    manager.rename_table(deep, short)
    manager.write_data(short, DATA, mode="append")
    manager.drop_table(short, purge=True)


def test_a_purge_finds_a_second_name_wherever_its_metadata_lies(manager: IcebergTableManager, tmp_path: Path) -> None:
    elsewhere = {"write.metadata.path": (tmp_path / "metadata").as_uri()}
    manager.write_data(T, DATA, mode="append", properties=elsewhere)
    second = TableIdentifier.from_string("bronze.second")
    manager.register_table(second, manager.load_table(T).metadata_location)
    with pytest.raises(FloeStorageError, match=r"'bronze\.second' is the same table"):
        manager.drop_table(T, purge=True)
    assert len(rows(manager)) == 2


def test_too_long_a_partition_says_what_to_do(manager: IcebergTableManager) -> None:
    by_note = PartitionTransform.model_validate({"source_column": "note", "transform_type": "identity"})
    with pytest.raises(FloeStorageError, match=r"'bronze\.orders' makes too long a file name.*Nothing was committed"):
        manager.write_data(T, pa.table({"note": ["x" * 500]}), mode="append", partition_by=[by_note])


def test_an_address_is_shown_without_its_password(manager: IcebergTableManager) -> None:
    protect("hush-hush")
    for address in ("http://me:quiet@host/x.json", "abc://host/hush-hush.json"):
        with pytest.raises(FloeStorageError, match=r"\*\*\*") as refused:
            manager.register_table(T, address)
        assert "quiet" not in str(refused.value)
        assert "hush" not in str(refused.value)
    nothing: Any = None
    with pytest.raises(FloeStorageError, match="'None' is a NoneType"):
        manager.register_table(T, nothing)
