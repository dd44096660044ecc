"""Assets on a branch of the lake: what they write and read there, and what main and its history get of it."""

from collections import defaultdict
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from dagster import (
    AssetExecutionContext,
    AssetIn,
    AssetSpec,
    DagsterInstance,
    DailyPartitionsDefinition,
    MultiPartitionsDefinition,
    StaticPartitionsDefinition,
    TimeWindowPartitionMapping,
    asset,
)
from tests.runs import QUIET, span

from floe_core.compiler import compile_project
from floe_core.config import BRANCH_VARIABLE, MAIN
from floe_core.errors import ConcurrencyConflictError, TableNotFoundError
from floe_core.identifiers import TableIdentifier
from floe_dagster import AtomicGroup, IcebergIOManager, checks, create_definitions
from floe_dagster.runs.cursors import cursor_tag
from floe_iceberg import Lake
from floe_iceberg.branches import TableState
from floe_iceberg.catalogs import BranchRecords
from floe_iceberg.snapshots import inputs_of

pytestmark = pytest.mark.filterwarnings("ignore:.*is currently in (beta|preview)")

DAYS = DailyPartitionsDefinition("2026-01-01", end_date="2026-01-08")
CITIES = StaticPartitionsDefinition(["Oslo", "Rome"])
OVERWRITE, APPEND = {"write_mode": "overwrite"}, {"write_mode": "append"}
TRIAL = "trial"


class Shop:
    """A project whose assets run on main or on a branch, each with a Dagster instance of its own."""

    def __init__(self, root: Path) -> None:
        (root / "floe.yaml").write_text("name: shop\n", encoding="utf-8")
        self.artifacts = compile_project(root).artifacts
        self.artifacts.write()
        self.main = Lake(self.artifacts)
        self.instances: dict[str, DagsterInstance] = defaultdict(DagsterInstance.ephemeral)

    def at(self, branch: str) -> Lake:
        """The lake as a process that starts now sees it."""
        lake = Lake.of_tables(self.artifacts.on_branch(branch), self.main.tables.on_main())
        lake.reopen_branch()
        return lake

    def run(self, *assets: Any, branch: str = MAIN, instance: DagsterInstance | None = None, **arguments: Any) -> Any:
        made = {name: arguments.pop(name, ()) for name in ("asset_checks", "atomic")}
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(BRANCH_VARIABLE, branch)
            resources = {"io_manager": IcebergIOManager(lake=self.at(branch))}
            definitions = create_definitions(list(assets), project=self.artifacts.root, resources=resources, **made)
            job = definitions.resolve_implicit_global_asset_job_def()
            return job.execute_in_process(
                instance=instance or self.instances[branch], run_config=QUIET, raise_on_error=False, **arguments
            )

    def good(self, *assets: Any, **arguments: Any) -> Any:
        result = self.run(*assets, **arguments)
        assert result.success, failure(result)
        return result

    def rows(self, table: str, branch: str = MAIN) -> list[tuple[Any, ...]]:
        found = self.at(branch).tables.scan(table).to_arrow().to_pylist()
        return sorted(tuple(row.values()) for row in found)

    def numbers(self, table: str, branch: str = MAIN) -> list[int]:
        return [row[-1] for row in sorted(self.rows(table, branch), key=lambda row: row[-1])]

    def state(self, table: str) -> TableState:
        return {one.table: one.state for one in self.main.branches.show(TRIAL).tables}[table]

    def problems(self) -> str:
        return " ".join(self.main.branches.show(TRIAL).problems)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path)
    yield made
    made.main.close()


def failure(result: Any) -> str:
    texts = []
    for event in result.all_events:
        if event.event_type is dg.DagsterEventType.STEP_FAILURE:
            error = event.step_failure_data.error
            while error is not None:
                texts.append(error.message)
                error = error.cause
    return " ".join(texts)


def made_of(columns: dict[str, list[Any]], kind: Any) -> Any:
    if kind is pa.RecordBatchReader:
        return pa.table(columns).to_reader()
    return kind(columns) if kind is not pa.Table else pa.table(columns)


