"""The demo's pipeline on a standalone cluster and on a Spark Connect server, by floe.yaml alone: the same figures."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.engines import rows_of
from tests.servers.spark_cluster import WORKERS, SparkCluster, spark_cluster
from tests.servers.spark_connect import spark_connect_server

from floe_core.compiler import compile_project
from floe_core.identifiers import TableIdentifier
from floe_iceberg import IcebergTableManager
from floe_runtime.demo.story import check_figures
from floe_runtime.templates import copy_template

pytestmark = [pytest.mark.full, pytest.mark.timeout(1200)]  # two whole pipelines

TABLES = (
    *("bronze.orders", "bronze.customers", "bronze.products"),
    *("silver.orders", "silver.rejected_orders"),
    *("gold.daily_revenue", "gold.top_products", "gold.customer_cohorts"),
)
# Which address of this machine Spark listens on is the machine's affair: here, none that others reach.
LOOPBACK = {"SPARK_LOCAL_IP": "127.0.0.1"}
CORRECTED = "2026-01-05"
FUNCTION = """
import os
from pyspark.sql import functions as F
from floe_runtime import connect

spark = connect().spark
chosen = F.udf(lambda _: os.environ.get("CHOSEN"), "string")
print([row[0] for row in spark.range(2).select(chosen("id")).distinct().collect()])
"""


@dataclass(frozen=True)
class Shop:
    """What the pipeline left behind in one project, seen without Spark."""

    folder: Path

    @property
    def tables(self) -> IcebergTableManager:
        return IcebergTableManager.open(compile_project(self.folder).artifacts)

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        return rows_of(self.tables.scan(TableIdentifier.from_string(name)).to_arrow())

    def writers(self, key: str) -> set[str | None]:
        """What the snapshots of all tables say about the application that wrote them."""
        loaded = [self.tables.load_table(TableIdentifier.from_string(name)) for name in TABLES]
        summaries = [snapshot.summary for table in loaded for snapshot in table.snapshots()]
        return {summary.additional_properties.get(key) if summary else None for summary in summaries}


def filled(folder: Path, settings: str, **environment: str) -> Shop:
    """The retailer's project: two weeks of orders, then one day corrected and with a column more."""
    copy_template("retail", folder, {})
    spec = folder / "floe.yaml"
    spec.write_text(f"{spec.read_text()}{settings}")
    change_source(folder, rows=20_000)
    floe_run(folder, "--missing", **environment)
    change_source(folder, corrected_days=[CORRECTED], channel_since=CORRECTED)
    floe_run(folder, "--partition", CORRECTED, "--with-unpartitioned", **environment)
    return Shop(folder)


def change_source(folder: Path, **changes: object) -> None:
    source = folder / "source.json"
    source.write_text(json.dumps({**json.loads(source.read_text()), **changes}))


def floe_run(folder: Path, *options: str, **environment: str) -> None:
    command = [str(Path(sys.executable).parent / "floe"), "run", *options]
    env = {**os.environ, **LOOPBACK, **environment}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with spark_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="module")
def clustered(tmp_path_factory: pytest.TempPathFactory, cluster: SparkCluster) -> Shop:
    return filled(tmp_path_factory.mktemp("clustered") / "shop", f"spark: {{master: '{cluster.master}'}}\n")


@pytest.fixture(scope="module")
def connected(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    no_java = tmp_path_factory.mktemp("no-java")
    with spark_connect_server(tmp_path_factory.mktemp("connect")) as remote:
        settings = f"spark: {{remote: '{remote}'}}\n"
        return filled(tmp_path_factory.mktemp("connected") / "shop", settings, JAVA_HOME=str(no_java))


@pytest.fixture(scope="module", params=["clustered", "connected"])
def elsewhere(request: pytest.FixtureRequest) -> Shop:
    shop: Shop = request.getfixturevalue(request.param)
    return shop


@pytest.mark.parametrize("name", TABLES)
def test_every_table_has_the_same_rows_on_both(clustered: Shop, connected: Shop, name: str) -> None:
    expected = clustered.rows(name)
    assert len(expected) > 5
    assert connected.rows(name) == expected


def test_every_figure_holds_when_it_is_computed_again_without_spark(elsewhere: Shop) -> None:
    check_figures(elsewhere.tables, Console(file=io.StringIO(), width=200))


def test_the_work_was_done_by_the_executors_of_both_workers(cluster: SparkCluster, clustered: Shop) -> None:
    applications = completed(cluster, count=2)
    assert {one["state"] for one in applications} == {"FINISHED"}
    assert {one["cores"] for one in applications} == {WORKERS}
    for one in applications:
        tasks = cluster.finished_tasks(one["id"])
        assert sorted(name.split("/")[0] for name in tasks) == ["worker-1", "worker-2"]
        assert min(tasks.values()) > 0
    assert clustered.writers("spark.app.id") == {one["id"] for one in applications}


def test_the_server_wrote_every_table_and_the_command_needed_no_java(connected: Shop) -> None:
    assert connected.writers("app-name") == {"org.apache.spark.sql.connect.service.SparkConnectServer"}
    assert len(connected.writers("spark.app.id")) == 1
    assert not (connected.folder / ".floe" / "logs" / "spark.log").exists()


def test_python_functions_run_on_the_python_that_floe_yaml_names(cluster: SparkCluster, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nCHOSEN=yes exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (tmp_path / "floe.yaml").write_text(
        f"name: functions\nspark: {{master: '{cluster.master}', conf: {{spark.pyspark.python: '{python}'}}}}\n"
    )
    command = [sys.executable, "-c", FUNCTION]
    env = {**os.environ, **LOOPBACK}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=400, check=False)
    assert done.stdout.strip() == "['yes']", done.stderr


def completed(cluster: SparkCluster, *, count: int) -> list[dict[str, Any]]:
    """The runs of the demo: the master learns of an end a moment after it."""
    for _ in range(100):
        state = cluster.state()
        found: list[dict[str, Any]] = [one for one in state["completedapps"] if one["name"] == "floe-floe-demo"]
        if len(found) >= count:
            break
        time.sleep(0.1)
    assert len(found) == count
    return found
