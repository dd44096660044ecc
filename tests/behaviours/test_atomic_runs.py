"""An atomic group: its tables are published together at the end of a run, or no reader of main sees a row of it."""

import time
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pytest
from dagster import (
    AssetCheckResult,
    AssetCheckSeverity,
    AssetExecutionContext,
    AssetIn,
    AssetsDefinition,
    AssetSpec,
    BackfillPolicy,
    Config,
    DagsterEventType,
    DagsterInstance,
    DailyPartitionsDefinition,
    DynamicPartitionsDefinition,
    ExecuteInProcessResult,
    MaterializeResult,
    TimeWindowPartitionMapping,
    asset,
    asset_check,
)
from pyspark.sql import DataFrame
from tests.runs import QUIET, span

from floe_core.errors import ConfigurationError, TableNotFoundError
from floe_core.identifiers import TableIdentifier
from floe_dagster import AtomicGroup, IcebergIOManager, create_definitions, current_run_branch
from floe_iceberg import AddColumn, Lake
from floe_iceberg.snapshots import UNPUBLISHED, StagingBranch

pytestmark = pytest.mark.filterwarnings("ignore:.*is currently in (beta|preview)", "ignore:asset .* sets no write_mode")

DAYS = DailyPartitionsDefinition("2026-01-01", end_date="2026-01-08")
OVERWRITE = {"write_mode": "overwrite"}


class Shop:
    """Assets of a namespace, run as an atomic group."""

    def __init__(self, lake: Lake, namespace: str, instance: DagsterInstance) -> None:
        self.lake, self.tables, self.namespace, self.instance = lake, lake.tables, namespace, instance

    def name(self, table: str) -> str:
        return f"{self.namespace}.{table}"

    def asset(self, function: Callable[..., Any], *reads: str, **arguments: Any) -> AssetsDefinition:
        ins = {**{name: AssetIn([self.namespace, name]) for name in reads}, **arguments.pop("ins", {})}
        arguments.setdefault("metadata", OVERWRITE)
        made: AssetsDefinition = asset(key_prefix=self.namespace, ins=ins, **arguments)(function)
        return made

    def run(
        self, assets: Iterable[Any], *, group: Any = None, checks: Iterable[Any] = (), **arguments: Any
    ) -> ExecuteInProcessResult:
        listed = list(assets)
        made = [one for one in listed if isinstance(one, AssetsDefinition) and one.is_executable]
        manager = IcebergIOManager(lake=self.lake)
        self.lake.artifacts.write()
        definitions = create_definitions(
            listed,
            project=self.lake.artifacts.root,
            resources={"io_manager": manager},
            atomic=[group(made)] if group is not None else made,
            asset_checks=list(checks),
        )
        job = definitions.resolve_implicit_global_asset_job_def()
        config = {**QUIET, **arguments.pop("config", {})}
        return job.execute_in_process(instance=self.instance, run_config=config, raise_on_error=False, **arguments)

    def rows(self, table: str, **at: Any) -> list[Any]:
        found = self.tables.scan(self.name(table), **at).to_arrow()
        return sorted(found.to_pylist(), key=str)

    def branch(self, result: ExecuteInProcessResult) -> str:
        return f"floe-run-{result.run_id}"


@pytest.fixture
def shop(lake: Lake, namespace: str, instance: DagsterInstance) -> Shop:
    return Shop(lake, namespace, instance)


def made(result: ExecuteInProcessResult) -> list[tuple[str, str | None]]:
    return [
        (event.asset_key.path[-1], event.partition)
        for event in result.all_events
        if event.event_type is DagsterEventType.ASSET_MATERIALIZATION and event.asset_key is not None
    ]


def failure(result: ExecuteInProcessResult) -> str:
    """The step that failed, and all messages of its error."""
    for event in result.all_events:
        if event.event_type is DagsterEventType.STEP_FAILURE:
            error, texts = event.step_failure_data.error, [str(event.step_key)]
            while error is not None:
                texts.append(error.message)
                error = error.cause
            return " ".join(texts)
    return ""


def orders_of(shop: Shop, *ids: int) -> AssetsDefinition:
    def orders() -> pa.Table:
        return pa.table({"id": list(ids)})

    return shop.asset(orders)


