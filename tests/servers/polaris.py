"""What the Polaris that is given can be asked to set up for one test: principals and catalogs, removed afterwards."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import requests

from tests.catalogs import polaris_uri

__all__ = ["Management", "management"]


class Management:
    """The management API, with the credentials that the tests were given."""

    def __init__(self, uri: str) -> None:
        self.catalog = os.environ["FLOE_TEST_POLARIS_WAREHOUSE"]
        self._api = f"{uri.removesuffix('/catalog')}/management/v1"
        self._undo: list[str] = []
        client_id, _, secret = os.environ["FLOE_TEST_POLARIS_CREDENTIAL"].partition(":")
        form = {"grant_type": "client_credentials", "client_id": client_id, "client_secret": secret}
        answer = requests.post(f"{uri}/v1/oauth/tokens", {**form, "scope": "PRINCIPAL_ROLE:ALL"}, timeout=30)
        answer.raise_for_status()
        self._headers = {"Authorization": f"Bearer {answer.json()['access_token']}"}

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        answer = requests.request(method, f"{self._api}{path}", json=body, headers=self._headers, timeout=30)
        if answer.status_code == 403:
            pytest.skip(f"the principal of the tests may not {method} {path}")
        answer.raise_for_status()
        return answer.json() if answer.content else None

    def principal(self, *privileges: str) -> str:
        """`id:secret` of a new principal with these privileges on the catalog."""
        name = f"test_{uuid.uuid4().hex[:10]}"
        made = self._ask("POST", "/principals", {"principal": {"name": name}})
        self._undo.append(f"/principals/{name}")
        self._ask("POST", "/principal-roles", {"principalRole": {"name": name}})
        self._undo.append(f"/principal-roles/{name}")
        self._ask("PUT", f"/principals/{name}/principal-roles", {"principalRole": {"name": name}})
        self._ask("POST", f"/catalogs/{self.catalog}/catalog-roles", {"catalogRole": {"name": name}})
        self._undo.append(f"/catalogs/{self.catalog}/catalog-roles/{name}")
        self._ask("PUT", f"/principal-roles/{name}/catalog-roles/{self.catalog}", {"catalogRole": {"name": name}})
        for privilege in privileges:
            self._grant(self.catalog, name, privilege)
        return f"{made['credentials']['clientId']}:{made['credentials']['clientSecret']}"

    def new_catalog(self, base: str, **storage: Any) -> str:
        """A catalog with this base location, and the storage of the given one except for what is named."""
        name = f"test_{uuid.uuid4().hex[:10]}"
        given = self._ask("GET", f"/catalogs/{self.catalog}")["storageConfigInfo"] if not storage else {}
        catalog = {
            "type": "INTERNAL",
            "name": name,
            "properties": {"default-base-location": base},
            "storageConfigInfo": {**given, **storage, "allowedLocations": [base]},
        }
        self._ask("POST", "/catalogs", {"catalog": catalog})
        self._undo.append(f"/catalogs/{name}")
        self._grant(name, "catalog_admin", "CATALOG_MANAGE_CONTENT")
        return name

    def _grant(self, catalog: str, role: str, privilege: str) -> None:
        grant = {"grant": {"type": "catalog", "privilege": privilege}}
        self._ask("PUT", f"/catalogs/{catalog}/catalog-roles/{role}/grants", grant)

    def clean_up(self) -> None:
        for path in reversed(self._undo):
            requests.delete(f"{self._api}{path}", headers=self._headers, timeout=30)


@contextmanager
def management() -> Iterator[Management]:
    opened = Management(polaris_uri())
    try:
        yield opened
    finally:
        opened.clean_up()
