"""Spans reach a real collector, all of them, however the program ends; and a collector that is away costs little."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]  # ships no types
import pytest
import trustme
from tests.servers.otlp import Collector, attributes, value

from floe_core.config.spec import ObservabilityConfig
from floe_core.errors import ConfigurationError
from floe_core.observability import span_export, telemetry

SECRET = "planted-value-of-a-secret"
NOT_USED = "observability.otlp_endpoint is not used: tracing is already set up in this process"

# The provider is global in a process, so each sender gets a process of its own.
START = """
import sys, time
from floe_core.observability import telemetry
from floe_core.config.spec import ObservabilityConfig
def configure(endpoint, project='shop'):
    telemetry.configure(ObservabilityConfig(otlp_endpoint=endpoint, log_format='json'), project=project)
configure(sys.argv[1])
"""

SHOP = """
import os
import pyarrow as pa
from pathlib import Path
from floe_core.compiler import compile_project
from floe_core.errors import TableNotFoundError
from floe_core.identifiers import TableIdentifier
from floe_core.models import PartitionTransform, PartitionTransformType
from floe_core.config.references import resolve_model
from floe_core.observability.telemetry import configure, operation, warn
from floe_iceberg import IcebergTableManager

artifacts = compile_project(Path.cwd()).artifacts
configure(resolve_model(artifacts.observability, root=artifacts.root), project=artifacts.name)
secret = resolve_model(artifacts.spark, root=artifacts.root).conf['spark.hadoop.fs.s3a.secret.key']
tables = IcebergTableManager.open(artifacts)
orders = TableIdentifier.from_string('bronze.orders')
by_city = [PartitionTransform(source_column='city', transform_type=PartitionTransformType.IDENTITY)]
rows = pa.table({'id': [1, 2, 3], 'city': ['Oslo', 'Oslo', 'Bergen']})
tables.create_table(orders, rows.schema, partition_by=by_city)
tables.load_table(orders)
with operation('shop.day', day='2026-01-05'):
    print(tables.write_data(orders, rows, mode='append').snapshot_id)
    tables.scan(orders, columns=['id'], row_filter="city = 'Oslo'", limit=10).to_arrow()
try:
    tables.load_table(TableIdentifier.from_string('bronze.gone'))
except TableNotFoundError:
    pass
tables.scan(orders, row_filter=f"city = '{secret}'")
try:
    with operation('shop.pay', client_secret='whatever', note=f'with {secret}', why={'password': 'x', 'also': secret}):
        warn(f'the word was {secret}', word=secret)
        raise ValueError(f'wrong word: {secret}')
except ValueError:
    pass