def daily(n: int, kind: Any = pa.Table, **options: Any) -> Any:
    """One row for each day, with this number."""

    def orders(context: AssetExecutionContext) -> Any:
        days = [date.fromisoformat(key) for key in context.partition_keys]
        return made_of({"day": days, "n": [n] * len(days)}, kind)

    orders.__annotations__["return"] = kind
    return asset(key_prefix="b", partitions_def=DAYS, metadata={"partition_expr": "day"}, **options)(orders)


def whole(name: str, *numbers: int, metadata: dict[str, Any] = OVERWRITE, **columns: list[Any]) -> Any:
    """An asset that is not partitioned."""

    def compute() -> pa.Table:
        return pa.table({**columns, "n": pa.array(numbers, pa.int64())})

    return asset(name=name, key_prefix="b", metadata=metadata)(compute)


def days_of(shop: Shop, branch: str = MAIN) -> list[tuple[int, int]]:
    return [(row[0].day, row[1]) for row in shop.rows("b.orders", branch)]


# What assets write and read -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [pa.Table, pa.RecordBatchReader, pd.DataFrame, pl.DataFrame])
def test_a_partition_is_replaced_on_the_branch_and_then_on_main(shop: Shop, kind: Any) -> None:
    shop.good(daily(1, kind), tags=span("2026-01-01", "2026-01-03"))
    shop.good(daily(2, kind), branch=TRIAL, partition_key="2026-01-02")
    shop.good(daily(3, kind), branch=TRIAL, partition_key="2026-01-04")
    assert days_of(shop) == [(1, 1), (2, 1), (3, 1)]
    assert days_of(shop, TRIAL) == [(1, 1), (2, 2), (3, 1), (4, 3)]
    shop.main.branches.publish(TRIAL)
    assert days_of(shop) == [(1, 1), (2, 2), (3, 1), (4, 3)]


def test_static_and_multi_partitions_are_replaced_on_the_branch(shop: Shop) -> None:
    def by_city(n: int) -> list[Any]:
        both = MultiPartitionsDefinition({"day": DAYS, "city": CITIES})

        @asset(key_prefix="b", partitions_def=CITIES, metadata={"partition_expr": "city"})
        def stores(context: AssetExecutionContext) -> pa.Table:
            return pa.table({"city": [context.partition_key], "n": [n]})

        @asset(key_prefix="b", partitions_def=both, metadata={"partition_expr": {"day": "day", "city": "city"}})
        def sales(context: AssetExecutionContext) -> pa.Table:
            key: Any = context.partition_key
            parts = key.keys_by_dimension
            return pa.table({"day": [date.fromisoformat(parts["day"])], "city": [parts["city"]], "n": [n]})

        return [stores, sales]

    for city in ("Oslo", "Rome"):
        shop.good(by_city(1)[0], partition_key=city)
        shop.good(by_city(1)[1], partition_key=dg.MultiPartitionKey({"day": "2026-01-01", "city": city}))
    shop.good(by_city(2)[0], branch=TRIAL, partition_key="Rome")
    rome = dg.MultiPartitionKey({"day": "2026-01-01", "city": "Rome"})
    shop.good(by_city(2)[1], branch=TRIAL, partition_key=rome)
    for table in ("b.stores", "b.sales"):
        assert [row[-2:] for row in shop.rows(table)] == [("Oslo", 1), ("Rome", 1)]
        assert [row[-2:] for row in shop.rows(table, TRIAL)] == [("Oslo", 1), ("Rome", 2)]
    # Main moves in the other city of both: the branch is put on top of it.
    shop.good(by_city(5)[0], partition_key="Oslo")
    shop.good(by_city(5)[1], partition_key=dg.MultiPartitionKey({"day": "2026-01-01", "city": "Oslo"}))
    published = shop.main.branches.publish(TRIAL)
    assert [one.replayed for one in published.tables] == [True, True]
    for table in ("b.stores", "b.sales"):
        assert [row[-2:] for row in shop.rows(table)] == [("Oslo", 5), ("Rome", 2)]


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        (APPEND, [1, 2, 20, 30]),
        (OVERWRITE, [20, 30]),
        ({"write_mode": "upsert", "upsert_keys": "id"}, [1, 20, 30]),
    ],
    ids=["append", "overwrite", "upsert"],
)
def test_every_write_mode_works_on_a_branch(shop: Shop, metadata: dict[str, Any], expected: list[int]) -> None:
    shop.good(whole("stock", 1, 2, id=[1, 2], metadata=metadata))
    shop.good(whole("stock", 20, 30, id=[2, 3], metadata=metadata), branch=TRIAL)
    assert shop.numbers("b.stock") == [1, 2]
    assert shop.numbers("b.stock", TRIAL) == expected
    shop.main.branches.publish(TRIAL)
    assert shop.numbers("b.stock") == expected


