"""Dagster's history beside the tables: what is lost is found and recomputed, and nothing else is."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from dagster import (
    AssetExecutionContext,
    AssetIn,
    AssetKey,
    AssetMaterialization,
    AssetOut,
    BackfillPolicy,
    DagsterInstance,
    DailyPartitionsDefinition,
    Definitions,
    MaterializeResult,
    Output,
    asset,
    mem_io_manager,
    multi_asset,
    resource,
)
from tests.catalogs import new_namespace, polaris_settings, rest_settings
from tests.runs import QUIET, rows_of, span

from floe_core.compiler import compile_project
from floe_core.config.artifacts import CompiledArtifacts
from floe_core.errors import CatalogConnectionError, ConfigurationError
from floe_core.identifiers import Namespace, TableIdentifier
from floe_core.models import WriteMode
from floe_core.security.redaction import protect
from floe_dagster import IcebergIOManager, LakeResource, create_definitions
from floe_dagster.differences import Difference, find_differences, spread
from floe_iceberg import IcebergTableManager
from floe_iceberg.schema.changes import RenameColumn
from floe_runtime.cli.run import _remaining
from floe_runtime.runs.pipeline import Pipeline
from floe_runtime.runs.planning import Batch, batches, missing_and_lost

pytestmark = pytest.mark.filterwarnings("ignore:.*is currently in (beta|preview)")

DAYS = DailyPartitionsDefinition("2026-01-01", end_date="2026-01-06")
KEYS = [f"2026-01-0{day}" for day in range(1, 6)]


@dataclass
class Shop:
    """A namespace of a catalog, a Dagster instance, and the assets of the test at hand."""

    artifacts: CompiledArtifacts
    instance: DagsterInstance
    namespace: str
    assets: list[Any] = field(default_factory=list)
    resources: dict[str, Any] = field(default_factory=dict)

    @property
    def tables(self) -> IcebergTableManager:
        return IcebergTableManager.open(self.artifacts)

    @property
    def pipeline(self) -> Pipeline:
        made = create_definitions(self.assets, project=self.artifacts.root, resources=self.resources)
        return Pipeline(self.artifacts, made, self.instance)

    @property
    def keys(self) -> list[AssetKey]:
        return [key for one in self.assets for key in one.keys]

    def name(self, table: str = "orders") -> TableIdentifier:
        return TableIdentifier(namespace=(self.namespace,), name=table)

    def add_days(self, *, one_by_one: bool = False, table: str = "orders") -> None:
        """An asset with a row for each day, of one run for all days or one for each."""
        policy = BackfillPolicy.multi_run(1) if one_by_one else BackfillPolicy.single_run()

        @asset(
            key_prefix=self.namespace,
            partitions_def=DAYS,
            backfill_policy=policy,
            metadata={"partition_expr": "day", "floe/table": table},
        )
        def orders(context: AssetExecutionContext) -> pa.Table:
            return days_of(context.partition_keys)

        self.assets.append(orders)

    def run(self, keys: Sequence[str] = KEYS) -> None:
        pipeline = self.pipeline
        self.execute(pipeline, batches(pipeline.graph, self.keys, keys, self.instance))

    def execute(self, pipeline: Pipeline, chosen: list[Batch]) -> list[Batch]:
        for batch in chosen:
            keys = list(batch.keys)
            arguments = (
                {"partition_key": keys[0]} if len(keys) == 1 else {"tags": span(keys[0], keys[-1]) if keys else {}}
            )
            selected = list(batch.assets)
            done = pipeline.job.execute_in_process(
                instance=self.instance, asset_selection=selected, run_config=QUIET, **arguments
            )
            assert done.success
        return chosen

    def differences(self) -> list[Difference]:
        return find_differences(self.pipeline.definitions, self.keys, self.instance)

    def lost(self) -> dict[str, list[str]]:
        """The lost partitions by their reason."""
        return {one.reason: sorted(one.partitions) for one in self.differences()}

    def run_missing(self) -> list[Batch]:
        pipeline = self.pipeline
        return self.execute(pipeline, missing_and_lost(pipeline, self.keys, self.differences()))

    def days(self, table: str = "orders") -> list[str]:
        return [str(row["day"]) for row in rows_of(self.tables, str(self.name(table)))]

    def expire_all_but_the_head(self) -> None:
        table = self.tables.load_table(self.name())
        head = table.current_snapshot()
        assert head is not None
        old = [one.snapshot_id for one in table.snapshots() if one.snapshot_id != head.snapshot_id]
        table.maintenance.expire_snapshots().by_ids(old).commit()


def days_of(keys: Sequence[str]) -> pa.Table:
    return pa.table({"day": pa.array(keys).cast(pa.date32()), "amount": [1] * len(keys)})


@pytest.fixture(scope="module")
def settings(request: pytest.FixtureRequest) -> Callable[[str], str]:
    def of(catalog: str) -> str:
        if catalog == "rest":
            return rest_settings(request.getfixturevalue("server"))
        return polaris_settings() if catalog == "polaris" else ""

    return of


@pytest.fixture
def open_shop(
    settings: Callable[[str], str], tmp_path: Path, instance: DagsterInstance
) -> Iterator[Callable[[str], Shop]]:
    opened: list[Shop] = []

    def open_(catalog: str) -> Shop:
        (tmp_path / "floe.yaml").write_text(f"name: shop\ntables: {{default_namespace: main}}\n{settings(catalog)}")
        artifacts = compile_project(tmp_path).artifacts
        artifacts.write()
        opened.append(Shop(artifacts, instance, new_namespace()))
        return opened[-1]

    yield open_
    for shop in opened:
        tables, namespace = shop.tables, Namespace(levels=(shop.namespace,))
        if tables.namespace_exists(namespace):
            for table in tables.list_tables(namespace):
                tables.drop_table(table)
            tables.drop_namespace(namespace)


@pytest.fixture
def shop(open_shop: Callable[[str], Shop]) -> Shop:
    return open_shop("embedded")


# What is lost --------------------------------------------------------------------------------------------------------


@pytest.mark.every_catalog
@pytest.mark.parametrize("catalog", ["embedded", "rest", "polaris"])
def test_a_table_that_was_dropped_or_created_again_is_recomputed(
    open_shop: Callable[[str], Shop], catalog: str
) -> None:
    shop = open_shop(catalog)
    shop.add_days()
    shop.run()
    assert shop.differences() == []

    shop.tables.drop_table(shop.name())
    (told,) = shop.differences()
    assert (told.reason, told.partitions, told.recorded) == ("dropped", tuple(KEYS), 5)
    assert told.message == f"{shop.name()}: the catalog has no such table; 5 of 5 recorded partitions are not in it"

    shop.run(KEYS[2:3])
    (told,) = shop.differences()
    assert (told.reason, sorted(told.partitions)) == ("recreated", KEYS[:2] + KEYS[3:])
    assert f"{shop.name()}: the table was created again on 20" in told.message
    assert told.message.endswith("4 of 5 recorded partitions are not in it")

    assert [batch.keys for batch in shop.run_missing()] == [tuple(KEYS[:2]), tuple(KEYS[3:])]
    assert shop.days() == KEYS
    assert shop.run_missing() == []


def test_partitions_that_were_rolled_back_are_recomputed(shop: Shop) -> None:
    shop.add_days(one_by_one=True)
    shop.run(KEYS[:4])
    first = shop.tables.list_snapshots(shop.name())[0].snapshot_id
    shop.tables.rollback_to_snapshot(shop.name(), first)
    assert shop.lost() == {"rolled back": KEYS[1:4]}
    (told,) = shop.differences()
    assert told.message == f"{shop.name()}: the table was rolled back; 3 of 4 recorded partitions are not in it"

    shop.run(KEYS[4:])  # whoever goes on after a rollback does not hide it
    assert shop.lost() == {"rolled back": KEYS[1:4]}
    shop.run_missing()
    assert shop.days() == KEYS
    assert shop.run_missing() == []


def test_a_rollback_is_known_after_its_snapshots_expired(shop: Shop) -> None:
    shop.add_days(one_by_one=True)
    shop.run(KEYS[:3])
    first, *others = (one.snapshot_id for one in shop.tables.list_snapshots(shop.name()))
    shop.tables.rollback_to_snapshot(shop.name(), first)
    shop.tables.load_table(shop.name()).maintenance.expire_snapshots().by_ids(others).commit()
    assert shop.lost() == {"rolled back": KEYS[1:3]}


def test_what_depends_on_lost_partitions_is_recomputed_too(shop: Shop) -> None:
    shop.add_days()
    source = AssetIn([shop.namespace, "orders"])

    @asset(
        key_prefix=shop.namespace,
        partitions_def=DAYS,
        backfill_policy=BackfillPolicy.single_run(),
        ins={"orders": source},
        metadata={"partition_expr": "day"},
    )
    def daily(orders: pa.Table) -> pa.Table:
        return orders

    @asset(key_prefix=shop.namespace, ins={"orders": source}, metadata={"write_mode": "overwrite"})
    def total(orders: pa.Table) -> pa.Table:
        return pa.table({"orders": [orders.num_rows]})

    shop.assets += [daily, total]
    shop.run()
    shop.tables.drop_table(shop.name())
    shop.run_missing()
    assert shop.days() == shop.days("daily") == KEYS
    assert shop.run_missing() == []

    shop.tables.drop_table(shop.name("total"))
    (told,) = shop.differences()
    assert (told.asset, told.partitions, told.recorded) == (f"{shop.namespace}/total", (), 1)
    (batch,) = shop.run_missing()
    assert (batch.assets, batch.keys) == ((total.key,), ())
    assert rows_of(shop.tables, str(shop.name("total"))) == [{"orders": 5}]


# What would be appended twice ---------------------------------------------------------------------------------------


def refused(shop: Shop, table: str) -> None:
    before = rows_of(shop.tables, str(shop.name(table)))
    with pytest.raises(ConfigurationError, match=rf"append to tables that have rows already.*{shop.name(table)}"):
        shop.run_missing()
    assert rows_of(shop.tables, str(shop.name(table))) == before


def test_a_sibling_that_appends_is_not_appended_to_again(shop: Shop) -> None:
    @multi_asset(outs={name: AssetOut(key=[shop.namespace, name], metadata={"write_mode": "append"}) for name in "xy"})
    def both():  # type: ignore[no-untyped-def]
        for name in "xy":
            yield Output(pa.table({"id": [1]}), name)

    shop.assets.append(both)
    shop.run([])
    shop.tables.drop_table(shop.name("x"))
    refused(shop, "y")
    shop.tables.drop_table(shop.name("y"))
    shop.run_missing()
    assert rows_of(shop.tables, str(shop.name("y"))) == [{"id": 1}]


def test_a_reader_that_appends_is_not_appended_to_again(shop: Shop) -> None:
    @asset(key_prefix=shop.namespace, metadata={"write_mode": "overwrite"})
    def source() -> pa.Table:
        return pa.table({"id": [1]})

    @asset(key_prefix=shop.namespace, ins={"source": AssetIn([shop.namespace, "source"])})
    def log(source: pa.Table) -> pa.Table:
        return source

    shop.assets += [source, log]
    shop.run([])
    shop.tables.drop_table(shop.name("source"))
    refused(shop, "log")
    pipeline = shop.pipeline
    shop.execute(pipeline, missing_and_lost(pipeline, [source.key], shop.differences()[:1]))
    (batch,) = shop.run_missing()  # behind what it reads, and nothing is lost
    assert batch.assets == (log.key,)


def test_a_copy_of_a_table_is_not_appended_to_again(shop: Shop) -> None:
    @asset(key_prefix=shop.namespace, metadata={"write_mode": "append"})
    def events() -> pa.Table:
        return pa.table({"id": [1]})

    shop.assets.append(events)
    shop.run([])
    shop.tables.write_data(shop.name("copy"), pa.table({"id": [1]}), mode=WriteMode.APPEND)
    shop.tables.drop_table(shop.name("events"))
    shop.tables.rename_table(shop.name("copy"), shop.name("events"))
    refused(shop, "events")
    shop.tables.load_table(shop.name("events")).delete("true")
    shop.run_missing()
    assert rows_of(shop.tables, str(shop.name("events"))) == [{"id": 1}]


def test_an_append_that_was_rolled_back_is_made_again(shop: Shop) -> None:
    @asset(key_prefix=shop.namespace, metadata={"write_mode": "append"})
    def events() -> pa.Table:
        return pa.table({"id": [1]})

    shop.assets.append(events)
    shop.run([])
    shop.run([])
    first = shop.tables.list_snapshots(shop.name("events"))[0].snapshot_id
    shop.tables.rollback_to_snapshot(shop.name("events"), first)
    shop.run_missing()
    assert rows_of(shop.tables, str(shop.name("events"))) == [{"id": 1}, {"id": 1}]


# What is not lost ----------------------------------------------------------------------------------------------------


@pytest.mark.every_catalog
@pytest.mark.parametrize("catalog", ["embedded", "rest", "polaris"])
def test_expired_snapshots_are_no_loss(open_shop: Callable[[str], Shop], catalog: str) -> None:
    shop = open_shop(catalog)
    shop.add_days(one_by_one=True)
    shop.run(KEYS[:3])
    shop.expire_all_but_the_head()
    assert len(shop.tables.list_snapshots(shop.name())) == 1
    assert shop.differences() == []


def test_a_hole_in_the_history_is_no_loss(shop: Shop) -> None:
    shop.add_days(one_by_one=True)
    shop.run(KEYS[:3])
    middle = shop.tables.list_snapshots(shop.name())[1].snapshot_id
    shop.tables.load_table(shop.name()).maintenance.expire_snapshots().by_ids([middle]).commit()
    assert shop.differences() == []


def test_rows_that_others_rewrote_or_deleted_are_no_loss(shop: Shop) -> None:
    shop.add_days(one_by_one=True)
    shop.run()
    table = shop.tables.load_table(shop.name())
    table.overwrite(table.scan().to_arrow())
    table.delete("day < '2026-01-03'")  # such as a rule how long data is kept
    shop.tables.evolve_schema(shop.name(), RenameColumn("amount", "price"))
    assert shop.differences() == []
    shop.expire_all_but_the_head()
    assert shop.differences() == []


def test_a_write_to_a_branch_is_no_loss_on_main(shop: Shop) -> None:
    shop.add_days()
    shop.run()
    shop.tables.create_branch(shop.name(), "trial")
    config = {"ops": {f"{shop.namespace}__orders": {"outputs": {"result": {"branch": "trial"}}}}}
    job = shop.pipeline.job
    assert job.execute_in_process(instance=shop.instance, partition_key=KEYS[0], run_config=config).success
    head = shop.tables.load_table(shop.name()).metadata.refs["trial"].snapshot_id
    assert shop.differences() == []
    old_event(shop, KEYS[0], head)
    assert shop.differences() == []
    shop.tables.remove_branch(shop.name(), "trial")


def test_what_only_another_branch_holds_is_missing_on_main(shop: Shop) -> None:
    shop.add_days()
    shop.run(KEYS[:2])
    shop.tables.create_branch(shop.name(), "trial")
    shop.resources["io_manager"] = IcebergIOManager(lake=LakeResource(project=str(shop.artifacts.root)), branch="trial")
    shop.run(KEYS[1:])
    assert shop.differences() == []
    shop.resources.clear()
    assert shop.lost() == {"on another branch": KEYS[2:]}
    shop.tables.remove_branch(shop.name(), "trial")
    assert shop.lost() == {"on another branch": KEYS[2:]}
    shop.run_missing()
    assert shop.days() == KEYS
    assert shop.run_missing() == []


def test_what_another_branch_holds_is_unknown_on_main_after_expiry(shop: Shop) -> None:
    shop.add_days(one_by_one=True)
    shop.run(KEYS[:3])
    shop.tables.create_branch(shop.name(), "trial")
    shop.resources["io_manager"] = IcebergIOManager(lake=LakeResource(project=str(shop.artifacts.root)), branch="trial")
    shop.run(KEYS[:1])
    shop.resources.clear()
    assert shop.differences() == []
    shop.tables.remove_branch(shop.name(), "trial")
    shop.expire_all_but_the_head()
    (told,) = shop.differences()
    assert (told.reason, told.partitions, told.recompute) == ("unknown", (KEYS[0],), False)
    assert "it is unknown whether 1 of 3 recorded partitions is on the asset's own branch" in told.message
    assert [batch.keys for batch in shop.run_missing()] == [(KEYS[3],), (KEYS[4],)]


def test_a_table_under_another_name_is_the_same_table(shop: Shop) -> None:
    shop.add_days()
    shop.run()
    shop.tables.rename_table(shop.name(), shop.name("sales"))
    shop.assets.clear()
    shop.add_days(table="sales")
    assert shop.differences() == []


def test_tables_that_share_a_history_do_not_take_turns(shop: Shop, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Two environments with one DAGSTER_HOME."""
    root = tmp_path_factory.mktemp("other")
    (root / "floe.yaml").write_text("name: other\n")
    artifacts = compile_project(root).artifacts
    artifacts.write()
    other = Shop(artifacts, shop.instance, shop.namespace)
    for one, keys in ((shop, KEYS), (other, KEYS[:3]), (other, KEYS[4:])):
        one.assets.clear()
        one.add_days()
        one.run(keys)
    assert shop.differences() == []
    assert other.lost() == {"recreated": [KEYS[3]]}
    other.run_missing()
    assert (shop.differences(), other.differences()) == ([], [])


