"""Dropping tables and committing to them deletes files of those tables only, whatever their metadata names."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import ForbiddenError
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.manifest import ManifestEntry, ManifestFile
from pyiceberg.table import Table
from tests.lakes import open_manager

from floe_core.errors import CatalogConnectionError, ConfigurationError, FloeStorageError
from floe_core.identifiers import TableIdentifier
from floe_core.spec import TablesConfig
from floe_iceberg import IcebergTableManager, IcebergTableManagerConfig
from floe_iceberg.belongings import Belongings
from floe_iceberg.expiry import delete_own, expire_metadata, foreign_files
from floe_iceberg.metadata_log import deletable, refuse_foreign_log
from floe_iceberg.neighbours import Neighbours
from floe_iceberg.orphans import find_orphans
from floe_iceberg.purge import undeleted
from floe_iceberg.reachable import FileKind
from floe_iceberg.retention import Expiring
from floe_iceberg.writer_files import is_writer_name

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
    assert "no name that Iceberg gives" in kept.reason
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
    """A catalog server that cannot answer about some tables."""

    def __init__(self, tables: dict[tuple[str, ...], Table]) -> None:
        self.tables, self.problems = tables, dict[str, Exception]()

    def load_table(self, name: tuple[str, ...]) -> Table:
        if name[-1] in self.problems:
            raise self.problems[name[-1]]
        return self.tables[name]


def test_a_server_that_cannot_answer_for_a_moment_is_not_taken_for_one_without_references(
    manager: IcebergTableManager,
) -> None:
    file = next(iter(manager.scan(T).plan_files())).file.file_path
    manager.create_table(OTHER, ROWS.schema)
    manager.load_table(OTHER).add_files([file])
    server = Server({(*one.namespace, one.name): manager.load_table(one) for one in (T, OTHER)})

    def neighbours() -> Neighbours:
        return Neighbours(cast("Catalog", server), lambda: list(server.tables))

    assert neighbours().references(T, [file]) == {file: str(OTHER)}
    server.problems[OTHER.name] = CatalogConnectionError("503, try later")
    with pytest.raises(FloeStorageError, match=r"'bronze\.other'.*503, try later.*run it again once"):
        neighbours().references(T, [file])
    server.problems[OTHER.name] = ForbiddenError("not for you")
    assert neighbours().references(T, [file]) == {}


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
    metadata = manager.load_table(T).metadata
    files = {path.as_uri() for path in (folder(manager) / "metadata").glob("*.metadata.json")}
    catalog = manager.catalog_plugin.connect()
    assert isinstance(catalog, SqlCatalog)
    kept = files - deletable(catalog, metadata, files)
    assert {path.rpartition("/")[2].partition("-")[0] for path in kept} == {"00000", "00002"}


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


def test_a_purge_reads_the_manifests_of_other_tables_once(
    manager: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager.write_data(OTHER, ROWS, mode="append")
    reads, fetch = Counter[str](), ManifestFile.fetch_manifest_entry

    def counted(manifest: ManifestFile, *arguments: Any, **named: Any) -> list[ManifestEntry]:
        reads[manifest.manifest_path] += 1
        return fetch(manifest, *arguments, **named)

    monkeypatch.setattr(ManifestFile, "fetch_manifest_entry", counted)
    assert manager.drop_table(T, purge=True) == ()
    assert {count for path, count in reads.items() if path.startswith(folder(manager, OTHER).as_uri())} == {1}


def test_a_look_at_a_server_that_takes_long_is_not_over_when_it_ends(
    manager: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, loads, now = manager.load_table(T), list[tuple[str, ...]](), [0.0]

    class Slow:
        def load_table(self, name: tuple[str, ...]) -> Table:
            loads.append(name)
            now[0] += 200
            return table

    monkeypatch.setattr("floe_iceberg.neighbours.time.monotonic", lambda: now[0])
    names = [("bronze", f"t{number}") for number in range(5)]
    neighbours = Neighbours(cast("Catalog", Slow()), lambda: names)
    for _ in range(3):
        neighbours.refuse_unreadable(T)
    assert len(loads) == 5
    now[0] += 301
    neighbours.refuse_unreadable(T)
    assert len(loads) == 10


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
