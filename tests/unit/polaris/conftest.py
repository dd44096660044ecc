"""A scripted catalog and settings for it, with secrets that must never be seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.refusals import GIVEN_TOKEN, SECRET
from tests.servers.catalogs import QUICK
from tests.servers.scripted import ScriptedServer, scripted_server

from floe_core.config.spec import RestCatalogConfig
from floe_polaris import PolarisCatalog, create_catalog

Connect = Callable[..., PolarisCatalog]


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    """Over the fixture of the same name that starts a real one."""
    with scripted_server() as running:
        yield running


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOE_TEST_SCRIPTED_SECRET", SECRET)
    monkeypatch.setenv("FLOE_TEST_SCRIPTED_TOKEN", GIVEN_TOKEN)
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "requests_ca_bundle", "curl_ca_bundle"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def settings(server: ScriptedServer) -> Callable[..., RestCatalogConfig]:
    """Settings of the scripted catalog with some changed; None takes one away."""

    def make(**changed: Any) -> RestCatalogConfig:
        given = {
            "uri": server.uri,
            "warehouse": "sales",
            "allow_insecure": True,  # some tests name a server elsewhere, which is never reached
            "credentials": {"client_id": "floe", "client_secret": "${env:FLOE_TEST_SCRIPTED_SECRET}"},
            "retry": QUICK,
            **changed,
        }
        return RestCatalogConfig.model_validate({key: value for key, value in given.items() if value is not None})

    return make


@pytest.fixture
def connect(settings: Callable[..., RestCatalogConfig]) -> Connect:
    return lambda **changed: create_catalog(settings(**changed))