def totals(seen: list[Any]) -> Any:
    """Reads two tables, and keeps what it was given."""

    def totals(orders: pa.Table, stores: pa.Table) -> pa.Table:
        seen.append((sorted(orders["n"].to_pylist()), sorted(stores["n"].to_pylist())))
        return pa.table({"n": [sum(seen[-1][0] + seen[-1][1])]})

    ins = {name: AssetIn(["b", name]) for name in ("orders", "stores")}
    return asset(key_prefix="b", ins=ins, metadata=OVERWRITE)(totals)


def test_inputs_are_read_from_the_branch_or_as_main_was(shop: Shop) -> None:
    seen: list[Any] = []
    assets = [AssetSpec(["b", "orders"]), AssetSpec(["b", "stores"]), totals(seen)]
    shop.good(whole("orders", 1), whole("stores", 1))
    shop.good(whole("orders", 2), branch=TRIAL)
    shop.good(whole("orders", 9), whole("stores", 9))
    shop.good(*assets, branch=TRIAL)
    shop.good(*assets)
    assert seen == [([2], [1]), ([9], [9])]
    assert (shop.numbers("b.totals", TRIAL), shop.numbers("b.totals")) == ([3], [18])


def test_after_an_update_the_branch_reads_main_as_it_is_then(shop: Shop) -> None:
    seen: list[Any] = []
    assets = [AssetSpec(["b", "orders"]), AssetSpec(["b", "stores"]), totals(seen)]
    shop.good(whole("orders", 1, metadata=APPEND), whole("stores", 1))
    shop.good(whole("orders", 2, metadata=APPEND), branch=TRIAL)
    shop.main.tables.write_data("b.orders", pa.table({"n": [3]}), mode="append")
    shop.good(whole("stores", 9))
    shop.main.branches.update(TRIAL)
    shop.good(*assets, branch=TRIAL)
    assert seen == [([1, 2, 3], [9])]


def test_the_snapshots_that_a_write_was_made_from_are_those_of_the_branch(shop: Shop) -> None:
    shop.good(whole("orders", 1), whole("stores", 1))
    pinned = shop.main.tables.current_snapshot("b.stores")
    assert pinned is not None
    shop.good(whole("orders", 2), branch=TRIAL)
    shop.good(whole("stores", 9))
    shop.good(AssetSpec(["b", "orders"]), AssetSpec(["b", "stores"]), totals([]), branch=TRIAL)
    trial = shop.at(TRIAL).tables
    read = trial.current_snapshot("b.orders")
    written = trial.current_snapshot("b.totals")
    assert read is not None
    assert written is not None
    inputs = inputs_of(written.summary)
    assert inputs == {"b.orders": read.snapshot_id, "b.stores": pinned.snapshot_id}


def balance(n: int) -> Any:
    """Adds a number to the row of the day before."""
    mapping = TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)

    def balance(context: AssetExecutionContext, balance: pa.Table) -> pa.Table:
        before = sum(balance["n"].to_pylist()) if balance.num_rows else 0
        return pa.table({"day": [date.fromisoformat(context.partition_key)], "n": [before + n]})

    ins = {"balance": AssetIn(["b", "balance"], partition_mapping=mapping)}
    metadata = {"partition_expr": "day"}
    return asset(key_prefix="b", ins=ins, partitions_def=DAYS, metadata=metadata)(balance)


