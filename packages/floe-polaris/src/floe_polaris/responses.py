"""The error for each refusal of a catalog, by status and body, with the next step.

Not found, already exists and conflict are left to PyIceberg, which knows the request. This module handles refusals
that no request gets past: authentication, permissions, a wrong address, a proxy.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import requests

from floe_core.catalog_refusals import explain_refusal, refused_by_store
from floe_core.errors import (
    CatalogAuthenticationError,
    CatalogConnectionError,
    ConfigurationError,
    FloeError,
    FloeStorageError,
    PermissionDeniedError,
)
from floe_core.models import StorageErrorDetail
from floe_polaris.transport_errors import AWAY, address, shown

__all__ = ["Asked", "AskedForToken", "checked_token"]

_AUTHENTICATION_FAILED = "Authentication failed: check catalog credentials in floe.yaml."
# Messages of Polaris and of the STS behind it when credentials cannot be vended; the status varies.
_NO_VENDING = re.compile(r"(?i)credential vending|subscoped credential|cannot vend|access.delegation|service: sts")
_PROXY_WANTS_LOGIN = "the proxy on the way requires a login (407): set HTTPS_PROXY to http://user:password@host:port"


@dataclass(frozen=True)
class Asked:
    """The client and the catalog of a request, for the messages of its errors."""

    warehouse: str
    client_id: str | None
    scope: str
    with_token: bool
    renews: bool = True
    corrected: str | None = None

    def check(self, response: requests.Response, **_options: Any) -> None:
        """A hook of requests: raise the error for a refusal that no caller can handle."""
        _check_redirect(response, "catalog.uri")
        error = self._refusal(response)
        if error is not None:
            raise error

    def _refusal(self, response: requests.Response) -> FloeError | None:
        status = response.status_code
        if status in (401, 419):
            return CatalogAuthenticationError(
                f"{_AUTHENTICATION_FAILED} {self._why(response)}", detail=_detail(response)
            )
        if status == 407:
            return CatalogConnectionError(_PROXY_WANTS_LOGIN, detail=_detail(response))
        refused_server = refused_by_store(_message(response))
        if status in (400, 403, 422, 500) and self._asked_to_vend(response) and not refused_server:
            return FloeStorageError(
                f"the catalog cannot vend credentials for the files of '{self.warehouse}': {_reported(response)}. If "
                f"its storage has no STS, set catalog.access_delegation: none in floe.yaml, and the keys in storage "
                f"(access_key_id, secret_access_key)",
                detail=_detail(response),
            )
        if status == 403 or (status in (400, 422, 500) and refused_server and not _is_commit(response.request)):
            return self._forbidden(response)
        if status >= 400 and status not in AWAY and _is_config(response):
            return self._no_config(response)
        if status == 404 and _is_page(response):
            return self._not_a_catalog(response)
        # The outcome of a commit is resolved by the code that sent it, whatever the response looks like.
        if status < 300 and not _is_commit(response.request) and not _is_of_a_catalog(response):
            return self._not_a_catalog(response)
        return None

    def _why(self, response: requests.Response) -> str:
        message = _reported(response)
        reason = f" Its reason: {message}." if message else ""
        if self.with_token:
            return (
                f"The catalog refused the token; it may have expired.{reason} Fetch a new one; if catalog.token is a "
                f"${{file:…}}, replacing the file is enough"
            )
        if self.client_id is not None and not self.renews:
            return (
                f"The catalog refused the token of '{self.client_id}'.{reason} It may have expired, and "
                f"catalog.token_refresh_enabled is false; remove that setting, or start again"
            )
        if self.client_id is None:
            return (
                f"The catalog requires a token.{reason} Set catalog.credentials or catalog.token instead of auth: none"
            )
        return (
            f"A token was issued for '{self.client_id}' and then refused.{reason} In Polaris this means that a role of "
            f"the scope '{self.scope}' is not assigned to this principal: assign it (polaris principal-roles grant), "
            f"or set another in catalog.scope. With an identity provider of your own (oauth2_server_uri), check that "
            f"the catalog trusts it"
        )

    def _forbidden(self, response: requests.Response) -> FloeStorageError:
        message = _message(response)
        if not message and response.content:
            return PermissionDeniedError(
                "the request was refused (403) without a reason, which a catalog would give: a proxy or a gateway on "
                "the way refused it; check HTTPS_PROXY and NO_PROXY",
                detail=_detail(response),
            )
        refusal = explain_refusal(message, bearer=self.client_id or "the bearer of the token", show=shown)
        return refusal.error(refusal.message, detail=_detail(response))

    def _no_config(self, response: requests.Response) -> FloeStorageError:
        """The error for a failed /v1/config: a wrong address, a wrong warehouse, or a problem of the server."""
        message = _reported(response)
        if response.status_code >= 500:
            return CatalogConnectionError(
                f"{address(response.url)} failed with {response.status_code}{': ' + message if message else ''}; check "
                f"its log, and catalog.uri in floe.yaml",
                detail=_detail(response),
            )
        if not _error_of(response) or "/v1/v1/" in response.url:
            return self._not_a_catalog(response)
        problem = "has no" if response.status_code == 404 else "does not accept the"
        return FloeStorageError(
            f"the catalog server {problem} warehouse '{self.warehouse}' ({message or response.status_code}); check "
            f"catalog.warehouse in floe.yaml. In Polaris it is the name of the catalog",
            detail=_detail(response),
        )

    def _not_a_catalog(self, response: requests.Response) -> CatalogConnectionError:
        usual = "it ends before /v1, and Polaris has its catalog under /api/catalog"
        return CatalogConnectionError(
            f"{address(response.url)} is not an Iceberg REST catalog: the answer was {_kind(response)}. Check "
            f"catalog.uri in floe.yaml: {usual if self.corrected is None else f'set uri: {self.corrected}'}",
            detail=_detail(response),
        )

    @staticmethod
    def _asked_to_vend(response: requests.Response) -> bool:
        asked = "X-Iceberg-Access-Delegation" in response.request.headers and not _is_commit(response.request)
        return asked and _NO_VENDING.search(_message(response)) is not None


@dataclass(frozen=True)
class AskedForToken:
    """A token request, for the messages of its errors; `setting` is the key of its address."""

    scope: str
    setting: str
    corrected: str | None = None

    def check(self, response: requests.Response, **_options: Any) -> None:
        """A hook of requests: raise the error for a token endpoint's response that is not a token."""
        _check_redirect(response, self.setting)
        status = response.status_code
        if status in AWAY:
            response.raise_for_status()
        elif status == 407:
            raise CatalogConnectionError(_PROXY_WANTS_LOGIN, detail=_detail(response))
        elif status >= 500:
            raise CatalogConnectionError(
                f"{address(response.url)} failed with {status} for a token request; check its log, and check "
                f"{self.setting} in floe.yaml",
                detail=_detail(response),
            )
        elif status >= 400:
            raise self._refusal(response)

    def _refusal(self, response: requests.Response) -> FloeStorageError:
        body = _json_of(response)
        kind = body.get("error") if isinstance(body, dict) else None
        if isinstance(kind, str):
            reported = f"{shown(kind)}: {shown(str(body.get('error_description') or ''))}".rstrip(": .")
        elif response.status_code in (401, 403) or (_error_of(response) and response.status_code not in (404, 405)):
            reported = _reported(response) or str(response.status_code)
        else:
            return self.no_token(response)
        if kind == "invalid_scope":
            advice = (
                f"The scope '{self.scope}' is not accepted: Polaris takes PRINCIPAL_ROLE:ALL or PRINCIPAL_ROLE:<name "
                f"of a role>; check catalog.scope"
            )
        elif kind == "unsupported_grant_type":
            advice = (
                "The token endpoint does not accept client credentials; check catalog.oauth2_server_uri, or set "
                "catalog.token"
            )
        else:
            advice = "The client id or the client secret is wrong, or was rotated; check catalog.credentials"
        detail = _detail(response).model_copy(update={"message": reported})
        message = f"{_AUTHENTICATION_FAILED} {advice} (the server reported {reported})"
        return CatalogAuthenticationError(message, detail=detail)

    def no_token(self, response: requests.Response) -> CatalogConnectionError:
        """The error for an address that answers and is not a token endpoint."""
        advice = "; if an identity provider issues the tokens, set catalog.oauth2_server_uri to its address"
        if self.corrected is not None:
            advice = f": set uri: {self.corrected}"
        return CatalogConnectionError(
            f"{address(response.url)} did not answer with a token, but {_kind(response)}. Check {self.setting} in "
            f"floe.yaml{advice}",
            detail=_detail(response),
        )


