"""Whatever a server answers: a FloeError at most, and no file, process, import or other host is touched."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.faults.proxy import Answer
from tests.security.watch import watching
from tests.servers.hostile import served_table
from tests.servers.scripted import ScriptedServer, scripted_server

from floe_core.config.spec import LocalStorageConfig, RestCatalogConfig
from floe_core.errors import FloeError
from floe_iceberg import IcebergTableManager
from floe_iceberg.storage.local import LocalStoragePlugin
from floe_polaris.plugin import RestCatalogPlugin

DANGEROUS = (
    "py-io-impl",
    "py-catalog-impl",
    "write.py-location-provider.impl",
    "s3.retry-strategy-impl",
    "auth",
    "ssl",
    "io-impl",
    "metrics-reporter-impl",
    "uri",
    "oauth2-server-uri",
    "credential",
    "token",
    "header.Authorization",
    "rest.sigv4-enabled",
    "rest-page-size",
    "prefix",
    "namespace-separator",
    "view-endpoints-supported",
    "snapshot-loading-mode",
    "scan-planning-mode",
    "warehouse",
    "s3.endpoint",
    "s3.access-key-id",
    "s3.secret-access-key",
    "s3.session-token-expires-at-ms",
    "client.region",
    "write.data.path",
    "write.metadata.path",
    "write.metadata.delete-after-commit.enabled",
    "write.parquet.compression-codec",
    "schema.name-mapping.default",
)
CANARY = "{canary}"  # replaced by the folder that must stay as it is
HOSTILE_TEXTS = (
    "builtins.exec",
    "subprocess.Popen",
    "os.system",
    "venv.main",
    "this.that",
    f"{CANARY}/document.txt",
    f"file://{CANARY}/document.txt",
    f"{CANARY}/../{CANARY}",
    "http://127.0.0.1:9/",
    "../../../etc/passwd",
    "hdfs://planted/x",
    "ftp://planted/x",
    "",
    "\0",
    "-1",
    "true",
    "%2e%2e",
    "{0.__class__}",
    "a" * 300,
)

texts = st.one_of(st.sampled_from(HOSTILE_TEXTS), st.text(max_size=12))
numbers = st.one_of(st.integers(-(2**70), 2**70), st.sampled_from([0, -1, 2**31, 2**63]), st.floats(allow_nan=False))
scalars = st.one_of(st.none(), st.booleans(), numbers, texts)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=6,
)
keys = st.one_of(st.sampled_from(DANGEROUS), st.text(max_size=8))
properties = st.dictionaries(keys, st.one_of(texts, values), max_size=5)


def places(document: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands in a JSON document."""
    found = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in found:
        yield (*above, key)
        yield from places(value, (*above, key))


def changed(document: Any, place: tuple[Any, ...], value: Any, *, drop: bool) -> Any:
    made = copy.deepcopy(document)
    inner = made
    for key in place[:-1]:
        inner = inner[key]
    if drop:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    return made


@st.composite
def mutated(draw: st.DrawFn, document: Any) -> Any:
    """The document with a few of its values changed or left out."""
    for _ in range(draw(st.integers(0, 3))):
        where = list(places(document))
        if not where:
            break
        document = changed(document, draw(st.sampled_from(where)), draw(values), drop=draw(st.booleans()))
    return document


@dataclass(frozen=True)
class Fuzzed:
    server: ScriptedServer
    root: Path
    canary: Path
    table: dict[str, Any]

    def tree(self) -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in sorted(self.canary.rglob("*")) if path.is_file()}

    def answer(self, document: Any) -> Answer:
        text = json.dumps(document).replace(CANARY, str(self.canary))
        return Answer(200, (("Content-Type", "application/json"),), text.encode())

    def open(self) -> IcebergTableManager:
        retry = {"max_attempts": 1, "circuit_breaker_threshold": 0}
        config = {"uri": self.server.uri, "warehouse": "lake", "auth": "none", "retry": retry, "timeout_seconds": 5}
        catalog = RestCatalogPlugin(RestCatalogConfig.model_validate(config), root=self.root)
        return IcebergTableManager(catalog, LocalStoragePlugin(LocalStorageConfig(), root=self.root))


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fuzzed]:
    root = tmp_path_factory.mktemp("fuzz")
    canary = root / "canary"
    location, metadata = served_table(canary / "lake")
    (canary / "document.txt").write_text("mine", encoding="utf-8")
    table = {"metadata-location": location, "metadata": metadata, "config": {}, "storage-credentials": []}
    with scripted_server() as server:
        made = Fuzzed(server, root, canary, table)
        serve(made, {"defaults": {}, "overrides": {}}, {"namespaces": [["ns"]]}, listed("t"), table)
        drive(made)  # what is imported by a table that is as it should be is imported now
        yield made


