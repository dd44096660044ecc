"""PyIceberg and Spark on one catalog: the same names, the same rows, and both writing at once."""

from __future__ import annotations

import contextlib
import multiprocessing
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyspark.sql import functions as F  # noqa: N812
from tests.lakes import open_manager

from floe_core.config.spec import SqlCatalogConfig
from floe_core.errors import NamespaceAlreadyExistsError, NamespaceNotEmptyError
from floe_core.identifiers import Namespace, TableIdentifier
from floe_core.models import WriteMode
from floe_iceberg import Lake
from floe_iceberg.catalogs.sql import SqlCatalogPlugin
from floe_spark.names import table_name


def pyiceberg(lake: Lake) -> Catalog:
    catalog = lake.tables.catalog_plugin.connect()
    assert isinstance(catalog, Catalog)
    return catalog


def test_spark_sees_what_pyiceberg_creates_in_nested_namespaces(lake: Lake, namespace: str) -> None:
    lake.tables.ensure_namespace(Namespace.from_string(f"{namespace}.raw.events"))
    location = lake.tables.storage_plugin.get_warehouse_uri(f"{namespace}.raw.events") + "/clicks"
    lake.tables.catalog_plugin.create_table(
        f"{namespace}.raw.events.clicks", pa.schema([("n", pa.int64())]), location=location
    )
    pyiceberg(lake).load_table((namespace, "raw", "events", "clicks")).append(pa.table({"n": [1, 2, 3]}))

    assert lake.read(f"{namespace}.raw.events.clicks").agg(F.sum("n")).collect()[0][0] == 6
    listed = {row.namespace for row in lake.spark.sql(f"SHOW NAMESPACES IN lake.`{namespace}`").collect()}
    assert listed == {f"{namespace}.raw"}


def test_pyiceberg_sees_what_spark_creates_in_nested_namespaces(lake: Lake, namespace: str) -> None:
    identifier = TableIdentifier.from_string(f"{namespace}.raw.events.clicks")
    lake.write(lake.spark.range(3), identifier, mode=WriteMode.APPEND)

    assert lake.tables.load_table(identifier).scan().to_arrow().num_rows == 3
    assert lake.tables.list_tables(Namespace.from_string(f"{namespace}.raw.events")) == [identifier]
    assert lake.tables.catalog_plugin.list_namespaces(namespace) == [f"{namespace}.raw"]
    assert lake.tables.load_table(identifier).location().endswith(f"/{namespace}/raw/events/clicks")


def test_a_commit_of_pyiceberg_is_visible_to_spark_at_once(lake: Lake, table: TableIdentifier) -> None:
    lake.write(lake.spark.range(3), table, mode=WriteMode.APPEND)
    assert lake.read(table).count() == 3
    lake.tables.load_table(table).append(pa.table({"id": pa.array([10], pa.int64())}))
    assert lake.read(table).count() == 4


def test_a_namespace_is_created_once_and_kept_while_it_holds_tables(lake: Lake, table: TableIdentifier) -> None:
    lake.write(lake.spark.range(1), table, mode=WriteMode.APPEND)
    with pytest.raises(NamespaceAlreadyExistsError, match="exists already"):
        lake.tables.catalog_plugin.create_namespace(table.namespace[0])
    with pytest.raises(NamespaceNotEmptyError, match="is not empty"):
        lake.tables.catalog_plugin.delete_namespace(table.namespace[0])


def _append_arrow(root: str, name: str, first: int, count: int) -> None:
    tables = open_manager(Path(root))
    for number in range(first, first + count):
        data = pa.table({"id": pa.array([number], pa.int64())})
        tables.write_data(TableIdentifier.from_string(name), data, mode=WriteMode.APPEND)


def test_no_append_is_lost_when_processes_of_both_engines_write_at_once(lake: Lake, table: TableIdentifier) -> None:
    lake.write(lake.spark.range(0), table, mode=WriteMode.APPEND)
    each = 8
    context = multiprocessing.get_context("spawn")
    writers = [
        context.Process(target=_append_arrow, args=(str(lake.artifacts.root), str(table), 1000 * (index + 1), each))
        for index in range(2)
    ]
    for writer in writers:
        writer.start()

    def append_with_spark(first: int) -> None:
        for number in range(first, first + each):
            frame = lake.spark.range(number, number + 1)
            lake.write(frame, table, mode=WriteMode.APPEND)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(append_with_spark, [10_000, 20_000]))
    for writer in writers:
        writer.join(120)
    assert [writer.exitcode for writer in writers] == [0, 0]

    expected = sorted(first + index for first in (1000, 2000, 10_000, 20_000) for index in range(each))
    assert sorted(row.id for row in lake.read(table).collect()) == expected
    assert sorted(lake.tables.load_table(table).scan().to_arrow()["id"].to_pylist()) == expected


def _open_new_catalogs(roots: list[str], together: Barrier) -> None:
    for root in roots:
        plugin = SqlCatalogPlugin(SqlCatalogConfig(), root=Path(root))
        together.wait(60)
        with contextlib.suppress(NamespaceAlreadyExistsError):
            plugin.create_namespace("bronze")


@pytest.mark.full
def test_processes_that_open_a_new_catalog_at_once_all_succeed(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    together = context.Barrier(3)
    roots = [str(tmp_path / str(number)) for number in range(10)]
    openers = [context.Process(target=_open_new_catalogs, args=(roots, together)) for _ in range(3)]
    for opener in openers:
        opener.start()
    for opener in openers:
        opener.join(120)
    assert [opener.exitcode for opener in openers] == [0, 0, 0]
    for root in roots:
        assert SqlCatalogPlugin(SqlCatalogConfig(), root=Path(root)).list_namespaces() == ["bronze"]


def test_a_table_is_named_to_spark_with_every_level_quoted() -> None:
    identifier = TableIdentifier.from_string("a-b.c.d")
    assert table_name("lake", identifier) == "`lake`.`a-b`.`c`.`d`"
