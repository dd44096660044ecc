"""Creating, renaming and registering tables, without Spark."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from tests.lakes import open_manager

from floe_core.errors import (
    ConfigurationError,
    FloeStorageError,
    SchemaEvolutionError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from floe_core.identifiers import TableIdentifier
from floe_core.models import PartitionTransform, SortField
from floe_iceberg import IcebergTableManager

ORDERS = TableIdentifier.from_string("bronze.raw.orders")
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata={"doc": "the number of the order"}),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("note", pa.string()),
        pa.field("price", pa.float64()),
    ]
)


@pytest.fixture
def manager(tmp_path: Path) -> IcebergTableManager:
    return open_manager(tmp_path)


def by(column: str, transform: str, **arguments: Any) -> PartitionTransform:
    return PartitionTransform.model_validate({"source_column": column, "transform_type": transform, **arguments})


def test_a_table_has_the_schema_the_documentation_and_the_defaults(manager: IcebergTableManager) -> None:
    table = manager.create_table(ORDERS, SCHEMA, comment="orders as they come", properties={"owner-team": "sales"})
    loaded = manager.load_table(ORDERS)
    assert [(field.name, field.required) for field in loaded.schema().fields][:2] == [("id", True), ("at", False)]
    assert loaded.schema().find_field("id").doc == "the number of the order"
    assert loaded.properties["comment"] == "orders as they come"
    assert loaded.properties["owner-team"] == "sales"
    assert loaded.properties["write.target-file-size-bytes"] == "134217728"
    assert loaded.properties["history.expire.min-snapshots-to-keep"] == "10"
    assert table.location() == manager.storage_plugin.get_warehouse_uri("bronze.raw") + "/orders"


def test_a_schema_of_pyiceberg_is_taken_too(manager: IcebergTableManager) -> None:
    schema = Schema(NestedField(7, "id", LongType(), required=True), NestedField(9, "note", StringType(), doc="words"))
    manager.create_table(ORDERS, schema, partition_by=[by("note", "truncate", width=2)])
    loaded = manager.load_table(ORDERS)
    assert loaded.schema().find_field("note").doc == "words"
    assert loaded.spec().fields[0].source_id == loaded.schema().find_field("note").field_id


@pytest.mark.parametrize(
    ("transform", "expected"),
    [
        (by("at", "year"), "at_year: year(2)"),
        (by("at", "month"), "at_month: month(2)"),
        (by("at", "day"), "at_day: day(2)"),
        (by("at", "hour"), "at_hour: hour(2)"),
        (by("id", "bucket", num_buckets=16), "id_bucket: bucket[16](1)"),
        (by("note", "truncate", width=4), "note_trunc: truncate[4](3)"),
        (by("note", "identity"), "note: identity(3)"),
        (by("at", "day", name="the_day"), "the_day: day(2)"),
    ],
)
def test_partition_fields_are_named_as_spark_names_them(
    manager: IcebergTableManager, transform: PartitionTransform, expected: str
) -> None:
    spec = manager.create_table(ORDERS, SCHEMA, partition_by=[transform]).spec()
    assert [str(field) for field in spec.fields] == [f"1000: {expected}"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"partition_by": [by("nothing", "day")]}, "there is no column 'nothing'"),
        ({"partition_by": [by("price", "day")]}, "column 'price' is double, which day cannot take"),
        ({"partition_by": [by("price", "bucket", num_buckets=4)]}, r"which bucket\[4\] cannot take"),
        ({"partition_by": [by("at", "day"), by("at", "day")]}, "at_day are given twice"),
        ({"sort_by": [SortField(column="nothing")]}, "sort_by: there is no column 'nothing'"),
    ],
)
def test_a_layout_that_cannot_be_is_refused_before_anything_happens(
    manager: IcebergTableManager, arguments: Any, reason: str
) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        manager.create_table(ORDERS, SCHEMA, **arguments)
    assert manager.catalog_plugin.list_namespaces() == []


def test_a_sort_order_is_kept(manager: IcebergTableManager) -> None:
    order = [SortField(column="at", descending=True, nulls_last=True), SortField(column="id")]
    manager.create_table(ORDERS, SCHEMA, sort_by=order)
    assert [str(field) for field in manager.load_table(ORDERS).sort_order().fields] == [
        "2 DESC NULLS LAST",
        "1 ASC NULLS FIRST",
    ]


def test_a_table_that_is_there_is_an_error_or_returned_as_asked(manager: IcebergTableManager) -> None:
    manager.create_table(ORDERS, SCHEMA)
    with pytest.raises(TableAlreadyExistsError, match=r"'bronze\.raw\.orders' exists already"):
        manager.create_table(ORDERS, SCHEMA)
    again = manager.create_table(ORDERS, pa.schema([("other", pa.int32())]), if_not_exists=True)
    assert again.schema().column_names == ["id", "at", "note", "price"]


def test_a_type_iceberg_does_not_have_is_refused(manager: IcebergTableManager) -> None:
    with pytest.raises(SchemaEvolutionError, match=r"span \(duration\[us\]\)"):
        manager.create_table(ORDERS, pa.schema([("span", pa.duration("us"))]))


def test_of_two_that_create_one_table_at_once_one_wins(tmp_path: Path) -> None:
    managers = [open_manager(tmp_path) for _ in range(4)]
    together = threading.Barrier(len(managers))
    outcomes: list[str] = []

    def create(manager: IcebergTableManager) -> None:
        together.wait()
        try:
            manager.create_table(ORDERS, SCHEMA)
            outcomes.append("created")
        except TableAlreadyExistsError:
            outcomes.append("there already")

    threads = [threading.Thread(target=create, args=(manager,)) for manager in managers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["created", "there already", "there already", "there already"]


def test_a_renamed_table_keeps_its_rows_and_its_old_name_is_free(manager: IcebergTableManager) -> None:
    manager.create_table(ORDERS, pa.schema([("n", pa.int64())])).append(pa.table({"n": [1, 2]}))
    new = TableIdentifier.from_string("silver.clean.orders")
    manager.rename_table(ORDERS, new)
    assert manager.load_table(new).scan().to_arrow().num_rows == 2
    assert not manager.table_exists(ORDERS)
    with pytest.raises(TableNotFoundError, match=r"bronze\.raw\.orders"):
        manager.rename_table(ORDERS, TableIdentifier.from_string("silver.other"))


def test_a_dropped_table_can_be_registered_again_with_its_rows(manager: IcebergTableManager) -> None:
    table = manager.create_table(ORDERS, pa.schema([("n", pa.int64())]))
    table.append(pa.table({"n": [1, 2]}))
    manager.drop_table(ORDERS)
    manager.register_table(TableIdentifier.from_string("found.orders"), table.metadata_location)
    assert manager.load_table(TableIdentifier.from_string("found.orders")).scan().to_arrow().num_rows == 2
    with pytest.raises(TableAlreadyExistsError):
        manager.register_table(TableIdentifier.from_string("found.orders"), table.metadata_location)


def metadata_files(root: Path) -> dict[str, str]:
    """Addresses that are no metadata of a table, each with what is wrong."""
    contents: dict[str, tuple[bytes, str]] = {
        "words.metadata.json": (b"these are words", "is not the metadata of an Iceberg table"),
        "bytes.metadata.json": (bytes(range(256)), "is not the metadata of an Iceberg table"),
        "empty.metadata.json": (b"", "is not the metadata of an Iceberg table"),
        "other.metadata.json": (b'{"name": "shop"}', "is not the metadata of an Iceberg table"),
        "half.metadata.json": (b'{"format-version": 2}', "is not the metadata of an Iceberg table"),
        "words.gz.metadata.json": (b"these are words", "is not the metadata of an Iceberg table"),
    }
    for name, (content, _) in contents.items():
        (root / name).write_bytes(content)
    return {
        **{f"file://{root / name}": reason for name, (_, reason) in contents.items()},
        f"file://{root}/nothing.metadata.json": "does not exist",
        f"file://{root}": "cannot be read",
        "nowhere://lake/x.metadata.json": "cannot be read",
        "x.metadata.json": "is not a full address",
        "": "is not a full address",
    }


def test_what_is_not_the_metadata_of_a_table_is_not_registered(manager: IcebergTableManager, tmp_path: Path) -> None:
    for location, reason in metadata_files(tmp_path).items():
        told = f"'bronze.raw.orders' was not registered: {location!r} {reason}"
        with pytest.raises(FloeStorageError, match=re.escape(told)) as caught:
            manager.register_table(ORDERS, location)
        assert "Give the address of a table's newest metadata file" in str(caught.value)
    assert manager.catalog_plugin.list_namespaces() == []


def test_a_table_may_be_registered_under_a_second_name(manager: IcebergTableManager) -> None:
    table = manager.create_table(ORDERS, SCHEMA)
    second = manager.register_table(TableIdentifier.from_string("silver.same"), table.metadata_location)
    assert second.metadata.table_uuid == table.metadata.table_uuid
    with pytest.raises(TableAlreadyExistsError, match=r"'bronze\.raw\.orders' exists already"):
        manager.register_table(ORDERS, table.metadata_location)


def test_a_rename_takes_no_name_that_is_taken_and_names_what_is_missing(manager: IcebergTableManager) -> None:
    other = TableIdentifier.from_string("silver.taken")
    first, second = manager.create_table(ORDERS, SCHEMA), manager.create_table(other, SCHEMA)
    with pytest.raises(TableAlreadyExistsError, match=r"'silver\.taken' exists already"):
        manager.rename_table(ORDERS, other)
    assert manager.load_table(ORDERS).metadata.table_uuid == first.metadata.table_uuid
    assert manager.load_table(other).metadata.table_uuid == second.metadata.table_uuid
    with pytest.raises(TableNotFoundError, match=r"'bronze\.nothing' not found"):
        manager.rename_table(
            TableIdentifier.from_string("bronze.nothing"), TableIdentifier.from_string("gold.something")
        )
    assert "gold" not in manager.catalog_plugin.list_namespaces()


@pytest.mark.parametrize("properties", [{"x": None}, {"x": ["a"]}, {5: "x"}, {"": "x"}], ids=str)
def test_a_property_without_a_text_is_named_as_the_callers_argument(
    manager: IcebergTableManager, properties: dict[Any, Any]
) -> None:
    rows = pa.table({"id": [1]})
    for act in (
        lambda: manager.create_table(ORDERS, SCHEMA, properties=properties),
        lambda: manager.write_data(ORDERS, rows, mode="append", properties=properties),
    ):
        with pytest.raises(ConfigurationError, match=r"^properties: a property is a name and a text; .* is not$"):
            act()
    assert not manager.table_exists(ORDERS)


def test_numbers_and_booleans_become_the_text_of_a_property(manager: IcebergTableManager) -> None:
    given: dict[str, Any] = {"write.target-file-size-bytes": 1024, "commit.manifest-merge.enabled": False}
    table = manager.create_table(ORDERS, SCHEMA, properties=given)
    assert table.properties["write.target-file-size-bytes"] == "1024"
    assert table.properties["commit.manifest-merge.enabled"] == "false"


@pytest.mark.parametrize("ending", ["elsewhere", "other/bronze/raw/orders"])
@pytest.mark.parametrize("way", ["create_table", "property", "write_data"])
def test_a_table_is_created_and_written_at_the_location_that_was_asked_for(
    manager: IcebergTableManager, tmp_path: Path, way: str, ending: str
) -> None:
    location, rows = (tmp_path / ending).as_uri(), pa.table({"id": [1]})
    if way == "create_table":
        manager.create_table(ORDERS, rows.schema, location=f"{location}/")
    elif way == "property":
        manager.create_table(ORDERS, rows.schema, properties={"location": location})
    for _ in range(2):
        manager.write_data(ORDERS, rows, mode="append", properties={"location": location})
    table = manager.load_table(ORDERS)
    assert table.location() == location
    assert "location" not in table.properties
    assert manager.scan(ORDERS).to_arrow().num_rows == 2
    assert list((tmp_path / ending / "data").iterdir())


def test_a_location_is_refused_where_another_table_is_or_where_it_is_no_address(
    manager: IcebergTableManager, tmp_path: Path
) -> None:
    location = (tmp_path / "elsewhere").as_uri()
    manager.create_table(ORDERS, SCHEMA, location=location)
    other = TableIdentifier.from_string("bronze.other")
    with pytest.raises(FloeStorageError, match="holds the metadata of another table"):
        manager.create_table(other, SCHEMA, location=location)
    with pytest.raises(TableAlreadyExistsError):
        manager.create_table(ORDERS, SCHEMA, location=location)
    for wrong in ("elsewhere", ""):
        with pytest.raises(ConfigurationError, match=r"location is .*; write a full address"):
            manager.create_table(other, SCHEMA, location=wrong)
