"""Several catalogs in one database and one warehouse, without Spark: whose tables are whose, and where new ones go."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy import event
from tests.lakes import open_manager

from floe_core.config.spec import LocalStorageConfig, SqlCatalogConfig
from floe_core.errors import FloeStorageError, TableAlreadyExistsError
from floe_core.identifiers import TableIdentifier
from floe_core.plugins.discovery import check_health
from floe_iceberg import IcebergTableManager
from floe_iceberg.catalogs.sql import SqlCatalogPlugin
from floe_iceberg.storage.local import LocalStoragePlugin

ORDERS = TableIdentifier(namespace=("bronze",), name="orders")


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def bare(root: Path, name: str) -> SqlCatalog:
    """A catalog of PyIceberg alone, in the database and the warehouse of the project in this folder."""
    (root / ".floe").mkdir(exist_ok=True)
    return SqlCatalog(name, uri=f"sqlite:///{root}/.floe/catalog.db", warehouse=f"file://{root}/.floe/warehouse")


def fill(root: Path, name: str, *ids: int, table: str = "bronze.orders") -> None:
    catalog = bare(root, name)
    catalog.create_namespace_if_not_exists(table.rpartition(".")[0])
    catalog.create_table(table, rows().schema).append(rows(*ids))


def ids_in(root: Path, name: str, table: str = "bronze.orders") -> list[int]:
    found: list[int] = bare(root, name).load_table(table).scan().to_arrow()["id"].to_pylist()
    return sorted(found)


def named(root: Path, name: str) -> IcebergTableManager:
    storage = LocalStoragePlugin(LocalStorageConfig(), root=root)
    return IcebergTableManager(SqlCatalogPlugin(SqlCatalogConfig(name=name), root=root), storage)


def ids_of(manager: IcebergTableManager, table: TableIdentifier = ORDERS) -> list[int]:
    found: list[int] = manager.scan(table).to_arrow()["id"].to_pylist()
    return sorted(found)


def test_the_name_chooses_which_tables_of_the_database_are_seen(tmp_path: Path) -> None:
    fill(tmp_path, "default", 1, 2)
    fill(tmp_path, "my-catalog", 3)
    assert not open_manager(tmp_path).table_exists(ORDERS)
    for name, ids in (("default", [1, 2]), ("my-catalog", [3])):
        manager = named(tmp_path, name)
        assert ids_of(manager) == ids
        manager.write_data(ORDERS, rows(9), mode="append")
        assert ids_in(tmp_path, name) == [*ids, 9]


def test_a_new_table_avoids_a_location_that_holds_metadata(tmp_path: Path) -> None:
    fill(tmp_path, "default", 1)
    manager = open_manager(tmp_path)
    manager.write_data(ORDERS, rows(2), mode="append")
    created = manager.create_table(TableIdentifier.from_string("bronze.free"), rows().schema)
    theirs, ours = (
        bare(tmp_path, "default").load_table("bronze.orders").location(),
        manager.load_table(ORDERS).location(),
    )
    assert ours.startswith(f"{theirs}-")
    assert created.location() == theirs.replace("orders", "free"), "a location that nobody has gets no suffix"


def test_a_table_created_after_a_drop_has_files_of_its_own(tmp_path: Path) -> None:
    manager = open_manager(tmp_path)
    manager.write_data(ORDERS, rows(1), mode="append")
    dropped = manager.load_table(ORDERS)
    manager.drop_table(ORDERS)
    manager.write_data(ORDERS, rows(2), mode="append")
    assert manager.load_table(ORDERS).location() != dropped.location()
    manager.drop_table(ORDERS, purge=True)
    manager.register_table(ORDERS, dropped.metadata_location)
    assert ids_of(manager) == [1]


def test_a_purged_table_leaves_its_location_to_the_next(tmp_path: Path) -> None:
    manager = open_manager(tmp_path)
    manager.write_data(ORDERS, rows(1), mode="append")
    before = manager.load_table(ORDERS).location()
    manager.drop_table(ORDERS, purge=True)
    manager.write_data(ORDERS, rows(2), mode="append")
    assert manager.load_table(ORDERS).location() == before


def test_a_table_created_under_the_old_name_of_another_has_files_of_its_own(tmp_path: Path) -> None:
    manager = open_manager(tmp_path)
    manager.write_data(ORDERS, rows(1), mode="append")
    renamed = manager.rename_table(ORDERS, TableIdentifier.from_string("bronze.archive"))
    manager.write_data(ORDERS, rows(2), mode="append")
    assert manager.load_table(ORDERS).location() != renamed.location()


def test_a_location_that_is_asked_for_is_refused_if_it_is_taken(tmp_path: Path) -> None:
    fill(tmp_path, "default", 1)
    manager = open_manager(tmp_path)
    manager.catalog_plugin.create_namespace("bronze")
    taken = bare(tmp_path, "default").load_table("bronze.orders").location()
    with pytest.raises(FloeStorageError, match=f"'bronze.orders' was not created: {taken} holds the metadata"):
        manager.catalog_plugin.create_table("bronze.orders", rows().schema, location=taken)
    manager.catalog_plugin.create_table("bronze.orders", rows().schema)
    assert manager.load_table(ORDERS).location() != taken


def test_creating_a_table_that_exists_leaves_no_file_behind(tmp_path: Path) -> None:
    manager = open_manager(tmp_path)
    manager.write_data(ORDERS, rows(1), mode="append")
    before = sorted((tmp_path / ".floe" / "warehouse").rglob("*"))
    with pytest.raises(TableAlreadyExistsError):
        manager.create_table(ORDERS, rows().schema)
    assert manager.create_table(ORDERS, rows().schema, if_not_exists=True).location().endswith("/orders")
    assert sorted((tmp_path / ".floe" / "warehouse").rglob("*")) == before


def test_writers_that_create_one_table_beside_anothers_all_land_in_it(tmp_path: Path) -> None:
    fill(tmp_path, "default", 1)

    def write(number: int) -> None:
        open_manager(tmp_path).write_data(ORDERS, rows(number), mode="append")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(8)))
    assert ids_of(open_manager(tmp_path)) == list(range(8))
    assert ids_in(tmp_path, "default") == [1]


def test_an_append_joins_a_table_that_was_created_since_it_looked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager, other = open_manager(tmp_path), open_manager(tmp_path)
    look = manager.find_table

    def find_table(identifier: TableIdentifier) -> object:
        found = look(identifier)
        if found is None:
            other.write_data(identifier, rows(1), mode="append")
        return found

    monkeypatch.setattr(manager, "find_table", find_table)
    manager.write_data(ORDERS, pa.RecordBatchReader.from_batches(rows().schema, rows(2).to_batches()), mode="append")
    assert ids_of(other) == [1, 2]


def test_a_purge_keeps_files_that_a_table_of_another_catalog_uses(tmp_path: Path) -> None:
    manager = open_manager(tmp_path)
    manager.write_data(ORDERS, rows(1, 2), mode="append")
    table = manager.load_table(ORDERS)
    (file,) = [task.file.file_path for task in table.scan().plan_files()]
    borrower = bare(tmp_path, "default")
    borrower.create_namespace("other")
    made = borrower.create_table("other.borrowed", rows().schema)
    made.add_files([file])
    with pytest.raises(FloeStorageError, match=r"belongs to 'other.borrowed \(catalog default\)' too"):
        manager.drop_table(ORDERS, purge=True)
    assert ids_in(tmp_path, "default", "other.borrowed") == [1, 2]
    assert ids_of(manager) == [1, 2], "and the table is still there"


@pytest.mark.parametrize("by", ["manager", "plugin"])
def test_a_purge_of_a_table_that_another_catalog_registered_too_is_refused(tmp_path: Path, by: str) -> None:
    manager = open_manager(tmp_path)
    manager.write_data(ORDERS, rows(1), mode="append")
    other = bare(tmp_path, "default")
    other.create_namespace("bronze")
    other.register_table("bronze.orders", manager.load_table(ORDERS).metadata_location)
    drop: dict[str, Callable[[], object]] = {
        "manager": lambda: manager.drop_table(ORDERS, purge=True),
        "plugin": lambda: manager.catalog_plugin.drop_table(str(ORDERS), purge=True),
    }
    with pytest.raises(FloeStorageError, match=r"bronze.orders \(catalog default\)"):
        drop[by]()
    assert ids_in(tmp_path, "default") == [1]
    assert ids_of(manager) == [1]


def test_files_of_another_catalog_below_a_table_are_not_its_orphans(tmp_path: Path) -> None:
    """As in a lake where Floe created a table in the location of another one, which earlier versions did."""
    fill(tmp_path, "default", 1)
    manager = open_manager(tmp_path)
    manager.catalog_plugin.create_namespace("bronze")
    place = bare(tmp_path, "default").load_table("bronze.orders").location()
    manager.catalog_plugin.connect().create_table("bronze.orders", rows().schema, place)  # type: ignore[attr-defined]
    with pytest.raises(FloeStorageError, match=r"files of 'bronze.orders \(catalog default\)' lie in or below"):
        manager.neighbours().refuse_below(manager.load_table(ORDERS), ORDERS)


def test_a_row_of_another_catalog_without_its_files_is_in_nobodys_way(tmp_path: Path) -> None:
    fill(tmp_path, "default", 1, table="gone.orders")
    for path in (tmp_path / ".floe" / "warehouse" / "gone").rglob("*.metadata.json"):
        path.unlink()
    manager = open_manager(tmp_path)
    manager.write_data(ORDERS, rows(2), mode="append")
    manager.drop_table(ORDERS, purge=True)
    assert not manager.table_exists(ORDERS)


def test_a_table_of_another_catalog_that_cannot_be_loaded_stops_a_purge(tmp_path: Path) -> None:
    fill(tmp_path, "default", 1, table="other.orders")
    for path in (tmp_path / ".floe" / "warehouse" / "other").rglob("*.metadata.json"):
        path.write_text("not metadata", encoding="utf-8")
    manager = open_manager(tmp_path)
    manager.write_data(ORDERS, rows(2), mode="append")
    with pytest.raises(FloeStorageError, match=r"'other.orders \(catalog default\)' in the same database cannot be"):
        manager.drop_table(ORDERS, purge=True)
    assert ids_of(manager) == [2]


def test_a_row_of_another_catalog_is_found_by_its_key(tmp_path: Path) -> None:
    for number in range(4):
        fill(tmp_path, "default", number, table=f"other.t{number}")
    manager = open_manager(tmp_path)
    manager.write_data(ORDERS, rows(9), mode="append")
    catalog = manager.catalog_plugin.connect()
    assert isinstance(catalog, SqlCatalog)
    read: list[str] = []

    def count(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        read.append(statement)

    event.listen(catalog.engine, "before_cursor_execute", count)
    try:
        manager.neighbours().refuse_below(manager.load_table(ORDERS), ORDERS)
    finally:
        event.remove(catalog.engine, "before_cursor_execute", count)
    whole = [one for one in read if "FROM iceberg_tables" in one and "table_name = ?" not in one and "LIMIT" not in one]
    assert len(whole) == 1, "all rows are read once, however many tables there are"


def test_an_empty_catalog_tells_once_which_others_are_in_the_database(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(tmp_path, "default", 1)
    fill(tmp_path, "default", 1, table="bronze.other")
    fill(tmp_path, "archive", 1)
    with caplog.at_level(logging.WARNING, logger="floe"):
        for _ in range(2):
            open_manager(tmp_path).catalog_plugin.list_namespaces()
    (message,) = [record.getMessage() for record in caplog.records if record.name == "floe"]
    assert "catalog 'lake' has no tables" in message
    assert "'archive' (1), 'default' (2)" in message
    assert "write in floe.yaml: catalog: {type: sql, name: archive}" in message


def test_a_catalog_with_tables_does_not_warn_of_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fill(tmp_path, "default", 1)
    fill(tmp_path, "archive", 1)
    with caplog.at_level(logging.WARNING, logger="floe"):
        assert named(tmp_path, "default").table_exists(ORDERS)
    assert [record for record in caplog.records if record.name == "floe"] == []


def test_its_health_names_the_other_catalogs(tmp_path: Path) -> None:
    manager = open_manager(tmp_path)
    assert "catalog" not in check_health(manager.catalog_plugin).message.removeprefix(
        str(tmp_path / ".floe/catalog.db")
    )
    manager.write_data(ORDERS, rows(1), mode="append")
    fill(tmp_path, "default", 1)
    message = check_health(manager.catalog_plugin).message
    assert "(1 namespaces); other catalogs in it have tables: 'default' (1). To use one of them" in message


def test_a_database_from_before_views_and_the_views_of_others_are_read(tmp_path: Path) -> None:
    fill(tmp_path, "default", 1, table="other.orders")
    manager = open_manager(tmp_path)
    manager.write_data(ORDERS, rows(2), mode="append")
    database = tmp_path / ".floe" / "catalog.db"
    with sqlite3.connect(database) as connection:
        connection.execute("UPDATE iceberg_tables SET iceberg_type = 'VIEW' WHERE catalog_name = 'default'")
        connection.execute("UPDATE iceberg_tables SET metadata_location = 'nowhere:/x' WHERE catalog_name = 'default'")
    manager.neighbours().refuse_below(manager.load_table(ORDERS), ORDERS)
    with sqlite3.connect(database) as connection:
        connection.execute("DELETE FROM iceberg_tables WHERE catalog_name = 'default'")
        connection.execute("ALTER TABLE iceberg_tables DROP COLUMN iceberg_type")
    fill(tmp_path, "default", 3)
    older = open_manager(tmp_path)
    assert ids_of(older) == [2]
    older.drop_table(ORDERS, purge=True)
    assert ids_in(tmp_path, "default") == [3]
