"""Dropping tables, with and without their files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from pyiceberg.table.statistics import BlobMetadata, StatisticsFile
from tests.lakes import open_manager

from floe_core.errors import FloeStorageError, PermissionDeniedError, TableNotFoundError
from floe_core.identifiers import TableIdentifier
from floe_core.models import PartitionTransform, PartitionTransformType
from floe_iceberg import IcebergTableManager
from floe_iceberg.catalogs.sql import SqlCatalogPlugin

T = TableIdentifier.from_string("bronze.orders")
SCHEMA = pa.schema([("n", pa.int64()), ("note", pa.string())])


@pytest.fixture
def manager(tmp_path: Path) -> IcebergTableManager:
    """A table with everything that has files: replaced rows, an expired snapshot, a branch, a tag, statistics."""
    opened = open_manager(tmp_path)
    by_note = PartitionTransform(source_column="note", transform_type=PartitionTransformType.IDENTITY)
    opened.create_table(T, SCHEMA, partition_by=[by_note])
    for number in range(3):
        append(opened, number)
    opened.load_table(T).overwrite(rows(9))
    opened.create_tag(T, "v1")
    opened.create_branch(T, "audit")
    append(opened, 5, branch="audit")
    opened.load_table(T).delete("n = 9")
    first = opened.list_snapshots(T)[0]
    opened.load_table(T).maintenance.expire_snapshots().by_id(first.snapshot_id).commit()
    add_statistics(opened.load_table(T))
    return opened


def rows(number: int) -> pa.Table:
    return pa.table({"n": [number, number + 100], "note": ["even", "odd"]}, SCHEMA)


def append(manager: IcebergTableManager, number: int, branch: str = "main") -> None:
    manager.load_table(T).append(rows(number), branch=branch)


def add_statistics(table: Table) -> None:
    """What Spark's compute_table_stats leaves: a file beside the metadata."""
    path = f"{table.location()}/metadata/stats.puffin"
    Path(path.removeprefix("file://")).write_bytes(b"PFA1")
    head = table.current_snapshot()
    assert head is not None
    blob = BlobMetadata.model_validate(
        {"type": "apache-datasketches-theta-v1", "snapshot-id": head.snapshot_id, "sequence-number": 1, "fields": [1]}
    )
    file = StatisticsFile.model_validate(
        {
            "snapshot-id": head.snapshot_id,
            "statistics-path": path,
            "file-size-in-bytes": 4,
            "file-footer-size-in-bytes": 4,
            "blob-metadata": [blob],
        }
    )
    with table.update_statistics() as update:
        update.set_statistics(file)


def files(root: Path) -> set[Path]:
    return {path for path in (root / ".floe" / "warehouse").rglob("*") if path.is_file()}


def test_a_purged_table_leaves_no_file_behind(manager: IcebergTableManager, tmp_path: Path) -> None:
    kinds = {"".join(path.suffixes[-2:]) if path.suffix == ".json" else path.suffix for path in files(tmp_path)}
    assert kinds == {".parquet", ".avro", ".metadata.json", ".puffin"}
    manager.drop_table(T, purge=True)
    assert files(tmp_path) == set()
    assert not manager.table_exists(T)


def test_files_that_no_metadata_names_and_other_tables_stay(manager: IcebergTableManager, tmp_path: Path) -> None:
    other = TableIdentifier.from_string("bronze.other")
    manager.create_table(other, SCHEMA).append(rows(1))
    others = {path for path in files(tmp_path) if "other" in path.parts}
    orphan = tmp_path / ".floe" / "warehouse" / "bronze" / "orders" / "data" / "somebody's.parquet"
    orphan.write_bytes(b"mine")
    manager.drop_table(T, purge=True)
    assert files(tmp_path) == {orphan, *others}
    assert manager.scan(other).to_arrow().num_rows == 2


def test_without_purge_every_file_stays(manager: IcebergTableManager, tmp_path: Path) -> None:
    before = files(tmp_path)
    manager.drop_table(T)
    assert files(tmp_path) == before
    assert not manager.table_exists(T)


@pytest.mark.parametrize("purge", [False, True])
def test_what_does_not_exist_is_not_dropped(manager: IcebergTableManager, purge: bool) -> None:
    with pytest.raises(TableNotFoundError, match=r"'bronze\.nothing' not found"):
        manager.drop_table(TableIdentifier.from_string("bronze.nothing"), purge=purge)
    manager.drop_table(T, purge=purge)
    with pytest.raises(TableNotFoundError):
        manager.drop_table(T, purge=purge)


