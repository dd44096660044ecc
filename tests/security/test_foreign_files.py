"""Dropping tables and committing to them deletes files of those tables only, whatever their metadata names."""

from __future__ import annotations

import json
import logging
import os
import shutil
import uuid
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import ForbiddenError
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.manifest import ManifestEntry, ManifestFile
from pyiceberg.table import Table
from tests.lakes import open_manager

from floe_core.config.spec import TablesConfig
from floe_core.errors import CatalogConnectionError, ConfigurationError, FloeStorageError, PermissionDeniedError
from floe_core.identifiers import TableIdentifier
from floe_iceberg import IcebergTableManager, IcebergTableManagerConfig
from floe_iceberg.catalogs.namespaces import Namespaces
from floe_iceberg.files import containment
from floe_iceberg.files.metadata_log import refuse_foreign_log
from floe_iceberg.files.other_tables import Neighbours
from floe_iceberg.files.ownership import Belongings, Homes
from floe_iceberg.files.purge import undeleted
from floe_iceberg.files.reachable import FileKind
from floe_iceberg.files.writer_files import is_writer_name
from floe_iceberg.maintenance.expiry import delete_own, expire_metadata, foreign_files
from floe_iceberg.maintenance.leases import leased
from floe_iceberg.maintenance.orphans import find_orphans
from floe_iceberg.maintenance.retention import Expiring

T = TableIdentifier.from_string("bronze.orders")
OTHER = TableIdentifier.from_string("bronze.other")
ROWS = pa.table({"id": [1, 2]})
LIMITED = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "1"}


@pytest.fixture
def manager(tmp_path: Path) -> IcebergTableManager:
    opened = open_manager(tmp_path)
    for _ in range(2):
        opened.write_data(T, ROWS, mode="append")
    return opened


@pytest.fixture
def thesis(tmp_path: Path) -> Path:
    path = tmp_path / "documents" / "thesis.txt"
    path.parent.mkdir()
    path.write_text("years of work", encoding="utf-8")
    return path


def folder(manager: IcebergTableManager, table: TableIdentifier = T) -> Path:
    return Path(manager.load_table(table).location().removeprefix("file://"))


def change(manager: IcebergTableManager, edit: Callable[[dict[str, Any]], None], table: TableIdentifier = T) -> None:
    """Edit the newest metadata file, as another writer of the table can."""
    path = Path(manager.load_table(table).metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_text(encoding="utf-8"))
    edit(metadata)
    path.write_text(json.dumps(metadata), encoding="utf-8")


def statistics_at(path: str) -> Callable[[dict[str, Any]], None]:
    def edit(metadata: dict[str, Any]) -> None:
        snapshot = metadata["current-snapshot-id"]
        sizes = {"file-size-in-bytes": 1, "file-footer-size-in-bytes": 1, "blob-metadata": []}
        metadata["statistics"] = [{"snapshot-id": snapshot, "statistics-path": path, **sizes}]

    return edit


# Purge ------------------------------------------------------------------------------------------------------------


def test_a_purge_leaves_any_file_that_is_named_as_statistics(manager: IcebergTableManager, thesis: Path) -> None:
    change(manager, statistics_at(thesis.as_uri()))
    (kept,) = manager.drop_table(T, purge=True)
    assert thesis.read_text(encoding="utf-8") == "years of work"
    assert kept.path == thesis.as_uri()
    assert "outside of the table's location" in kept.reason
    assert not manager.table_exists(T)


@pytest.mark.parametrize("name", ["thesis.txt", "data/photo.jpg", "metadata/notes.md", "data/survey.parquet"])
def test_a_purge_leaves_documents_in_the_tables_own_folder(manager: IcebergTableManager, name: str) -> None:
    document = folder(manager) / name
    document.write_bytes(b"mine")
    change(manager, statistics_at(document.as_uri()))
    (kept,) = manager.drop_table(T, purge=True)
    assert "not one that Iceberg gives" in kept.reason
    assert document.read_bytes() == b"mine"


@pytest.mark.parametrize("where", ["{0}/../thesis.stats", "{0}/%2e%2e/thesis.stats", "{0}/data/x.stats?y#z.stats"])
def test_a_purge_leaves_what_is_named_in_two_ways(manager: IcebergTableManager, where: str) -> None:
    place = folder(manager)
    for path in (place.parent / "thesis.stats", place / "data" / "x.stats"):
        path.write_bytes(b"mine")
    change(manager, statistics_at(where.format(place.as_uri())))
    assert len(manager.drop_table(T, purge=True)) == 1
    assert (place.parent / "thesis.stats").exists()
    assert (place / "data" / "x.stats").exists()


def test_a_purge_leaves_what_a_link_leads_to(manager: IcebergTableManager, tmp_path: Path) -> None:
    target = tmp_path / "documents" / f"{uuid.uuid4()}.stats"
    target.parent.mkdir()
    target.write_bytes(b"mine")
    link = folder(manager) / "metadata" / "linked"
    link.symlink_to(target.parent)
    change(manager, statistics_at((link / target.name).as_uri()))
    (kept,) = manager.drop_table(T, purge=True)
    assert kept.reason == "it is reached through a link"
    assert target.exists()


@pytest.mark.parametrize("purged", [T, OTHER])
def test_a_purge_leaves_files_that_were_added_to_two_tables(
    manager: IcebergTableManager, purged: TableIdentifier
) -> None:
    file = next(iter(manager.scan(T).plan_files())).file.file_path
    manager.create_table(OTHER, ROWS.schema)
    manager.load_table(OTHER).add_files([file])
    stays = OTHER if purged is T else T
    rows = manager.scan(stays).to_arrow()
    kept = {one.path: one.reason for one in manager.drop_table(purged, purge=True)}
    assert kept == {file: f"'{stays}' uses it too"}
    assert manager.scan(stays).to_arrow() == rows


