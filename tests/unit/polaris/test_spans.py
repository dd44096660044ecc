"""The spans and log events of a catalog server, by their names, and without what must not be seen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.faults.proxy import Answer
from tests.refusals import SECRET
from tests.servers.scripted import TOKEN_TEXT, ScriptedServer, as_json

from floe_core.config.spec import RestCatalogConfig
from floe_core.errors import CatalogAuthenticationError
from floe_polaris.plugin import RestCatalogPlugin

NAMESPACES = "/v1/lake/namespaces"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    return exporter


@pytest.fixture
def plugin(settings: Callable[..., RestCatalogConfig], tmp_path: Path) -> RestCatalogPlugin:
    return RestCatalogPlugin(settings(), root=tmp_path)


def facts_of(spans: InMemorySpanExporter) -> dict[str, dict[str, object]]:
    return {one.name: dict(one.attributes or {}) for one in spans.get_finished_spans()}


def shown(spans: InMemorySpanExporter) -> str:
    return " ".join(one.to_json() for one in spans.get_finished_spans())


def test_to_connect_is_to_authenticate(spans: InMemorySpanExporter, plugin: RestCatalogPlugin) -> None:
    plugin.connect()
    facts = facts_of(spans)
    assert facts["polaris.authenticate"]["scope"] == "PRINCIPAL_ROLE:ALL"
    assert facts["polaris.connect"]["warehouse"] == "sales"
    by_name = {one.name: one for one in spans.get_finished_spans()}
    parent = by_name["polaris.authenticate"].parent
    assert parent is not None
    assert parent.span_id == by_name["polaris.connect"].context.span_id
    assert SECRET not in shown(spans)
    assert TOKEN_TEXT not in shown(spans)


def test_a_namespace_is_created_under_its_name(
    spans: InMemorySpanExporter, server: ScriptedServer, plugin: RestCatalogPlugin
) -> None:
    server.answers[f"POST {NAMESPACES}"] = as_json({"namespace": ["bronze"], "properties": {}})
    plugin.create_namespace("bronze", {"owner": "us", "password": "planted-one"})
    facts = facts_of(spans)["polaris.create_namespace"]
    assert facts["namespace"] == "bronze"
    assert "owner" in str(facts["properties"])
    assert "planted-one" not in shown(spans)


def test_a_repetition_is_an_event_of_the_span(
    spans: InMemorySpanExporter, server: ScriptedServer, plugin: RestCatalogPlugin
) -> None:
    plugin.connect()
    answers = iter([Answer(503), Answer(503), as_json({"namespaces": [["bronze"]]})])
    server.answers[f"GET {NAMESPACES}"] = lambda _request: next(answers)
    assert plugin.list_namespaces() == ["bronze"]
    span = next(one for one in spans.get_finished_spans() if one.name == "polaris.list_namespaces")
    assert [event.name for event in span.events] == ["retrying", "retrying"]
    assert [dict(event.attributes or {})["attempt"] for event in span.events] == [1, 2]


def test_a_refusal_is_on_the_span_without_the_secret(
    spans: InMemorySpanExporter, server: ScriptedServer, plugin: RestCatalogPlugin
) -> None:
    server.answers["POST /v1/oauth/tokens"] = as_json(
        {"error": "unauthorized_client", "error_description": f"the secret {SECRET} is wrong"}, 401
    )
    with pytest.raises(CatalogAuthenticationError):
        plugin.connect()
    span = next(one for one in spans.get_finished_spans() if one.name == "polaris.authenticate")
    assert span.status.status_code is trace.StatusCode.ERROR
    assert "Authentication failed" in str(span.status.description)
    assert SECRET not in shown(spans)