def test_an_asset_that_reads_its_own_table_reads_that_of_the_branch(shop: Shop) -> None:
    shop.good(balance(1), partition_key="2026-01-01")
    for key in ("2026-01-02", "2026-01-03"):
        shop.good(balance(10), branch=TRIAL, partition_key=key)
    assert shop.numbers("b.balance", TRIAL) == [1, 11, 21]
    assert shop.numbers("b.balance") == [1]
    shop.good(balance(100), partition_key="2026-01-01")
    assert shop.state("b.balance") is TableState.CONFLICT, "its rows follow from rows that main has replaced"
    assert "was made from the table itself" in shop.problems()


def test_an_asset_that_reads_a_new_table_of_its_own_on_a_branch(shop: Shop) -> None:
    for key in ("2026-01-01", "2026-01-02"):
        shop.good(balance(10), branch=TRIAL, partition_key=key)
    assert shop.numbers("b.balance", TRIAL) == [10, 20]
    shop.good(balance(10), branch=TRIAL, partition_key="2026-01-02")
    shop.main.branches.publish(TRIAL)
    assert shop.numbers("b.balance") == [10, 20]


def test_a_new_table_is_absent_for_assets_on_main_until_it_is_published(shop: Shop) -> None:
    seen: list[Any] = []
    shop.good(whole("stores", 1))
    shop.good(whole("orders", 2), branch=TRIAL)
    with pytest.raises(TableNotFoundError, match="--branch trial"):
        shop.rows("b.orders")
    assets = [AssetSpec(["b", "orders"]), AssetSpec(["b", "stores"]), totals(seen)]
    assert "is not published yet" in failure(shop.run(*assets))
    shop.good(*assets, branch=TRIAL)
    assert seen == [([2], [1])]
    published = shop.main.branches.publish(TRIAL)
    assert [(one.table, one.created) for one in published.tables] == [("b.orders", True), ("b.totals", True)]
    assert (shop.numbers("b.orders"), shop.numbers("b.totals")) == ([2], [3])


def test_a_table_that_main_creates_meanwhile_under_the_same_name_is_a_conflict(shop: Shop) -> None:
    shop.good(whole("orders", 2), branch=TRIAL)
    shop.good(whole("orders", 9))
    assert shop.numbers("b.orders") == [9]
    assert shop.numbers("b.orders", TRIAL) == [2]
    with pytest.raises(ConcurrencyConflictError, match=r"'b\.orders'"):
        shop.main.branches.publish(TRIAL)
    assert shop.numbers("b.orders") == [9]
    shop.main.branches.discard(TRIAL)
    assert shop.numbers("b.orders") == [9]


# Rows that are consumed once ----------------------------------------------------------------------------------------


def consumer(**said: Any) -> list[Any]:
    def consumed(source: pa.Table) -> pa.Table:
        return source

    ins = {"source": AssetIn(["b", "source"], metadata={"since": True, **said})}
    return [AssetSpec(["b", "source"]), asset(key_prefix="b", ins=ins, metadata=APPEND)(consumed)]


def arrive(shop: Shop, *numbers: int, branch: str = MAIN) -> None:
    rows = pa.table({"n": pa.array(numbers, pa.int64())})
    shop.at(branch).tables.write_data("b.source", rows, mode="append")


def cursor(shop: Shop) -> int | None:
    ref = shop.main.tables.load_table("b.source").metadata.refs.get(cursor_tag("b/consumed"))
    return None if ref is None else ref.snapshot_id