def test_what_the_ui_reported_by_hand_is_trusted(shop: Shop) -> None:
    shop.add_days()
    shop.run(KEYS[:4])
    shop.instance.report_runless_asset_event(AssetMaterialization(shop.keys[0], partition=KEYS[4]))
    assert shop.differences() == []


def test_only_what_is_new_is_consumed_once(shop: Shop) -> None:
    @asset(key_prefix=shop.namespace, metadata={"write_mode": "append"})
    def events() -> pa.Table:
        return pa.table({"id": [1]})

    new = AssetIn([shop.namespace, "events"], metadata={"since": True})

    @asset(key_prefix=shop.namespace, metadata={"write_mode": "append"}, ins={"events": new})
    def seen(events: pa.Table) -> pa.Table:
        return events

    shop.assets += [events, seen]
    shop.run([])
    shop.run([])
    assert shop.run_missing() == []
    shop.tables.drop_table(shop.name("seen"))
    (batch,) = shop.run_missing()
    assert batch.assets == (seen.key,)
    assert rows_of(shop.tables, str(shop.name("seen"))) == [{"id": 1}, {"id": 1}]


# Events of versions before the table's uuid was recorded -------------------------------------------------------------


def old_event(shop: Shop, key: str, snapshot_id: int) -> None:
    """A materialization as it was recorded before: with the snapshot, without table, branch and time."""
    event = AssetMaterialization(
        shop.keys[0],
        partition=key,
        metadata={"floe/snapshot_id": str(snapshot_id), "dagster/table_name": str(shop.name())},
        tags={"dagster/data_version": str(snapshot_id)},
    )
    shop.instance.report_runless_asset_event(event)


