"""Spark frames on a branch of the lake: what they write and read there, beside Arrow, and what main gets of it."""

import uuid
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from dagster import AssetExecutionContext, AssetIn, AssetSpec, DagsterInstance, DailyPartitionsDefinition, asset
from pyspark.sql import DataFrame
from tests.runs import QUIET

from floe_core import PartitionTransform, PartitionTransformType, TableSlice
from floe_core.config import BRANCH_VARIABLE
from floe_core.errors import ConcurrencyConflictError, FloeError, QueryRefusedError, TableNotFoundError
from floe_dagster import IcebergIOManager, create_definitions
from floe_iceberg import AddColumn, Lake
from floe_iceberg.branches import TableState

pytestmark = pytest.mark.filterwarnings("ignore:.*is currently in (beta|preview)")

BY_DAY = [PartitionTransform(source_column="day", transform_type=PartitionTransformType.IDENTITY)]
DAYS = DailyPartitionsDefinition("2026-01-01", end_date="2026-01-08")


class Trial:
    """A branch of the lake with a name of its own, and the tables of a namespace."""

    def __init__(self, main: Lake, namespace: str) -> None:
        self.main, self.namespace, self.name = main, namespace, f"trial-{uuid.uuid4().hex[:8]}"
        self.opened: list[Lake] = []

    def table(self, name: str = "orders") -> str:
        return f"{self.namespace}.{name}"

    @property
    def lake(self) -> Lake:
        """The lake at the branch, as a process that starts now opens it."""
        self.opened.append(Lake(self.main.artifacts.on_branch(self.name)))
        return self.opened[-1]

    def frame(self, *days: int, n: int = 1) -> DataFrame:
        rows = [(date(2026, 1, day), n) for day in days]
        return self.main.spark.createDataFrame(rows, "day date, n bigint")

    def arrow(self, *days: int, n: int = 1) -> pa.Table:
        return pa.table({"day": [date(2026, 1, day) for day in days], "n": pa.array([n] * len(days), pa.int64())})

    def begin(self, *days: int) -> None:
        self.main.tables.write_data(self.table(), self.arrow(*days), mode="append", partition_by=BY_DAY)

    def state(self, name: str = "orders") -> TableState:
        return {one.table: one.state for one in self.main.branches.show(self.name).tables}[self.table(name)]


def day(number: int) -> TableSlice:
    start = datetime(2026, 1, number, tzinfo=timezone.utc)
    return TableSlice.of_windows("day", [(start, start + timedelta(days=1))])


def rows(frame: DataFrame) -> list[tuple[int, int]]:
    return sorted((row["day"].day, row["n"]) for row in frame.collect())


@pytest.fixture
def trial(lake: Lake, namespace: str) -> Iterator[Trial]:
    made = Trial(lake, namespace)
    yield made
    if made.name in {one.name for one in lake.branches.list()}:
        lake.branches.discard(made.name)
    for one in made.opened:
        one.close()


def seen(lake: Lake, table: str) -> list[tuple[int, int]]:
    """The rows of a table, on which both engines agree."""
    found = rows(lake.read(table))
    assert sorted((row["day"].day, row["n"]) for row in lake.tables.scan(table).to_arrow().to_pylist()) == found
    return found


def test_every_write_of_spark_goes_to_the_branch_and_then_to_main(trial: Trial) -> None:
    trial.begin(1, 2)
    lake, table = trial.lake, trial.table()
    lake.write(trial.frame(2, n=2), table, mode="overwrite", slice=day(2))
    lake.write(trial.frame(3, n=3), table, mode="append")
    assert seen(lake, table) == [(1, 1), (2, 2), (3, 3)]
    lake.write(trial.frame(1, 4, n=4), table, mode="upsert", keys=["day"])
    lake.write(trial.frame(7, n=7), trial.table("created"), mode="overwrite", partition_by=BY_DAY)
    assert seen(trial.lake, table) == [(1, 4), (2, 2), (3, 3), (4, 4)]
    assert seen(trial.lake, trial.table("created")) == [(7, 7)]
    assert seen(trial.main, table) == [(1, 1), (2, 1)]
    with pytest.raises(TableNotFoundError, match=f"--branch {trial.name}"):
        trial.main.read(trial.table("created"))
    published = trial.main.branches.publish(trial.name)
    assert {one.table: (one.created, len(one.writes)) for one in published.tables} == {
        table: (False, 3),
        trial.table("created"): (True, 1),
    }
    assert seen(trial.main, table) == [(1, 4), (2, 2), (3, 3), (4, 4)]
    assert seen(trial.main, trial.table("created")) == [(7, 7)]


