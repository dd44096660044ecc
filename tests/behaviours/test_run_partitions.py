"""`floe run` on projects whose partitions are no days: what it takes, in as few runs as there can be."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.runs import rows_of

from floe_core.compiler import compile_project
from floe_iceberg import IcebergTableManager
from floe_runtime.runs.partition_keys import keys_between, latest_keys
from floe_runtime.runs.pipeline import Pipeline, open_pipeline
from floe_runtime.runs.planning import batches, missing, shared_partitions
from floe_runtime.runs.runner import RunReport, run_batches

pytestmark = pytest.mark.filterwarnings("ignore:.*is currently in (beta|preview)")

DEFINITIONS = """
import pyarrow as pa
from dagster import (
    AllPartitionMapping, AssetIn, AssetOut, multi_asset,
    BackfillPolicy, DailyPartitionsDefinition, DynamicPartitionsDefinition, MultiPartitionsDefinition,
    StaticPartitionsDefinition, asset,
)
from floe_dagster import create_definitions

days = DailyPartitionsDefinition("2026-01-01", end_date="2026-01-04")
cities = StaticPartitionsDefinition(["Oslo", "Rome", "Lima"])
names = DynamicPartitionsDefinition(name="names")
both = MultiPartitionsDefinition({"day": days, "city": cities})
single = BackfillPolicy.single_run()


@asset(partitions_def=cities, backfill_policy=single, metadata={"partition_expr": "city"})
def by_city(context) -> pa.Table:
    return pa.table({"city": list(context.partition_keys)})


@asset(partitions_def=cities, metadata={"partition_expr": "city"})
def one_by_one(context) -> pa.Table:
    return pa.table({"city": list(context.partition_keys)})


@asset(partitions_def=names, backfill_policy=single, metadata={"partition_expr": "name"})
def by_name(context) -> pa.Table:
    return pa.table({"name": list(context.partition_keys)})


@asset(partitions_def=both, backfill_policy=single, metadata={"partition_expr": {"day": "day", "city": "city"}})
def by_both(context) -> pa.Table:
    keys = [both.get_partition_key_from_str(str(key)).keys_by_dimension for key in context.partition_keys]
    dates = pa.array([key["day"] for key in keys]).cast(pa.date32())
    return pa.table({"day": dates, "city": [key["city"] for key in keys]})


everything = AssetIn(partition_mapping=AllPartitionMapping())


@asset(partitions_def=cities, metadata={"partition_expr": "city"}, ins={"one_by_one": everything})
def after_all(context, one_by_one: pa.Table) -> pa.Table:
    return pa.table({"city": [context.partition_key], "seen": [one_by_one.num_rows]})


@multi_asset(outs={name: AssetOut(metadata={"write_mode": "append"}) for name in ("left", "right")})
def pair() -> tuple[pa.Table, pa.Table]:
    return pa.table({"id": [1]}), pa.table({"id": [2]})


defs = create_definitions([by_city, one_by_one, by_name, by_both, after_all, pair])
"""


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    root = tmp_path_factory.mktemp("partitions")
    (root / "floe.yaml").write_text("name: partitions\n")
    (root / "definitions.py").write_text(DEFINITIONS)
    artifacts = compile_project(root).artifacts
    artifacts.write()
    before = Path.cwd()
    with open_pipeline(artifacts) as opened:
        yield opened
    os.chdir(before)


@pytest.fixture(scope="module")
def tables(pipeline: Pipeline) -> IcebergTableManager:
    return IcebergTableManager.open(pipeline.artifacts)


def execute(pipeline: Pipeline, chosen: Any) -> RunReport:
    return run_batches(pipeline, chosen, lambda _: None)


def test_static_partitions_are_all_taken_in_one_run_where_the_asset_agrees(
    pipeline: Pipeline, tables: IcebergTableManager
) -> None:
    for name, runs in (("by_city", 1), ("one_by_one", 3)):
        assets = pipeline.assets([name])
        partitions = shared_partitions(pipeline.graph, assets)
        assert partitions is not None
        keys = latest_keys(partitions, pipeline.instance)
        report = execute(pipeline, batches(pipeline.graph, assets, keys, pipeline.instance))
        assert len(report.run_ids) == runs
        assert [row["city"] for row in rows_of(tables, f"public.{name}")] == ["Lima", "Oslo", "Rome"]
        assert missing(pipeline.graph, assets, pipeline.instance) == []


def test_keys_that_came_later_are_what_is_missing(pipeline: Pipeline, tables: IcebergTableManager) -> None:
    assets = pipeline.assets(["by_name"])
    assert missing(pipeline.graph, assets, pipeline.instance) == []
    pipeline.instance.add_dynamic_partitions("names", ["Ada", "it's ü/x"])
    assert len(execute(pipeline, missing(pipeline.graph, assets, pipeline.instance)).run_ids) == 1
    pipeline.instance.add_dynamic_partitions("names", ["Bob"])
    (batch,) = missing(pipeline.graph, assets, pipeline.instance)
    assert batch.keys == ("Bob",)
    execute(pipeline, [batch])
    assert {row["name"] for row in rows_of(tables, "public.by_name")} == {"Ada", "Bob", "it's ü/x"}


def test_pairs_are_filled_in_as_few_runs_as_dagster_can_name(pipeline: Pipeline, tables: IcebergTableManager) -> None:
    assets = pipeline.assets(["by_both"])
    some = ["Oslo|2026-01-01", "Oslo|2026-01-02", "Rome|2026-01-01", "Rome|2026-01-02", "Lima|2026-01-03"]
    report = execute(pipeline, batches(pipeline.graph, assets, some, pipeline.instance))
    assert len(report.run_ids) == 2
    found = {(row["city"], str(row["day"])) for row in rows_of(tables, "public.by_both")}
    assert found == {tuple(key.split("|")) for key in some}
    execute(pipeline, missing(pipeline.graph, assets, pipeline.instance))
    assert len(rows_of(tables, "public.by_both")) == 9
    assert missing(pipeline.graph, assets, pipeline.instance) == []


def test_what_reads_all_partitions_waits_for_all(pipeline: Pipeline, tables: IcebergTableManager) -> None:
    assets = pipeline.assets(["one_by_one", "after_all"])
    chosen = batches(pipeline.graph, assets, ["Oslo", "Rome", "Lima"], pipeline.instance)
    assert [(batch.assets[0].path[-1], batch.keys) for batch in chosen] == [
        (name, (city,)) for name in ("one_by_one", "after_all") for city in ("Oslo", "Rome", "Lima")
    ]
    execute(pipeline, chosen)
    assert {row["seen"] for row in rows_of(tables, "public.after_all")} == {3}


def test_what_one_function_makes_runs_together(pipeline: Pipeline, tables: IcebergTableManager) -> None:
    (left,) = pipeline.assets(["left"])
    execute(pipeline, missing(pipeline.graph, [left], pipeline.instance))
    assert rows_of(tables, "public.left") == [{"id": 1}]
    assert rows_of(tables, "public.right") == [{"id": 2}]


def test_a_range_of_pairs_is_a_rectangle(pipeline: Pipeline) -> None:
    partitions = shared_partitions(pipeline.graph, pipeline.assets(["by_both"]))
    assert partitions is not None
    found = keys_between(partitions, pipeline.instance, "Oslo|2026-01-02", "Rome|2026-01-03")
    assert found == [f"{city}|2026-01-0{day}" for city in ("Oslo", "Rome") for day in (2, 3)]
