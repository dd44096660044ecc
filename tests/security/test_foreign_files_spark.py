"""Maintenance deletes files of the table only: orphans, expired files, and what compaction left behind."""

from __future__ import annotations

import os
import time
import uuid
from datetime import datetime, timezone
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.catalogs import WITHOUT_SEAWEEDFS
from tests.lakes import ORPHAN, began_earlier

from floe_core.errors import FloeStorageError
from floe_core.identifiers import TableIdentifier
from floe_core.maintenance.reports import ExpireReport
from floe_iceberg import Lake

ROWS = pa.table({"id": [1, 2]})
LIMITED = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "1"}


def plant(path: Path, *, days: float = 5) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"mine")
    moment = time.time() - days * 86_400
    os.utime(path, (moment, moment))
    return path


def folder(lake: Lake, table: TableIdentifier) -> Path:
    return Path(lake.tables.load_table(table).location().removeprefix("file://"))


def own_orphan(lake: Lake, table: TableIdentifier) -> Path:
    began_earlier(folder(lake, table))
    return plant(folder(lake, table) / "data" / ORPHAN)


def expire(lake: Lake, table: TableIdentifier) -> ExpireReport:
    now = datetime.now(timezone.utc)
    return lake.tables.require_compute().expire_snapshots(table, older_than=now, keep_last=1)


DOCUMENTS = {
    "thesis.txt": "outside of the table's data and metadata folders",
    "photos/photo.jpg": "outside of the table's data and metadata folders",
    f"backup/{ORPHAN}": "outside of the table's data and metadata folders",
    "data/photo.jpg": "no Iceberg writer gives such a name",
    "data/survey.parquet": "no Iceberg writer gives such a name",
    f"data/{ORPHAN}.txt": "no Iceberg writer gives such a name",
    "metadata/notes.md": "no Iceberg writer gives such a name",
    "metadata/settings.json": "no Iceberg writer gives such a name",
    "data/.hidden/diary.txt": "it is hidden",
    "metadata/version-hint.text": "it is hidden",
    f"data/orders/data/{ORPHAN}": "folder with the metadata of another table",
    "data/a b%20c/letter to you.doc": "no Iceberg writer gives such a name",
}


def test_documents_around_a_tables_files_are_no_orphans(lake: Lake, table: TableIdentifier) -> None:
    lake.tables.write_data(table, ROWS, mode="append")
    orphan, place = own_orphan(lake, table), folder(lake, table)
    documents = {str(plant(place / name)): reason for name, reason in DOCUMENTS.items()}
    plant(place / "data" / "orders" / "metadata" / f"00000-{uuid.uuid4()}.metadata.json")
    older = plant(place / "data" / f"00000-0-{uuid.uuid4()}.parquet", days=61)

    told = lake.tables.remove_orphans(table)
    report = lake.tables.remove_orphans(table, dry_run=False)

    assert (told.found, report.files_removed) == ((str(orphan),), (str(orphan),))
    kept = {one.path: one.reason for one in report.not_removed}
    assert {path: documents[path] in kept[path] for path in documents} == dict.fromkeys(documents, True)
    assert "older than the table" in kept[str(older)]
    assert all(Path(path).read_bytes() == b"mine" for path in (*documents, str(older)))
    assert "files not removed" in report.summary()