def totals_of(shop: Shop, kind: Any = pa.Table, before: Callable[[], None] = lambda: None) -> AssetsDefinition:
    def totals(orders: Any) -> Any:
        before()
        if kind is DataFrame:
            return orders.groupBy().count().withColumnRenamed("count", "n")
        return pa.table({"n": [orders.num_rows]})

    totals.__annotations__["orders"] = kind
    return shop.asset(totals, "orders")


def raising(shop: Shop) -> AssetsDefinition:
    def last(totals: pa.Table) -> pa.Table:
        raise ValueError(f"the till has {totals.num_rows} rows too few")

    return shop.asset(last, "totals")


# All or nothing -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [pa.Table, DataFrame])
def test_the_tables_of_a_run_are_published_together_and_read_within_it(shop: Shop, kind: Any) -> None:
    seen: list[Any] = []

    def look() -> None:
        seen.append([shop.tables.table_exists(shop.name("orders")), current_run_branch()])
        with pytest.raises(TableNotFoundError, match="is not published yet"):
            shop.rows("orders")

    result = shop.run([orders_of(shop, 1, 2, 3), totals_of(shop, kind, look)])
    assert result.success, failure(result)
    assert seen == [[True, shop.branch(result)]]
    assert shop.rows("totals") == [{"n": 3}]
    assert made(result) == [("orders", None), ("totals", None)]
    for name in ("orders", "totals"):
        table = shop.tables.load_table(shop.name(name))
        assert set(table.metadata.refs) == {"main"}
        assert UNPUBLISHED not in table.properties
        head = shop.tables.current_snapshot(shop.name(name))
        recorded = [event.materialization for event in result.get_asset_materialization_events()]
        (one,) = [each for each in recorded if each.asset_key.path[-1] == name]
        assert head is not None
        assert one.metadata["floe/snapshot_id"].value == str(head.snapshot_id)
        assert one.metadata["floe/branch"].value == "main"
        assert (one.tags or {})["dagster/data_version"] == str(head.snapshot_id)


@pytest.mark.parametrize("kind", [pa.Table, DataFrame])
def test_a_run_that_fails_is_seen_by_no_reader_and_stays_on_its_branch(shop: Shop, kind: Any) -> None:
    first = shop.run([orders_of(shop, 1), totals_of(shop, kind)])
    assert first.success, failure(first)
    second = shop.run([orders_of(shop, 1, 2), totals_of(shop, kind), raising(shop)])
    assert not second.success
    assert "the till has 1 rows too few" in failure(second)
    assert made(second) == []
    assert shop.rows("orders") == [{"id": 1}]
    assert shop.rows("totals") == [{"n": 1}]
    assert shop.rows("totals", ref=shop.branch(second)) == [{"n": 2}]
    assert not shop.tables.table_exists(shop.name("last"))


@pytest.mark.every_catalog
def test_both_engines_write_one_run_on_every_catalog(catalog: Lake, namespace: str, instance: DagsterInstance) -> None:
    """Arrow makes the first table and Spark the second; a failed run shows neither, and the next one both."""
    if catalog.tables.refuses_many_tables is not None:
        refused = Shop(catalog, namespace, instance)
        result = refused.run([orders_of(refused, 1), totals_of(refused)])
        assert "cannot be published together. Nothing was written" in failure(result)
        assert not catalog.tables.table_exists(refused.name("orders"))
        return
    shop = Shop(catalog, namespace, instance)
    good = [orders_of(shop, 1, 2), totals_of(shop, DataFrame)]
    assert shop.run(good).success
    failed = shop.run([orders_of(shop, 1, 2, 3), totals_of(shop, DataFrame), raising(shop)])
    assert "the till has 1 rows too few" in failure(failed)
    assert (shop.rows("orders"), shop.rows("totals")) == ([{"id": 1}, {"id": 2}], [{"n": 2}])
    assert shop.rows("totals", ref=shop.branch(failed)) == [{"n": 3}]
    again = shop.run([orders_of(shop, 4), totals_of(shop, DataFrame)])
    assert again.success, failure(again)
    assert (shop.rows("orders"), shop.rows("totals")) == ([{"id": 4}], [{"n": 1}])