def test_both_engines_read_the_branch_and_main_as_it_was(trial: Trial) -> None:
    """The one table is the branch's, the other is read as main was when the branch began."""
    trial.begin(1, 2)
    trial.main.tables.write_data(trial.table("stores"), trial.arrow(1), mode="append")
    lake = trial.lake
    lake.write(trial.frame(2, n=2), trial.table(), mode="overwrite", slice=day(2))
    trial.main.write(trial.frame(5, n=9), trial.table("stores"), mode="append")
    query = (
        f"SELECT count(*) AS n, sum(o.n) AS total, (SELECT count(*) FROM {trial.table('stores')}) AS stores "
        f"FROM {trial.table()} AS o"
    )
    for at, expected in ((lake, (2, 3, 1)), (trial.lake, (2, 3, 1)), (trial.main, (2, 2, 2))):
        for engine in ("duckdb", "spark"):
            found = at.sql(query, engine=engine).to_arrow().to_pylist()
            assert [tuple(int(value) for value in row.values()) for row in found] == [expected], engine
    assert rows(lake.read(trial.table("stores"), row_filter="n > 1")) == []


@pytest.mark.full
def test_columns_that_main_gained_after_the_pin_are_not_on_the_branch(trial: Trial) -> None:
    trial.begin(1)
    lake, table = trial.lake, trial.table()
    assert rows(lake.read(table)) == [(1, 1)]
    trial.main.tables.evolve_schema(table, AddColumn("note", pa.string()))
    trial.main.tables.write_data(table, trial.arrow(2).append_column("note", pa.array(["x"])), mode="append")
    query = f"SELECT * FROM {table}"
    assert lake.read(table).columns == ["day", "n"]
    assert lake.sql(query, engine="spark").to_arrow().column_names == ["day", "n"]
    assert lake.sql(query).to_arrow().column_names == ["day", "n"]
    assert rows(lake.read(table)) == [(1, 1)]


@pytest.mark.full
def test_a_table_that_was_empty_when_the_branch_began_is_empty_there(trial: Trial) -> None:
    table = trial.table()
    trial.main.tables.create_table(table, trial.arrow(1).schema)
    lake = trial.lake
    assert rows(lake.read(table)) == []
    trial.main.tables.write_data(table, trial.arrow(1), mode="append")
    assert rows(lake.read(table)) == []
    query = f"SELECT count(*) AS n FROM {table}"
    assert lake.sql(query).to_arrow()["n"].to_pylist() == [0]
    with pytest.raises(QueryRefusedError, match=f"floe branches update {trial.name}"):
        lake.sql(query, engine="spark").to_arrow()
    trial.main.branches.update(trial.name)
    assert trial.lake.sql(query, engine="spark").to_arrow()["n"].to_pylist() == [1]


def test_both_engines_show_the_same_columns_of_a_table_of_the_branch(trial: Trial) -> None:
    """The branch was written before main gained the column; Iceberg has one schema for all branches."""
    trial.begin(1)
    lake, table = trial.lake, trial.table()
    lake.write(trial.frame(2, n=2), table, mode="append")
    trial.main.tables.evolve_schema(table, AddColumn("note", pa.string()))
    lake = trial.lake
    columns = lake.tables.scan(table).to_arrow().column_names
    assert lake.read(table).columns == columns
    for engine in ("spark", "duckdb"):
        assert lake.sql(f"SELECT * FROM {table}", engine=engine).to_arrow().column_names == columns, engine
    assert sorted(row["n"] for row in lake.read(table).collect()) == [1, 2]
    lake.write(lake.read(table).where("n = 2"), trial.table("copy"), mode="overwrite")
    assert lake.read(trial.table("copy")).count() == 1


