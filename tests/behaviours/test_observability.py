"""The same assets give the same log events and spans at every entry point, and one run is one trace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from tests.commands import FLOE
from tests.servers.otlp import Collector, attributes
from tests.ui.dev_server import floe_dev

from floe_core.compiler import compile_project

DEFINITIONS = """
import os

import pyarrow as pa
from dagster import AssetIn, asset, in_process_executor, multiprocess_executor

from floe_dagster import create_definitions

OVERWRITE = {"write_mode": "overwrite"}


@asset(key_prefix="bronze", metadata=OVERWRITE)
def orders() -> pa.Table:
    print("step in process", os.getpid(), flush=True)
    return pa.table({"id": [1, 2, 3]})


@asset(key_prefix="gold", ins={"orders": AssetIn(["bronze", "orders"])}, metadata=OVERWRITE)
def totals(orders: pa.Table) -> pa.Table:
    print("step in process", os.getpid(), flush=True)
    return pa.table({"n": [orders.num_rows]})


in_processes = os.environ.get("STEPS") == "processes"
defs = create_definitions([orders, totals], executor=multiprocess_executor if in_processes else in_process_executor)
"""
# The same with Spark's frames: what each entry point starts, reads and writes is what `floe run` does.
SPARK_DEFINITIONS = """
import os

from dagster import AssetIn, asset, in_process_executor, multiprocess_executor
from pyspark.sql import DataFrame

from floe_dagster import LakeResource, create_definitions

OVERWRITE = {"write_mode": "overwrite"}


@asset(key_prefix="bronze", metadata=OVERWRITE)
def orders(lake: LakeResource) -> DataFrame:
    return lake.spark.range(3)


@asset(key_prefix="gold", ins={"orders": AssetIn(["bronze", "orders"])}, metadata=OVERWRITE)
def totals(orders: DataFrame) -> DataFrame:
    return orders.groupBy().count()


in_processes = os.environ.get("STEPS") == "processes"
defs = create_definitions([orders, totals], executor=multiprocess_executor if in_processes else in_process_executor)
"""
CONNECT = """
import pyarrow as pa
from floe_core.identifiers import TableIdentifier
from floe_runtime import connect

orders, totals = map(TableIdentifier.from_string, ("bronze.orders", "gold.totals"))
tables = connect().tables
tables.write_data(orders, pa.table({"id": [1, 2, 3]}), mode="overwrite")
rows = tables.scan(orders).to_arrow()
tables.write_data(totals, pa.table({"n": [rows.num_rows]}), mode="overwrite")
"""
SPARK_CONNECT = """
from floe_runtime import connect

lake = connect()
lake.write(lake.spark.range(3), "bronze.orders", mode="overwrite")
lake.write(lake.read("bronze.orders").groupBy().count(), "gold.totals", mode="overwrite")
"""
LAUNCH = """
mutation($assets: [AssetKeyInput!]!) {
  launchPipelineExecution(executionParams: {mode: "default", selector: {
    repositoryName: "__repository__", repositoryLocationName: "definitions", pipelineName: "__ASSET_JOB",
    assetSelection: $assets}}) { __typename }
}
"""
# Jars are fetched once per machine; and floe run shows which tables it creates before it starts.
BEFORE_A_RUN = ("spark.fetch_jars", "iceberg.list_tables")
WRITE = ("pending", "validating", "writing", "committed")
SPANS = {
    ("sql.connect", None, ()),
    ("iceberg.create_namespace", None, ()),
    ("iceberg.overwrite", "bronze.orders", WRITE),
    ("iceberg.load_table", "bronze.orders", ("loading_table", "table_loaded")),
    ("iceberg.plan_scan", "bronze.orders", ()),
    ("iceberg.scan", "bronze.orders", ()),
    ("iceberg.overwrite", "gold.totals", WRITE),
}
EVENTS: set[tuple[str, str | None]] = {(name, table) for name, table, _ in SPANS} | {
    (event, "bronze.orders") for event in ("loading_table", "table_loaded")
}


@dataclass(frozen=True)
class Seen:
    """What one run left in its log and at the collector."""

    output: str
    collected: list[Span]

    @property
    def events(self) -> list[dict[str, Any]]:
        """The log events, from whichever process."""
        return [json.loads(line) for line in self.output.splitlines() if line.startswith("{")]

    @property
    def event_set(self) -> set[tuple[str, str | None]]:
        return {(event["event"], event.get("table")) for event in self.events if event["event"] not in BEFORE_A_RUN}

    @property
    def spans(self) -> set[tuple[str, str | None, tuple[str, ...]]]:
        return {
            (span.name, attributes(span).get("iceberg.table"), tuple(event.name for event in span.events))
            for span in self.collected
            if span.name not in BEFORE_A_RUN
        }

    @property
    def traces(self) -> set[str]:
        return {span.trace_id.hex() for span in self.collected} | {str(one.get("trace_id")) for one in self.events}

    @property
    def processes(self) -> set[str]:
        return {line.split()[-1] for line in self.output.splitlines() if "step in process" in line}


@pytest.fixture
def collector() -> Iterator[Collector]:
    running = Collector()
    yield running
    running.server.stop(None).wait()


@dataclass(frozen=True)
class Shop:
    """A project whose floe.yaml asks for JSON logs and spans."""

    folder: Path
    collector: Collector

    def run(self, *command: str, **environment: str) -> Seen:
        """What a command leaves; it succeeds."""
        env = {**os.environ, "DAGSTER_HOME": str(self.folder / "history"), **environment}
        ran = subprocess.run(
            command,
            cwd=self.folder,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=400,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout
        return Seen(ran.stdout, self.collector.spans)

    def materialize(self, **environment: str) -> Seen:
        """By Dagster's own command."""
        return self.run(
            sys.executable, "-m", "dagster", "asset", "materialize", "--select", "*", "-m", "definitions", **environment
        )


