"""What is sent to a catalog: names and values arrive as they were meant, over few connections."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.faults.proxy import Answer
from tests.servers.scripted import TOKEN_TEXT, ScriptedServer, as_json

from floe_core import __version__
from floe_core.config.spec import PolarisCatalogConfig, RestCatalogConfig
from floe_core.errors import ConfigurationError
from floe_polaris import PolarisCatalog, create_catalog
from floe_polaris.plugin import RestCatalogPlugin

Connect = Callable[..., PolarisCatalog]
NAMESPACES = "/v1/lake/namespaces"


@pytest.fixture
def plugin(settings: Callable[..., RestCatalogConfig], tmp_path: Path) -> RestCatalogPlugin:
    return RestCatalogPlugin(settings(), root=tmp_path)


@pytest.mark.parametrize(
    ("warehouse", "sent"),
    [
        ("my sales", "my+sales"),
        ("größe", "gr%C3%B6%C3%9Fe"),
        ("a&b=c", "a%26b%3Dc"),
        ("50%+1", "50%25%2B1"),
        ("s3://lake/x", "s3%3A%2F%2Flake%2Fx"),
        ("#?", "%23%3F"),
    ],
)
def test_a_warehouse_of_any_name_arrives(server: ScriptedServer, connect: Connect, warehouse: str, sent: str) -> None:
    connect(warehouse=warehouse)
    path = server.requests[-1].path
    assert path == f"/v1/config?warehouse={sent}"
    assert parse_qs(urlsplit(path).query) == {"warehouse": [warehouse]}


def test_an_unknown_warehouse_is_named_as_it_was_written(server: ScriptedServer, connect: Connect) -> None:
    server.answers["GET /v1/config"] = Answer.error(404, "NotFoundException", "Unable to find warehouse")
    with pytest.raises(Exception, match="has no warehouse 'größe & co'"):
        connect(warehouse="größe & co")


@pytest.mark.parametrize("ending", ["", "/"])
def test_a_slash_at_the_end_of_the_address_does_not_matter(
    server: ScriptedServer, connect: Connect, ending: str
) -> None:
    server.answers["POST /api/catalog/v1/oauth/tokens"] = as_json({"access_token": TOKEN_TEXT})
    server.answers["GET /api/catalog/v1/config"] = as_json({"defaults": {}, "overrides": {}})
    connect(uri=f"{server.uri}/api/catalog{ending}")
    assert [urlsplit(one.path).path for one in server.requests] == [
        "/api/catalog/v1/oauth/tokens",
        "/api/catalog/v1/config",
    ]


def test_the_levels_of_a_namespace_travel_as_levels(server: ScriptedServer, plugin: RestCatalogPlugin) -> None:
    server.answers["*"] = as_json({"identifiers": [], "namespaces": []})
    server.answers[f"POST {NAMESPACES}"] = as_json({"namespace": ["raw", "web", "eu"], "properties": {}})
    server.answers[f"DELETE {NAMESPACES}/raw%1Fweb"] = Answer(204)
    plugin.create_namespace("raw.web.eu")
    plugin.list_tables("raw.web")
    plugin.list_namespaces("raw.web")
    plugin.delete_namespace("raw.web")
    created, tables, listed, deleted = server.requests[2:]
    assert json.loads(created.body)["namespace"] == ["raw", "web", "eu"]
    assert tables.path == f"{NAMESPACES}/raw%1Fweb/tables"
    assert listed.path == f"{NAMESPACES}?parent=raw%1Fweb"
    assert deleted.path == f"{NAMESPACES}/raw%1Fweb"


@pytest.mark.parametrize("level", ["a/b", "größe", "a\x1fb", "a%1Fb", "", "..", " ", "a b", "-a", "a\n", "x" * 129])
def test_a_level_that_no_catalog_and_engine_share_is_refused_before_anything_is_sent(
    server: ScriptedServer, plugin: RestCatalogPlugin, level: str
) -> None:
    for act in (
        lambda: plugin.create_namespace(f"raw.{level}"),
        lambda: plugin.create_namespace(f"{level}.raw"),
        lambda: plugin.delete_namespace(f"raw.{level}"),
        lambda: plugin.list_namespaces(f"raw.{level}"),
        lambda: plugin.list_tables(f"raw.{level}"),
        lambda: plugin.drop_table(f"raw.{level}"),
        lambda: plugin.drop_table(f"{level}.orders"),
        lambda: plugin.vend_credentials(f"raw.{level}.orders"),
    ):
        with pytest.raises(ConfigurationError, match=r"namespace|table"):
            act()
    assert server.requests == []


def test_a_dot_parts_levels_and_is_never_in_one(server: ScriptedServer, plugin: RestCatalogPlugin) -> None:
    server.answers[f"POST {NAMESPACES}"] = as_json({"namespace": ["a", "b"], "properties": {}})
    plugin.create_namespace("a.b")
    assert json.loads(server.requests[-1].body)["namespace"] == ["a", "b"]


def test_properties_arrive_whole(server: ScriptedServer, plugin: RestCatalogPlugin) -> None:
    server.answers[f"POST {NAMESPACES}"] = as_json({"namespace": ["raw"], "properties": {}})
    properties = {"long": "0123456789" * 1024, "odd": "ü\n\"'\\ \x1f🧊", "empty": "", "k.ey ü": "v"}
    plugin.create_namespace("raw", properties)
    assert json.loads(server.requests[-1].body)["properties"] == properties


def test_every_request_says_who_sends_it(server: ScriptedServer, connect: Connect) -> None:
    server.answers[f"GET {NAMESPACES}"] = as_json({"namespaces": []})
    server.answers[f"HEAD {NAMESPACES}/raw"] = Answer(204)
    catalog = connect()
    catalog.list_namespaces()
    catalog.namespace_exists(("raw",))
    assert len(server.requests) == 4
    assert all(f"Floe/{__version__} " in one.headers["user-agent"] for one in server.requests)


def test_every_request_names_the_realm(server: ScriptedServer, settings: Callable[..., RestCatalogConfig]) -> None:
    given = settings().model_dump() | {"type": "polaris", "realm": "north"}
    server.answers[f"GET {NAMESPACES}"] = as_json({"namespaces": []})
    create_catalog(PolarisCatalogConfig.model_validate(given)).list_namespaces()
    assert [one.headers.get("polaris-realm") for one in server.requests] == ["north"] * 3


def test_a_token_is_sent_to_the_catalog_and_to_nobody_else(server: ScriptedServer, connect: Connect) -> None:
    server.answers["POST /token"] = as_json({"access_token": TOKEN_TEXT})
    connect(oauth2_server_uri=f"{server.uri}/token")
    assert [one.headers.get("authorization") for one in server.requests] == [None, f"Bearer {TOKEN_TEXT}"]


def test_a_hundred_requests_share_a_connection(server: ScriptedServer, connect: Connect) -> None:
    server.answers[f"GET {NAMESPACES}"] = as_json({"namespaces": []})
    catalog = connect()
    before = server.connections
    for _ in range(100):
        catalog.list_namespaces()
    assert len(server.requests) == 102
    assert server.connections - before <= 1


def test_a_refused_token_costs_no_connection(server: ScriptedServer, connect: Connect) -> None:
    catalog = connect()
    server.answers[f"GET {NAMESPACES}"] = as_json({"namespaces": []})
    catalog.list_namespaces()
    before = server.connections
    server.answers[f"GET {NAMESPACES}"] = lambda request: (
        as_json({"namespaces": []}) if "new" in request.headers["authorization"] else Answer(401)
    )
    server.answers["POST /v1/oauth/tokens"] = as_json({"access_token": "new"})
    catalog.list_namespaces()
    assert server.connections - before <= 1
