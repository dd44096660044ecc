"""Catalogs opened in one line: PolarisCatalog on a server, by way of a proxy or not."""

from __future__ import annotations

import os
from typing import Any

from floe_core.config.spec import RestCatalogConfig
from floe_polaris import PolarisCatalog, create_catalog
from tests.servers.seaweedfs import BUCKET, SeaweedFS

__all__ = ["QUICK", "open_catalog", "settings_of"]

# Patient, and quick about it.
QUICK: dict[str, Any] = {"initial_wait_seconds": 0.1, "max_wait_seconds": 1, "jitter_seconds": 0}


def settings_of(server: SeaweedFS, uri: str | None = None, **changed: Any) -> RestCatalogConfig:
    """The settings of a server's catalog; None takes one away."""
    os.environ["FLOE_TEST_REST_SECRET"] = server.secret
    settings = {
        "uri": uri or server.catalog_uri,
        "warehouse": f"s3://{BUCKET}",
        "credentials": {"client_id": server.key, "client_secret": "${env:FLOE_TEST_REST_SECRET}"},
        "retry": QUICK,
        **changed,
    }
    return RestCatalogConfig.model_validate({key: value for key, value in settings.items() if value is not None})


def open_catalog(server: SeaweedFS, uri: str | None = None, **changed: Any) -> PolarisCatalog:
    return create_catalog(settings_of(server, uri, **changed))