@pytest.mark.full
def test_metadata_tables_of_spark_can_be_queried_at_a_branch(trial: Trial) -> None:
    trial.begin(1)
    lake, table = trial.lake, trial.table()
    lake.write(trial.frame(2, n=2), table, mode="append")
    for name in ("snapshots", "files", "refs"):
        assert lake.sql(f"SELECT count(*) AS n FROM {table}.{name}", engine="spark").to_arrow()["n"].to_pylist() == [
            2
        ], name


def test_a_branch_that_began_before_main_gained_a_column_is_written_and_published(trial: Trial) -> None:
    trial.begin(1, 2)
    lake, table = trial.lake, trial.table()
    lake.write(trial.frame(2, n=2), table, mode="overwrite", slice=day(2))
    trial.main.tables.evolve_schema(table, AddColumn("note", pa.string()))
    trial.main.write(trial.frame(3, n=3), table, mode="append")
    lake.write(trial.frame(4, n=4), table, mode="overwrite", slice=day(4))
    assert seen(lake, table) == [(1, 1), (2, 2), (4, 4)]
    trial.main.branches.publish(trial.name)
    assert seen(trial.main, table) == [(1, 1), (2, 2), (3, 3), (4, 4)]
    assert trial.main.read(table).columns == ["day", "n", "note"]


@pytest.mark.full
def test_both_engines_write_one_branch(trial: Trial) -> None:
    trial.begin(1)
    lake, table, created = trial.lake, trial.table(), trial.table("created")
    lake.tables.write_data(table, trial.arrow(2, n=2), mode="overwrite", slice=day(2))
    lake.write(trial.frame(3, n=3), table, mode="overwrite", slice=day(3))
    lake.tables.write_data(table, trial.arrow(2, n=4), mode="overwrite", slice=day(2))
    lake.write(trial.frame(1), created, mode="append")
    lake.tables.write_data(created, trial.arrow(2), mode="append")
    assert seen(lake, table) == [(1, 1), (2, 4), (3, 3)]
    assert seen(lake, created) == [(1, 1), (2, 1)]
    trial.main.branches.publish(trial.name)
    assert seen(trial.main, table) == [(1, 1), (2, 4), (3, 3)]
    assert seen(trial.main, created) == [(1, 1), (2, 1)]


def test_writes_of_spark_are_put_on_top_of_what_main_gained_in_other_slices(trial: Trial) -> None:
    trial.begin(1, 2)
    trial.lake.write(trial.frame(2, n=2), trial.table(), mode="overwrite", slice=day(2))
    trial.lake.write(trial.frame(5, 5, n=5), trial.table(), mode="append")
    trial.main.write(trial.frame(1, n=9), trial.table(), mode="overwrite", slice=day(1))
    assert trial.state() is TableState.BEHIND
    trial.main.branches.update(trial.name)
    assert seen(trial.lake, trial.table()) == [(1, 9), (2, 2), (5, 5), (5, 5)]
    trial.main.write(trial.frame(3, n=3), trial.table(), mode="append")
    published = trial.main.branches.publish(trial.name)
    assert published.tables[0].replayed
    assert seen(trial.main, trial.table()) == [(1, 9), (2, 2), (3, 3), (5, 5), (5, 5)]


@pytest.mark.parametrize("mode", ["upsert", "overwrite"])
def test_writes_of_spark_to_rows_that_main_changed_are_refused(trial: Trial, mode: str) -> None:
    trial.begin(1, 2)
    options: dict[str, Any] = {"keys": ["day"]} if mode == "upsert" else {"slice": day(2)}
    trial.lake.write(trial.frame(2, n=2), trial.table(), mode=mode, **options)
    trial.main.write(trial.frame(2, n=9), trial.table(), mode="overwrite", slice=day(2))
    with pytest.raises(ConcurrencyConflictError, match=trial.table()):
        trial.main.branches.publish(trial.name)
    assert seen(trial.main, trial.table()) == [(1, 1), (2, 9)]
    assert seen(trial.lake, trial.table()) == [(1, 1), (2, 2)]


