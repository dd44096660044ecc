"""A first write that loses the race to create its table: appended, or a conflict; on any catalog server.

Polaris refuses a staged creation of a name that exists, other servers only its commit. Without a Polaris, a proxy
before another server answers as Polaris does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from dagster import AssetsDefinition, DagsterInstance, DailyPartitionsDefinition, asset, materialize
from tests.catalogs import polaris_settings, polaris_uri, rest_settings, side_lake
from tests.engines import BY_DAY, ArrowEngine, Engine, SparkEngine, events, rows_of, transform
from tests.faults.proxy import Answer, FaultProxy, Forward, Request, fault_proxy

from floe_core.errors import ConcurrencyConflictError
from floe_core.identifiers import TableIdentifier
from floe_dagster import IcebergIOManager
from floe_iceberg import Lake

pytestmark = pytest.mark.every_catalog

# As Polaris 1.7 answers.
EXISTS = Answer.error(409, "AlreadyExistsException", "Table already exists")
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


@dataclass(frozen=True)
class Server:
    """A catalog server: `lake` reaches it through the proxy, `others` do not."""

    lake: Lake
    others: Lake
    proxy: FaultProxy
    is_polaris: bool = False


@pytest.fixture(scope="module", params=["rest", "polaris"])
def served(request: pytest.FixtureRequest, lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("raced")
    if request.param == "polaris":
        uri, others = polaris_uri(), request.getfixturevalue("polaris")
        with fault_proxy(uri) as proxy:
            settings = polaris_settings(f"{proxy.uri}{urlsplit(uri).path}")
            yield Server(side_lake(lake, root, settings), others, proxy, is_polaris=True)
        return
    server, others = request.getfixturevalue("server"), request.getfixturevalue("rest_lake")
    with fault_proxy(server.catalog_uri) as proxy:
        yield Server(side_lake(lake, root, rest_settings(server, uri=proxy.uri)), others, proxy)


@pytest.fixture(params=[ArrowEngine, SparkEngine], ids=lambda kind: kind.name)
def writer(request: pytest.FixtureRequest, served: Server) -> Engine:
    made: Engine = request.param(served.lake)
    return made


def is_staged_creation(request: Request) -> bool:
    created = request.method == "POST" and request.path.endswith("/tables")
    return created and json.loads(request.body).get("stage-create") is True


def is_creation(request: Request) -> bool:
    return request.method == "POST" and request.path.endswith("/tables")


def is_commit_of_creation(request: Request) -> bool:
    return request.method == "POST" and b"assert-create" in request.body


@dataclass
class Overtaken:
    """Another writer acts just before the first such request arrives; staged creations are refused as Polaris does."""

    server: Server
    table: TableIdentifier
    moment: Callable[[Request], bool]
    act: Callable[[], object] | None

    def __call__(self, request: Request, forward: Forward) -> Answer | None:
        if self.act is not None and self.moment(request):
            act, self.act = self.act, None
            act()
        forwarded = self.server.is_polaris or not is_staged_creation(request)
        return forward() if forwarded or not self.server.others.tables.table_exists(self.table) else EXISTS


@pytest.fixture
def overtaken(served: Server, table: TableIdentifier) -> Iterator[Callable[..., None]]:
    """Let another writer create the table with the events of day 0, just before such a request arrives."""
    started: list[Overtaken] = []

    def create(**options: Any) -> None:
        served.others.tables.write_data(table, events(0), mode="append", **options)

    def start(moment: Callable[[Request], bool] = is_staged_creation, **options: Any) -> None:
        started.append(Overtaken(served, table, moment, lambda: create(**options)))
        served.proxy.intercept = started[0]

    yield start
    served.proxy.intercept = None
    assert all(one.act is None for one in started), "the request was not sent"


@pytest.mark.parametrize("moment", [is_staged_creation, is_commit_of_creation], ids=["staged", "committed"])
def test_an_append_adds_its_rows_to_the_table_that_another_created(
    served: Server,
    writer: Engine,
    table: TableIdentifier,
    overtaken: Callable[..., None],
    moment: Callable[[Request], bool],
) -> None:
    overtaken(moment)
    snapshot = writer.write(table, events(1), mode="append")
    tables = served.others.tables
    assert rows_of(tables.scan(table).to_arrow()) == rows_of(events(0, 1))
    assert tables.current_snapshot(table) == snapshot
    assert len(tables.list_snapshots(table)) == 2


@pytest.mark.parametrize(
    ("writer", "options"),
    [
        pytest.param(ArrowEngine, {"mode": "overwrite"}, id="arrow-overwrite"),
        pytest.param(ArrowEngine, {"mode": "upsert", "keys": ["id"]}, id="arrow-upsert"),
        pytest.param(SparkEngine, {"mode": "overwrite"}, id="spark-overwrite"),
    ],
    indirect=["writer"],
)
def test_what_replaces_rows_is_a_conflict_and_the_rows_of_the_other_stay(
    served: Server, writer: Engine, table: TableIdentifier, overtaken: Callable[..., None], options: dict[str, Any]
) -> None:
    overtaken()
    with pytest.raises(ConcurrencyConflictError, match=rf"'{table}' was created by another writer.*run it again"):
        writer.write(table, events(0, 1, note="v2"), **options)
    assert rows_of(served.others.tables.scan(table).to_arrow()) == rows_of(events(0))
    writer.write(table, events(0, 1, note="v2"), **options)
    assert rows_of(served.others.tables.scan(table).to_arrow()) == rows_of(events(0, 1, note="v2"))


@pytest.mark.parametrize("options", [{"mode": "append"}, {"mode": "overwrite"}], ids=lambda one: one["mode"])
def test_an_earlier_attempt_of_the_same_write_that_created_the_table_is_that_write(
    served: Server, table: TableIdentifier, overtaken: Callable[..., None], options: dict[str, Any]
) -> None:
    overtaken(write_id="the-write")
    snapshot = served.lake.tables.write_data(table, events(0), write_id="the-write", **options)
    assert rows_of(served.others.tables.scan(table).to_arrow()) == rows_of(events(0))
    assert served.others.tables.list_snapshots(table) == (snapshot,)


def test_an_append_follows_the_layout_and_adds_to_the_schema_of_the_table_that_another_created(
    served: Server, table: TableIdentifier, overtaken: Callable[..., None]
) -> None:
    overtaken(partition_by=BY_DAY)
    ours = events(1).append_column("ours", pa.array(["x"] * 10))
    served.lake.tables.write_data(table, ours, mode="append", partition_by=[transform("month")])
    loaded = served.others.tables.load_table(table)
    assert [field.name for field in loaded.spec().fields] == ["at_day"]
    assert {str(task.file.partition) for task in loaded.scan().plan_files()} == {"Record[20454]", "Record[20455]"}
    assert served.others.tables.scan(table).to_arrow()["ours"].to_pylist().count("x") == 10
    assert len(served.others.tables.scan(table).to_arrow()) == 20


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_partitioning_that_spark_cannot_create_is_no_exception(
    served: Server, table: TableIdentifier, overtaken: Callable[..., None], mode: str
) -> None:
    """Such a table is created empty by the control plane, before Spark writes to it."""
    overtaken(is_creation)
    spark, by_text = SparkEngine(served.lake), [transform("truncate", "note", width=2)]
    if mode == "append":
        spark.write(table, events(1), mode=mode, partition_by=by_text)
        assert rows_of(served.others.tables.scan(table).to_arrow()) == rows_of(events(0, 1))
        return
    with pytest.raises(ConcurrencyConflictError, match="was created by another writer"):
        spark.write(table, events(1), mode=mode, partition_by=by_text)
    assert rows_of(served.others.tables.scan(table).to_arrow()) == rows_of(events(0))


# Through Dagster --------------------------------------------------------------------------------------------------


def asset_of(table: TableIdentifier, data: pa.Table, **options: Any) -> AssetsDefinition:
    def make() -> pa.Table:
        return data

    made: AssetsDefinition = asset(name=table.name, key_prefix=table.namespace[0], **options)(make)
    return made


def test_an_asset_that_appends_adds_its_rows_to_the_table_that_another_run_created(
    served: Server, table: TableIdentifier, overtaken: Callable[..., None], instance: DagsterInstance
) -> None:
    overtaken()
    manager = IcebergIOManager(lake=served.lake)
    materialize([asset_of(table, events(1))], resources={"io_manager": manager}, instance=instance, run_config=QUIET)
    assert rows_of(served.others.tables.scan(table).to_arrow()) == rows_of(events(0, 1))


def test_a_partition_whose_table_another_run_created_is_a_conflict(
    served: Server, table: TableIdentifier, overtaken: Callable[..., None], instance: DagsterInstance
) -> None:
    overtaken()
    days = DailyPartitionsDefinition("2026-01-01", end_date="2026-01-08")
    made = asset_of(table, events(1), partitions_def=days, metadata={"partition_expr": "at"})

    def run() -> None:
        manager = IcebergIOManager(lake=served.lake)
        resources = {"io_manager": manager}
        materialize([made], resources=resources, instance=instance, run_config=QUIET, partition_key="2026-01-02")

    with pytest.raises(ConcurrencyConflictError, match="was created by another writer"):
        run()
    assert rows_of(served.others.tables.scan(table).to_arrow()) == rows_of(events(0))
    run()
    assert rows_of(served.others.tables.scan(table).to_arrow()) == rows_of(events(0, 1))