def test_a_new_table_of_a_failed_run_is_absent_until_a_run_publishes_it(shop: Shop) -> None:
    failed = shop.run([orders_of(shop, 1), totals_of(shop), raising(shop)])
    assert shop.tables.load_table(shop.name("orders")).properties[UNPUBLISHED] == failed.run_id
    with pytest.raises(TableNotFoundError, match=f"'{shop.name('orders')}' is not published yet: run {failed.run_id}"):
        shop.lake.read(shop.name("orders"))
    with pytest.raises(TableNotFoundError, match="is not published yet"):
        shop.lake.sql(f"SELECT * FROM {shop.name('orders')}")
    assert shop.lake.read(shop.name("orders"), ref=shop.branch(failed)).count() == 1
    good = shop.run([orders_of(shop, 4, 5), totals_of(shop)])
    assert good.success, failure(good)
    assert shop.rows("orders") == [{"id": 4}, {"id": 5}]


def test_an_ordinary_write_publishes_a_table_that_a_failed_run_created(shop: Shop) -> None:
    shop.run([orders_of(shop, 1), totals_of(shop), raising(shop)])
    shop.tables.write_data(shop.name("orders"), pa.table({"id": [9]}), mode="append")
    assert shop.rows("orders") == [{"id": 9}]


def test_a_failed_run_is_abandoned_with_the_tables_that_it_created(shop: Shop) -> None:
    shop.tables.write_data(shop.name("orders"), pa.table({"id": [7]}), mode="append")
    owned = AtomicGroup
    failed = shop.run([orders_of(shop, 1), totals_of(shop), raising(shop)], group=lambda made: owned("shop", made))
    names = [shop.name("orders"), shop.name("totals")]
    assert [shop.tables.abandon_branch(name, StagingBranch.of_run(failed.run_id)) for name in names] == [True, True]
    assert set(shop.tables.load_table(names[0]).metadata.refs) == {"main"}
    assert not shop.tables.table_exists(names[1])
    assert [shop.tables.abandon_branch(name, StagingBranch.of_run(failed.run_id)) for name in names] == [False, False]


# Checks -------------------------------------------------------------------------------------------------------------


def check_of(shop: Shop, function: Callable[..., Any], *, blocking: bool = True) -> Any:
    return asset_check(asset=[shop.namespace, "orders"], blocking=blocking)(function)


def test_a_blocking_check_reads_what_would_be_published_and_stops_it(shop: Shop) -> None:
    assert shop.run([orders_of(shop, 1)]).success

    def small(orders: pa.Table) -> AssetCheckResult:
        return AssetCheckResult(passed=orders.num_rows < 2, metadata={"rows": orders.num_rows})

    ran: list[int] = []
    totals = totals_of(shop, before=lambda: ran.append(1))
    result = shop.run([orders_of(shop, 1, 2), totals], checks=[check_of(shop, small)])
    assert not result.success
    assert "1 blocking asset check failed" in failure(result)
    (evaluation,) = result.get_asset_check_evaluations()
    assert (evaluation.check_name, evaluation.passed, evaluation.metadata["rows"].value) == ("small", False, 2)
    assert (ran, made(result), shop.rows("orders")) == ([], [], [{"id": 1}])
    assert shop.run([orders_of(shop, 3), totals], checks=[check_of(shop, small)]).success
    assert (shop.rows("orders"), shop.rows("totals")) == ([{"id": 3}], [{"n": 1}])


def test_a_check_that_does_not_block_is_reported_and_the_run_is_published(shop: Shop) -> None:
    def small(orders: pa.Table) -> AssetCheckResult:
        return AssetCheckResult(passed=False, severity=AssetCheckSeverity.WARN, description="too many")

    result = shop.run([orders_of(shop, 1, 2)], checks=[check_of(shop, small, blocking=False)])
    assert result.success
    assert [(one.check_name, one.passed) for one in result.get_asset_check_evaluations()] == [("small", False)]
    assert shop.rows("orders") == [{"id": 1}, {"id": 2}]


def _raises(orders: pa.Table) -> AssetCheckResult:
    raise ZeroDivisionError("no orders")


def _hangs(orders: pa.Table) -> AssetCheckResult:
    time.sleep(60)
    return AssetCheckResult(passed=True)