def test_rows_are_consumed_once_on_the_branch_and_main_continues_where_it_ended(shop: Shop) -> None:
    arrive(shop, 1, 2)
    shop.good(*consumer())
    before = cursor(shop)
    arrive(shop, 3)
    for numbers in ((), (4,), (5, 6), ()):
        if numbers:
            arrive(shop, *numbers, branch=TRIAL)
        shop.good(*consumer(), branch=TRIAL)
    assert shop.numbers("b.consumed", TRIAL) == [1, 2, 3, 4, 5, 6]
    assert shop.numbers("b.consumed") == [1, 2]
    assert cursor(shop) == before, "main's cursor is where it was"
    shop.main.branches.publish(TRIAL)
    arrive(shop, 7)
    shop.good(*consumer())
    assert shop.numbers("b.consumed") == [1, 2, 3, 4, 5, 6, 7]


def test_a_new_consumer_on_a_branch_begins_with_all_rows(shop: Shop) -> None:
    arrive(shop, 1, 2)
    shop.good(*consumer(), branch=TRIAL)
    shop.good(*consumer(), branch=TRIAL)
    arrive(shop, 3)
    shop.main.branches.publish(TRIAL)
    shop.good(*consumer())
    assert shop.numbers("b.consumed") == [1, 2, 3]


@pytest.mark.parametrize("new", [False, True], ids=["known", "new"])
def test_rows_that_both_sides_consumed_are_a_conflict(shop: Shop, new: bool) -> None:
    arrive(shop, 1)
    if not new:
        shop.good(*consumer())
        arrive(shop, 2)
    shop.good(*consumer(), branch=TRIAL)
    shop.good(*consumer())
    with pytest.raises(ConcurrencyConflictError, match=r"'b\.consumed'"):
        shop.main.branches.publish(TRIAL)
    expected = [1] if new else [1, 2]
    assert shop.numbers("b.consumed") == expected
    shop.main.branches.update(TRIAL, restart=True)
    arrive(shop, 3)
    shop.main.branches.update(TRIAL)
    shop.good(*consumer(), branch=TRIAL)
    shop.main.branches.publish(TRIAL)
    shop.good(*consumer())
    assert shop.numbers("b.consumed") == [*expected, 3], "and none of them twice"


def test_rows_consumed_on_a_branch_whose_source_is_put_on_top_of_main_are_a_conflict(shop: Shop) -> None:
    """Main has rows of the source below those that the branch consumed: no cursor could tell them apart."""
    arrive(shop, 1)
    shop.good(*consumer())
    arrive(shop, 2, branch=TRIAL)
    shop.good(*consumer(), branch=TRIAL)
    arrive(shop, 3)
    assert shop.state("b.source") is TableState.BEHIND
    for attempt in (shop.main.branches.publish, shop.main.branches.update):
        with pytest.raises(ConcurrencyConflictError, match=r"'b\.consumed'.*b\.source"):
            attempt(TRIAL)
    shop.main.branches.update(TRIAL, restart=True)
    shop.good(*consumer(), branch=TRIAL)
    shop.main.branches.publish(TRIAL)
    arrive(shop, 4)
    shop.good(*consumer())
    assert shop.numbers("b.consumed") == [1, 2, 3, 4]


def test_rows_that_were_consumed_before_the_source_was_put_on_top_are_no_conflict(shop: Shop) -> None:
    arrive(shop, 1)
    shop.good(*consumer())
    arrive(shop, 2)
    shop.good(*consumer(), branch=TRIAL)  # it reads main's own rows
    arrive(shop, 3, branch=TRIAL)
    arrive(shop, 4)
    shop.main.branches.publish(TRIAL)
    shop.good(*consumer())
    assert shop.numbers("b.consumed") == [1, 2, 3, 4]


def test_a_failed_step_on_a_branch_consumes_nothing(shop: Shop) -> None:
    arrive(shop, 1)
    assets = consumer()

    def consumed(source: pa.Table) -> pa.Table:
        raise ValueError(f"after {source.num_rows} rows")

    ins = {"source": AssetIn(["b", "source"], metadata={"since": True})}
    broken = asset(key_prefix="b", ins=ins, metadata=APPEND)(consumed)
    assert "after 1 rows" in failure(shop.run(assets[0], broken, branch=TRIAL))
    shop.good(*assets, branch=TRIAL)
    assert shop.numbers("b.consumed", TRIAL) == [1]