def listed(name: str) -> dict[str, Any]:
    return {"identifiers": [{"namespace": ["ns"], "name": name}]}


def serve(fuzzed: Fuzzed, config: Any, namespaces: Any, tables: Any, table: Any) -> None:
    by_end = {"/v1/config": config, "/namespaces": namespaces, "/tables": tables}

    def answer(request: Any) -> Answer:
        path = urlsplit(request.path).path
        found = next((body for end, body in by_end.items() if path.endswith(end)), table)
        if path.endswith("/ns"):
            found = {"namespace": ["ns"], "properties": {}}
        return fuzzed.answer(found)

    fuzzed.server.answers = {"*": answer, "GET /v1/config": answer}
    fuzzed.server.requests.clear()


def drive(fuzzed: Fuzzed) -> list[str]:
    """What a user does who only looks; the FloeErrors on the way."""
    manager = fuzzed.open()
    steps = (
        lambda: manager.list_namespaces(),
        lambda: manager.load_namespace("ns"),
        lambda: manager.list_tables("ns"),
        lambda: manager.list_snapshots("ns.t"),
        lambda: list(manager.scan("ns.t").plan_files()),
        lambda: manager.scan("ns.t").to_arrow(),
        lambda: manager.catalog_plugin.check_for_spark(),
    )
    try:
        return [refusal for step in steps if (refusal := _refusal(step)) is not None]
    finally:
        manager.close()


def _refusal(step: Callable[[], object]) -> str | None:
    try:
        step()
    except FloeError as exc:
        return str(exc)
    return None


def check(fuzzed: Fuzzed, config: Any, namespaces: Any, tables: Any, table: Any) -> None:
    serve(fuzzed, config, namespaces, tables, table)
    before, address = fuzzed.tree(), urlsplit(fuzzed.server.uri)
    with watching((str(address.hostname), address.port or 0)) as touched:
        drive(fuzzed)
    assert touched == []
    assert fuzzed.tree() == before


few = settings(
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
CONFIG = {"defaults": {}, "overrides": {"prefix": "lake"}, "endpoints": None}


@settings(few, max_examples=40)
@given(st.data())
def test_no_settings_of_a_server_touch_anything(fuzzed: Fuzzed, data: st.DataObject) -> None:
    config = {"defaults": data.draw(properties), "overrides": data.draw(properties)}
    credentials = [{"prefix": "file:", "config": data.draw(properties)}]
    metadata = copy.deepcopy(fuzzed.table["metadata"])
    metadata["properties"] |= data.draw(properties)
    table = {**fuzzed.table, "metadata": metadata, "config": data.draw(properties), "storage-credentials": credentials}
    check(fuzzed, config, {"namespaces": [["ns"]]}, listed("t"), table)


@settings(few, max_examples=40)
@given(st.data())
def test_no_answer_of_a_server_raises_anything_but_a_floe_error(fuzzed: Fuzzed, data: st.DataObject) -> None:
    config = data.draw(st.one_of(st.just(CONFIG), mutated({**CONFIG, "endpoints": ["GET /v1/{prefix}/namespaces"]})))
    namespaces = data.draw(st.one_of(values, mutated({"namespaces": [["ns"]], "next-page-token": None})))
    tables = data.draw(st.one_of(values, mutated(listed("t"))))
    table = data.draw(st.one_of(values, mutated(fuzzed.table)))
    check(fuzzed, config, namespaces, tables, table)


@settings(few, max_examples=100)
@given(st.data())
def test_no_metadata_of_a_table_raises_anything_but_a_floe_error(fuzzed: Fuzzed, data: st.DataObject) -> None:
    table = {**fuzzed.table, "metadata": data.draw(mutated(fuzzed.table["metadata"]))}
    check(fuzzed, CONFIG, {"namespaces": [["ns"]]}, listed("t"), table)
