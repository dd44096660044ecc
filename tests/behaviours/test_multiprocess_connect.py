"""Dagster's multiprocess executor: each step is a process; all share a Spark Connect server, or each has a JVM."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.servers.spark_connect import spark_connect_server

from floe_core.compiler import compile_project
from floe_core.identifiers import TableIdentifier
from floe_iceberg import IcebergTableManager

pytestmark = pytest.mark.full  # several JVMs

# Each row says in which process its asset was computed.
DEFINITIONS = """
import os

from dagster import AssetIn, JobDefinition, asset, define_asset_job, multiprocess_executor
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from floe_dagster import LakeResource, create_definitions

OVERWRITE = {"write_mode": "overwrite"}
CUSTOMERS, ORDERS = (AssetIn(["bronze", name]) for name in ("customers", "orders"))


@asset(key_prefix="bronze", metadata=OVERWRITE)
def customers(lake: LakeResource) -> DataFrame:
    return lake.spark.range(10).select(F.col("id").alias("customer"), F.lit(os.getpid()).alias("process"))


@asset(key_prefix="bronze", metadata=OVERWRITE)
def orders(lake: LakeResource) -> DataFrame:
    return lake.spark.range(1000).select((F.col("id") % 8).alias("customer"), F.lit(os.getpid()).alias("process"))


@asset(key_prefix="gold", ins={"customers": CUSTOMERS, "orders": ORDERS}, metadata=OVERWRITE)
def activity(customers: DataFrame, orders: DataFrame) -> DataFrame:
    counted = orders.groupBy("customer").agg(F.count("*").alias("orders"))
    known = customers.select("customer").join(counted, "customer", "left").na.fill(0, ["orders"])
    return known.withColumn("process", F.lit(os.getpid()))


defs = create_definitions(
    [customers, orders, activity], executor=multiprocess_executor, jobs=[define_asset_job("everything")]
)


def everything() -> JobDefinition:
    return defs.resolve_job_def("everything")
"""
PROGRAM = """
from dagster import DagsterInstance, execute_job, reconstructable
from definitions import everything

with DagsterInstance.get() as instance:
    run = execute_job(reconstructable(everything), instance)
assert run.success
"""
TABLES = ("bronze.customers", "bronze.orders", "gold.activity")


@dataclass(frozen=True)
class Run:
    """What one run of the three assets left behind, seen without Spark."""

    folder: Path
    main_process: int

    @property
    def tables(self) -> IcebergTableManager:
        return IcebergTableManager.open(compile_project(self.folder).artifacts)

    def processes(self, name: str) -> set[int]:
        return set(self.tables.scan(TableIdentifier.from_string(name)).to_arrow()["process"].to_pylist())

    def writers(self, key: str) -> list[str]:
        """What each table's snapshot says about the application that wrote it."""
        found = [self.tables.list_snapshots(TableIdentifier.from_string(name)) for name in TABLES]
        return [str(snapshot.summary[key]) for [snapshot] in found]


def run_assets(folder: Path, settings: str, **environment: str) -> Run:
    """All assets in one run of Dagster's own."""
    (folder / "floe.yaml").write_text(f"name: shop\n{settings}")
    (folder / "definitions.py").write_text(DEFINITIONS)
    compile_project(folder).artifacts.write()
    home = folder / "history"
    home.mkdir()
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    env = {**os.environ, "DAGSTER_HOME": str(home), **environment}
    with (folder / "run.log").open("wb") as log:
        main = subprocess.Popen([sys.executable, "-c", PROGRAM], cwd=folder, env=env, stdout=log, stderr=log)
        assert main.wait(400) == 0, (folder / "run.log").read_text()
    return Run(folder, main.pid)


def assert_each_step_was_a_process(run: Run) -> None:
    processes = [process for name in TABLES for process in run.processes(name)]
    assert len({run.main_process, *processes}) == 1 + len(TABLES) == 1 + len(processes)


def assert_the_figures_are_right(run: Run) -> None:
    rows = run.tables.scan(TableIdentifier.from_string("gold.activity")).to_arrow().to_pylist()
    assert {row["customer"]: row["orders"] for row in rows} == {n: 125 if n < 8 else 0 for n in range(10)}


def test_steps_in_processes_of_their_own_share_one_server_and_start_no_jvm(tmp_path: Path) -> None:
    no_java = tmp_path / "no-java"
    no_java.mkdir()
    with spark_connect_server(tmp_path) as remote:
        run = run_assets(tmp_path, f"spark: {{remote: '{remote}'}}\n", JAVA_HOME=str(no_java))
    assert_the_figures_are_right(run)
    assert_each_step_was_a_process(run)
    assert set(run.writers("app-name")) == {"org.apache.spark.sql.connect.service.SparkConnectServer"}
    assert len(set(run.writers("spark.app.id"))) == 1
    assert not (tmp_path / ".floe" / "logs" / "spark.log").exists()


@pytest.mark.wide  # a JVM for each step; that a step starts one is seen in every `floe run`
def test_steps_in_processes_of_their_own_each_start_a_local_spark(tmp_path: Path) -> None:
    run = run_assets(tmp_path, "")
    assert_the_figures_are_right(run)
    assert_each_step_was_a_process(run)
    assert set(run.writers("app-name")) == {"floe-shop"}