def write_day(shop: Shop, key: str) -> int:
    day = days_of([key])
    return shop.tables.write_data(shop.name(), day, mode=WriteMode.APPEND).snapshot_id


def test_events_without_a_uuid_are_compared_by_their_snapshots(shop: Shop) -> None:
    shop.add_days()
    for key in KEYS[:3]:
        old_event(shop, key, write_day(shop, key))
    assert shop.differences() == []
    shop.expire_all_but_the_head()
    assert shop.differences() == []

    shop.tables.drop_table(shop.name())
    assert shop.lost() == {"dropped": KEYS[:3]}
    shop.run(KEYS[1:2])
    assert shop.lost() == {"recreated": [KEYS[0], KEYS[2]]}
    shop.expire_all_but_the_head()
    assert shop.lost() == {"recreated": [KEYS[0], KEYS[2]]}


# Whose assets, and at what cost --------------------------------------------------------------------------------------


def test_assets_of_other_io_managers_are_left_alone(shop: Shop) -> None:
    @asset(partitions_def=DAYS, io_manager_key="mem_io_manager")
    def elsewhere() -> int:
        return 1

    @asset(key_prefix=shop.namespace)
    def nothing() -> None:
        pass

    shop.assets += [elsewhere, nothing]
    shop.run(KEYS[:1])
    assert shop.differences() == []
    alone = Definitions([elsewhere], resources={"mem_io_manager": mem_io_manager})
    assert find_differences(alone, [elsewhere.key], shop.instance) == []