# Groups, audits and checks ------------------------------------------------------------------------------------------


def positive(of: Any) -> Any:
    return checks.of(of, checks.value_range("n", min=0), blocking=True)


def test_groups_and_audited_assets_are_ordinary_on_a_branch(shop: Shop) -> None:
    pair = [whole("orders", 1), whole("stores", 1)]
    audited = whole("audited", 1, metadata={**OVERWRITE, "floe/audit": True})
    asset_checks = [positive(audited)]
    result = shop.good(*pair, audited, branch=TRIAL, atomic=[AtomicGroup("pair", pair)], asset_checks=asset_checks)
    keys = {event.asset_key.path[-1] for event in result.get_asset_materialization_events()}
    assert keys == {"orders", "stores", "audited"}
    for name in keys:
        table = shop.main.tables.load_table(f"b.{name}")
        assert set(table.metadata.refs) == {"main", TRIAL}, "no branch of a run"
        assert shop.numbers(f"b.{name}", TRIAL) == [1]
        with pytest.raises(TableNotFoundError):
            shop.rows(f"b.{name}")
    shop.main.branches.publish(TRIAL)
    assert shop.numbers("b.audited") == [1]


def test_a_check_looks_at_the_branch(shop: Shop) -> None:
    shop.good(whole("orders", 1))
    bad = whole("orders", -1)
    result = shop.run(bad, branch=TRIAL, asset_checks=[positive(bad)])
    assert not result.success
    assert [one.passed for one in result.get_asset_check_evaluations()] == [False]
    assert shop.numbers("b.orders", TRIAL) == [-1], "the rows can be looked at"
    good = whole("orders", 5)
    assert shop.run(good, branch=TRIAL, asset_checks=[positive(good)]).success
    assert shop.numbers("b.orders") == [1]


# What is refused ----------------------------------------------------------------------------------------------------


def test_the_tag_of_a_branch_on_mains_instance_is_refused(shop: Shop) -> None:
    shop.good(whole("orders", 1))
    refused = failure(shop.run(whole("orders", 2), tags={"floe/lake_branch": TRIAL}))
    assert "floe run --branch trial" in refused
    assert "Nothing was written" in refused
    assert shop.numbers("b.orders") == [1]
    tagged = asset(name="orders", key_prefix="b", metadata=OVERWRITE, tags={"floe/lake_branch": TRIAL})
    assert "floe run --branch trial" in failure(shop.run(tagged(lambda: pa.table({"n": [2]}))))
    assert shop.numbers("b.orders") == [1]


def test_mains_instance_is_refused_on_a_branch_and_that_of_a_branch_on_main(shop: Shop) -> None:
    shop.good(whole("orders", 1))
    on_mains = failure(shop.run(whole("orders", 2), branch=TRIAL, instance=shop.instances[MAIN]))
    assert "has the history of main" in on_mains
    assert "Nothing was written" in on_mains
    shop.good(whole("orders", 3), branch=TRIAL)
    for branch in (MAIN, "other"):
        refused = failure(shop.run(whole("orders", 4), branch=branch, instance=shop.instances[TRIAL]))
        assert "has the history of branch 'trial'" in refused
    assert (shop.numbers("b.orders"), shop.numbers("b.orders", TRIAL)) == ([1], [3])


def test_columns_that_main_would_show_need_consent(shop: Shop) -> None:
    shop.good(whole("orders", 1))
    wider = whole("orders", 2, note=["new"])
    refused = failure(shop.run(wider, branch=TRIAL))
    assert "readers of main would see that" in refused
    assert "floe/early_columns" in refused
    assert shop.rows("b.orders") == [(1,)]
    shop.good(whole("orders", 2, note=["new"], metadata={**OVERWRITE, "floe/early_columns": True}), branch=TRIAL)
    assert shop.rows("b.orders") == [(1, None)], "which main shows, without values"
    shop.main.branches.publish(TRIAL)
    assert shop.rows("b.orders") == [(2, "new")]


