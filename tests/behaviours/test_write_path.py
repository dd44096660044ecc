"""How often a write without conflicts asks its catalog: the requests that arrive at a REST catalog are counted."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pytest
from dagster import AssetKey, DailyPartitionsDefinition, asset, materialize
from pyspark.sql import DataFrame
from tests.catalogs import SideLake, rest_settings, side_lake
from tests.faults.proxy import FaultProxy, fault_proxy
from tests.servers.seaweedfs import SeaweedFS

from floe_core.identifiers import TableIdentifier
from floe_dagster import IcebergIOManager
from floe_iceberg import Lake

DAYS = DailyPartitionsDefinition("2026-01-01", end_date="2026-01-04")


@dataclass(frozen=True)
class Counted:
    """A lake behind a proxy that sees every request."""

    lake: SideLake
    proxy: FaultProxy

    def requests(self, table: TableIdentifier) -> Counter[str]:
        """The loads and commits of a table, by engine."""
        found: Counter[str] = Counter()
        for one in self.proxy.requests:
            if re.search(rf"/namespaces/{table.namespace[0]}/tables/{table.name}$", one.path):
                engine = "spark" if "Apache Iceberg" in one.headers.get("x-client-version", "") else "floe"
                found[f"{engine} {'commits' if one.method == 'POST' else 'loads'}"] += 1
        return found


@pytest.fixture(scope="module")
def counted(lake: Lake, server: SeaweedFS, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Counted]:
    with fault_proxy(server.catalog_uri) as proxy:
        opened = side_lake(lake, tmp_path_factory.mktemp("counted"), rest_settings(server, uri=proxy.uri))
        yield Counted(opened, proxy)


def test_a_day_that_spark_replaces_is_loaded_twice_and_committed_three_times(
    counted: Counted, table: TableIdentifier
) -> None:
    lake = counted.lake
    key = AssetKey([*table.namespace, table.name])

    @asset(key=key, partitions_def=DAYS, metadata={"partition_expr": "at"})
    def orders(context) -> DataFrame:  # type: ignore[no-untyped-def]  # Dagster refuses its class as text
        sql = f"SELECT id, TIMESTAMP '{context.partition_key} 12:00:00' AS at FROM range(3)"
        frame = lake.spark.sql(sql)
        lake.step_aside()
        return frame

    def run(day: str) -> None:
        assert materialize([orders], resources={"io_manager": IcebergIOManager(lake=lake)}, partition_key=day).success

    for day in ("2026-01-01", "2026-01-02"):
        run(day)
    counted.proxy.requests.clear()
    run("2026-01-01")
    found = counted.requests(table)
    assert (found["floe loads"], found["floe commits"], found["spark commits"]) == (2, 2, 1)
    assert found["spark loads"] <= 2, found
    assert lake.tables.scan(table).to_arrow().num_rows == 6


def test_arrow_data_that_is_appended_is_loaded_once_and_committed_once(
    counted: Counted, table: TableIdentifier
) -> None:
    rows = pa.table({"id": [1, 2, 3]})
    counted.lake.tables.write_data(table, rows, mode="append")
    counted.proxy.requests.clear()
    counted.lake.tables.write_data(table, rows, mode="append")
    assert counted.requests(table) == {"floe loads": 1, "floe commits": 1}