@pytest.mark.parametrize("given", ["lake", "table_manager"])
def test_the_namespace_is_that_of_the_managers_own_lake(
    open_shop: Callable[[str], Shop], tmp_path_factory: pytest.TempPathFactory, given: str
) -> None:
    root = tmp_path_factory.mktemp("other")
    (root / "floe.yaml").write_text("name: other\ntables: {default_namespace: elsewhere}\n")
    other = compile_project(root).artifacts
    other.write()
    shop = open_shop("embedded")
    shop.resources["io_manager"] = (
        IcebergIOManager(lake=LakeResource(project=str(root)))
        if given == "lake"
        else IcebergIOManager(table_manager=IcebergTableManager.open(other))
    )

    @asset(metadata={"write_mode": "append"})
    def orders() -> pa.Table:
        return pa.table({"id": [1]})

    shop.assets.append(orders)
    shop.run([])
    assert shop.differences() == []
    table = "elsewhere.orders" if given == "lake" else "public.orders"
    IcebergTableManager.open(other).drop_table(TableIdentifier.from_string(table))
    (told,) = shop.differences()
    assert (told.reason, told.table) == ("dropped", table)


def test_assets_that_store_nothing_through_floe_are_never_dropped(shop: Shop) -> None:
    @asset(key_prefix=shop.namespace, metadata={"write_mode": "append"})
    def loaded():  # type: ignore[no-untyped-def]
        return MaterializeResult(metadata={"dagster/table_name": "raw.events"})

    @multi_asset(outs={name: AssetOut(key=[shop.namespace, name], metadata={"write_mode": "append"}) for name in "uv"})
    def both():  # type: ignore[no-untyped-def]
        for name in "uv":
            yield MaterializeResult(asset_key=[shop.namespace, name])

    shop.assets += [loaded, both]
    shop.run([])
    assert shop.run_missing() == []