def test_a_branch_of_its_own_is_refused_on_a_branch_of_the_lake(shop: Shop) -> None:
    shop.good(whole("orders", 1))
    shop.main.tables.create_branch("b.orders", "mine")
    own = whole("orders", 2, metadata={**OVERWRITE, "floe/branch": "mine"})
    refused = failure(shop.run(own, branch=TRIAL))
    assert "is written to branch 'mine' of its table" in refused
    assert "Nothing was written" in refused
    shop.good(own)
    assert shop.main.tables.scan("b.orders", ref="mine").to_arrow()["n"].to_pylist() == [2]


def test_a_run_whose_branch_is_discarded_meanwhile_writes_nothing(shop: Shop) -> None:
    shop.good(whole("orders", 1))
    shop.good(whole("orders", 2), branch=TRIAL)

    def orders() -> pa.Table:
        shop.main.branches.discard(TRIAL)
        return pa.table({"n": [3]})

    refused = failure(shop.run(asset(key_prefix="b", metadata=OVERWRITE)(orders), branch=TRIAL))
    assert "was discarded or published by another process" in refused
    assert shop.main.tables.load_table("b.orders").metadata.refs.keys() == {"main"}
    assert shop.numbers("b.orders") == [1]


def test_nothing_is_written_to_a_branch_while_it_is_published(shop: Shop) -> None:
    """A run begins another table after the publication has decided which tables it moves."""
    shop.good(whole("orders", 1), whole("stores", 1))
    shop.good(whole("orders", 2), branch=TRIAL)
    results: list[Any] = []
    shop.main.branches.publish(TRIAL, record=lambda _: results.append(shop.run(whole("stores", 2), branch=TRIAL)))
    assert "is being published by another process" in failure(results[0])
    assert (shop.numbers("b.orders"), shop.numbers("b.stores")) == ([2], [1])
    assert shop.main.tables.load_table("b.stores").metadata.refs.keys() == {"main"}