def test_files_that_will_not_go_are_counted_and_named(manager: IcebergTableManager, tmp_path: Path) -> None:
    stuck = sorted(path for path in files(tmp_path) if path.suffix == ".parquet")[:2]
    for path in stuck:
        path.unlink()
        path.mkdir()  # what is in the way of a deletion, even for root
        (path / "inside").write_bytes(b"")
    with pytest.raises(
        FloeStorageError, match=rf"is dropped, but 2 of its \d+ files are still there, such as .*{stuck[0].name}"
    ):
        manager.drop_table(T, purge=True)
    assert files(tmp_path) == {path / "inside" for path in stuck}
    assert not manager.table_exists(T)


def test_a_table_whose_files_are_missing_is_not_dropped_with_purge(
    manager: IcebergTableManager, tmp_path: Path
) -> None:
    head = manager.load_table(T).current_snapshot()
    assert head is not None
    Path(head.manifest_list.removeprefix("file://")).unlink()
    before = files(tmp_path)
    with pytest.raises(FloeStorageError, match="are not where the catalog expects them"):
        manager.drop_table(T, purge=True)
    assert manager.table_exists(T)
    assert files(tmp_path) == before
    manager.drop_table(T)


def test_a_table_that_shares_its_files_is_not_purged(manager: IcebergTableManager, tmp_path: Path) -> None:
    manager.load_table(T).transaction().set_properties({"gc.enabled": "false"}).commit_transaction()
    before = files(tmp_path)
    with pytest.raises(FloeStorageError, match=r"gc\.enabled=false"):
        manager.drop_table(T, purge=True)
    assert files(tmp_path) == before
    assert manager.table_exists(T)


def test_a_table_with_two_names_is_not_purged_by_one_of_them(manager: IcebergTableManager, tmp_path: Path) -> None:
    second = TableIdentifier.from_string("silver.same")
    manager.register_table(second, manager.load_table(T).metadata_location)
    append(manager, 7)  # from here on the two names have different histories over the same old files
    before = files(tmp_path)
    with pytest.raises(FloeStorageError, match=r"'silver\.same' is the same table"):
        manager.drop_table(T, purge=True)
    assert files(tmp_path) == before
    manager.drop_table(second)
    manager.drop_table(T, purge=True)
    assert files(tmp_path) == set()


def test_a_new_table_where_a_renamed_one_was_is_purged_alone(manager: IcebergTableManager, tmp_path: Path) -> None:
    new = TableIdentifier.from_string("silver.orders")
    manager.rename_table(T, new)
    before = files(tmp_path)
    manager.create_table(T, SCHEMA).append(rows(1))
    manager.drop_table(T, purge=True)
    assert files(tmp_path) == before
    manager.drop_table(new, purge=True)
    assert files(tmp_path) == set()


def test_a_lake_that_was_copied_does_not_purge_the_original(manager: IcebergTableManager, tmp_path: Path) -> None:
    shutil.copytree(tmp_path / ".floe", tmp_path / "copy" / ".floe")
    before = files(tmp_path)
    with pytest.raises(FloeStorageError, match="moved or copied") as no:
        open_manager(tmp_path / "copy").drop_table(T, purge=True)
    assert "delete" not in str(no.value)
    assert files(tmp_path) == before


@pytest.mark.parametrize("refusal", [PermissionDeniedError("purge is switched off"), NotImplementedError("no purge")])
def test_a_catalog_that_refuses_to_purge_is_told_clearly(
    manager: IcebergTableManager, tmp_path: Path, refusal: Exception
) -> None:
    class Refusing(SqlCatalogPlugin):
        def drop_table(self, identifier: str, *, purge: bool = False) -> None:
            if purge:
                raise refusal
            super().drop_table(identifier)

    before = files(tmp_path)
    with pytest.raises(PermissionDeniedError, match=r"does not delete the files of 'bronze\.orders' .*without purge"):
        open_manager(tmp_path, catalog=Refusing).drop_table(T, purge=True)
    assert manager.table_exists(T)
    assert files(tmp_path) == before


def test_what_the_catalog_leaves_behind_is_deleted_too(manager: IcebergTableManager, tmp_path: Path) -> None:
    class Forgetful(SqlCatalogPlugin):
        def drop_table(self, identifier: str, *, purge: bool = False) -> None:
            del purge
            super().drop_table(identifier)

    open_manager(tmp_path, catalog=Forgetful).drop_table(T, purge=True)
    assert files(tmp_path) == set()
