"""The plugins of the embedded lake, without Spark."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pyarrow as pa
import pytest
from tests.lakes import open_manager

from floe_core.compiler import compile_project
from floe_core.config.spec import LocalStorageConfig, SqlCatalogConfig
from floe_core.errors import (
    CatalogConnectionError,
    ConfigurationError,
    FloeStorageError,
    NamespaceAlreadyExistsError,
    NamespaceNotFoundError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from floe_core.identifiers import Namespace, TableIdentifier
from floe_core.plugins.discovery import check_health
from floe_core.plugins.ports import Catalog, FileIO
from floe_iceberg import IcebergTableManager
from floe_iceberg.catalogs.sql import SqlCatalogPlugin
from floe_iceberg.catalogs.sqlite import BUSY_SECONDS
from floe_iceberg.storage.local import LocalStoragePlugin

SCHEMA = pa.schema([("n", pa.int64())])
ORDERS = TableIdentifier.from_string("bronze.raw.orders")


@pytest.fixture
def manager(tmp_path: Path) -> IcebergTableManager:
    return open_manager(tmp_path)


def create(manager: IcebergTableManager, identifier: TableIdentifier = ORDERS) -> None:
    manager.ensure_namespace(Namespace(levels=identifier.namespace))
    location = manager.storage_plugin.get_warehouse_uri(".".join(identifier.namespace)) + f"/{identifier.name}"
    manager.catalog_plugin.create_table(str(identifier), SCHEMA, location=location)


def test_the_catalog_is_one_file_under_floe_in_wal_mode(manager: IcebergTableManager, tmp_path: Path) -> None:
    assert isinstance(manager.catalog_plugin.connect(), Catalog)
    assert manager.catalog_plugin.connect() is manager.catalog_plugin.connect()
    with sqlite3.connect(tmp_path / ".floe" / "catalog.db") as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_both_engines_wait_for_each_others_locks(manager: IcebergTableManager) -> None:
    conf = manager.catalog_plugin.get_spark_conf("lake", "file:///w")
    assert conf["spark.sql.catalog.lake.jdbc.busy_timeout"] == str(BUSY_SECONDS * 1000)
    assert f"timeout={BUSY_SECONDS}" in str(manager.catalog_plugin.connect().engine.url)  # type: ignore[attr-defined]


def test_missing_parents_are_created_and_listed_level_by_level(manager: IcebergTableManager) -> None:
    manager.ensure_namespace(Namespace.from_string("a.b.c"))
    manager.ensure_namespace(Namespace.from_string("a.b.c"))
    plugin = manager.catalog_plugin
    assert (plugin.list_namespaces(), plugin.list_namespaces("a"), plugin.list_namespaces("a.b")) == (
        ["a"],
        ["a.b"],
        ["a.b.c"],
    )


def test_what_is_missing_or_there_already_is_said_with_its_name(manager: IcebergTableManager) -> None:
    with pytest.raises(TableNotFoundError, match=r"^Table 'bronze.raw.orders' not found in catalog\."):
        manager.load_table(ORDERS)
    with pytest.raises(NamespaceNotFoundError, match="'nowhere'"):
        manager.catalog_plugin.delete_namespace("nowhere")
    create(manager)
    with pytest.raises(TableAlreadyExistsError, match=r"bronze\.raw\.orders"):
        create(manager)
    with pytest.raises(NamespaceAlreadyExistsError, match="'bronze'"):
        manager.catalog_plugin.create_namespace("bronze")


def test_a_dropped_table_is_gone_and_purging_removes_its_files(manager: IcebergTableManager, tmp_path: Path) -> None:
    create(manager)
    manager.load_table(ORDERS).append(pa.table({"n": [1, 2]}))
    files = [path for path in (tmp_path / ".floe" / "warehouse").rglob("*") if path.is_file()]
    assert files
    manager.drop_table(ORDERS, purge=True)
    assert not manager.table_exists(ORDERS)
    assert not [path for path in files if path.suffix == ".parquet" and path.exists()]
    manager.catalog_plugin.delete_namespace("bronze.raw")
    assert manager.catalog_plugin.list_namespaces("bronze") == []


def test_a_table_whose_files_are_gone_points_to_the_doctor(manager: IcebergTableManager, tmp_path: Path) -> None:
    create(manager)
    (tmp_path / ".floe" / "warehouse").rename(tmp_path / "elsewhere")
    with pytest.raises(FloeStorageError, match="floe doctor"):
        manager.load_table(ORDERS)


def test_a_catalog_that_cannot_be_opened_is_a_connection_error(tmp_path: Path) -> None:
    (tmp_path / "catalog.db").write_bytes(b"this is no database, however long one looks at it" * 100)
    plugin = SqlCatalogPlugin(SqlCatalogConfig(uri="sqlite:///catalog.db"), root=tmp_path)
    with pytest.raises(CatalogConnectionError, match=r"catalog\.db"):
        plugin.connect()


def test_the_uri_and_the_path_may_be_anywhere(tmp_path: Path) -> None:
    plugin = SqlCatalogPlugin(SqlCatalogConfig(uri=f"sqlite:///{tmp_path}/else/where.db"), root=Path("/nowhere"))
    plugin.create_namespace("bronze")
    assert (tmp_path / "else" / "where.db").is_file()
    storage = LocalStoragePlugin(LocalStorageConfig(path="data lake"), root=tmp_path)
    assert storage.get_warehouse_uri("bronze.raw") == f"file://{tmp_path}/data lake/bronze/raw"


def test_health_is_told_truly(manager: IcebergTableManager, tmp_path: Path) -> None:
    assert check_health(manager.catalog_plugin).healthy
    assert check_health(manager.storage_plugin).healthy
    absent = LocalStoragePlugin(LocalStorageConfig(path="absent"), root=tmp_path)
    assert not check_health(absent).healthy
    assert "does not exist" in check_health(absent).message


def test_the_local_storage_fills_every_method_of_its_port(manager: IcebergTableManager, tmp_path: Path) -> None:
    storage = manager.storage_plugin
    assert isinstance(storage.get_pyiceberg_fileio(), FileIO)
    assert storage.get_spark_conf("lake") == {}
    assert storage.get_warehouse_uri() == f"file://{tmp_path}/.floe/warehouse"
    assert manager.catalog_plugin.vend_credentials("bronze.orders") == {}


def test_shutdown_lets_go_of_the_file_and_connecting_again_works(manager: IcebergTableManager) -> None:
    first = manager.catalog_plugin.connect()
    manager.catalog_plugin.shutdown()
    assert manager.catalog_plugin.connect() is not first


@pytest.mark.parametrize("name", ["a#b", "a%20b", "a?b"])
def test_a_path_the_engines_would_misread_is_refused(tmp_path: Path, name: str) -> None:
    root = tmp_path / name
    root.mkdir()
    with pytest.raises(ConfigurationError, match="choose another"):
        SqlCatalogPlugin(SqlCatalogConfig(), root=root).connect()
    with pytest.raises(ConfigurationError, match="choose another"):
        LocalStoragePlugin(LocalStorageConfig(), root=root).get_warehouse_uri()


def test_a_compiled_project_opens_without_spark_and_its_properties_reach_new_tables(tmp_path: Path) -> None:
    (tmp_path / "floe.yaml").write_text("name: shop\ntables: {properties: {owner-team: sales}}\n", encoding="utf-8")
    manager = IcebergTableManager.open(compile_project(tmp_path).artifacts)
    manager.write_data(ORDERS, pa.table({"id": [1]}), mode="append")
    assert manager.load_table(ORDERS).properties["owner-team"] == "sales"
    assert manager.create_table(TableIdentifier.from_string("a.b"), SCHEMA).properties["owner-team"] == "sales"