def test_nothing_is_written_to_a_branch_whose_publication_did_not_end(shop: Shop) -> None:
    """The process that published the branch has ended before it removed it."""
    shop.good(whole("orders", 1), whole("stores", 1))
    shop.good(whole("orders", 2), branch=TRIAL)

    def killed(_publication: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shop.main.branches.publish(TRIAL, record=killed)
    assert "floe branches publish trial" in failure(shop.run(whole("stores", 3), branch=TRIAL))
    with pytest.raises(ConcurrencyConflictError, match="floe branches publish trial"):
        shop.main.branches.update(TRIAL, restart=True)
    shop.main.branches.publish(TRIAL)
    assert (shop.numbers("b.orders"), shop.numbers("b.stores")) == ([2], [1])
    for name in ("orders", "stores"):
        assert shop.main.tables.load_table(f"b.{name}").metadata.refs.keys() == {"main"}


def test_a_retry_on_a_branch_does_not_write_twice(shop: Shop) -> None:
    shop.good(whole("orders", 1, metadata=APPEND), branch=TRIAL)
    attempts: list[int] = []
    lake = shop.at(TRIAL)

    class Failing(IcebergIOManager):
        def handle_output(self, context: Any, obj: Any) -> None:
            super().handle_output(context, obj)
            attempts.append(1)
            if len(attempts) == 1:
                raise dg.RetryRequested(max_retries=1)

    made = asset(name="orders", key_prefix="b", metadata=APPEND)(lambda: pa.table({"n": [2]}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(BRANCH_VARIABLE, TRIAL)
        definitions = create_definitions(
            [made], project=shop.artifacts.root, resources={"io_manager": Failing(lake=lake)}
        )
    job = definitions.resolve_implicit_global_asset_job_def()
    assert job.execute_in_process(instance=shop.instances[TRIAL], run_config=QUIET).success
    assert len(attempts) == 2
    assert shop.numbers("b.orders", TRIAL) == [1, 2]


def test_a_publication_that_is_refused_leaves_the_branch_open(shop: Shop) -> None:
    shop.good(whole("orders", 1))
    shop.good(whole("orders", 2), branch=TRIAL)
    shop.good(whole("orders", 9))
    with pytest.raises(ConcurrencyConflictError):
        shop.main.branches.publish(TRIAL)
    shop.good(whole("stores", 3), branch=TRIAL)
    assert shop.numbers("b.stores", TRIAL) == [3]


def test_a_publication_that_main_overtakes_is_refused_and_leaves_the_branch_open(shop: Shop) -> None:
    """Main writes the same rows after the publication has looked at them, and before it commits."""
    shop.good(whole("orders", 1))
    shop.good(whole("orders", 2), branch=TRIAL)
    begun = BranchRecords.begin_publication

    def begin(self: BranchRecords, name: str, moves: Any) -> None:
        begun(self, name, moves)
        shop.main.tables.write_data("b.orders", pa.table({"n": [9]}), mode="overwrite")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BranchRecords, "begin_publication", begin)
        with pytest.raises(ConcurrencyConflictError, match=r"'b\.orders'"):
            shop.main.branches.publish(TRIAL)
    assert shop.numbers("b.orders") == [9]
    shop.good(whole("stores", 3), branch=TRIAL)
    assert shop.numbers("b.stores", TRIAL) == [3]


def test_a_publication_that_ended_before_its_commit_can_be_published_or_updated(shop: Shop) -> None:
    shop.good(whole("orders", 1))
    shop.good(whole("orders", 2), branch=TRIAL)
    shop.main.tables.branch_records.begin_publication(TRIAL, [move_of(shop).to_json()])
    assert "floe branches publish trial" in failure(shop.run(whole("stores", 3), branch=TRIAL))
    shop.main.branches.update(TRIAL)
    shop.good(whole("stores", 3), branch=TRIAL)
    shop.main.tables.branch_records.begin_publication(TRIAL, [move_of(shop).to_json()])
    shop.main.branches.publish(TRIAL)
    assert (shop.numbers("b.orders"), shop.numbers("b.stores")) == ([2], [3])


def move_of(shop: Shop) -> Any:
    name = TableIdentifier.from_string("b.orders")
    (move,) = shop.main.tables.moves_of({name: shop.main.tables.load_table(name)}, TRIAL)
    return move


def test_a_table_that_a_run_begins_while_the_branch_is_being_closed_is_published_too(shop: Shop) -> None:
    """The run has looked before the branch is closed, and the publication has listed the tables before the run."""
    shop.good(whole("orders", 1))
    shop.good(whole("orders", 2), branch=TRIAL)
    records = shop.main.tables.branch_records
    begun, later = type(records).begin_publication, shop.at(TRIAL)

    def begin(self: BranchRecords, name: str, moves: Any) -> None:
        if not later.tables.table_exists("b.stores"):
            later.tables.write_data("b.stores", pa.table({"n": [3]}), mode="append")
        begun(self, name, moves)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BranchRecords, "begin_publication", begin)
        shop.main.branches.publish(TRIAL)
    assert (shop.numbers("b.orders"), shop.numbers("b.stores")) == ([2], [3])


def test_a_branch_does_not_change_which_asset_a_table_of_main_belongs_to(shop: Shop) -> None:
    place = {**OVERWRITE, "floe/namespace": "b", "floe/table": "totals"}
    taking = {**place, "floe/take_over": True}
    shop.good(whole("first", 1, metadata=place))
    shop.main.tables.write_data("b.orders", pa.table({"n": [1]}), mode="append")
    shop.good(whole("second", 2, metadata=taking), whole("orders", 2), whole("new", 2), branch=TRIAL)
    assert "floe.asset" not in shop.main.tables.load_table("b.orders").properties
    assert shop.main.tables.load_table("b.new").properties["floe.asset"] == "b/new"
    shop.good(whole("first", 3, metadata=place))
    assert (shop.numbers("b.totals"), shop.numbers("b.totals", TRIAL)) == ([3], [2])