def test_a_lake_that_is_configured_at_launch_is_compared(shop: Shop) -> None:
    root = str(shop.artifacts.root)

    class Own(LakeResource):
        project: str = root

    @resource
    def unrelated() -> None:
        raise AssertionError("opened without need")

    lake = Own.configure_at_launch()
    shop.resources |= {"lake": lake, "io_manager": IcebergIOManager(lake=lake), "unrelated": unrelated}
    shop.add_days()
    shop.run()
    assert shop.differences() == []
    shop.tables.drop_table(shop.name())
    assert shop.lost() == {"dropped": KEYS}


def test_a_comparison_that_fails_does_not_fail_the_run(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("no connection with hunter2-of-the-tests")

    protect("hunter2-of-the-tests")
    monkeypatch.setattr("floe_dagster.differences.find_differences", fail)
    shop.add_days()
    assert _remaining(shop.pipeline, shop.keys) == []
    told = capsys.readouterr().err
    assert told.startswith(
        "warning: the tables could not be compared with Dagster's history: RuntimeError: no connection"
    )
    assert "hunter2" not in told


@pytest.mark.parametrize("given", ["bound", "at launch", "unresolved"])
def test_a_manager_that_is_bound_or_configured_at_launch_is_compared(shop: Shop, given: str) -> None:
    lake = LakeResource(project=str(shop.artifacts.root))

    class Demanding(IcebergIOManager):
        team: str

    @asset(
        key_prefix=shop.namespace,
        metadata={"write_mode": "append"},
        io_manager_def=IcebergIOManager(lake=lake) if given == "bound" else None,
    )
    def events() -> pa.Table:
        return pa.table({"id": [1]})

    shop.assets.append(events)
    shop.run([])
    if given == "at launch":
        shop.resources["io_manager"] = IcebergIOManager.configure_at_launch(lake=lake)
    elif given == "unresolved":
        shop.resources["io_manager"] = Demanding.configure_at_launch(lake=lake)
    shop.tables.drop_table(shop.name("events"))
    (told,) = shop.differences()
    assert told.reason == ("not compared" if given == "unresolved" else "dropped")
    assert told.recompute == (given != "unresolved")


def test_a_catalog_that_cannot_be_reached_is_an_error(tmp_path: Path, instance: DagsterInstance) -> None:
    retry = "retry: {max_attempts: 1, initial_wait_seconds: 0.1, max_wait_seconds: 1}"
    (tmp_path / "floe.yaml").write_text(
        f"name: x\ncatalog: {{type: rest, uri: 'http://127.0.0.1:9', warehouse: w, auth: none, {retry}}}\n"
        "storage: {type: s3, bucket: b}\n"
    )
    artifacts = compile_project(tmp_path).artifacts
    artifacts.write()
    shop = Shop(artifacts, instance, new_namespace())
    shop.add_days()
    assert shop.differences() == []  # nothing is recorded, so no table is asked
    old_event(shop, KEYS[0], 1)
    with pytest.raises(CatalogConnectionError):
        shop.differences()


def test_a_table_is_loaded_once_whatever_is_recorded(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.add_days(one_by_one=True)
    shop.run()
    shop.expire_all_but_the_head()
    loaded, read = [], []
    find, fetch = IcebergTableManager.find_table, DagsterInstance.fetch_materializations

    def counted_find(self: Any, identifier: Any) -> Any:
        loaded.append(identifier)
        return find(self, identifier)

    def counted_fetch(self: Any, records_filter: Any, limit: int, *more: Any) -> Any:
        read.append(limit)
        return fetch(self, records_filter, limit, *more)

    monkeypatch.setattr(IcebergTableManager, "find_table", counted_find)
    monkeypatch.setattr(DagsterInstance, "fetch_materializations", counted_fetch)
    assert shop.differences() == []
    assert (loaded, read) == ([shop.name()], [4])  # the newest is in the index


@pytest.mark.parametrize("count", [0, 1, 2, 63, 64, 65, 1000, 5000])
def test_few_events_tell_about_many(count: int) -> None:
    for edges in itertools.combinations((0, count // 3, count // 2, count), 2):
        truth = [edges[0] <= place < edges[1] for place in range(count)]
        read: list[int] = []

        def judge(places: Sequence[int], truth: list[bool] = truth, read: list[int] = read) -> list[bool]:
            read.extend(places)
            return [truth[place] for place in places]

        assert spread(count, judge, samples=64) == truth
        assert len(read) == len(set(read)) <= 64 + 1 + 2 * 8


def test_every_event_is_read_unless_a_sample_is_asked_for() -> None:
    truth = [place == 100 for place in range(1000)]  # between two of 64 samples
    assert spread(1000, lambda places: [truth[place] for place in places]) == truth