def test_a_purge_leaves_added_files_outside_of_the_tables_location(
    manager: IcebergTableManager, tmp_path: Path
) -> None:
    survey = tmp_path / "documents" / "survey.parquet"
    survey.parent.mkdir()
    pq.write_table(ROWS, survey)
    manager.load_table(T).add_files([survey.as_uri()])
    (kept,) = manager.drop_table(T, purge=True)
    assert kept.path == survey.as_uri()
    assert survey.exists()


def registered_copy(manager: IcebergTableManager) -> TableIdentifier:
    """The same table under another uuid, as a copy that was registered."""
    original = Path(manager.load_table(T).metadata_location.removeprefix("file://"))
    metadata = json.loads(original.read_text(encoding="utf-8"))
    copy = original.with_name(f"00009-{uuid.uuid4()}.metadata.json")
    copy.write_text(json.dumps({**metadata, "table-uuid": str(uuid.uuid4())}), encoding="utf-8")
    manager.register_table(OTHER, copy.as_uri())
    return OTHER


def test_a_purge_leaves_the_files_of_a_registered_copy_with_another_uuid(manager: IcebergTableManager) -> None:
    copy = registered_copy(manager)
    rows = manager.scan(copy).to_arrow()
    kept = manager.drop_table(T, purge=True)
    assert {one.reason for one in kept} == {f"'{copy}' uses it too"}
    assert manager.scan(copy).to_arrow() == rows
    assert not manager.table_exists(T)


