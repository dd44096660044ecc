"""The FileIO of a storage plugin serves every file of a table, and the catalog knows the storage's warehouse."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchNamespaceError, TableAlreadyExistsError
from pyiceberg.io import InputFile, OutputFile
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from tests.lakes import open_manager

from floe_core.compiler import compile_project
from floe_core.config.spec import LocalStorageConfig, SqlCatalogConfig
from floe_core.errors import PluginError
from floe_core.identifiers import TableIdentifier
from floe_core.plugins.discovery import create_catalog_plugin
from floe_core.plugins.ports import FileIO, PluginMetadata
from floe_iceberg import IcebergTableManager
from floe_iceberg.catalogs.sql import SqlCatalogPlugin
from floe_iceberg.storage.local import LocalStoragePlugin

SCHEMA = pa.schema([("n", pa.int64())])
ORDERS = TableIdentifier.from_string("bronze.raw.orders")


class RecordingFileIO(PyArrowFileIO):
    """Keeps the locations it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.read: set[str] = set()
        self.written: set[str] = set()
        self.deleted: set[str] = set()

    def new_input(self, location: str) -> PyArrowFile:
        self.read.add(location)
        return super().new_input(location)

    def new_output(self, location: str) -> PyArrowFile:
        self.written.add(location)
        return super().new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        self.deleted.add(location if isinstance(location, str) else location.location)
        super().delete(location)


class RecordingStorage(LocalStoragePlugin):
    def __init__(self, root: Path) -> None:
        super().__init__(LocalStorageConfig(), root=root)
        self.files = RecordingFileIO()

    def get_pyiceberg_fileio(self) -> FileIO:
        return self.files


@pytest.fixture
def storage(tmp_path: Path) -> RecordingStorage:
    return RecordingStorage(tmp_path)


@pytest.fixture
def manager(tmp_path: Path, storage: RecordingStorage) -> IcebergTableManager:
    return IcebergTableManager(SqlCatalogPlugin(SqlCatalogConfig(), root=tmp_path), storage)


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    """The catalog that `connect()` returns, with a nested namespace in it."""
    manager = open_manager(tmp_path)
    manager.catalog_plugin.create_namespace("bronze")
    manager.catalog_plugin.create_namespace("bronze.raw")
    connected = manager.catalog_plugin.connect()
    assert isinstance(connected, SqlCatalog)
    return connected


def files_below(folder: Path) -> set[str]:
    return {f"file://{path}" for path in folder.rglob("*") if path.is_file()}


# The FileIO ------------------------------------------------------------------------------------------------------


def test_every_file_of_a_table_is_written_and_read_through_the_fileio_of_the_storage_plugin(
    manager: IcebergTableManager, storage: RecordingStorage, tmp_path: Path
) -> None:
    manager.create_table(ORDERS, SCHEMA)
    manager.write_data(ORDERS, pa.table({"n": [1, 2]}), mode="append")
    manager.write_data(TableIdentifier.from_string("gold.sums"), pa.table({"n": [3]}), mode="append")
    manager.create_tag(ORDERS, "first")
    assert storage.files.written == files_below(tmp_path / ".floe" / "warehouse")
    storage.files.read.clear()
    assert manager.scan(ORDERS).to_arrow()["n"].to_pylist() == [1, 2]
    assert {Path(one).suffix for one in storage.files.read} == {".json", ".avro", ".parquet"}


def test_a_purge_deletes_every_file_through_the_fileio_of_the_storage_plugin(
    manager: IcebergTableManager, storage: RecordingStorage, tmp_path: Path
) -> None:
    manager.write_data(ORDERS, pa.table({"n": [1, 2]}), mode="append")
    before = files_below(tmp_path / ".floe" / "warehouse")
    manager.drop_table(ORDERS, purge=True)
    assert storage.files.deleted == before
    assert files_below(tmp_path / ".floe" / "warehouse") == set()


def test_a_property_of_a_table_does_not_replace_the_fileio(
    manager: IcebergTableManager, storage: RecordingStorage
) -> None:
    manager.create_table(ORDERS, SCHEMA, properties={"py-io-impl": "no_such_module.FileIO"})
    assert manager.load_table(ORDERS).io is storage.files


