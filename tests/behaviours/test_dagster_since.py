"""`since`: an asset that consumes what is new, each row once, whatever fails in between."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from dagster import (
    AssetExecutionContext,
    AssetIn,
    AssetOut,
    AssetsDefinition,
    AssetSpec,
    DagsterInstance,
    DailyPartitionsDefinition,
    LastPartitionMapping,
    StaticPartitionsDefinition,
    asset,
    multi_asset,
)
from pyiceberg.types import StringType
from pyspark.sql import DataFrame
from tests.runs import metadata_of, rows_of, run

from floe_core.config.artifacts import CompiledArtifacts
from floe_core.errors import ConcurrencyConflictError, ConfigurationError
from floe_core.identifiers import TableIdentifier
from floe_dagster.runs import cursors
from floe_dagster.runs.cursors import cursor_tag
from floe_iceberg import IcebergTableManager, Lake

pytestmark = pytest.mark.filterwarnings("ignore:.*is currently in (beta|preview)")

DAYS = DailyPartitionsDefinition("2026-01-01", end_date="2026-01-08")


@pytest.fixture
def source(namespace: str) -> TableIdentifier:
    return TableIdentifier(namespace=(namespace,), name="source")


@pytest.fixture
def arrive(tables: IcebergTableManager, source: TableIdentifier) -> Callable[..., int]:
    """Rows that somebody appends to the source."""
    return lambda *ids: tables.write_data(source, pa.table({"id": list(ids)}), mode="append").snapshot_id


def consumer(
    namespace: str, kind: Any = pa.Table, after: Callable[[], object] = lambda: None, **said: Any
) -> list[Any]:
    def consume(source: Any) -> Any:
        after()
        return source

    consume.__annotations__["source"] = kind
    ins = {"source": AssetIn([namespace, "source"], metadata={"since": True, **said})}
    made = asset(name="consumed", key_prefix=namespace, ins=ins, metadata={"write_mode": "append"})(consume)
    return [AssetSpec([namespace, "source"]), made]


def consumed(tables: IcebergTableManager, namespace: str) -> list[int]:
    return sorted(row["id"] for row in rows_of(tables, f"{namespace}.consumed"))


@pytest.mark.parametrize("kind", [pa.Table, pa.RecordBatchReader, DataFrame], ids=["arrow", "reader", "spark"])
def test_each_row_is_consumed_once(
    request: pytest.FixtureRequest,
    project: CompiledArtifacts,
    tables: IcebergTableManager,
    instance: DagsterInstance,
    namespace: str,
    arrive: Callable[..., int],
    kind: Any,
) -> None:
    if kind is DataFrame:
        request.getfixturevalue("lake")
    assets = consumer(namespace, kind)
    for ids in ((1, 2), (3,), (), (4, 5)):
        if ids:
            arrive(*ids)
        done = run(assets, project, instance)
        assert metadata_of(done, "consumed")["floe/rows_added"] == len(ids)
    assert consumed(tables, namespace) == [1, 2, 3, 4, 5]


def test_columns_and_a_filter_go_with_it(
    project: CompiledArtifacts,
    tables: IcebergTableManager,
    instance: DagsterInstance,
    namespace: str,
    arrive: Callable[..., int],
) -> None:
    arrive(1, 2)
    assets = consumer(namespace, row_filter="id > 1", columns=["id"])
    run(assets, project, instance)
    arrive(0, 7)
    run(assets, project, instance)
    assert consumed(tables, namespace) == [2, 7]


def test_a_step_that_fails_after_it_read_consumed_nothing(
    project: CompiledArtifacts,
    tables: IcebergTableManager,
    instance: DagsterInstance,
    namespace: str,
    arrive: Callable[..., int],
) -> None:
    def fail() -> None:
        raise RuntimeError("halfway")

    arrive(1)
    run(consumer(namespace), project, instance)
    arrive(2)
    with pytest.raises(RuntimeError, match="halfway"):
        run(consumer(namespace, after=fail), project, instance)
    run(consumer(namespace), project, instance)
    assert consumed(tables, namespace) == [1, 2]


def test_a_run_that_dies_before_the_tag_is_moved_consumes_nothing_twice(
    project: CompiledArtifacts,
    tables: IcebergTableManager,
    instance: DagsterInstance,
    namespace: str,
    arrive: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Killed(BaseException):
        """Nobody catches this one."""

    def dies(*_: Any) -> None:
        raise Killed

    arrive(1)
    with monkeypatch.context() as patch:
        patch.setattr(cursors, "advance", dies)
        with pytest.raises(Killed):
            run(consumer(namespace), project, instance)
    assert consumed(tables, namespace) == [1]  # the rows were committed
    arrive(2)
    run(consumer(namespace), project, instance)
    assert consumed(tables, namespace) == [1, 2]


def test_rows_that_arrive_while_the_step_works_are_the_next_runs(
    project: CompiledArtifacts,
    tables: IcebergTableManager,
    instance: DagsterInstance,
    namespace: str,
    arrive: Callable[..., int],
) -> None:
    arrive(1)
    run(consumer(namespace, after=lambda: arrive(2)), project, instance)
    assert consumed(tables, namespace) == [1]
    run(consumer(namespace), project, instance)
    assert consumed(tables, namespace) == [1, 2]


def test_a_first_lazy_frame_shows_what_was_there_when_it_was_read_after_a_change_of_the_schema_too(
    lake: Lake,
    project: CompiledArtifacts,
    instance: DagsterInstance,
    namespace: str,
    source: TableIdentifier,
    arrive: Callable[..., int],
) -> None:
    arrive(1)
    lake.tables.load_table(source).update_schema().add_column("more", StringType()).commit()
    run(consumer(namespace, DataFrame, after=lambda: arrive(2)), project, instance)
    assert consumed(lake.tables, namespace) == [1]
    run(consumer(namespace, DataFrame), project, instance)
    assert consumed(lake.tables, namespace) == [1, 2]


def test_expiry_cannot_take_the_cursor_away(
    lake: Lake,
    project: CompiledArtifacts,
    instance: DagsterInstance,
    namespace: str,
    source: TableIdentifier,
    arrive: Callable[..., int],
) -> None:
    seen = arrive(1)
    run(consumer(namespace), project, instance)
    between = arrive(2)
    arrive(3)
    moment = "older_than => TIMESTAMP '2100-01-01', retain_last => 1"
    lake.spark.sql(f"CALL system.expire_snapshots(table => '{source}', {moment})")
    left = {one.snapshot_id for one in lake.tables.list_snapshots(source)}
    assert seen in left
    assert between not in left
    assert cursor_tag(f"{namespace}/consumed") in lake.tables.load_table(source).metadata.refs
    # What was appended in between can only be told as long as the snapshots in between are there.
    with pytest.raises(ConfigurationError, match="drop its table to consume all rows again"):
        run(consumer(namespace), project, instance)
    lake.tables.drop_table(TableIdentifier(namespace=(namespace,), name="consumed"))
    run(consumer(namespace), project, instance)
    assert consumed(lake.tables, namespace) == [1, 2, 3]


def test_a_consumer_whose_table_is_gone_begins_anew(
    project: CompiledArtifacts,
    tables: IcebergTableManager,
    instance: DagsterInstance,
    namespace: str,
    arrive: Callable[..., int],
) -> None:
    arrive(1)
    run(consumer(namespace), project, instance)
    tables.drop_table(TableIdentifier(namespace=(namespace,), name="consumed"))
    arrive(2)
    run(consumer(namespace), project, instance)
    assert consumed(tables, namespace) == [1, 2]


def test_a_tag_that_cannot_be_moved_fails_nothing(
    project: CompiledArtifacts,
    tables: IcebergTableManager,
    instance: DagsterInstance,
    namespace: str,
    arrive: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuses(*_: Any) -> None:
        raise OSError("no")

    monkeypatch.setattr(cursors, "advance", refuses)
    for ids in ((1,), (2,)):
        arrive(*ids)
        assert run(consumer(namespace), project, instance).success
    assert consumed(tables, namespace) == [1, 2]


@pytest.mark.parametrize("kind", [pa.Table, DataFrame], ids=["arrow", "spark"])
def test_two_runs_at_once_do_not_both_consume(
    request: pytest.FixtureRequest,
    project: CompiledArtifacts,
    tables: IcebergTableManager,
    instance: DagsterInstance,
    namespace: str,
    arrive: Callable[..., int],
    kind: Any,
) -> None:
    if kind is DataFrame:
        request.getfixturevalue("lake")

    def another_run() -> None:
        with DagsterInstance.ephemeral() as other:
            run(consumer(namespace), project, other)

    arrive(1)
    run(consumer(namespace), project, instance)
    arrive(2)
    with pytest.raises(ConcurrencyConflictError, match=r"another run of .* consumed what is new"):
        run(consumer(namespace, kind, after=another_run), project, instance)
    assert consumed(tables, namespace) == [1, 2]


def test_two_first_runs_at_once_do_not_both_consume(
    project: CompiledArtifacts,
    tables: IcebergTableManager,
    instance: DagsterInstance,
    namespace: str,
    arrive: Callable[..., int],
) -> None:
    def another_run() -> None:
        with DagsterInstance.ephemeral() as other:
            run(consumer(namespace), project, other)

    arrive(1)
    with pytest.raises(ConcurrencyConflictError, match="another run of"):
        run(consumer(namespace, after=another_run), project, instance)
    assert consumed(tables, namespace) == [1]


def test_a_table_made_anew_and_empty_gets_all_rows(
    project: CompiledArtifacts,
    tables: IcebergTableManager,
    instance: DagsterInstance,
    namespace: str,
    arrive: Callable[..., int],
) -> None:
    arrive(1)
    run(consumer(namespace), project, instance)
    table = TableIdentifier(namespace=(namespace,), name="consumed")
    tables.drop_table(table)
    tables.create_table(table, pa.schema([("id", pa.int64())]))
    arrive(2)
    run(consumer(namespace), project, instance)
    assert consumed(tables, namespace) == [1, 2]


def test_new_partitions_are_new_rows_and_replaced_ones_are_refused(
    project: CompiledArtifacts, tables: IcebergTableManager, instance: DagsterInstance, namespace: str
) -> None:
    notes = StaticPartitionsDefinition(["a", "b"])

    @asset(key_prefix=namespace, partitions_def=notes, metadata={"partition_expr": "note"})
    def source(context: AssetExecutionContext) -> pa.Table:
        return pa.table({"id": [ord(context.partition_key)], "note": [context.partition_key]})

    made = consumer(namespace)[1]
    for key in ("a", "b"):
        run([source], project, instance, partition_key=key)
        run([source, made], project, instance, asset_selection=[made.key])
    assert consumed(tables, namespace) == [97, 98]
    run([source], project, instance, partition_key="a")
    with pytest.raises(ConfigurationError, match=r"1 of 1 writes to .* put rows in the place of others"):
        run([source, made], project, instance, asset_selection=[made.key])


def test_a_consumer_that_keeps_nothing_in_the_lake_is_refused(
    project: CompiledArtifacts, instance: DagsterInstance, namespace: str, arrive: Callable[..., int]
) -> None:
    arrive(1)
    ins = {"source": AssetIn([namespace, "source"], metadata={"since": True})}

    @asset(key_prefix=namespace, ins=ins)
    def silent(source: pa.Table) -> None: ...

    @asset(key_prefix=namespace, ins=ins, io_manager_key="mem_io_manager")
    def elsewhere(source: pa.Table) -> int:
        return 1

    for one in (silent, elsewhere):
        with pytest.raises(ConfigurationError, match="kept in the same lake"):
            run([AssetSpec([namespace, "source"]), one], project, instance)


def test_the_cursor_of_a_branch_is_on_that_branch(
    project: CompiledArtifacts,
    tables: IcebergTableManager,
    instance: DagsterInstance,
    namespace: str,
    arrive: Callable[..., int],
) -> None:
    arrive(1)
    run(consumer(namespace), project, instance)
    table = TableIdentifier(namespace=(namespace,), name="consumed")
    tables.create_branch(table, "audit")
    ins = {"source": AssetIn([namespace, "source"], metadata={"since": True})}

    @asset(name="consumed", key_prefix=namespace, ins=ins, metadata={"write_mode": "append", "floe/branch": "audit"})
    def made(source: pa.Table) -> pa.Table:
        return source

    arrive(2)
    for _ in range(2):
        run([AssetSpec([namespace, "source"]), made], project, instance)
    assert sorted(row["id"] for row in rows_of(tables, str(table), ref="audit")) == [1, 2]
    assert consumed(tables, namespace) == [1]


def test_two_consumers_have_two_cursors() -> None:
    names = ["a/b", "a-b", "a b", "x" * 300, "ü/" * 90]
    assert len({cursor_tag(name) for name in names}) == len(names)
    assert all(len(cursor_tag(name)) <= 128 and cursor_tag(name).isascii() for name in names)


def test_where_it_cannot_be_kept_apart_it_is_refused(
    project: CompiledArtifacts, instance: DagsterInstance, namespace: str, arrive: Callable[..., int]
) -> None:
    arrive(1)
    spec = AssetSpec([namespace, "source"])
    ins = {"source": AssetIn([namespace, "source"], metadata={"since": True})}

    @asset(key_prefix=namespace, partitions_def=DAYS, ins=ins, metadata={"partition_expr": "at"})
    def partitioned(source: pa.Table) -> pa.Table:
        return source

    with pytest.raises(ConfigurationError, match="since is for unpartitioned assets"):
        run([spec, partitioned], project, instance, partition_key="2026-01-01")

    outs = {name: AssetOut(key_prefix=namespace, metadata={"write_mode": "append"}) for name in ("one", "two")}

    @multi_asset(outs=outs, ins=ins)
    def several(source: pa.Table) -> tuple[pa.Table, pa.Table]:
        return source, source

    with pytest.raises(ConfigurationError, match="this one makes 2"):
        run([spec, several], project, instance)


def test_some_partitions_of_an_input_are_refused(
    project: CompiledArtifacts, instance: DagsterInstance, namespace: str, arrive: Callable[..., int]
) -> None:
    arrive(1)
    source = AssetSpec([namespace, "source"], partitions_def=DAYS)
    said = {"since": True, "partition_expr": "at"}

    def build(**mapping: Any) -> AssetsDefinition:
        ins = {"source": AssetIn([namespace, "source"], metadata=said, **mapping)}

        @asset(key_prefix=namespace, ins=ins, metadata={"write_mode": "append"})
        def consumed(source: pa.Table) -> pa.Table:
            return source

        return consumed

    with pytest.raises(ConfigurationError, match="mapped to some of them"):
        run([source, build(partition_mapping=LastPartitionMapping())], project, instance)
    assert run([source, build()], project, instance).success