def _wrong(orders: pa.Table) -> Any:
    return "fine"


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (_raises, "no orders"),
        (_hangs, "took longer than 0.5 seconds"),
        (_wrong, "AssetCheckResult"),
    ],
)
def test_a_check_that_does_not_end_well_publishes_nothing(shop: Shop, check: Callable[..., Any], message: str) -> None:
    result = shop.run(
        [orders_of(shop, 1)],
        checks=[check_of(shop, check)],
        group=lambda made: AtomicGroup("nightly", made, check_timeout=0.5),
    )
    assert not result.success
    assert message in failure(result)
    assert made(result) == []
    with pytest.raises(TableNotFoundError):
        shop.rows("orders")


# Dagster's own words ------------------------------------------------------------------------------------------------


def test_members_run_as_they_do_outside_of_a_group(shop: Shop) -> None:
    """Their context, their configuration, what they return and what they log are those of ordinary assets."""
    seen: dict[str, Any] = {}

    class Options(Config):
        rows: int = 1

    def orders(context: AssetExecutionContext, config: Options) -> Any:
        context.log.info("so many orders")
        seen.update(key=context.asset_key.path[-1], day=context.partition_key, run=context.run.run_id)
        data = pa.table(
            {"day": pa.array([context.partition_time_window.start.date()] * config.rows), "id": [1] * config.rows}
        )
        return MaterializeResult(value=data, metadata={"mine": 7})

    listed = [shop.asset(orders, partitions_def=DAYS, metadata={"partition_expr": "day"})]
    config = {"ops": {"atomic_run": {"ops": {f"{shop.namespace}__orders": {"config": {"rows": 2}}}}}}
    result = shop.run(listed, partition_key="2026-01-02", config=config)
    assert result.success, failure(result)
    assert seen == {"key": "orders", "day": "2026-01-02", "run": result.run_id}
    (event,) = result.get_asset_materialization_events()
    assert event.partition == "2026-01-02"
    assert event.materialization.metadata["mine"].value == 7
    logged = [entry.user_message for entry in shop.instance.all_logs(result.run_id) if entry.dagster_event is None]
    assert "so many orders" in logged


def test_a_range_of_partitions_is_one_publication_and_other_partitions_are_read_where_they_are(shop: Shop) -> None:
    policy = BackfillPolicy.single_run()

    def orders(context: AssetExecutionContext) -> pa.Table:
        days = pa.array(context.partition_keys).cast(pa.timestamp("us")).cast(pa.date32())
        return pa.table({"day": days, "id": list(range(len(days)))})

    def windows(orders: pa.Table) -> pa.Table:
        return orders

    before = AssetIn([shop.namespace, "orders"], partition_mapping=TimeWindowPartitionMapping(start_offset=-1))
    listed = [
        shop.asset(orders, partitions_def=DAYS, metadata={"partition_expr": "day"}, backfill_policy=policy),
        shop.asset(
            totals_by_day(shop), partitions_def=DAYS, metadata={"partition_expr": "day"}, ins={"orders": before}
        ),
    ]
    assert shop.run(listed[:1], tags=span("2026-01-01", "2026-01-03")).success
    heads = [shop.tables.current_snapshot(shop.name("orders"))]
    result = shop.run(listed, partition_key="2026-01-04")
    assert result.success, failure(result)
    assert made(result) == [("orders", "2026-01-04"), ("by_day", "2026-01-04")]
    assert [row["n"] for row in shop.rows("by_day")] == [2], "the day before is in main, the day itself on the branch"
    assert len(shop.rows("orders")) == 4
    assert heads[0] is not None


def totals_by_day(shop: Shop) -> Callable[..., Any]:
    def by_day(context: AssetExecutionContext, orders: pa.Table) -> pa.Table:
        day = pa.array([context.partition_key]).cast(pa.timestamp("us")).cast(pa.date32())
        return pa.table({"day": day, "n": [orders.num_rows]})

    return by_day


def test_dynamic_partitions_are_known_to_the_members(shop: Shop) -> None:
    towns = DynamicPartitionsDefinition(name=f"towns_{shop.namespace}")
    shop.instance.add_dynamic_partitions(towns.name or "", ["oslo", "rome"])

    def orders(context: AssetExecutionContext) -> pa.Table:
        return pa.table({"town": [context.partition_key]})

    listed = [shop.asset(orders, partitions_def=towns, metadata={"partition_expr": "town"})]
    assert shop.run(listed, partition_key="rome").success
    assert shop.rows("orders") == [{"town": "rome"}]


