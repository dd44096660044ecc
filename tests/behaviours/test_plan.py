"""What `floe plan` says is what `floe run` does: batches, tables, columns, rows and refusals, with the reasons."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from dagster import (
    AssetDep,
    AssetExecutionContext,
    AssetMaterialization,
    AssetOut,
    BackfillPolicy,
    DagsterInstance,
    DailyPartitionsDefinition,
    ExecuteInProcessResult,
    HourlyPartitionsDefinition,
    MultiPartitionsDefinition,
    StaticPartitionsDefinition,
    TableColumn,
    TableSchema,
    TimeWindowPartitionMapping,
    asset,
    multi_asset,
)
from rich.console import Console
from tests.runs import QUIET, span

from floe_core.compiler import compile_project
from floe_core.config import CompiledArtifacts
from floe_core.errors import ConfigurationError
from floe_core.identifiers import TableIdentifier
from floe_dagster import create_definitions
from floe_iceberg import IcebergTableManager
from floe_runtime.cli.plan.markdown import markdown_lines
from floe_runtime.cli.plan.text import print_plan
from floe_runtime.runs.described_plan import DescribedAsset, DescribedPlan, effect_text, plan_with_effects
from floe_runtime.runs.failures import failures_of
from floe_runtime.runs.pipeline import Pipeline
from floe_runtime.runs.planning import RunRequest, plan_run
from floe_runtime.runs.runner import Materialized, materialized_of

pytestmark = pytest.mark.filterwarnings("ignore:.*is currently in (beta|preview)", "ignore:asset .* sets no write_mode")

DAYS = DailyPartitionsDefinition("2026-01-01", end_date="2026-01-05")
CITIES = StaticPartitionsDefinition(["Oslo", "Rome"])
KEYS = DAYS.get_partition_keys()
FIRST, LAST = KEYS[0], KEYS[-1]


def daily(name: str, **options: Any) -> Any:
    """An asset with two rows for each day, of one run for all days unless `one_by_one`."""
    one_by_one = options.pop("one_by_one", False)
    columns = options.pop("columns", {"amount": 1.5})
    upstream = options.pop("upstream", None)
    metadata = {"partition_expr": "day", **options.pop("metadata", {})}
    policy = None if one_by_one else BackfillPolicy.single_run()
    arguments = {"name": name, "key_prefix": "s", "partitions_def": DAYS, "backfill_policy": policy, **options}

    def compute(context: AssetExecutionContext) -> pd.DataFrame:
        days = [pd.Timestamp(key).date() for key in context.partition_keys for _ in range(2)]
        return pd.DataFrame({"day": days, "number": [0, 1] * len(context.partition_keys), **columns})

    return asset(metadata=metadata, deps=[["s", upstream]] if upstream else [], **arguments)(compute)


def whole(name: str, upstream: Sequence[str] = (), *, rows: int = 3, **options: Any) -> Any:
    """An asset without partitions."""
    metadata = {"write_mode": "overwrite", **options.pop("metadata", {})}

    def compute() -> pd.DataFrame:
        return pd.DataFrame({"id": range(rows)})

    deps = [["s", one] for one in upstream]
    return asset(name=name, key_prefix="s", metadata=metadata, deps=deps, **options)(compute)


def schema(**columns: str) -> dict[str, Any]:
    return {"dagster/column_schema": TableSchema([TableColumn(name, kind) for name, kind in columns.items()])}


class FailedError(Exception):
    """A run failed."""


def _written(done: ExecuteInProcessResult) -> list[Materialized]:
    """What each asset wrote; a run over partitions has an event for each, of one write."""
    made = [one.materialization for one in done.get_asset_materialization_events()]
    by_asset = {one.asset_key.to_user_string(): one.metadata for one in made}
    return [
        materialized_of(name, {key: value.value for key, value in metadata.items()})
        for name, metadata in by_asset.items()
    ]


@dataclass
class Lake:
    """A project whose assets may change between runs; its history stays."""

    artifacts: CompiledArtifacts
    instance: DagsterInstance

    def pipeline(self, *assets: Any) -> Pipeline:
        return Pipeline(self.artifacts, create_definitions(assets, project=self.artifacts.root), self.instance)

    @property
    def tables(self) -> IcebergTableManager:
        return IcebergTableManager.open(self.artifacts)

    def run(self, *assets: Any, **request: Any) -> list[Materialized]:
        """Execute the plan as floe run does, without its progress, whose reader would lock the history in memory."""
        pipeline, written = self.pipeline(*assets), []
        for batch in plan_run(pipeline, RunRequest(**request)).batches:
            tags = span(batch.keys[0], batch.keys[-1]) if len(batch.keys) > 1 else {}
            key = batch.keys[0] if len(batch.keys) == 1 else None
            done = pipeline.job.execute_in_process(
                run_config=QUIET,
                instance=self.instance,
                asset_selection=list(batch.assets),
                raise_on_error=False,
                tags=tags,
                partition_key=key,
            )
            if not done.success:
                raise FailedError("; ".join(map(str, failures_of(pipeline, done))))
            written += _written(done)
        return written

    def plan(self, *assets: Any, **request: Any) -> DescribedPlan:
        return plan_with_effects(self.pipeline(*assets), RunRequest(**request))

    def drop(self, name: str) -> None:
        self.tables.drop_table(TableIdentifier.from_string(f"s.{name}"))


@pytest.fixture
def lake(new_project: Callable[[str], Path]) -> Iterator[Lake]:
    artifacts = compile_project(new_project("name: shop\n")).artifacts
    artifacts.write()
    with DagsterInstance.ephemeral() as instance:
        yield Lake(artifacts, instance)


def reasons(plan: DescribedPlan, name: str) -> dict[str, str]:
    """The reasons of an asset with their partitions and details."""
    (found,) = [one for one in plan.assets if one.asset == f"s/{name}"]
    return {
        one.reason: " ".join([*map(str, one.partitions), *([f"[{one.detail}]"] if one.detail else [])])
        for one in found.reasons
    }


# What the plan says beside what the run does ---------------------------------------------------------------------


def fill(lake: Lake, *assets: Any) -> None:
    lake.run(*assets, missing=True)


def lose(lake: Lake, *assets: Any) -> None:
    """Fill the tables and drop the first one."""
    fill(lake, *assets)
    lake.drop(assets[0].key.path[-1])


@dataclass(frozen=True)
class Case:
    """Assets, what happens before, and the request."""

    assets: tuple[Any, ...]
    request: dict[str, Any]
    before: Callable[[Lake], object] = lambda _lake: None


MODES = (
    daily("replaced"),
    daily("appended", upstream="replaced", metadata={"write_mode": "append"}),
    daily("changed", metadata={"write_mode": "upsert", "upsert_keys": ["day", "number"]}),
    whole("all", ["replaced"]),
    whole("log", metadata={"write_mode": "append"}),
)

CASES = {
    "nothing exists": Case((daily("orders"), whole("total", ["orders"])), {}),
    "nothing exists, all is missing": Case((daily("orders"), whole("total", ["orders"])), {"missing": True}),
    "one run for each day": Case(
        (daily("orders", one_by_one=True), whole("total", ["orders"])),
        {"partition_range": f"{FIRST}...{KEYS[1]}", "with_unpartitioned": True},
    ),
    "a day again": Case(
        (daily("orders"), whole("total", ["orders"])),
        {"partitions": (FIRST,)},
        lambda lake: fill(lake, daily("orders"), whole("total", ["orders"])),
    ),
    "everything again, more columns": Case(
        (
            daily(
                "orders",
                columns={"amount": 1.5, "discount": 0.5},
                metadata=schema(day="date", amount="double", discount="double"),
            ),
            whole("total", ["orders"]),
        ),
        {"partition_range": f"{FIRST}...{LAST}", "with_unpartitioned": True},
        lambda lake: fill(lake, daily("orders"), whole("total", ["orders"])),
    ),
    "a lost table": Case(
        (daily("orders"), whole("total", ["orders"])),
        {"missing": True},
        lambda lake: lose(lake, daily("orders"), whole("total", ["orders"])),
    ),
    "a selection": Case(
        (*MODES,), {"selection": ("s/replaced+1",), "partitions": (FIRST,), "with_unpartitioned": True}
    ),
    "every write mode": Case((*MODES,), {"partitions": (FIRST, KEYS[1])}, lambda lake: fill(lake, *MODES)),
}


@pytest.mark.parametrize("name", CASES)
def test_a_run_does_what_the_plan_says(lake: Lake, name: str) -> None:
    case = CASES[name]
    case.before(lake)
    before = set(map(str, lake.tables.find_tables()))
    plan = lake.plan(*case.assets, **case.request)
    assert set(map(str, lake.tables.find_tables())) == before, "a plan changes nothing"
    report = lake.run(*case.assets, **case.request)

    assert plan.refusal is None
    assert {one.asset for one in report} == {one.asset for one in plan.assets}
    assert sorted({*map(str, lake.tables.find_tables())} - before) == sorted(plan.created)
    for planned in plan.assets:
        written = [one for one in report if one.asset == planned.asset]
        assert len(written) == planned.runs
        assert _partitions(written) == sum(one.count for one in planned.partitions)
        _compare_effects(planned, written)


def _partitions(written: Sequence[Any]) -> int:
    labels = [one.partitions for one in written if one.partitions]
    return sum(int(label.rpartition("(")[2].rstrip(")")) if "..." in label else 1 for label in labels)


def _compare_effects(planned: DescribedAsset, written: Sequence[Any]) -> None:
    write = planned.write
    assert write is not None
    assert {one.table for one in written} == {write.table}
    if write.replaces is not None:
        removed = sum(one.rows_removed for one in written), sum(one.files_removed for one in written)
        assert removed == (write.replaces.rows, write.replaces.files)
        assert write.replaces.exact
    if write.schema.known and not write.creates:
        assert [change for one in written for change in one.schema_change.split(", ") if change] == list(
            write.schema.changes
        )


# Refusals ----------------------------------------------------------------------------------------------------------

REFUSED = {
    "the table of another asset": (
        whole("mine"),
        whole("other", metadata={"floe/table": "mine"}),
        "belongs to asset s/mine",
    ),
    "a type that evolution refuses": (
        daily("orders"),
        daily("orders", columns={"amount": "much"}, metadata=schema(day="date", amount="string")),
        "amount: the table has double, the data has string",
    ),
    "evolution is off": (
        daily("orders"),
        daily(
            "orders",
            columns={"amount": 1.5, "tax": 0.2},
            metadata={"floe/schema_evolution_enabled": False, **schema(day="date", amount="double", tax="double")},
        ),
        "schema evolution is off: +tax double",
    ),
    "a branch that does not exist": (
        whole("mine"),
        whole("mine", metadata={"floe/branch": "audit"}),
        "has no branch 'audit'",
    ),
    "an upsert without its partition": (
        daily("orders"),
        daily("orders", metadata={"write_mode": "upsert", "upsert_keys": ["amount"]}),
        "add day to upsert_keys",
    ),
    "a partition column that the table lacks": (
        daily("orders"),
        daily("orders", columns={"at": pd.Timestamp(LAST).date(), "amount": 1.5}, metadata={"partition_expr": "at"}),
        "has rows and no column 'at'",
    ),
    "an option as a tag": (whole("mine"), whole("mine", tags={"floe/write_mode": "append"}), "is not read"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_the_plan_names_the_refusal_that_the_run_ends_in(lake: Lake, name: str) -> None:
    first, then, reason = REFUSED[name]
    fill(lake, first)
    plan = lake.plan(then)
    (planned,) = plan.assets
    (refusal,) = planned.refused
    assert reason in refusal
    assert plan.refusal == f"{planned.asset} would be refused"
    with pytest.raises(FailedError) as failed:
        lake.run(then)
    assert reason in str(failed.value)


def test_a_declaration_that_does_not_fit_is_told_from_data(lake: Lake) -> None:
    first, then, reason = REFUSED["a type that evolution refuses"]
    fill(lake, first)
    (planned,) = lake.plan(then).assets
    (refusal,) = planned.refused
    assert refusal.endswith(
        f"{reason}. The declared columns do not fit the table: correct the declaration, or write to a new table"
    )


def test_an_append_that_would_repeat_rows_is_refused_by_both(lake: Lake) -> None:
    assets = whole("orders"), whole("log", ["orders"], metadata={"write_mode": "append"})
    fill(lake, *assets)
    lake.drop("orders")
    plan = lake.plan(*assets, missing=True)
    assert plan.refusal is not None
    assert plan.refusal.startswith("--missing would append to tables that have rows already")
    assert plan_run(lake.pipeline(*assets), RunRequest(missing=True)).refused == plan.refusal


def test_declared_columns_without_types_refuse_nothing(lake: Lake) -> None:
    fill(lake, daily("orders"))
    described = TableSchema([TableColumn("amount", description="without VAT")])
    plan = lake.plan(daily("orders", metadata={"dagster/column_schema": described}))
    assert plan.refusal is None
    (planned,) = plan.assets
    assert planned.write is not None
    assert not planned.write.schema.known


# Reasons -----------------------------------------------------------------------------------------------------------


def test_the_reasons_name_their_partitions(lake: Lake) -> None:
    def assets(version: str) -> tuple[Any, ...]:
        return daily("orders", code_version=version), whole("total", ["orders"], code_version=version)

    lake.run(*assets("1"), partition_range=f"{FIRST}...{KEYS[1]}", with_unpartitioned=True)
    plan = lake.plan(*assets("2"), partition_range=f"{FIRST}...{LAST}", with_unpartitioned=True)
    assert reasons(plan, "orders") == {
        "requested": f"{FIRST}...{LAST} (4)",
        "never materialized": f"{KEYS[2]}...{LAST} (2)",
        "code changed": f"{FIRST}...{KEYS[1]} (2) [1 -> 2]",
    }
    assert reasons(plan, "total") == {"requested": "", "code changed": "[1 -> 2]"}


def test_a_version_that_was_not_declared_before_is_changed_code(lake: Lake) -> None:
    fill(lake, whole("total"))
    assert reasons(lake.plan(whole("total", code_version="1")), "total") == {
        "requested": "",
        "code changed": "[none -> 1]",
    }
    assert reasons(lake.plan(whole("total")), "total") == {"requested": ""}


def test_changed_code_is_not_missing_and_is_named(lake: Lake) -> None:
    fill(lake, daily("orders", code_version="1"), whole("total", ["orders"]))
    plan = lake.plan(daily("orders", code_version="2"), whole("total", ["orders"]), missing=True)
    assert plan.plan.batches == ()
    ((asset_name, reason),) = plan.outdated
    assert (asset_name, reason.reason, reason.detail) == ("s/orders", "code changed", "1 -> 2")
    assert [str(one) for one in reason.partitions] == [f"{FIRST}...{LAST} (4)"]


def test_changed_code_is_named_in_each_plan_with_a_command_for_each_range(
    lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    lake.run(daily("orders", code_version="1"), partitions=(FIRST, KEYS[2]))
    lines = shown(lake.plan(daily("orders", code_version="2")), capsys, width=120)
    assert f"code changed, not in this run: s/orders ({FIRST}, {KEYS[2]}), 1 -> 2; recompute it with:" in lines
    assert [line for line in lines if "floe run s/orders --partition" in line] == [
        f"  floe run s/orders --partition {FIRST}",
        f"  floe run s/orders --partition {KEYS[2]}",
    ]
    assert lake.plan(daily("orders", code_version="2"), partitions=(LAST,)).outdated == ()


def test_a_newer_parent_is_a_reason(lake: Lake) -> None:
    assets = daily("orders"), daily("items", upstream="orders"), whole("total", ["items"]), whole("idle")
    fill(lake, *assets)
    lake.run(*assets, selection=("s/orders",), partitions=(KEYS[1],))
    plan = lake.plan(*assets, partition_range=f"{FIRST}...{LAST}", with_unpartitioned=True)
    assert reasons(plan, "items") == {
        "requested": f"{FIRST}...{LAST} (4)",
        "upstream newer": f"{KEYS[1]} [s/orders]",
    }
    lake.run(*assets, selection=("s/items",), partitions=(KEYS[1],))
    missing = lake.plan(*assets, missing=True)
    assert [one.asset for one in missing.assets] == ["s/total"]
    assert reasons(missing, "total") == {"upstream newer": "[s/items]"}


def test_a_lost_table_and_what_depends_on_it_are_reasons(lake: Lake) -> None:
    assets = daily("orders"), whole("total", ["orders"])
    fill(lake, *assets)
    lake.drop("orders")
    plan = lake.plan(*assets, missing=True)
    assert reasons(plan, "orders") == {"missing in the table": f"{FIRST}...{LAST} (4) [renamed or dropped]"}
    assert reasons(plan, "total") == {"upstream newer": "[s/orders]"}
    assert reasons(lake.plan(*assets), "orders") == {
        "requested": LAST,
        "missing in the table": f"{LAST} [renamed or dropped]",
    }


def test_one_lost_partition_between_two_samples_is_missing(lake: Lake) -> None:
    many = DailyPartitionsDefinition("2026-01-01", end_date="2026-07-20")
    orders, keys = daily("orders", partitions_def=many), many.get_partition_keys()
    reported, lost = keys[1:-1], keys[len(keys) // 2]
    lake.run(orders, partitions=(keys[0],))
    for key in reported:  # nothing in Dagster's index decides what the UI reported by hand
        if key == lost:
            lake.run(orders, partitions=(lost,))
        else:
            lake.instance.report_runless_asset_event(AssetMaterialization(orders.key, partition=key))
    name = TableIdentifier.from_string("s.orders")
    lake.tables.rollback_to_snapshot(name, lake.tables.list_snapshots(name)[0].snapshot_id)
    lake.run(orders, partitions=(keys[-1],))

    quick = plan_run(lake.pipeline(orders), RunRequest(partitions=(keys[0],)), compare=True)
    assert quick.differences == (), "the loss lies between two samples"
    plan = lake.plan(orders, missing=True)
    assert plan.plan.partitions == (lost,)
    assert reasons(plan, "orders") == {"missing in the table": f"{lost} [rolled back]"}
    lake.run(orders, missing=True)
    days = {str(day) for day in lake.tables.scan(name).to_arrow()["day"].to_pylist()}
    assert days == {keys[0], lost, keys[-1]}


def test_siblings_that_one_function_makes_run_together(lake: Lake) -> None:
    outs = {name: AssetOut(key=["s", name], metadata={"write_mode": "overwrite"}) for name in ("left", "right")}

    @multi_asset(outs=outs)
    def pair() -> tuple[pd.DataFrame, pd.DataFrame]:
        return pd.DataFrame({"id": [1]}), pd.DataFrame({"id": [2]})

    plan = lake.plan(pair, selection=("s/left",))
    assert [one.asset for one in plan.assets] == ["s/left", "s/right"]
    assert reasons(plan, "left") == {"requested": "", "never materialized": ""}
    assert reasons(plan, "right") == {"made together": "[with s/left]", "never materialized": ""}
    assert "requested" in reasons(lake.plan(pair), "right"), "without a selection both are"
    report = lake.run(pair, selection=("s/left",))
    assert {one.asset for one in report} == {"s/left", "s/right"}


# Parents that are read by other partitions, and parents that are newer ---------------------------------------------


def shifted(name: str, upstream: str, mapping: Any, **options: Any) -> Any:
    """A daily asset that reads partitions of its upstream asset by a mapping."""

    def compute(context: AssetExecutionContext) -> pa.Table:
        return pa.table({"day": [date.fromisoformat(key) for key in context.partition_keys]})

    deps = [AssetDep(["s", upstream], partition_mapping=mapping)]
    metadata = {"partition_expr": "day", **options.pop("metadata", {})}
    decorated = asset(name=name, key_prefix="s", partitions_def=DAYS, deps=deps, metadata=metadata, **options)
    return decorated(compute)


BEFORE = TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)


def test_missing_follows_the_partitions_that_an_asset_reads(lake: Lake) -> None:
    assets = daily("src"), shifted("prev", "src", BEFORE)
    lake.run(*assets, selection=("s/prev",), partitions=KEYS)
    lake.run(*assets, selection=("s/src",), partitions=(KEYS[0], KEYS[2], KEYS[3]))
    lake.run(*assets, selection=("s/prev",), partitions=KEYS)
    plan = lake.plan(*assets, missing=True)
    assert reasons(plan, "src") == {"never materialized": KEYS[1]}
    assert reasons(plan, "prev") == {"upstream newer": f"{KEYS[2]} [s/src]"}, "the day after the one that runs"
    lake.run(*assets, missing=True)
    assert lake.plan(*assets, missing=True).plan.batches == ()


def test_a_partition_that_is_behind_its_upstream_is_missing(lake: Lake) -> None:
    assets = daily("src"), daily("same", upstream="src"), shifted("prev", "src", BEFORE), whole("total", ["same"])
    fill(lake, *assets)
    assert lake.plan(*assets, missing=True).plan.batches == ()
    lake.run(*assets, selection=("s/src",), partitions=(KEYS[1],))
    plan = lake.plan(*assets, missing=True)
    assert reasons(plan, "same") == {"upstream newer": f"{KEYS[1]} [s/src]"}
    assert reasons(plan, "prev") == {"upstream newer": f"{KEYS[2]} [s/src]"}
    assert reasons(plan, "total") == {"upstream newer": "[s/same]"}
    lake.run(*assets, missing=True)
    assert lake.plan(*assets, missing=True).plan.batches == ()


def test_a_partition_is_behind_the_hours_that_it_reads(lake: Lake) -> None:
    hours = HourlyPartitionsDefinition("2026-01-01-00:00", end_date="2026-01-03-00:00")

    @asset(name="hourly", key_prefix="s", partitions_def=hours)
    def hourly() -> None: ...

    assets = hourly, shifted("sums", "hourly", TimeWindowPartitionMapping())
    lake.run(*assets, selection=("s/sums",), partitions=(KEYS[0], KEYS[1]))
    lake.instance.report_runless_asset_event(AssetMaterialization(["s", "hourly"], partition="2026-01-02-07:00"))
    plan = lake.plan(*assets, selection=("s/sums",), partitions=(KEYS[0], KEYS[1]))
    assert reasons(plan, "sums") == {
        "requested": f"{KEYS[0]}...{KEYS[1]} (2)",
        "upstream newer": f"{KEYS[1]} [s/hourly]",
    }


def test_rows_are_not_appended_twice_because_their_upstream_is_newer(lake: Lake) -> None:
    assets = daily("src"), daily("log", upstream="src", metadata={"write_mode": "append"})
    fill(lake, *assets)
    lake.run(*assets, selection=("s/src",), partitions=(KEYS[1],))
    assert lake.plan(*assets, missing=True).plan.batches == ()


def test_what_reads_its_own_partitions_and_what_is_unpartitioned_repeat_nothing(lake: Lake) -> None:
    assets = whole("rates"), daily("orders", upstream="rates"), shifted("balance", "balance", BEFORE)
    fill(lake, *assets)
    lake.run(*assets, selection=("s/rates",))
    lake.run(*assets, selection=("s/balance",), partitions=(KEYS[1],))
    assert lake.plan(*assets, missing=True).plan.batches == ()


# As text -----------------------------------------------------------------------------------------------------------


def shown(plan: DescribedPlan, capsys: pytest.CaptureFixture[str], **console: Any) -> list[str]:
    print_plan(Console(color_system=None, **console), plan, "shop")
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def test_a_plan_fits_sixty_columns_and_names_everything(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    fill(lake, whole("mine"), daily("orders"))
    long = "a_column_with_a_name_that_is_longer_than_a_narrow_terminal_is_wide"
    assets = (
        daily("orders", code_version="2", metadata=schema(day="date", **{long: "double"})),
        whole("other", metadata={"floe/table": "mine"}),
        whole("total", ["orders"]),
    )
    lines = shown(lake.plan(*assets, partitions=(FIRST,)), capsys, width=60)
    assert max(map(len, lines)) <= 60
    assert lines[0] == "shop: 1 asset, partition 2026-01-01, 1 run"
    assert "    2026-01-01: requested, code changed (none -> 2)" in lines
    text = " ".join(" ".join(lines).split())
    assert "left out, not partitioned: s/other, s/total; --with-unpartitioned includes them" in text
    assert long in text.replace(" ", "")
    text = " ".join(" ".join(shown(lake.plan(*assets), capsys, width=60)).split())
    assert "! s/other -> s.mine" in text
    assert "refused: 1 asset of 3" in text


def test_a_plan_as_markdown_escapes_what_markdown_reads(lake: Lake) -> None:
    fill(lake, whole("mine"))
    lines = list(markdown_lines(lake.plan(whole("other", metadata={"floe/table": "mine"})), "shop"))
    assert lines[0] == "### floe plan: shop"
    assert "| `s/other` | requested, never materialized | **refused** -> s.mine |  |" in lines
    assert any(line.startswith("- `s/other`: table 's.mine' belongs to asset s/mine") for line in lines)


# Partitions --------------------------------------------------------------------------------------------------------


def city(name: str) -> Any:
    @asset(name=name, key_prefix="s", partitions_def=CITIES, metadata={"partition_expr": "city"})
    def compute(context: AssetExecutionContext) -> pd.DataFrame:
        return pd.DataFrame({"city": [context.partition_key]})

    return compute


def test_a_partition_runs_only_the_assets_that_have_it(lake: Lake) -> None:
    assets = daily("orders"), whole("total", ["orders"]), city("people")
    plan = lake.plan(*assets, partitions=("Oslo",))
    assert [one.asset for one in plan.assets] == ["s/people"]
    assert {one.asset: one.reason for one in plan.plan.left_out} == {
        "s/orders": "without partition Oslo",
        "s/total": "not partitioned",
    }
    both = lake.plan(*assets, partitions=(FIRST,), with_unpartitioned=True)
    assert [one.asset for one in both.assets] == ["s/orders", "s/total"]
    assert [one.asset for one in both.plan.left_out] == ["s/people"]


def test_an_asset_is_left_out_for_the_partitions_that_it_lacks(lake: Lake) -> None:
    late = DailyPartitionsDefinition(KEYS[1], end_date="2026-01-05")

    @asset(key_prefix="s", partitions_def=late, metadata={"partition_expr": "day"})
    def returns() -> None: ...

    plan = lake.plan(daily("orders"), returns, partitions=(FIRST, LAST))
    assert [(one.asset, one.reason) for one in plan.plan.left_out] == [("s/returns", f"without partition {FIRST}")]


@pytest.mark.parametrize(
    ("partition_range", "problem"),
    [
        (f"{FIRST}|us...{LAST}|eu", "us comes after eu; swap them"),
        (f"{LAST}|eu...{FIRST}|us", f"{LAST} comes after {FIRST}; swap them"),
    ],
)
def test_a_range_is_compared_in_each_dimension(lake: Lake, partition_range: str, problem: str) -> None:
    both = MultiPartitionsDefinition({"day": DAYS, "region": StaticPartitionsDefinition(["eu", "us"])})

    @asset(key_prefix="s", partitions_def=both, metadata={"partition_expr": {"day": "day", "region": "region"}})
    def sales() -> None: ...

    with pytest.raises(ConfigurationError, match=f"--partition-range: {problem}"):
        lake.plan(sales, partition_range=partition_range)
    assert len(lake.plan(sales, partition_range=f"{FIRST}|eu...{KEYS[1]}|us").plan.partitions) == 4


def test_a_partition_that_the_table_does_not_have_is_added(lake: Lake) -> None:
    lake.run(daily("orders"), partitions=(FIRST,))
    (planned,) = lake.plan(daily("orders"), partitions=(LAST,)).assets
    assert effect_text(planned.write) == "adds to s.orders"


@pytest.mark.parametrize(
    ("request_", "problem"),
    [
        ({}, r"these assets have different partitions \(s/orders; s/people\)"),
        ({"missing": True}, r"these assets have different partitions \(s/orders; s/people\)"),
        ({"partitions": ("Bergen",)}, "there is no partition 'Bergen'"),
        ({"partition_range": f"{LAST}...{FIRST}"}, "swap them"),
        ({"partition_range": f"{FIRST}..."}, r"write it as START\.\.\.END"),
        ({"selection": ("s/total",), "partitions": (FIRST,)}, "no selected asset is partitioned"),
        ({"selection": ("s/totl",)}, "no asset s/totl; did you mean s/total?"),
    ],
)
def test_the_plan_and_the_run_end_in_the_same_error(lake: Lake, request_: dict[str, Any], problem: str) -> None:
    assets = daily("orders"), whole("total", ["orders"]), city("people")
    for attempt in (lake.plan, lake.run):
        with pytest.raises(ConfigurationError, match=problem):
            attempt(*assets, **request_)