def test_a_fileio_that_pyiceberg_cannot_use_is_an_error_that_names_the_plugin(tmp_path: Path) -> None:
    class Bare:
        def new_input(self, location: str) -> None: ...
        def new_output(self, location: str) -> None: ...
        def delete(self, location: str) -> None: ...

    class BareStorage(LocalStoragePlugin):
        metadata: ClassVar[PluginMetadata] = LocalStoragePlugin.metadata.model_copy(update={"name": "bare"})

        def get_pyiceberg_fileio(self) -> FileIO:
            return Bare()

    plugin = SqlCatalogPlugin(SqlCatalogConfig(), root=tmp_path)
    manager = IcebergTableManager(plugin, BareStorage(LocalStorageConfig(), root=tmp_path))
    with pytest.raises(
        PluginError, match=r"storage plugin 'bare' returned a Bare .* subclass of pyiceberg\.io\.FileIO"
    ):
        manager.write_data(ORDERS, pa.table({"n": [1]}), mode="append")


# The warehouse ---------------------------------------------------------------------------------------------------


def test_the_connected_catalog_creates_tables_where_both_engines_would(catalog: SqlCatalog, tmp_path: Path) -> None:
    table = catalog.create_table("bronze.raw.orders", SCHEMA)
    assert table.location() == f"file://{tmp_path}/.floe/warehouse/bronze/raw/orders"
    with catalog.create_table_transaction("bronze.items", SCHEMA) as transaction:
        transaction.append(pa.table({"n": [1]}))
    assert catalog.load_table("bronze.items").location() == f"file://{tmp_path}/.floe/warehouse/bronze/items"
    assert catalog.load_table("bronze.items").scan().to_arrow().num_rows == 1


def test_the_connected_catalog_does_not_reuse_the_location_of_a_dropped_table(catalog: SqlCatalog) -> None:
    first = catalog.create_table("bronze.orders", SCHEMA)
    catalog.drop_table("bronze.orders")
    second = catalog.create_table("bronze.orders", SCHEMA)
    assert second.location().startswith(f"{first.location()}-")


def test_the_connected_catalog_writes_nothing_for_a_table_that_exists(catalog: SqlCatalog, tmp_path: Path) -> None:
    catalog.create_table("bronze.orders", SCHEMA)
    before = files_below(tmp_path / ".floe" / "warehouse")
    with pytest.raises(TableAlreadyExistsError):
        catalog.create_table("bronze.orders", SCHEMA)
    with pytest.raises(NoSuchNamespaceError):
        catalog.create_table("silver.orders", SCHEMA, location=f"file://{tmp_path}/silver")
    assert files_below(tmp_path) - before == {f"file://{one}" for one in (tmp_path / ".floe").glob("catalog.db*")}


def test_a_namespace_with_a_location_of_its_own_keeps_its_tables_there(catalog: SqlCatalog, tmp_path: Path) -> None:
    catalog.create_namespace("side", {"location": f"file://{tmp_path}/side/"})
    assert catalog.create_table("side.orders", SCHEMA).location() == f"file://{tmp_path}/side/orders"


def test_a_catalog_plugin_alone_creates_tables_in_the_default_warehouse(tmp_path: Path) -> None:
    plugin = SqlCatalogPlugin(SqlCatalogConfig(), root=tmp_path)
    plugin.create_namespace("bronze")
    plugin.create_table("bronze.orders", SCHEMA)
    assert plugin.connect().load_table("bronze.orders").location() == f"file://{tmp_path}/.floe/warehouse/bronze/orders"


def test_the_catalog_plugin_of_a_project_creates_tables_on_its_storage(tmp_path: Path) -> None:
    (tmp_path / "floe.yaml").write_text("name: shop\nstorage: {type: local, path: elsewhere}\n", encoding="utf-8")
    plugin = create_catalog_plugin(compile_project(tmp_path).artifacts)
    plugin.create_namespace("bronze")
    plugin.create_table("bronze.orders", SCHEMA)
    assert list((tmp_path / "elsewhere" / "bronze" / "orders" / "metadata").glob("*.metadata.json"))