def test_a_part_of_a_group_is_published_alone_and_reads_main(shop: Shop) -> None:
    listed = [orders_of(shop, 1, 2), totals_of(shop)]
    assert shop.run(listed).success
    shop.tables.write_data(shop.name("orders"), pa.table({"id": [3]}), mode="append")
    result = shop.run(listed, asset_selection=[listed[1].key])
    assert result.success, failure(result)
    assert made(result) == [("totals", None)]
    assert shop.rows("totals") == [{"n": 3}]


# Others meanwhile ---------------------------------------------------------------------------------------------------


def test_a_table_that_moved_meanwhile_is_named_and_nothing_is_published(shop: Shop) -> None:
    assert shop.run([orders_of(shop, 1), totals_of(shop)]).success

    def meanwhile() -> None:
        shop.tables.write_data(shop.name("orders"), pa.table({"id": [9]}), mode="append")

    result = shop.run([orders_of(shop, 5, 6), totals_of(shop, before=meanwhile)])
    assert "publish" in failure(result)
    assert f"'{shop.name('orders')}': another writer moved main" in failure(result)
    assert (shop.rows("orders"), shop.rows("totals")) == ([{"id": 1}, {"id": 9}], [{"n": 1}])
    assert made(result) == []
    assert shop.run([orders_of(shop, 5, 6), totals_of(shop)]).success
    assert (shop.rows("orders"), shop.rows("totals")) == ([{"id": 5}, {"id": 6}], [{"n": 2}])


@pytest.mark.parametrize("isolation", ["serializable", "snapshot"])
def test_a_table_that_the_run_only_read_must_not_move(shop: Shop, isolation: Any) -> None:
    shop.tables.write_data(shop.name("prices"), pa.table({"id": [1]}), mode="append")

    def costs(prices: pa.Table) -> pa.Table:
        shop.tables.write_data(shop.name("prices"), pa.table({"id": [2]}), mode="append")
        return pa.table({"n": [prices.num_rows]})

    listed = [AssetSpec([shop.namespace, "prices"]), shop.asset(costs, "prices"), orders_of(shop, 1)]
    result = shop.run(listed, group=lambda made: AtomicGroup("nightly", made, isolation=isolation))
    if isolation == "snapshot":
        assert result.success, failure(result)
        assert (shop.rows("costs"), shop.rows("orders")) == ([{"n": 1}], [{"id": 1}])
    else:
        assert f"'{shop.name('prices')}': it was read at snapshot" in failure(result)
        assert made(result) == []


def test_rows_are_consumed_once_also_when_a_run_fails_between(shop: Shop) -> None:
    """The source and its consumer are in one run; a cursor moves only when both are published."""

    def arrived(*ids: int) -> AssetsDefinition:
        def source() -> pa.Table:
            return pa.table({"id": list(ids)})

        return shop.asset(source, metadata={"write_mode": "append"})

    def consumed(source: pa.Table) -> pa.Table:
        return source

    def checked(consumed: pa.Table) -> pa.Table:
        if max(consumed["id"].to_pylist()) > 90:
            raise ValueError("a bad delivery")
        return consumed

    since = {"source": AssetIn([shop.namespace, "source"], metadata={"since": True})}
    others = [
        shop.asset(consumed, ins=since, metadata={"write_mode": "append"}),
        shop.asset(checked, "consumed"),
    ]
    assert shop.run([arrived(1), *others]).success
    assert not shop.run([arrived(99), *others]).success
    assert shop.rows("consumed") == [{"id": 1}]
    third = shop.run([arrived(2, 3), *others])
    assert third.success, failure(third)
    assert shop.run([arrived(4), *others]).success
    assert [row["id"] for row in shop.rows("consumed")] == [1, 2, 3, 4]
    assert [row["id"] for row in shop.rows("source")] == [1, 2, 3, 4]


def test_new_columns_need_consent_because_readers_see_them_before_the_publication(shop: Shop) -> None:
    assert shop.run([orders_of(shop, 1)]).success

    def wider(**metadata: Any) -> AssetsDefinition:
        def orders() -> pa.Table:
            return pa.table({"id": [2], "note": ["new"]})

        return shop.asset(orders, metadata={**OVERWRITE, **metadata})

    refused = shop.run([wider()])
    assert "readers of main would see that before the rows are published" in failure(refused)
    assert shop.tables.load_table(shop.name("orders")).schema().column_names == ["id"]
    assert shop.run([wider(**{"floe/early_columns": True})]).success
    assert shop.rows("orders") == [{"id": 2, "note": "new"}]


