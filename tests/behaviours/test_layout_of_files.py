"""What a table says about its files and manifests holds for both engines."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table.snapshots import Snapshot
from tests.engines import ArrowEngine, Engine, SparkEngine, events

from floe_core.errors import CatalogConnectionError, ConfigurationError
from floe_core.identifiers import TableIdentifier
from floe_core.models import SortField
from floe_iceberg import Lake
from floe_iceberg.files.reachable import reached_files
from floe_spark.writing.commits import Commit

ROW = pa.table({"id": [1]})
FEW = {"commit.manifest.min-count-to-merge": "2"}


@pytest.fixture(params=[ArrowEngine, SparkEngine], ids=lambda kind: kind.name)
def engine(request: pytest.FixtureRequest, lake: Lake) -> Engine:
    made: Engine = request.param(lake)
    return made


def test_rows_lie_in_the_order_of_the_table(engine: Engine, table: TableIdentifier) -> None:
    tables = engine.lake.tables
    tables.create_table(table, ROW.schema, sort_by=[SortField(column="id")])
    engine.write(table, pa.table({"id": [3, 1, 2]}), mode="append")
    for task in tables.load_table(table).scan().plan_files():
        found = pq.read_table(task.file.file_path.removeprefix("file://"), partitioning=None)["id"].to_pylist()
        assert found == sorted(found)
        assert task.file.sort_order_id == tables.load_table(table).sort_order().order_id


@pytest.mark.parametrize(("strategy", "manifests"), [("fast_append", 4), ("merge", 1)])
def test_the_commit_strategy_of_an_append_holds(
    engine: Engine, table: TableIdentifier, strategy: str, manifests: int
) -> None:
    tables = engine.lake.tables
    for _ in range(4):
        engine.write(table, ROW, mode="append", commit_strategy=strategy, properties=FEW)
    assert len(tables.inspect(table).manifests()) == manifests
    assert engine.read(table).num_rows == 4
    location = tables.load_table(table).location().removeprefix("file://")
    reached = {path.removeprefix("file://").removeprefix("file:") for path in reached_files(tables.load_table(table))}
    left = {str(path) for path in Path(location).rglob("*-m*.avro")} - reached
    assert left == set(), "no manifest that nothing leads to"


def test_a_fast_append_of_spark_that_cannot_clean_up_is_no_failure(
    lake: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = SparkEngine(lake)
    for _ in range(2):
        engine.write(table, ROW, mode="append", commit_strategy="fast_append", properties=FEW)

    find_table, drop, dropped = lake.tables.find_table, Commit._drop, list[str]()

    def drop_and_lose_the_catalog(commit: Commit, branch: str, head: Snapshot) -> None:
        drop(commit, branch, head)
        dropped.append(branch)

    def find(identifier: TableIdentifier) -> object:
        if dropped:
            raise CatalogConnectionError("the catalog does not answer")
        return find_table(identifier)

    with monkeypatch.context() as patched:
        patched.setattr(Commit, "_drop", drop_and_lose_the_catalog)
        patched.setattr(lake.tables, "find_table", find)
        written = engine.write(table, ROW, mode="append", commit_strategy="fast_append")
    assert dropped, "Spark merged manifests, so its own commit was replaced by one that does not"
    assert written.snapshot_id == lake.tables.list_snapshots(table)[-1].snapshot_id
    assert engine.read(table).num_rows == 3


def test_a_bad_value_of_a_property_is_named(engine: Engine, table: TableIdentifier) -> None:
    told = "table property write.target-file-size-bytes( of '.*')? is 'abc'; it must be a whole number"
    with pytest.raises(ConfigurationError, match=told):
        engine.write(table, events(0), mode="append", properties={"write.target-file-size-bytes": "abc"})
    assert not engine.lake.tables.table_exists(table)


def test_merging_is_refused_where_the_table_forbids_it(engine: Engine, table: TableIdentifier) -> None:
    never = {"commit.manifest-merge.enabled": "false"}
    with pytest.raises(ConfigurationError, match=re.escape("sets commit.manifest-merge.enabled=false")):
        engine.write(table, ROW, mode="append", commit_strategy="merge", properties=never)
