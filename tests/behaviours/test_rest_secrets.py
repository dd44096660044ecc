"""Nothing that opens a door is shown: not in a log at level DEBUG, a span, an error, a repr, or a page of Spark."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from tests.catalogs import rest_settings
from tests.faults.proxy import Answer, FaultProxy, Forward, Request, fault_proxy
from tests.servers.seaweedfs import SeaweedFS

SCRIPT = """
import logging, sys, traceback, urllib.request
logging.basicConfig(level=logging.DEBUG, stream=sys.stdout)
logging.getLogger("py4j").setLevel(logging.INFO)  # it says every word that goes to the JVM

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter()))
trace.set_tracer_provider(provider)

import pyarrow as pa
from floe_core.config.artifacts import CompiledArtifacts
from floe_core.compiler import compile_project
from floe_core.identifiers import TableIdentifier
from floe_core.config.references import resolve_model
from floe_iceberg import Lake

logging.getLogger("floe").setLevel(logging.DEBUG)
root, mode = sys.argv[1:]
from pathlib import Path
lake = Lake(compile_project(Path(root)).artifacts)
table = TableIdentifier.from_string("planted.events")

def tell(act):
    try:
        act()
    except Exception as exc:
        print("FAILED", repr(exc), getattr(exc, "detail", None))
        traceback.print_exc(file=sys.stdout)
    else:
        print("DONE")

if mode == "arrow":
    catalog = lake.tables.catalog_plugin.connect()
    tell(lambda: lake.tables.write_data(table, pa.table({"id": [1]}), mode="append"))
    tell(lambda: lake.tables.scan(table).to_arrow())
    for one in (catalog, catalog.properties, catalog._session, catalog._session.auth, lake.tables.load_table(table),
                lake.tables.catalog_plugin, lake.tables.storage_plugin, lake.artifacts, lake.artifacts.catalog,
                resolve_model(lake.artifacts.catalog, root=lake.artifacts.root), lake.tables.load_table(table).io):
        print(repr(one), str(one))
    for fault in ("forbid", "refuse", "echo", "html", "away"):
        urllib.request.urlopen(urllib.request.Request(f"{catalog.uri}/fault/{fault}", method="PUT"))
        print("FAULT", fault)
        tell(lambda: lake.tables.load_table(table))
        tell(lambda: lake.tables.write_data(table, pa.table({"id": [1]}), mode="append"))
        tell(lambda: Lake(lake.artifacts).tables.catalog_plugin.list_namespaces())
else:
    spark = lake.spark
    tell(lambda: lake.write(spark.range(3), table, mode="append"))
    tell(lambda: print(lake.read(table).count()))
    tell(lambda: lake.write(spark.range(3), table, mode="upsert", keys=["id"]))
    tell(lambda: print(spark.sql("SET").collect()))
    address = spark.sparkContext.uiWebUrl.rpartition(":")[2]
    app = f"api/v1/applications/{spark.sparkContext.applicationId}"
    for page in ("environment/", "SQL/", "jobs/", f"{app}/environment", f"{app}/sql?details=true"):
        print("PAGE", page, urllib.request.urlopen(f"http://127.0.0.1:{address}/{page}").read().decode())
    uri = lake.tables.catalog_plugin.connect().uri
    urllib.request.urlopen(urllib.request.Request(f"{uri}/fault/no", method="PUT"))
    tell(lambda: lake.write(spark.range(3), table, mode="append"))
    tell(lambda: spark.table("lake.planted.events").count())
    spark.stop()
"""
SPARK = """\
spark:
  conf:
    spark.ui.enabled: true
    spark.ui.port: 0
    spark.log.level: DEBUG
    spark.eventLog.enabled: true
    spark.eventLog.compress: false
    spark.eventLog.dir: "${env:FLOE_TEST_EVENTS}"
"""


class Listening:
    """Lets everything pass and remembers what must not be shown; misbehaves when told to."""

    def __init__(self, secret: str) -> None:
        self.secrets = {secret, quote(secret, safe="")}
        self.fault = ""

    def __call__(self, request: Request, forward: Forward) -> Answer | None:
        if "/fault/" in request.path:
            self.fault = request.path.rpartition("/")[2]
            return Answer(200)
        sent = request.headers.get("authorization", "").removeprefix("Bearer ")
        is_token = request.path.endswith("/oauth/tokens")
        if sent:
            self.secrets.add(sent)
        if self.fault and not is_token:
            return self._misbehave(sent)
        answer = forward()
        found = re.findall(rb'"(?:access_token|s3\.secret-access-key|s3\.session-token)": ?"([^"]+)"', answer.body)
        self.secrets.update(one.decode() for one in found)
        return answer

    def _misbehave(self, token: str) -> Answer | None:
        echoed = f"token {token} of {' and '.join(sorted(self.secrets)[:3])}"
        return {
            "forbid": Answer.error(403, "ForbiddenException", echoed),
            "refuse": Answer.error(401, "NotAuthorizedException", echoed),
            "echo": Answer(500, (), json.dumps({"error": {"message": echoed, "type": echoed, "code": 500}}).encode()),
            "html": Answer(200, (("Content-Type", "text/html"),), f"<html>{echoed}</html>".encode()),
            "away": None,
            "no": Answer.error(403, "ForbiddenException", "no"),
        }[self.fault]


@pytest.fixture
def proxy(server: SeaweedFS) -> Iterator[FaultProxy]:
    with fault_proxy(server.catalog_uri) as running:
        yield running


@pytest.mark.parametrize("mode", ["arrow", pytest.param("spark", marks=pytest.mark.full)])
def test_no_secret_is_shown_anywhere(server: SeaweedFS, proxy: FaultProxy, tmp_path: Path, mode: str) -> None:
    events = tmp_path / "events"
    events.mkdir()
    quick = "  retry: {initial_wait_seconds: 0.1, jitter_seconds: 0, max_attempts: 2}\n"
    settings = rest_settings(server, uri=proxy.uri, catalog=quick)
    (tmp_path / "floe.yaml").write_text(f"name: tests\n{settings}{SPARK if mode == 'spark' else ''}")
    (tmp_path / "script.py").write_text(SCRIPT)
    heard = Listening(server.secret)
    with proxy.intercepted(heard):
        done = subprocess.run(
            [sys.executable, "script.py", str(tmp_path), mode],
            cwd=tmp_path, capture_output=True, text=True, timeout=300,
            env={**os.environ, "FLOE_TEST_EVENTS": events.as_uri()},
        )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(heard.secrets) >= 5  # the client's own, tokens, keys and session tokens of files
    shown = {"standard output": done.stdout, "standard error": done.stderr}
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    shown |= {str(path.relative_to(tmp_path)): path.read_text(errors="replace") for path in written}
    leaks = [
        f"{where}: {text[text.index(one) - 200 : text.index(one) + 60]}"
        for where, text in shown.items()
        for one in heard.secrets
        if one in text
    ]
    assert leaks == []
    assert "FAILED" in done.stdout
    assert done.stdout.count("DONE") >= 2
    if mode == "spark":
        assert any("eventlog" in where for where in shown)
        assert "spark.sql.catalog.lake.credential" in done.stdout  # it is listed, without its value