# What is refused ----------------------------------------------------------------------------------------------------


def test_a_tag_does_not_make_a_run_of_ordinary_assets_atomic(shop: Shop) -> None:
    ordinary = create_definitions(
        [orders_of(shop, 1)],
        project=shop.lake.artifacts.root,
        resources={"io_manager": IcebergIOManager(lake=shop.lake)},
    )
    result = ordinary.resolve_implicit_global_asset_job_def().execute_in_process(
        instance=shop.instance, run_config=QUIET, raise_on_error=False, tags={"floe/atomic": "true"}
    )
    assert "the tag 'floe/atomic' does not make a run atomic" in failure(result)
    assert not shop.tables.table_exists(shop.name("orders"))


def test_what_cannot_be_published_together_is_refused_when_it_is_defined(shop: Shop) -> None:
    def nothing() -> None:
        return None

    branched = orders_of(shop, 1).with_attributes(
        metadata_by_key={orders_of(shop, 1).key: {**OVERWRITE, "floe/branch": "dev"}}
    )
    plain = orders_of(shop, 1)
    cases: list[tuple[list[Any], list[Any], str]] = [
        ([shop.asset(nothing)], [shop.asset(nothing)], "is not stored by an IcebergIOManager"),
        ([branched], [AtomicGroup("a", [plain.key])], "is written to branch 'dev'"),
        ([plain], [AtomicGroup("a", [plain]), AtomicGroup("b", [plain])], "is in two atomic groups, a and b"),
        ([plain], [AtomicGroup("a", [plain]), AtomicGroup("a", [totals_of(shop)])], "two atomic groups are called a"),
        ([plain], [AtomicGroup("a", [])], "has no assets"),
        ([plain], [AtomicGroup("a", ["no/such"])], "asset no/such is not among the assets"),
    ]
    for assets, atomic, message in cases:
        with pytest.raises(ConfigurationError, match=message):
            create_definitions(
                assets,
                project=shop.lake.artifacts.root,
                resources={"io_manager": IcebergIOManager(lake=shop.lake)},
                atomic=atomic,
            )
    for wrong in ({"name": "no name"}, {"isolation": "none"}, {"check_timeout": 0}):
        with pytest.raises(ConfigurationError, match="atomic group"):
            AtomicGroup(**{"name": "a", "assets": [plain], **wrong})  # type: ignore[arg-type]


def test_a_server_without_support_is_refused_before_anything_or_asked_one_by_one(
    rest_lake: Lake, namespace: str, instance: DagsterInstance
) -> None:
    shop = Shop(rest_lake, namespace, instance)
    result = shop.run([orders_of(shop, 1), totals_of(shop)])
    assert "so the 2 tables of this run cannot be published together" in failure(result)
    assert not shop.tables.table_exists(shop.name("orders"))
    assert shop.run([orders_of(shop, 1)]).success, "one table needs no support"

    def one_by_one(assets: list[AssetsDefinition]) -> AtomicGroup:
        return AtomicGroup("nightly", assets, one_by_one=True)

    assert not shop.run([orders_of(shop, 1, 2), totals_of(shop), raising(shop)], group=one_by_one).success
    assert shop.rows("orders") == [{"id": 1}]
    with pytest.raises(TableNotFoundError):
        shop.rows("totals")
    assert shop.run([orders_of(shop, 1, 2), totals_of(shop)], group=one_by_one).success
    assert (shop.rows("orders"), shop.rows("totals")) == ([{"id": 1}, {"id": 2}], [{"n": 2}])
    assert [name for name in shop.tables.catalog_plugin.list_namespaces() if "floe_journal" in name] == []


def test_columns_that_were_replaced_meanwhile_are_a_conflict(shop: Shop) -> None:
    assert shop.run([orders_of(shop, 1), totals_of(shop)]).success

    def meanwhile() -> None:
        shop.tables.evolve_schema(shop.name("orders"), AddColumn("note", pa.string()))

    assert shop.run([orders_of(shop, 2), totals_of(shop, before=meanwhile)]).success
    assert shop.rows("orders") == [{"id": 2, "note": None}]
    assert TableIdentifier.from_string(shop.name("orders")) in shop.tables.list_tables(shop.namespace)