def test_a_purge_leaves_what_a_damaged_copy_in_the_same_place_may_use(manager: IcebergTableManager) -> None:
    copy = registered_copy(manager)
    table = manager.load_table(copy)
    with table.transaction() as changes:
        changes.set_properties({"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "1"})
    for _ in range(2):
        manager.write_data(copy, ROWS, mode="append", commit_strategy="merge")
    table, rows = manager.load_table(copy), manager.scan(copy).to_arrow()
    for one in table.snapshots()[:-1]:  # only the merged manifest leads to the shared files
        manager.load_table(copy).maintenance.expire_snapshots().by_id(one.snapshot_id).commit()
    shared = {one.manifest_path for one in manager.load_table(T).current_snapshot().manifests(table.io)}  # type: ignore[union-attr]
    own = {one.manifest_path for one in table.current_snapshot().manifests(table.io)} - shared  # type: ignore[union-attr]
    intact = {path: path.read_bytes() for path in (Path(one.removeprefix("file://")) for one in own)}
    for path, data in intact.items():
        path.write_bytes(data[: len(data) // 2])
    kept = manager.drop_table(T, purge=True)
    for path, data in intact.items():
        path.write_bytes(data)
    assert manager.scan(copy).to_arrow() == rows
    assert kept


class Server:
    """A catalog server that cannot answer about some tables and namespaces, `""` for the list of namespaces."""

    name = "server"

    def __init__(self, tables: dict[tuple[str, ...], Table]) -> None:
        self.tables, self.problems, self.asked = tables, dict[str, Exception](), Counter[str]()

    def list_namespaces(self, levels: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
        self.asked["namespaces"] += 1
        if not levels and "" in self.problems:
            raise self.problems[""]
        return sorted({name[:1] for name in self.tables}) if not levels else []

    def list_tables(self, levels: tuple[str, ...]) -> list[tuple[str, ...]]:
        self.asked["tables"] += 1
        if levels[-1] in self.problems:
            raise self.problems[levels[-1]]
        return [name for name in self.tables if name[:-1] == levels]

    def load_table(self, name: tuple[str, ...]) -> Table:
        self.asked["loads"] += 1
        if name[-1] in self.problems:
            raise self.problems[name[-1]]
        return self.tables[name]

    def neighbours(self, manager: IcebergTableManager) -> Neighbours:
        catalog = cast("Catalog", self)
        return Neighbours(catalog, Namespaces(catalog, manager.catalog_plugin).every_table)


def test_a_server_that_cannot_answer_for_a_moment_is_not_taken_for_one_without_references(
    manager: IcebergTableManager,
) -> None:
    file = next(iter(manager.scan(T).plan_files())).file.file_path
    manager.create_table(OTHER, ROWS.schema)
    manager.load_table(OTHER).add_files([file])
    server = Server({(*one.namespace, one.name): manager.load_table(one) for one in (T, OTHER)})

    assert server.neighbours(manager).references(T, [file]) == {file: str(OTHER)}
    server.problems[OTHER.name] = CatalogConnectionError("503, try later")
    with pytest.raises(FloeStorageError, match=r"'bronze\.other'.*503, try later.*run it again once"):
        server.neighbours(manager).references(T, [file])
    server.problems[OTHER.name] = ForbiddenError("not for you")
    assert server.neighbours(manager).references(T, [file]) == {}


@pytest.mark.parametrize("hidden", ["", "secret"])
@pytest.mark.parametrize("refusal", [ForbiddenError("no LIST_TABLES"), PermissionDeniedError("no LIST_TABLES")])
def test_a_namespace_that_may_not_be_listed_blocks_nothing(
    manager: IcebergTableManager, hidden: str, refusal: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    file = next(iter(manager.scan(T).plan_files())).file.file_path
    manager.create_table(OTHER, ROWS.schema)
    manager.load_table(OTHER).add_files([file])
    table = manager.load_table(T)
    server = Server({(*one.namespace, one.name): manager.load_table(one) for one in (T, OTHER)})
    server.tables["secret", "salaries"] = manager.load_table(OTHER)
    server.problems = {hidden: refusal, "salaries": refusal}
    neighbours = server.neighbours(manager)
    with caplog.at_level(logging.WARNING, logger="floe"):
        for _ in range(2):
            neighbours.refuse_same(table, T)
            neighbours.refuse_below(table, T)
            assert neighbours.references(T, [file]) == {file: str(OTHER)}  # its own namespace is asked
    (warning,) = [one.getMessage() for one in caplog.records if one.name == "floe"]
    assert "may not list" in warning
    assert hidden in warning


def test_that_a_namespace_may_not_be_listed_is_said_once_by_a_manager(
    manager: IcebergTableManager, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server({("secret", "salaries"): manager.load_table(T)})
    server.problems["secret"] = ForbiddenError("no LIST_TABLES")
    monkeypatch.setattr(IcebergTableManager, "_catalog", server)
    with caplog.at_level(logging.WARNING, logger="floe"):
        for _ in range(2):
            manager.neighbours().refuse_unreadable(T)
    assert len([one for one in caplog.records if one.name == "floe"]) == 1


def test_a_table_that_may_be_listed_and_not_loaded_blocks_nothing(manager: IcebergTableManager) -> None:
    table = manager.load_table(T)
    server = Server({("bronze", "orders"): table, ("bronze", "salaries"): table})
    server.problems["salaries"] = ForbiddenError("no TABLE_READ_PROPERTIES")
    neighbours = server.neighbours(manager)
    neighbours.refuse_same(table, T)
    neighbours.refuse_below(table, T)
    assert neighbours.references(T, ["/somewhere/else.parquet"]) == {}


def test_a_catalog_that_cannot_list_a_namespace_for_a_moment_blocks_deletion(manager: IcebergTableManager) -> None:
    server = Server({("bronze", "orders"): manager.load_table(T)})
    server.problems["bronze"] = CatalogConnectionError("503, try later")
    with pytest.raises(CatalogConnectionError):
        server.neighbours(manager).references(T, ["/somewhere/else.parquet"])


def test_a_purge_through_a_link_to_another_tables_folder_leaves_its_files(
    manager: IcebergTableManager, tmp_path: Path
) -> None:
    """A table whose location is another name of the same folder."""
    alias = tmp_path / ".floe" / "warehouse" / "alias"
    alias.symlink_to(folder(manager))
    source = manager.load_table(T).metadata_location
    text = Path(source.removeprefix("file://")).read_text(encoding="utf-8")
    text = text.replace(str(folder(manager)), str(alias)).replace(
        str(manager.load_table(T).metadata.table_uuid), str(uuid.uuid4())
    )
    twin = tmp_path / "twin" / f"00000-{uuid.uuid4()}.metadata.json"
    twin.parent.mkdir()
    twin.write_text(text, encoding="utf-8")
    manager.register_table(OTHER, twin.as_uri())
    before = {path: path.read_bytes() for path in folder(manager).rglob("*") if path.is_file()}
    assert manager.drop_table(OTHER, purge=True)
    assert {path: path.read_bytes() for path in folder(manager).rglob("*") if path.is_file()} == before


def outside(manager: IcebergTableManager, place: Path) -> None:
    manager.create_table(OTHER, ROWS.schema, properties={"location": place.as_uri()})
    manager.write_data(OTHER, ROWS, mode="append")


def test_a_purge_leaves_a_table_outside_of_the_warehouse(manager: IcebergTableManager, tmp_path: Path) -> None:
    outside(manager, tmp_path / "elsewhere")
    before = {path for path in (tmp_path / "elsewhere").rglob("*") if path.is_file()}
    kept = manager.drop_table(OTHER, purge=True)
    assert len(kept) == len(before)
    assert all("tables.owned_locations" in one.reason for one in kept)
    assert {path for path in (tmp_path / "elsewhere").rglob("*") if path.is_file()} == before


def test_a_purge_deletes_a_table_in_a_declared_location(tmp_path: Path) -> None:
    owned = IcebergTableManagerConfig(owned_locations=(str(tmp_path / "elsewhere"),))
    manager = open_manager(tmp_path, owned)
    outside(manager, tmp_path / "elsewhere" / "t")
    assert manager.drop_table(OTHER, purge=True) == ()
    assert [path for path in (tmp_path / "elsewhere").rglob("*") if path.is_file()] == []


def test_a_purge_by_the_catalog_itself_leaves_the_same_files(manager: IcebergTableManager, thesis: Path) -> None:
    change(manager, statistics_at(thesis.as_uri()))
    manager.catalog_plugin.drop_table(str(T), purge=True)
    assert thesis.exists()
    assert not manager.table_exists(T)


def a_pipe(place: Path) -> str:
    os.mkfifo(place / "pipe")
    return (place / "pipe").as_uri()


def a_folder(place: Path) -> str:
    (place / "some").mkdir()
    return (place / "some").as_uri()


def a_document(place: Path) -> str:
    (place / "thesis.json").write_text("{}", encoding="utf-8")
    return (place / "thesis.json").as_uri()


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "named",
    [
        a_pipe,
        a_folder,
        a_document,
        lambda _: f"s3://bucket.example/00000-{uuid.uuid4()}.metadata.json",
        lambda _: "foo://x/y",
        lambda _: "file:///a\x00b",
    ],
)
def test_a_purge_opens_nothing_that_only_the_metadata_log_names(
    manager: IcebergTableManager, tmp_path: Path, named: Callable[[Path], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, asked = named(tmp_path), list[str]()
    change(manager, log_names(path))
    new_input = PyArrowFileIO.new_input

    def opened(files: PyArrowFileIO, location: str) -> PyArrowFile:
        asked.append(location)
        assert location != path
        return new_input(files, location)

    monkeypatch.setattr(PyArrowFileIO, "new_input", opened)
    (kept,) = manager.drop_table(T, purge=True)
    assert kept.path == path
    assert asked
    assert not manager.table_exists(T)


def test_a_purge_of_a_table_with_a_folder_as_metadata_says_so(manager: IcebergTableManager) -> None:
    odd = folder(manager) / "metadata" / f"00000-{uuid.uuid4()}.metadata.json"
    odd.mkdir()
    change(manager, log_names(odd.as_uri()))
    with pytest.raises(FloeStorageError, match=odd.name):
        manager.drop_table(T, purge=True)
    assert manager.table_exists(T)


@pytest.mark.parametrize("content", ['{"truncated', "", "[]"])
def test_a_purge_of_a_table_with_damaged_earlier_metadata_says_what_to_do(
    manager: IcebergTableManager, content: str
) -> None:
    earlier = manager.load_table(T).metadata.metadata_log[0].metadata_file
    Path(earlier.removeprefix("file://")).write_text(content, encoding="utf-8")
    with pytest.raises(
        FloeStorageError, match=r"earlier metadata file.*Nothing was dropped; drop the table without purge"
    ):
        manager.drop_table(T, purge=True)
    assert manager.scan(T).to_arrow().num_rows == 4


@pytest.mark.parametrize("project", ["a;b", "a b", "\u00fcber"])
def test_a_table_below_a_folder_with_an_odd_name_is_purged(tmp_path: Path, project: str) -> None:
    (tmp_path / project).mkdir()
    manager = open_manager(tmp_path / project)
    manager.write_data(T, ROWS, mode="append")
    place = folder(manager)
    assert manager.drop_table(T, purge=True) == ()
    assert [path for path in place.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("project", ["a#b", "a?b"])
def test_a_table_below_a_folder_that_engines_cut_off_stays(manager: IcebergTableManager, project: str) -> None:
    table = manager.load_table(T)
    table.metadata = table.metadata.model_copy(update={"location": f"{table.location()}/{project}/t"})
    assert "(? # ;)" in manager.homes().problem(table)
    table.metadata = table.metadata.model_copy(update={"location": f"{folder(manager).as_uri()}/t;v=1"})
    assert "(? # ;)" in manager.homes().problem(table)


class LosesTheConnection(PyArrowFileIO):
    """Answers once about each file."""

    asked: Counter[str]

    def new_input(self, location: str) -> PyArrowFile:
        self.asked[location] += 1
        if self.asked[location] == 2:
            raise OSError("connection reset")
        return super().new_input(location)


def test_a_connection_that_breaks_in_a_purge_is_reported_for_the_file(manager: IcebergTableManager) -> None:
    files = LosesTheConnection({})
    files.asked = Counter()
    manifests = [path.as_uri() for path in folder(manager).rglob("*.avro")]
    assert undeleted(files, manifests) == dict.fromkeys(manifests, "connection reset")


@pytest.mark.parametrize(
    ("location", "vended", "opened"),
    [
        ("s3://bucket/t", {"s3.secret-access-key": "x"}, True),
        ("s3a://bucket/t", {"s3.secret-access-key": "x"}, True),
        ("s3://bucket/t", {"token": "x", "s3.endpoint": "x"}, False),  # the project's own keys would be used
        ("gs://bucket/t", {"s3.secret-access-key": "x"}, False),
        ("file:///srv/t", {"s3.secret-access-key": "x"}, False),
        ("/srv/t", {"s3.secret-access-key": "x"}, False),
    ],
)
def test_a_server_says_where_tables_are_only_for_stores_that_it_opens(
    manager: IcebergTableManager, location: str, vended: dict[str, str], opened: bool
) -> None:
    table = manager.load_table(T)
    table.metadata = table.metadata.model_copy(update={"location": location})
    assert manager.homes().problem(table)
    table.io.vended = vended  # type: ignore[attr-defined]  # as the FileIO of a catalog server has it
    assert (manager.homes().problem(table) == "") is opened


@pytest.mark.parametrize("said", ["", "/", ".", "s3://", "a/../b", "//"])
def test_a_declared_location_is_a_folder(said: str) -> None:
    with pytest.raises(ValueError, match="owned_locations"):
        TablesConfig(owned_locations=(said,))


# Metadata that a commit deletes -------------------------------------------------------------------------------------


def commit(manager: IcebergTableManager, times: int = 1) -> None:
    for number in range(times):
        with manager.load_table(T).transaction() as changes:
            changes.set_properties({"note": str(number)})


def log_names(path: str) -> Callable[[dict[str, Any]], None]:
    def edit(metadata: dict[str, Any]) -> None:
        metadata["metadata-log"] = [
            {"metadata-file": path, "timestamp-ms": metadata["metadata-log"][0]["timestamp-ms"]}
        ]

    return edit


def test_a_commit_deletes_no_file_that_only_the_log_names(manager: IcebergTableManager, thesis: Path) -> None:
    with manager.load_table(T).transaction() as changes:
        changes.set_properties(LIMITED)
    inner = folder(manager) / "metadata" / "notes.md"
    inner.write_text("mine", encoding="utf-8")
    for path in (thesis, inner):
        change(manager, log_names(path.as_uri()))
        commit(manager, 3)
        manager.write_data(T, ROWS, mode="append")
        assert path.exists()


def test_a_commit_deletes_the_tables_own_earlier_metadata(manager: IcebergTableManager) -> None:
    with manager.load_table(T).transaction() as changes:
        changes.set_properties(LIMITED)
    commit(manager, 4)
    table = manager.load_table(T)
    kept = {table.metadata_location, *(one.metadata_file for one in table.metadata.metadata_log)}
    dropped = [path for path in (folder(manager) / "metadata").glob("*.metadata.json") if path.as_uri() not in kept]
    assert len(dropped) <= 3  # those of before the property was set
    assert len(kept) == 2


def not_removed(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if "not_removed" in one.getMessage()]


@pytest.mark.parametrize("declared", [True, False])
def test_a_commit_deletes_earlier_metadata_in_a_declared_location_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, declared: bool
) -> None:
    place = tmp_path / "elsewhere" / "t"
    owned = (str(tmp_path / "elsewhere"),) if declared else ()
    manager = open_manager(tmp_path, IcebergTableManagerConfig(owned_locations=owned))
    manager.create_table(OTHER, ROWS.schema, properties={"location": place.as_uri(), **LIMITED})
    with caplog.at_level(logging.WARNING, logger="floe"):
        for _ in range(5):
            manager.write_data(OTHER, ROWS, mode="append")
    left = list((place / "metadata").glob("*.metadata.json"))
    assert len(left) == (2 if declared else 6)
    assert all("tables.owned_locations" in one for one in not_removed(caplog))
    assert len(not_removed(caplog)) == (0 if declared else 4)


def test_a_commit_says_why_it_keeps_the_first_metadata(
    manager: IcebergTableManager, caplog: pytest.LogCaptureFixture
) -> None:
    with manager.load_table(T).transaction() as changes:
        changes.remove_properties("floe.created-ms")
        changes.set_properties({**LIMITED, "write.metadata.previous-versions-max": "2"})
    with caplog.at_level(logging.WARNING, logger="floe"):
        commit(manager, 3)
    (message,) = not_removed(caplog)
    assert "/00000-" in message
    assert "shows when the table began" in message


@pytest.mark.parametrize("how", ["row", "log"])
def test_a_commit_keeps_metadata_that_another_row_refers_to(manager: IcebergTableManager, how: str) -> None:
    with manager.load_table(T).transaction() as changes:
        changes.set_properties(LIMITED)
    used = Path(manager.load_table(T).metadata_location.removeprefix("file://"))
    manager.register_table(OTHER, used.as_uri())
    if how == "log":
        with manager.load_table(OTHER).transaction() as changes:
            changes.set_properties({"note": "other"})
    commit(manager, 4)
    assert used.exists()
    assert manager.load_table(OTHER).properties[next(iter(LIMITED))] == "true"


def test_a_commit_keeps_metadata_that_another_row_refers_to_through_a_link(
    manager: IcebergTableManager, tmp_path: Path
) -> None:
    with manager.load_table(T).transaction() as changes:
        changes.set_properties(LIMITED)
    used = Path(manager.load_table(T).metadata_location.removeprefix("file://"))
    link = tmp_path / f"00000-{uuid.uuid4()}.metadata.json"
    link.symlink_to(used)
    manager.register_table(OTHER, link.as_uri())
    commit(manager, 4)
    assert used.exists()


def test_a_copied_folder_in_the_warehouse_is_not_purged_with_the_original(
    manager: IcebergTableManager, tmp_path: Path
) -> None:
    backup = tmp_path / ".floe" / "warehouse" / "bronze" / "orders-backup"
    shutil.copytree(folder(manager), backup)
    before = sorted(path for path in backup.rglob("*") if path.is_file())
    assert manager.drop_table(T, purge=True) == ()
    assert sorted(path for path in backup.rglob("*") if path.is_file()) == before


def test_spark_is_not_asked_to_commit_to_a_table_whose_log_names_other_files(
    manager: IcebergTableManager, thesis: Path
) -> None:
    with manager.load_table(T).transaction() as changes:
        changes.set_properties(LIMITED)
    refuse_foreign_log(manager.load_table(T), T)
    change(manager, log_names(thesis.as_uri()))
    with pytest.raises(FloeStorageError, match=r"thesis\.txt.*would delete it.*set .* to false") as refusal:
        refuse_foreign_log(manager.load_table(T), T)
    assert not isinstance(refusal.value, ConfigurationError)


# Expiry -------------------------------------------------------------------------------------------------------------


def test_expiry_leaves_added_files_whose_snapshot_another_engine_expires_meanwhile(
    manager: IcebergTableManager, tmp_path: Path
) -> None:
    survey = tmp_path / "survey.parquet"
    pq.write_table(ROWS, survey)
    manager.load_table(T).add_files([survey.as_uri()])
    manager.write_data(T, ROWS, mode="overwrite")
    manager.write_data(T, ROWS, mode="append")
    before, known = manager.load_table(T), dict[str, tuple[str, ...]]()
    oldest = Expiring(snapshots=frozenset({before.snapshots()[0].snapshot_id}), refs=frozenset(), bytes=0)
    foreign = foreign_files(before, T, manager.homes(), manager.neighbours(), known)
    assert foreign is not None
    expire_metadata(before, oldest)
    for one in manager.load_table(T).snapshots()[:-1]:
        manager.load_table(T).maintenance.expire_snapshots().by_id(one.snapshot_id).commit()
    deleted, left = delete_own(before, manager.load_table(T), foreign, known)
    assert survey.exists()
    assert [one.path for one in left] == [survey.as_uri()]
    assert FileKind.DATA in deleted.values()


def taken_back(manager: IcebergTableManager, spelling: str) -> str:
    """A file that an old snapshot of the table and its newest one name by two addresses; the first of the two."""
    files = (one.file.file_path for one in manager.scan(T).plan_files())
    file = next(one for one in files if one.startswith(folder(manager).as_uri()))
    manager.load_table(T).delete("id > 0")
    manager.load_table(T).add_files([spelling.format(file.removeprefix("file://"))])
    return file


def all_but_newest(table: Table) -> Expiring:
    gone = frozenset(one.snapshot_id for one in table.snapshots()[:-1])
    return Expiring(snapshots=gone, refs=frozenset(), bytes=0)


@pytest.mark.parametrize("spelling", ["{0}", "file:{0}"])
@pytest.mark.parametrize("shares", [False, True])
def test_expiry_keeps_a_file_that_the_table_names_by_another_address(
    manager: IcebergTableManager, spelling: str, shares: bool
) -> None:
    if shares:
        manager.write_data(OTHER, ROWS, mode="append")
        manager.load_table(T).add_files([next(iter(manager.scan(OTHER).plan_files())).file.file_path])
    file = taken_back(manager, spelling)
    before, known = manager.load_table(T), dict[str, tuple[str, ...]]()
    rows = manager.scan(T).to_arrow()
    foreign = foreign_files(before, T, manager.homes(), manager.neighbours(), known)
    assert foreign is not None  # Iceberg's own procedure compares addresses as text
    assert len(foreign) == int(shares)
    expire_metadata(before, all_but_newest(before))
    deleted, _ = delete_own(before, manager.load_table(T), foreign, known)
    assert file not in deleted
    assert FileKind.DATA in deleted.values()
    assert manager.scan(T).to_arrow() == rows


def test_expiry_counts_a_file_with_two_addresses_once(manager: IcebergTableManager) -> None:
    file = taken_back(manager, "{0}")
    manager.write_data(T, ROWS, mode="overwrite")
    before, known = manager.load_table(T), dict[str, tuple[str, ...]]()
    foreign = foreign_files(before, T, manager.homes(), manager.neighbours(), known)
    assert foreign == ()
    expire_metadata(before, all_but_newest(before))
    deleted, _ = delete_own(before, manager.load_table(T), foreign, known)
    assert len(deleted.keys() & {file, file.removeprefix("file://")}) == 1
    assert not Path(file.removeprefix("file://")).exists()


@pytest.mark.parametrize("first", ["s3://b/t/data", "s3a://b/t/data"])
def test_a_file_that_is_kept_by_one_address_is_kept_by_the_other(manager: IcebergTableManager, first: str) -> None:
    second = "s3a://b/t/data" if first.startswith("s3:") else "s3://b/t/data"
    table = manager.load_table(T)
    table.metadata = table.metadata.model_copy(update={"location": "s3://b/t"})
    file = f"00000-0-{uuid.uuid4()}.parquet"
    belongings = Belongings(table, Homes("s3://b"), {f"{first}/{file}": "bronze.other"})
    kept = belongings.kept([f"{first}/{file}", f"{second}/{file}", f"{second}/00000-1-{uuid.uuid4()}.parquet"])
    assert {one.path for one in kept} == {f"{first}/{file}", f"{second}/{file}"}


# Orphans ------------------------------------------------------------------------------------------------------------

NOW = datetime.now(timezone.utc)


def age(path: Path, days: int) -> None:
    moment = (NOW - timedelta(days=days)).timestamp()
    os.utime(path, (moment, moment))


def aged(manager: IcebergTableManager, created: str | None) -> Path:
    """A table of 60 days ago whose history goes back 6 days, and an orphan of 20 days ago in it."""
    for _ in range(3):
        manager.write_data(T, ROWS, mode="append")
    place = folder(manager)
    orphan = place / "data" / f"00000-0-{uuid.uuid4()}.parquet"
    orphan.write_bytes(b"left by a job that crashed")
    for path in place.rglob("*.*"):
        age(path, 6)
    age(orphan, 20)
    age(min((place / "metadata").glob("*.metadata.json")), 60)
    six_days_ago = int((NOW - timedelta(days=6)).timestamp() * 1000)

    def edit(metadata: dict[str, Any]) -> None:
        metadata["metadata-log"] = metadata["metadata-log"][-1:]
        for name in ("snapshots", "snapshot-log", "metadata-log"):
            for number, one in enumerate(metadata[name]):
                one["timestamp-ms"] = six_days_ago + number
        metadata["properties"].pop("floe.created-ms", None)
        if created is not None:
            metadata["properties"]["floe.created-ms"] = created

    change(manager, edit)
    return orphan


def orphans_of(manager: IcebergTableManager) -> set[Path]:
    older_than = NOW - timedelta(days=3)
    found = find_orphans(
        manager.load_table(T), T, manager.homes(), older_than=older_than, neighbours=manager.neighbours()
    )
    return {Path(path) for path in found.found}


def test_orphans_can_be_removed_after_the_first_metadata_left_the_history(manager: IcebergTableManager) -> None:
    orphan = aged(manager, created=None)
    found = orphans_of(manager)
    assert orphan in found
    earlier = {path for path in found if path != orphan}
    assert earlier
    for path in earlier:
        path.unlink()
    assert orphans_of(manager) == {orphan}


def test_a_table_that_floe_created_says_when_it_began(manager: IcebergTableManager) -> None:
    sixty_days_ago = int((NOW - timedelta(days=60)).timestamp() * 1000)
    assert int(manager.load_table(T).properties["floe.created-ms"]) > sixty_days_ago
    orphan = aged(manager, created=str(sixty_days_ago))
    for path in orphans_of(manager) - {orphan}:
        path.unlink()
    assert orphans_of(manager) == {orphan}


@pytest.mark.parametrize("created", [None, "soon"])
def test_maintenance_records_when_the_table_of_another_engine_began(
    manager: IcebergTableManager, created: str | None
) -> None:
    """Its first metadata may go later: Java deletes it where the table asks for that."""
    orphan = aged(manager, created=created)
    for _ in range(2):
        with leased(manager, T):
            pass
    recorded = manager.load_table(T).properties["floe.began-ms"]
    assert abs(int(recorded) / 1000 - (NOW - timedelta(days=60)).timestamp()) < 1
    table = manager.load_table(T)
    needed = {table.metadata_location, *(one.metadata_file for one in table.metadata.metadata_log)}
    for path in (folder(manager) / "metadata").glob("*.metadata.json"):
        if path.as_uri() not in needed:
            path.unlink()
    assert orphans_of(manager) == {orphan}


def test_maintenance_does_not_change_what_a_table_says_of_its_beginning(manager: IcebergTableManager) -> None:
    before = manager.load_table(T).properties["floe.created-ms"]
    with leased(manager, T):
        pass
    assert manager.load_table(T).properties["floe.created-ms"] == before


@pytest.mark.parametrize("created", ["", "soon", "-1", "9" * 400, "1e400", "\u0661"])
def test_a_table_may_say_anything_about_when_it_began(manager: IcebergTableManager, created: str) -> None:
    aged(manager, created=created)
    assert isinstance(orphans_of(manager), set)


def test_a_commit_keeps_the_first_metadata_of_a_table_that_does_not_say_when_it_began(
    manager: IcebergTableManager,
) -> None:
    with manager.load_table(T).transaction() as changes:
        changes.remove_properties("floe.created-ms")
        changes.set_properties(LIMITED)
    for number in range(2):
        with manager.load_table(T).transaction() as changes:
            changes.set_properties({"note": str(number)})
    files = (folder(manager) / "metadata").glob("*.metadata.json")
    assert {path.name.partition("-")[0] for path in files} == {"00000", "00003", "00004"}


@pytest.mark.parametrize("name", ["snap-123-1-{0}.avro", "snap-123-{0}.avro", "{0}-m0.avro"])
def test_manifests_are_recognised_by_the_names_that_writers_give(name: str) -> None:
    assert is_writer_name(name.format(uuid.uuid4()), in_metadata=True)


@pytest.mark.parametrize("name", ["snap-{0}.avro", "snap-1-2-3-{0}.avro", "snap-a-{0}.avro", "snap-123-1.avro"])
def test_other_avro_files_are_not_taken_for_manifests(name: str) -> None:
    assert not is_writer_name(name.format(uuid.uuid4()), in_metadata=True)


def test_tables_whose_names_differ_in_case_do_not_block_each_other(manager: IcebergTableManager) -> None:
    upper, lower = TableIdentifier.from_string("bronze.Sales"), TableIdentifier.from_string("bronze.sales")
    for one in (upper, lower):
        manager.write_data(one, ROWS, mode="append")
    if folder(manager, upper).samefile(folder(manager, lower)):
        pytest.skip("this disk ignores case")
    for one in (upper, lower):
        manager.neighbours().refuse_below(manager.load_table(one), one)
    assert manager.drop_table(upper, purge=True) == ()
    assert manager.scan(lower).to_arrow() == ROWS


# What it costs ------------------------------------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds, which pass when a test says so."""
    now = [1000.0]
    monkeypatch.setattr("floe_iceberg.files.known_tables.time.monotonic", lambda: now[0])
    return now


def test_a_look_at_a_server_that_takes_long_is_not_over_when_it_ends(
    manager: IcebergTableManager, clock: list[float]
) -> None:
    table, loads = manager.load_table(T), list[tuple[str, ...]]()

    class Slow:
        def load_table(self, name: tuple[str, ...]) -> Table:
            loads.append(name)
            clock[0] += 200
            return table

    names = [("bronze", f"t{number}") for number in range(5)]
    neighbours = Neighbours(cast("Catalog", Slow()), lambda _near: names)
    for _ in range(3):
        neighbours.refuse_unreadable(T)
    assert len(loads) == 5
    clock[0] += 301
    neighbours.refuse_unreadable(T)
    assert len(loads) == 10


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each manifest was read."""
    counts, fetch = Counter[str](), ManifestFile.fetch_manifest_entry

    def counted(manifest: ManifestFile, *arguments: Any, **named: Any) -> list[ManifestEntry]:
        counts[manifest.manifest_path] += 1
        return fetch(manifest, *arguments, **named)

    monkeypatch.setattr(ManifestFile, "fetch_manifest_entry", counted)
    return counts


def test_a_purge_reads_the_manifests_of_other_tables_once(manager: IcebergTableManager, reads: Counter[str]) -> None:
    manager.write_data(OTHER, ROWS, mode="append")
    assert manager.drop_table(T, purge=True) == ()
    assert {count for path, count in reads.items() if path.startswith(folder(manager, OTHER).as_uri())} == {1}


def test_many_purges_read_the_manifests_of_other_tables_once(manager: IcebergTableManager, reads: Counter[str]) -> None:
    manager.write_data(OTHER, ROWS, mode="append")
    many = [TableIdentifier.from_string(f"bronze.t{number}") for number in range(4)]
    for one in many:
        manager.write_data(one, ROWS, mode="append")
    for one in many:
        assert manager.drop_table(one, purge=True) == ()
    assert {count for path, count in reads.items() if path.startswith(folder(manager, OTHER).as_uri())} == {1}


def test_a_purge_sees_what_another_table_took_over_since_the_last_one(manager: IcebergTableManager) -> None:
    first = TableIdentifier.from_string("bronze.first")
    for one in (first, OTHER):
        manager.write_data(one, ROWS, mode="append")
    manager.drop_table(first, purge=True)
    file = next(iter(manager.scan(T).plan_files())).file.file_path
    manager.load_table(OTHER).add_files([file])
    (kept,) = manager.drop_table(T, purge=True)
    assert kept.path == file


def test_purges_in_several_threads_share_what_was_read(manager: IcebergTableManager) -> None:
    many = [TableIdentifier.from_string(f"bronze.t{number}") for number in range(12)]
    for one in many:
        manager.write_data(one, ROWS, mode="append")
    with ThreadPoolExecutor(4) as threads:
        assert set(threads.map(lambda one: manager.drop_table(one, purge=True), many)) == {()}


ELSEWHERE = ["/somewhere/else.parquet"]


def served(manager: IcebergTableManager, count: int) -> Server:
    """A server with so many other tables, each in a namespace of its own."""
    manager.write_data(OTHER, ROWS, mode="append")
    others: dict[tuple[str, ...], Table] = {(f"ns{number}", "t"): manager.load_table(OTHER) for number in range(count)}
    return Server({("bronze", "orders"): manager.load_table(T), **others})


def test_a_server_lists_its_tables_once_for_a_plan_and_once_for_a_deletion(manager: IcebergTableManager) -> None:
    server, table = served(manager, 20), manager.load_table(T)
    neighbours = server.neighbours(manager)
    for _ in range(2):
        neighbours.refuse_same(table, T)
        neighbours.refuse_unreadable(T)
        neighbours.refuse_used(T, lambda: ELSEWHERE)
        neighbours.refuse_below(table, T)
        neighbours.refuse_unknown(T)
        neighbours.references(T, ELSEWHERE, planning=True)
    assert server.asked["tables"] == 21
    neighbours.references(T, ELSEWHERE)
    assert server.asked["tables"] == 42


def test_a_table_that_was_loaded_is_not_loaded_again_to_read_its_files(
    manager: IcebergTableManager, reads: Counter[str]
) -> None:
    server, table = served(manager, 20), manager.load_table(T)
    neighbours = server.neighbours(manager)
    neighbours.refuse_same(table, T)
    for _ in range(3):
        neighbours.references(T, ELSEWHERE)
    assert server.asked["loads"] == 21
    assert set(reads.values()) == {20}  # the same table by 20 names


def test_what_was_read_of_a_table_holds_until_it_changes(
    manager: IcebergTableManager, reads: Counter[str], clock: list[float]
) -> None:
    file = next(iter(manager.scan(T).plan_files())).file.file_path
    server = served(manager, 3)
    neighbours = server.neighbours(manager)
    assert neighbours.references(T, [file]) == {}
    reads.clear()
    clock[0] += 301
    assert neighbours.references(T, [file]) == {}
    assert (server.asked["loads"], reads) == (8, {})  # all are loaded again, none has changed
    manager.load_table(OTHER).add_files([file])
    server.tables["ns1", "t"] = manager.load_table(OTHER)
    clock[0] += 301
    assert neighbours.references(T, [file]) == {file: "ns1.t"}


def test_a_deletion_knows_each_table_as_it_was_five_minutes_before_at_most(
    manager: IcebergTableManager, clock: list[float]
) -> None:
    """However long it takes to load all of them."""
    server = served(manager, 4)
    neighbours, load = server.neighbours(manager), server.load_table

    def slowly(name: tuple[str, ...]) -> Table:
        clock[0] += 200
        return load(name)

    server.load_table = slowly  # type: ignore[method-assign]
    neighbours.references(T, ELSEWHERE)
    loads = server.asked["loads"]
    assert loads == 5
    neighbours.references(T, ELSEWHERE, planning=True)
    assert server.asked["loads"] == loads
    neighbours.references(T, ELSEWHERE)
    assert server.asked["loads"] == loads + 4  # the last one was asked for 200 seconds ago


def test_a_table_that_was_created_since_the_plan_is_asked_before_a_deletion(manager: IcebergTableManager) -> None:
    file, table = next(iter(manager.scan(T).plan_files())).file.file_path, manager.load_table(T)
    server = served(manager, 1)
    neighbours = server.neighbours(manager)
    neighbours.refuse_same(table, T)
    manager.load_table(OTHER).add_files([file])
    server.tables["bronze", "twin"] = table
    server.tables["bronze", "borrower"] = manager.load_table(OTHER)
    assert neighbours.references(T, [file])[file] in ("bronze.borrower", "bronze.twin")
    with pytest.raises(FloeStorageError, match=r"'bronze\.twin' is the same table"):
        neighbours.refuse_same(table, T)


def test_files_that_were_hidden_are_asked_for_again_after_five_minutes(
    manager: IcebergTableManager, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = next(iter(manager.scan(T).plan_files())).file.file_path
    server = served(manager, 1)
    manager.load_table(OTHER).add_files([file])
    server.tables["ns0", "t"] = manager.load_table(OTHER)
    server.tables["ns0", "salaries"] = manager.load_table(OTHER)
    server.problems["salaries"] = ForbiddenError("no TABLE_READ_PROPERTIES")
    neighbours, reading = server.neighbours(manager), PyArrowFile.open

    def refuse(self: PyArrowFile, seekable: bool = True) -> object:
        if "/bronze/other/" in self.location:
            raise PermissionError("access denied")
        return reading(self, seekable)

    monkeypatch.setattr(PyArrowFile, "open", refuse)
    for _ in range(3):
        assert neighbours.references(T, [file]) == {}
    loads = server.asked["loads"]
    neighbours.refuse_below(manager.load_table(T), T)
    assert server.asked["loads"] == loads, "a table that may not be loaded is not asked for with each question"
    monkeypatch.setattr(PyArrowFile, "open", reading)
    clock[0] += 301
    assert neighbours.references(T, [file]) == {file: "ns0.t"}


def test_a_commit_that_deletes_metadata_asks_the_disk_little_about_other_tables(
    manager: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        manager.create_table(TableIdentifier.from_string(f"bronze.t{number}"), ROWS.schema)
    with manager.load_table(T).transaction() as changes:
        changes.set_properties(LIMITED)
    commit(manager, 2)
    resolved, realpath = list[str](), os.path.realpath

    def counted(path: str, **named: Any) -> str:
        resolved.append(path)
        return realpath(path, **named)

    monkeypatch.setattr(os.path, "realpath", counted)
    commit(manager, 1)
    assert len(resolved) < 20


def test_what_belongs_to_a_table_is_decided_with_few_questions_to_the_disk(
    manager: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, resolved, realpath = manager.load_table(T), list[str](), os.path.realpath
    place = folder(manager)
    files = [(place / "data" / f"00000-{number}-{uuid.uuid4()}.parquet").as_uri() for number in range(200)]

    def counted(path: str, **named: Any) -> str:
        resolved.append(path)
        return realpath(path, **named)

    monkeypatch.setattr(os.path, "realpath", counted)
    assert Belongings(table, manager.homes()).kept(files) == ()
    assert len(resolved) < 20


def test_what_belongs_to_a_table_is_decided_by_parsing_each_address_once(
    manager: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, parsed, parse = manager.load_table(T), list[str](), containment._parsed
    files = [f"{table.location()}/data/00000-{number}-{uuid.uuid4()}.parquet" for number in range(200)]

    def counted(path: str, decoded: bool) -> Any:
        parsed.append(path)
        return parse(path, decoded)

    monkeypatch.setattr(containment, "_parsed", counted)
    assert Belongings(table, manager.homes()).kept(files) == ()
    assert len(parsed) < 220