def test_what_spark_wrote_is_discarded_with_the_branch(trial: Trial) -> None:
    trial.begin(1, 2)
    folder = Path(trial.main.tables.load_table(trial.table()).location().removeprefix("file://")).parent

    def data() -> set[Path]:
        return {file for file in folder.rglob("*.parquet") if file.is_file()}

    before, lake = data(), trial.lake
    lake.write(trial.frame(2, n=2), trial.table(), mode="overwrite", slice=day(2))
    lake.write(trial.frame(1, 5, n=5), trial.table(), mode="upsert", keys=["day"])
    lake.write(trial.frame(1), trial.table("created"), mode="overwrite")
    assert len(data()) > len(before)
    trial.main.branches.discard(trial.name)
    assert data() == before
    assert seen(trial.main, trial.table()) == [(1, 1), (2, 1)]
    assert trial.main.tables.load_table(trial.table()).metadata.refs.keys() == {"main"}
    assert not trial.main.tables.table_exists(trial.table("created"))
    with pytest.raises(FloeError, match=trial.name):
        lake.write(trial.frame(3), trial.table(), mode="append")
    assert trial.main.tables.load_table(trial.table()).metadata.refs.keys() == {"main"}


def test_assets_of_spark_run_on_a_branch(trial: Trial, tmp_path: Path) -> None:
    """A partition, an input since, and a self-made total; each row is consumed once, also after the publication."""

    def orders(context: AssetExecutionContext) -> DataFrame:
        return trial.frame(int(context.partition_key[-2:]), n=n[0])

    def consumed(source: DataFrame) -> DataFrame:
        return source

    def totals(orders: DataFrame, consumed: DataFrame) -> DataFrame:
        return orders.unionByName(consumed).groupBy().sum("n").withColumnRenamed("sum(n)", "n")

    n, prefix = [1], trial.namespace
    overwrite = {"write_mode": "overwrite"}
    by_day = asset(key_prefix=prefix, partitions_def=DAYS, metadata={"partition_expr": "day"})(orders)
    since = {"source": AssetIn([prefix, "source"], metadata={"since": True})}
    new = asset(key_prefix=prefix, ins=since, metadata={"write_mode": "append"})(consumed)
    ins = {name: AssetIn([prefix, name]) for name in ("orders", "consumed")}
    both = asset(key_prefix=prefix, ins=ins, metadata=overwrite)(totals)
    source = AssetSpec([prefix, "source"])
    instances = {name: DagsterInstance.ephemeral() for name in ("main", trial.name)}

    def run(branch: str, *assets: Any, **arguments: Any) -> None:
        trial.main.artifacts.write()
        lake = trial.lake if branch == trial.name else trial.main
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(BRANCH_VARIABLE, branch)
            given = {"io_manager": IcebergIOManager(lake=lake)}
            definitions = create_definitions(list(assets), project=trial.main.artifacts.root, resources=given)
            job = definitions.resolve_implicit_global_asset_job_def()
            assert job.execute_in_process(instance=instances[branch], run_config=QUIET, **arguments).success

    arrive: Callable[[Lake, int], Any] = lambda lake, day: lake.write(  # noqa: E731
        trial.frame(day, n=10), trial.table("source"), mode="append"
    )
    arrive(trial.main, 1)
    run("main", by_day, partition_key="2026-01-01")
    run("main", source, new)
    n[0] = 2
    run(trial.name, by_day, partition_key="2026-01-02")
    arrive(trial.lake, 2)
    run(trial.name, source, new)
    run(trial.name, source, new)
    run(trial.name, AssetSpec([prefix, "orders"]), AssetSpec([prefix, "consumed"]), both)
    assert seen(trial.lake, trial.table()) == [(1, 1), (2, 2)]
    assert [row["n"] for row in trial.lake.read(trial.table("totals")).collect()] == [23]
    assert seen(trial.main, trial.table("consumed")) == [(1, 10)]
    trial.main.branches.publish(trial.name)
    arrive(trial.main, 3)
    run("main", source, new)
    assert seen(trial.main, trial.table("consumed")) == [(1, 10), (2, 10), (3, 10)]
    assert [row["n"] for row in trial.main.read(trial.table("totals")).collect()] == [23]