"""


@pytest.fixture(scope="module")
def new_collector() -> Iterator[Callable[..., Collector]]:
    running: list[Collector] = []

    def start(credentials: grpc.ServerCredentials | None = None) -> Collector:
        running.append(Collector(credentials))
        return running[-1]

    yield start
    for collector in running:
        collector.server.stop(None).wait()


@pytest.fixture
def collector(new_collector: Callable[..., Collector]) -> Collector:
    return new_collector()


def run(program: str, *arguments: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=cwd,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def events(ran: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ran.stderr.splitlines()]


@dataclass
class Day:
    """What one run of the shop left at the collector, and what it printed."""

    collector: Collector
    ran: subprocess.CompletedProcess[str]

    @property
    def snapshot_id(self) -> int:
        return int(self.ran.stdout)


@pytest.fixture(scope="module")
def day(new_collector: Callable[..., Collector], tmp_path_factory: pytest.TempPathFactory) -> Day:
    collector, root = new_collector(), tmp_path_factory.mktemp("shop")
    (root / "floe.yaml").write_text(
        "name: shop\n"
        'spark: {conf: {spark.hadoop.fs.s3a.secret.key: "${env:PLANTED}"}}\n'
        'observability: {log_format: json, log_level: debug, otlp_endpoint: "${env:COLLECTOR}"}\n'
    )
    ran = run(SHOP, cwd=root, PLANTED=SECRET, COLLECTOR=f"http://127.0.0.1:{collector.port}")
    assert ran.returncode == 0, ran.stderr
    return Day(collector, ran)


def test_every_span_of_a_program_arrives_once(day: Day) -> None:
    assert day.collector.names == [
        "sql.connect",
        "iceberg.create_namespace",
        "iceberg.create_table",
        "iceberg.load_table",
        "iceberg.append",
        "iceberg.load_table",
        "iceberg.plan_scan",
        "iceberg.scan",
        "shop.day",
        "iceberg.load_table",
        "iceberg.load_table",
        "iceberg.plan_scan",
        "shop.pay",
    ]
    assert len({span.span_id for span in day.collector.spans}) == 13


def test_spans_carry_what_happened(day: Day) -> None:
    connected, namespace, create, empty, append, loaded, plan, scan = day.collector.spans[:8]
    orders = {"table": "bronze.orders", "iceberg.table": "bronze.orders"}
    assert attributes(connected)["catalog"] == "lake"
    assert attributes(namespace) == {"namespace": "bronze"}
    assert attributes(create)["iceberg.table"] == "bronze.orders"
    assert attributes(create)["schema_id"] == 0
    assert "identity(2)" in attributes(create)["partition_spec"]
    assert attributes(empty) == orders
    told = attributes(append)
    assert (told["iceberg.table"], told["num_rows"], told["snapshot_id"]) == ("bronze.orders", 3, day.snapshot_id)
    assert attributes(loaded) == {**orders, "snapshot_id": day.snapshot_id}
    asked = {**orders, "columns": ["id"], "row_filter": "city = 'Oslo'", "limit": 10}
    assert attributes(plan) == asked
    assert attributes(scan) == {**asked, "engine": "arrow", "snapshot_id": day.snapshot_id, "num_rows": 2}


def test_what_happens_inside_of_an_operation_is_its_child(day: Day) -> None:
    _, namespace, create, _, append, loaded, plan, scan, outer, *_ = day.collector.spans
    assert create.parent_span_id == outer.parent_span_id == b""
    assert namespace.parent_span_id == create.span_id
    assert append.parent_span_id == plan.parent_span_id == scan.parent_span_id == outer.span_id
    assert loaded.parent_span_id == plan.span_id
    assert {span.trace_id for span in (append, loaded, scan)} == {outer.trace_id} != {create.trace_id}


def test_the_service_is_named_after_the_project(day: Day) -> None:
    resources = [group.resource for request in day.collector.requests for group in request.resource_spans]
    assert resources
    for resource in resources:
        assert {one.key: value(one.value) for one in resource.attributes}["service.name"] == "floe-shop"


def test_no_secret_is_in_any_byte_that_is_sent_or_logged(day: Day) -> None:
    sent = b"".join(request.SerializeToString() for request in day.collector.requests)
    assert b"city = '***'" in sent, "the filter that held the secret is there, without it"
    assert b"ValueError: wrong word: ***" in sent
    assert SECRET.encode() not in sent
    assert SECRET not in day.ran.stdout + day.ran.stderr
    assert attributes(day.collector.spans[-1])["client_secret"] == "***"


def test_loading_a_table_is_logged_with_or_without_a_snapshot_and_when_there_is_none(day: Day) -> None:
    names = ("loading_table", "table_loaded", "table_not_found")
    logged = [event for event in events(day.ran) if event["event"] in names]
    assert {event["event"]: event["level"] for event in logged} == {
        "loading_table": "info",
        "table_loaded": "info",
        "table_not_found": "warning",
    }
    assert [(event["event"], event["table"], event.get("snapshot_id")) for event in logged] == [
        ("loading_table", "bronze.orders", None),
        ("table_loaded", "bronze.orders", None),
        ("loading_table", "bronze.orders", None),
        ("table_loaded", "bronze.orders", day.snapshot_id),
        ("loading_table", "bronze.gone", None),
        ("table_not_found", "bronze.gone", None),
        ("loading_table", "bronze.orders", None),
        ("table_loaded", "bronze.orders", day.snapshot_id),
    ]


def test_a_table_that_is_not_there_is_one_line_of_the_log(day: Day) -> None:
    assert [event["event"] for event in events(day.ran) if event.get("table") == "bronze.gone"] == [
        "loading_table",
        "table_not_found",
    ]


@pytest.mark.parametrize(
    ("end", "code"),
    [("", 0), ("sys.exit(3)", 3), ("raise ValueError('no')", 1), ("raise KeyboardInterrupt", -2)],
)
def test_the_last_spans_arrive_however_a_program_ends(collector: Collector, end: str, code: int) -> None:
    program = (
        f"{START}\nwith telemetry.operation('first'): pass\nwith telemetry.operation('last'):\n    pass\n    {end}\n"
    )
    ran = run(program, f"http://127.0.0.1:{collector.port}")
    assert ran.returncode == code, ran.stderr
    assert collector.names == ["first", "last"]


@pytest.mark.parametrize("kind", ["refused", pytest.param("silent", marks=pytest.mark.full)])
def test_a_collector_that_is_away_neither_fails_nor_holds_up_a_program(kind: str) -> None:
    """1,500 spans are three batches: each of them alone would be tried for 10 s."""
    program = (
        "from floe_core.observability import span_export as t\nt.EXIT_SECONDS = 1.0\n"
        f"{START}\n"
        "for _ in range(1500):\n    with telemetry.operation('lost'): pass\n"
        "print(time.time(), flush=True)\n"
    )
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if kind == "silent":
            listener.listen()
        where = f"127.0.0.1:{listener.getsockname()[1]}"
        ran = run(program, f"http://{where}")
        took = time.time() - float(ran.stdout)
    assert ran.returncode == 0, ran.stderr
    assert took < 5
    assert f"{where} did not take the last ones within 1 s" in [event.get("reason") for event in events(ran)]
    assert {event["event"] for event in events(ran)} == {"spans were lost"}


def test_a_program_waits_a_few_seconds_for_the_collector_and_no_more() -> None:
    assert span_export.EXIT_SECONDS <= 5


@pytest.mark.full
def test_https_is_encrypted_and_the_collector_is_checked(
    new_collector: Callable[..., Collector], tmp_path: Path
) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
    collector = new_collector(grpc.ssl_server_credentials([(issued.private_key_pem.bytes(), chain)]))
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    program = (
        "from floe_core.observability import span_export as t\nt.EXIT_SECONDS = 2.0\n"
        f"{START}\nwith telemetry.operation('sealed'): pass\n"
    )
    endpoint = f"https://127.0.0.1:{collector.port}"
    trusting = run(program, endpoint, OTEL_EXPORTER_OTLP_CERTIFICATE=str(tmp_path / "ca.pem"))
    assert (trusting.returncode, collector.names) == (0, ["sealed"]), trusting.stderr
    wary = run(program, endpoint)
    assert wary.returncode == 0
    assert "did not take the last ones" in wary.stderr
    assert collector.names == ["sealed"], "an unknown authority gets no span"


@pytest.mark.usefixtures("configured_logs")
@pytest.mark.parametrize("endpoint", ["127.0.0.1:4317", "collector:4317", "grpc://collector:4317", "http://", "/tmp"])
def test_an_endpoint_that_does_not_say_http_or_https_is_refused(endpoint: str) -> None:
    with pytest.raises(ConfigurationError, match=r"otlp_endpoint: write http://host:4317, or https://host:4317"):
        telemetry.configure(ObservabilityConfig(otlp_endpoint=endpoint), project="shop")


@pytest.mark.usefixtures("configured_logs")
def test_a_password_in_the_endpoint_is_refused_without_showing_it() -> None:
    with pytest.raises(ConfigurationError, match="OTEL_EXPORTER_OTLP_HEADERS") as caught:
        telemetry.configure(ObservabilityConfig(otlp_endpoint=f"http://me:{SECRET}@127.0.0.1:4317"), project="shop")
    assert SECRET not in str(caught.value)


def test_configuring_twice_sends_spans_once_and_says_nothing(collector: Collector) -> None:
    program = f"{START}\nconfigure(sys.argv[1])\nwith telemetry.operation('once'): pass\n"
    ran = run(program, f"http://127.0.0.1:{collector.port}")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert collector.names == ["once"]


def test_the_collector_of_a_process_stays_and_another_one_is_told_so(
    new_collector: Callable[..., Collector],
) -> None:
    first, second = new_collector(), new_collector()
    program = f"{START}\nconfigure(sys.argv[2])\nwith telemetry.operation('once'): pass\n"
    ran = run(program, f"http://127.0.0.1:{first.port}", f"http://127.0.0.1:{second.port}")
    assert [event["event"] for event in events(ran)] == [NOT_USED]
    assert (first.names, second.names) == (["once"], [])


def test_a_program_that_traces_already_keeps_its_own_way(collector: Collector) -> None:
    program = (
        "from opentelemetry import trace\n"
        "from opentelemetry.sdk.trace import TracerProvider\n"
        "from opentelemetry.sdk.trace.export import SimpleSpanProcessor\n"
        "from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter\n"
        "own, exporter = TracerProvider(), InMemorySpanExporter()\n"
        "own.add_span_processor(SimpleSpanProcessor(exporter))\n"
        "trace.set_tracer_provider(own)\n"
        f"{START}\n"
        "with telemetry.operation('mine'): pass\n"
        "print([span.name for span in exporter.get_finished_spans()])\n"
    )
    ran = run(program, f"http://127.0.0.1:{collector.port}")
    assert ran.stdout == "['mine']\n"
    assert [event["event"] for event in events(ran)] == [NOT_USED]
    assert collector.names == []
