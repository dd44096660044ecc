"""What a real Polaris refuses, and that the message names the reason and the next step; skipped where none is given."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.catalogs import polaris_settings, polaris_uri, side_lake
from tests.servers.polaris import Management, management

from floe_core.compiler import compile_project
from floe_core.errors import (
    CatalogConnectionError,
    FloeStorageError,
    PermissionDeniedError,
    StorageAuthenticationError,
)
from floe_core.identifiers import Namespace, TableIdentifier
from floe_iceberg import IcebergTableManager, Lake

ROWS = pa.table({"id": [1, 2, 3]})
READER = ("NAMESPACE_READ_PROPERTIES", "TABLE_READ_DATA")

Open = Callable[..., IcebergTableManager]


@pytest.fixture(scope="module")
def polaris_admin() -> Iterator[Management]:
    with management() as opened:
        yield opened


@pytest.fixture(scope="module")
def reader(polaris_admin: Management) -> str:
    """The credential of a principal that may only read."""
    return polaris_admin.principal(*READER)


def _settings(credential: str = "", warehouse: str = "", uri: str = "", storage: str | None = None) -> str:
    """The settings of the given Polaris with some of them replaced."""
    text = polaris_settings(uri or polaris_uri())
    if credential:
        client_id, _, os.environ["FLOE_TEST_OTHER_SECRET"] = credential.partition(":")
        text = text.replace("${env:FLOE_TEST_POLARIS_ID}", client_id)
        text = text.replace("${env:FLOE_TEST_POLARIS_SECRET}", "${env:FLOE_TEST_OTHER_SECRET}")
    if warehouse:
        text = text.replace("${env:FLOE_TEST_POLARIS_WAREHOUSE}", warehouse)
    return text if storage is None else text.replace("storage: {type: s3, bucket: unused}\n", storage)


@pytest.fixture
def opened(tmp_path: Path) -> Open:
    def open_(**settings: str) -> IcebergTableManager:
        (tmp_path / "floe.yaml").write_text(f"name: tests\n{_settings(**settings)}", encoding="utf-8")
        return IcebergTableManager.open(compile_project(tmp_path).artifacts)

    return open_


@pytest.fixture
def tables(opened: Open, namespace: str) -> Iterator[IcebergTableManager]:
    """The tables of the given Polaris; the namespace of the test is removed afterwards."""
    manager = opened()
    yield manager
    _remove(manager, namespace)


def _remove(manager: IcebergTableManager, namespace: str) -> None:
    place = Namespace.from_string(namespace)
    if manager.namespace_exists(place):
        for name in manager.list_tables(place):
            manager.drop_table(name)
        manager.drop_namespace(place)


def test_a_reader_that_writes_is_told_to_get_table_write_data(
    tables: IcebergTableManager, opened: Open, reader: str, table: TableIdentifier
) -> None:
    tables.write_data(table, ROWS, mode="append")
    other = opened(credential=reader)
    assert other.scan(table).to_arrow().num_rows == 3
    with pytest.raises(StorageAuthenticationError, match=r"grant .*TABLE_WRITE_DATA.*TABLE_READ_DATA"):
        other.write_data(table, ROWS, mode="append")
    assert tables.scan(table).to_arrow().num_rows == 3


def test_the_name_of_a_renamed_table_is_refused_with_the_location_that_is_taken(
    tables: IcebergTableManager, table: TableIdentifier
) -> None:
    tables.write_data(table, ROWS, mode="append")
    tables.rename_table(table, table.model_copy(update={"name": "renamed"}))
    with pytest.raises(FloeStorageError, match=r"holds the files of another table.*rename.*another name") as no:
        tables.write_data(table, ROWS, mode="append")
    assert not isinstance(no.value, PermissionDeniedError)
    assert "leave the location to the catalog" not in str(no.value)


def test_a_table_is_created_beside_the_files_of_a_renamed_one(
    tables: IcebergTableManager, table: TableIdentifier
) -> None:
    tables.write_data(table, ROWS, mode="append")
    location = f"{tables.load_table(table).location()}-2"
    tables.rename_table(table, table.model_copy(update={"name": "renamed"}))
    tables.write_data(table, ROWS, mode="append", properties={"location": location})
    assert tables.load_table(table).location() == location
    assert tables.scan(table).to_arrow().num_rows == 3
    outside = table.model_copy(update={"name": "outside"})
    with pytest.raises(PermissionDeniedError, match="not in the list of allowed locations"):
        tables.create_table(outside, ROWS.schema, location="s3://elsewhere/x")


def test_spark_creates_a_table_at_the_location_that_was_asked_for(polaris: Lake, table: TableIdentifier) -> None:
    polaris.tables.create_table(table, ROWS.schema)
    location = f"{polaris.tables.load_table(table).location()}-2"
    other = table.model_copy(update={"name": "other"})
    polaris.write(polaris.spark.range(3), other, mode="append", properties={"location": location})
    assert polaris.tables.load_table(other).location() == location


def test_a_store_that_refuses_the_catalogs_own_key_does_not_blame_the_principal(
    opened: Open, polaris_admin: Management, namespace: str
) -> None:
    manager = opened(warehouse=polaris_admin.new_catalog("s3://not-in-the-role/x"))
    try:
        with pytest.raises(StorageAuthenticationError, match="catalog server's own key") as no:
            manager.create_table(TableIdentifier.from_string(f"{namespace}.t"), ROWS.schema)
        assert "does not allow" not in str(no.value)
    finally:
        _remove(manager, namespace)


def test_a_catalog_on_files_without_storage_is_written_twice(
    opened: Open, polaris_admin: Management, table: TableIdentifier, tmp_path: Path
) -> None:
    base = (tmp_path / "elsewhere").as_uri()
    manager = opened(warehouse=polaris_admin.new_catalog(base, storageType="FILE"), storage="")
    try:
        for _ in range(2):
            manager.write_data(table, ROWS, mode="append")
        assert manager.scan(table).to_arrow().num_rows == 6
        assert manager.load_table(table).location().startswith(base)
    finally:
        _remove(manager, ".".join(table.namespace))


@pytest.mark.parametrize("ending", ["/api/catalog/v1", "/api/catalog/v1/", "", "/", "/api", "/v1", "/api/v1"])
def test_a_wrong_address_is_answered_with_the_right_one(opened: Open, ending: str) -> None:
    right = polaris_uri()
    base = right.removesuffix("/api/catalog")
    with pytest.raises(CatalogConnectionError) as no:
        opened(uri=f"{base}{ending}").list_namespaces()
    assert f"set uri: {right} " in f"{no.value} "


def test_a_metadata_file_is_registered_with_vended_credentials(
    tables: IcebergTableManager, table: TableIdentifier
) -> None:
    tables.write_data(table, ROWS, mode="append")
    newest = tables.load_table(table).metadata_location
    tables.drop_table(table)
    again = table.model_copy(update={"name": "again"})
    with pytest.raises(FloeStorageError, match=f"'{again}' was not registered: .*does not exist"):
        tables.register_table(again, newest.replace(".metadata.json", "-0.metadata.json"))
    with pytest.raises(FloeStorageError, match=f"'{again}' was not registered: .*not a valid metadata file"):
        tables.register_table(again, newest.replace(".metadata.json", ".txt"))
    tables.register_table(again, newest)
    tables.write_data(again, ROWS, mode="append")
    assert tables.scan(again).to_arrow().num_rows == 6


def test_spark_names_the_privileges_that_a_refused_create_needs(
    lake: Lake, polaris: Lake, reader: str, table: TableIdentifier
) -> None:
    polaris.tables.ensure_namespace(Namespace(levels=table.namespace))
    other = side_lake(lake, lake.artifacts.root / "polaris_reader", _settings(credential=reader))
    try:
        frame = other.spark.range(3)
        with pytest.raises(PermissionDeniedError, match="TABLE_CREATE and TABLE_WRITE_DATA: grant that"):
            other.write(frame, table, mode="append")
    finally:
        other.step_aside()


def test_spark_names_table_write_data_when_a_reader_appends(
    lake: Lake, polaris: Lake, reader: str, table: TableIdentifier
) -> None:
    polaris.tables.write_data(table, ROWS, mode="append")
    other = side_lake(lake, lake.artifacts.root / "polaris_reader", _settings(credential=reader))
    try:
        with pytest.raises(FloeStorageError, match="TABLE_WRITE_DATA"):
            other.write(other.spark.range(3), table, mode="append")
    finally:
        other.step_aside()
    assert polaris.tables.scan(table).to_arrow().num_rows == 3