def checked_token(token: str, whose: str = "The value of catalog.token") -> str:
    """A token that can be sent, or a refusal that does not show it."""
    text = token.strip()
    if not text or re.search(r"[^\x21-\x7e]", text):
        raise CatalogAuthenticationError(
            f"{_AUTHENTICATION_FAILED} {whose} is "
            f"{'empty' if not text else 'not a token: it holds spaces, line breaks or characters outside of ASCII'}"
        )
    return text


def _check_redirect(response: requests.Response, setting: str) -> None:
    if 300 <= response.status_code < 400:
        location = response.headers.get("Location")
        target = address(location, seen_from=response.url) if location else "another address"
        raise ConfigurationError(
            f"{address(response.url)} redirects to {target}; set {setting} in floe.yaml to the address where the "
            f"catalog itself answers"
        )


def _kind(response: requests.Response) -> str:
    body = "a web page" if _is_page(response) else "other JSON" if _json_of(response) is not None else "no JSON"
    return f"{response.status_code} with {body if response.content else 'nothing in it'}"


def _is_page(response: requests.Response) -> bool:
    return "html" in response.headers.get("Content-Type", "").lower() and bool(response.content)


def _is_config(response: requests.Response) -> bool:
    return urlsplit(response.url).path.endswith("/v1/config")


def _is_commit(request: requests.PreparedRequest) -> bool:
    path = urlsplit(request.url or "").path
    return request.method == "POST" and re.search(r"/(tables/[^/]+|transactions/commit)$", str(path)) is not None


def _is_of_a_catalog(response: requests.Response) -> bool:
    """Whether a catalog may have answered this. Only the shape is checked; PyIceberg reads the content."""
    if _is_config(response):
        body = _json_of(response)
        return isinstance(body, dict) and (
            not body or not body.keys().isdisjoint(("defaults", "overrides", "endpoints"))
        )
    return response.request.method in ("HEAD", "DELETE") or response.content.lstrip()[:1] in (b"{", b"")


def _json_of(response: requests.Response) -> Any:
    try:
        return json.loads(response.content)
    except (ValueError, RecursionError):
        return None


def _error_of(response: requests.Response) -> dict[str, Any]:
    body = _json_of(response)
    error = body.get("error") if isinstance(body, dict) else None
    return error if isinstance(error, dict) else {}


def _message(response: requests.Response) -> str:
    return str(_error_of(response).get("message") or "")


def _reported(response: requests.Response) -> str:
    """The server's message."""
    return shown(_message(response)).rstrip(".")


def _detail(response: requests.Response) -> StorageErrorDetail:
    status = f"HTTP {response.status_code}"
    return StorageErrorDetail(
        error_type=shown(str(_error_of(response).get("type") or status)),
        operation=shown(f"{response.request.method} {urlsplit(response.url).path}"),
        message=_reported(response) or status,
    )