def test_a_table_outside_of_the_warehouse_has_no_orphans_unless_its_place_is_declared(
    lake: Lake, table: TableIdentifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "home"
    thesis = plant(place / "thesis.txt")
    lake.tables.create_table(table, ROWS.schema, properties={"location": place.as_uri()})
    lake.tables.write_data(table, ROWS, mode="append")
    orphan = own_orphan(lake, table)

    report = lake.tables.remove_orphans(table, dry_run=False)
    assert report.files_removed == ()
    assert {one.path for one in report.not_removed} >= {str(thesis), str(orphan)}
    assert all("tables.owned_locations" in one.reason for one in report.not_removed)

    config = lake.tables.config.model_copy(update={"owned_locations": (str(tmp_path),)})
    monkeypatch.setattr(lake.tables, "config", config)
    report = lake.tables.remove_orphans(table, dry_run=False)
    assert report.files_removed == (str(orphan),)
    assert thesis.exists()


def test_a_table_in_the_warehouse_itself_has_no_orphans(lake: Lake, table: TableIdentifier) -> None:
    warehouse = lake.tables.storage_plugin.get_warehouse_uri()
    report = lake.tables.homes()
    lake.tables.write_data(table, ROWS, mode="append")
    loaded = lake.tables.load_table(table)
    loaded.metadata = loaded.metadata.model_copy(update={"location": warehouse})
    assert "is the warehouse itself" in report.problem(loaded)


def lent(lake: Lake, table: TableIdentifier) -> tuple[TableIdentifier, str]:
    """A table that took over a file, which the one that wrote it does not need any more."""
    lake.tables.write_data(table, ROWS, mode="append")
    file = next(iter(lake.tables.scan(table).plan_files())).file.file_path
    borrower = TableIdentifier(namespace=table.namespace, name="borrower")
    lake.tables.create_table(borrower, ROWS.schema)
    lake.tables.load_table(borrower).add_files([file])
    return borrower, file


def test_expiry_by_spark_keeps_a_file_that_the_table_names_by_another_address(
    lake: Lake, table: TableIdentifier
) -> None:
    lake.tables.write_data(table, ROWS, mode="append")
    file = next(iter(lake.tables.scan(table).plan_files())).file.file_path
    lake.tables.load_table(table).delete("id > 0")
    lake.tables.load_table(table).add_files([file.removeprefix("file://")])
    before = lake.tables.scan(table).to_arrow()

    report = expire(lake, table)

    assert len(lake.tables.list_snapshots(table)) == 1
    assert report.not_removed == ()
    assert report.manifest_lists == 2
    assert lake.tables.scan(table).to_arrow() == before


def test_expiry_keeps_a_file_that_was_added_to_another_table(lake: Lake, table: TableIdentifier) -> None:
    borrower, file = lent(lake, table)
    lake.tables.write_data(table, ROWS, mode="overwrite")
    lake.tables.write_data(table, ROWS, mode="overwrite")
    own = next(
        iter(lake.tables.scan(table, snapshot_id=lake.tables.list_snapshots(table)[-2].snapshot_id).plan_files())
    )

    report = expire(lake, table)

    assert [(one.path, one.reason) for one in report.not_removed] == [(file, f"'{borrower}' uses it too")]
    assert len(lake.tables.list_snapshots(table)) == 1
    assert own.file.file_path.removeprefix("file://") in report.files_removed
    assert report.data_files >= 1
    assert lake.tables.scan(borrower).to_arrow().num_rows == 2
    assert lake.read(table).count() == 2
    # What is left of it is no orphan either.
    began_earlier(folder(lake, table))
    for path in folder(lake, table).rglob("*.parquet"):
        os.utime(path, (time.time() - 5 * 86_400,) * 2)
    left = lake.tables.remove_orphans(table, dry_run=False)
    assert [one.reason for one in left.not_removed] == [f"'{borrower}' uses it"]
    assert lake.tables.scan(borrower).to_arrow().num_rows == 2


@pytest.mark.every_catalog
# SeaweedFS deletes the folder of a table that is dropped, whether a purge is asked for or not.
@pytest.mark.parametrize("catalog", WITHOUT_SEAWEEDFS, indirect=True)
def test_a_purge_on_every_catalog_leaves_a_file_that_another_table_uses(catalog: Lake, table: TableIdentifier) -> None:
    tables = catalog.tables
    for _ in range(2):
        tables.write_data(table, ROWS, mode="append")
    lent_file, own_file = (task.file for task in tables.scan(table).plan_files())
    borrower = TableIdentifier(namespace=table.namespace, name="borrower")
    # Without a look at the file: the keys that a server vends for a table open no other table's.
    made = tables.create_table(borrower, ROWS.schema)
    with made.transaction() as changes, changes.update_snapshot().fast_append() as append:
        append.append_data_file(lent_file)
    io = tables.load_table(table).io

    kept = tables.drop_table(table, purge=True)

    assert [(one.path, one.reason) for one in kept] == [(lent_file.file_path, f"'{borrower}' uses it too")]
    assert not tables.table_exists(table)
    assert io.new_input(lent_file.file_path).exists()
    assert not io.new_input(own_file.file_path).exists()
    tables.drop_table(borrower)


def test_compaction_and_expiry_keep_added_files(lake: Lake, table: TableIdentifier, tmp_path: Path) -> None:
    lake.tables.create_table(table, ROWS.schema)
    surveys = [tmp_path / f"survey {number}.parquet" for number in range(3)]
    for survey in surveys:
        pq.write_table(ROWS, survey)
    lake.tables.load_table(table).add_files([f"file://{survey}" for survey in surveys])
    assert lake.tables.compact_table(table, min_files=2).files_rewritten == 3
    time.sleep(0.05)
    report = expire(lake, table)
    assert {one.path for one in report.not_removed} == {f"file://{survey}" for survey in surveys}
    assert all(survey.exists() for survey in surveys)
    assert lake.read(table).count() == 6
    assert len(lake.tables.list_snapshots(table)) == 1


def test_spark_does_not_commit_to_a_table_whose_log_names_a_document(
    lake: Lake, table: TableIdentifier, tmp_path: Path
) -> None:
    thesis = plant(tmp_path / "thesis.txt")
    lake.tables.write_data(table, ROWS, mode="append", properties=LIMITED)
    lake.tables.write_data(table, ROWS, mode="append")
    loaded = lake.tables.load_table(table)
    path = Path(loaded.metadata_location.removeprefix("file://"))
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(loaded.metadata.metadata_log[0].metadata_file, thesis.as_uri()), encoding="utf-8")
    with pytest.raises(FloeStorageError, match=r"thesis\.txt.*would delete it"):
        lake.write(lake.spark.range(2), table, mode="append")
    lake.tables.compact_table(table)  # its lease is a commit of its own, by which the log forgets the document
    assert thesis.exists()