def shop(folder: Path, collector: Collector, definitions: str) -> Shop:
    (folder / "floe.yaml").write_text(
        "name: shop\nobservability:\n  log_format: json\n  log_level: info\n"
        f"  otlp_endpoint: http://127.0.0.1:{collector.port}\n"
    )
    (folder / "definitions.py").write_text(definitions)
    compile_project(folder).artifacts.write()
    (folder / "history").mkdir()
    (folder / "history" / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    return Shop(folder, collector)


@pytest.fixture
def arrow_shop(tmp_path: Path, collector: Collector) -> Shop:
    return shop(tmp_path, collector, DEFINITIONS)


def assert_complete(seen: Seen) -> None:
    """Each span once and each event once, in one trace."""
    assert seen.spans == SPANS
    assert seen.event_set == EVENTS
    operations = Counter(event["event"] for event in seen.events if "." in event["event"])
    assert operations == Counter(span.name for span in seen.collected)
    assert len({span.span_id for span in seen.collected}) == len(seen.collected)
    assert len(seen.traces) == 1


def run_id_of(seen: Seen) -> str:
    line = next(line for line in seen.output.splitlines() if "RUN_START" in line)
    return next(word for word in line.split() if word.count("-") == 4 and uuid.UUID(word))


@pytest.mark.full  # processes of their own
def test_steps_in_processes_of_their_own_share_the_trace_of_their_run(arrow_shop: Shop) -> None:
    seen = arrow_shop.materialize(STEPS="processes")
    assert len(seen.processes) == 2
    assert_complete(seen)
    assert seen.traces == {run_id_of(seen).replace("-", "")}


def test_a_program_that_connects_is_logged_and_traced(arrow_shop: Shop) -> None:
    caller = "0af7651916cd43dd8448eb211c80319c"
    seen = arrow_shop.run(sys.executable, "-c", CONNECT, TRACEPARENT=f"00-{caller}-b7ad6b7169203331-01")
    assert_complete(seen)
    assert seen.traces == {caller}


def floe_run(given: Shop) -> Seen:
    return given.run(FLOE, "run", DAGSTER_HOME="")


def in_floe_dev(given: Shop) -> Seen:
    """One run, launched from the web UI."""
    with floe_dev(given.folder) as server:
        before = server.runs()
        server.ask(LAUNCH, assets=[{"path": ["bronze", "orders"]}, {"path": ["gold", "totals"]}])
        server.wait_for_run(before)
        log = server.log
    return Seen(log.read_text(), given.collector.spans)


def entry_points(tmp_path: Path, definitions: str, program: str) -> Iterator[tuple[str, Seen]]:
    entries: Mapping[str, Callable[[Shop], Seen]] = {
        "floe run": floe_run,
        "dagster asset materialize": lambda given: given.materialize(),
        "floe dev": in_floe_dev,
        "multiprocess": lambda given: given.materialize(STEPS="processes"),
        "connect()": lambda given: given.run(sys.executable, "-c", program),
    }
    for number, (name, act) in enumerate(entries.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        collector = Collector()
        try:
            yield name, act(shop(folder, collector, definitions))
        finally:
            collector.server.stop(None).wait()


@pytest.mark.full  # five entry points, twice; six JVMs
@pytest.mark.parametrize(
    ("definitions", "program"), [(DEFINITIONS, CONNECT), (SPARK_DEFINITIONS, SPARK_CONNECT)], ids=["arrow", "spark"]
)
def test_five_entry_points_have_the_same_events_and_spans_and_one_trace_per_run(
    tmp_path: Path, definitions: str, program: str
) -> None:
    seen = dict(entry_points(tmp_path, definitions, program))
    first = seen["floe run"]
    assert ("iceberg.overwrite", "gold.totals", WRITE) in first.spans
    assert (("spark.start", None, ()) in first.spans) is (definitions == SPARK_DEFINITIONS)
    nothing: set[object] = set()
    assert {name: one.spans ^ first.spans for name, one in seen.items()} == dict.fromkeys(seen, nothing)
    assert {name: one.event_set ^ first.event_set for name, one in seen.items()} == dict.fromkeys(seen, nothing)
    assert {name: len(one.traces) for name, one in seen.items()} == dict.fromkeys(seen, 1)
