"""What a catalog's answers mean: one table, by status and body, each entry with what to do about it.

Answers that only say that something does not exist, exists already or was changed meanwhile are left to PyIceberg,
which knows what was asked. Here is what keeps somebody from being served at all.
"""

from __future__ import annotations

import email.utils
import json
import re
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import requests
from pyiceberg.exceptions import ServiceUnavailableError, TooManyRequestsError

from floe_core.errors import (
    CatalogAuthenticationError,
    CatalogConnectionError,
    ConfigurationError,
    FloeError,
    FloeStorageError,
    PermissionDeniedError,
)
from floe_core.models import StorageErrorDetail
from floe_core.redaction import redact
from floe_polaris.privileges import privileges_for

__all__ = [
    "Asked",
    "check_token_answer",
    "checked_token",
    "is_transient",
    "not_a_catalog",
    "retry_after",
    "status_of",
    "unreachable",
]

_AUTHENTICATION_FAILED = "Authentication failed: check catalog credentials in floe.yaml."
_AWAY = (429, 502, 503, 504)
_NO_VENDING = re.compile(r"(?i)credential|\bsts\b|subscop|delegat|assume.?role|vend")
_SHOWN = 300
_ASK = "Ask whoever runs the catalog to grant it"
# What Polaris forbids for another reason than a missing privilege.
_FORBIDDEN = (
    (
        r"must rotate credentials",
        "Rotate the credentials of the principal first (polaris principals rotate-credentials)",
    ),
    (r"(?i)purge", "Drop it without purge, or have DROP_WITH_PURGE_ENABLED switched on for the catalog"),
    (
        r"(?i)locations?\b",
        (
            "The place is not one the catalog allows: leave the location to the catalog, or have it added to the catalog's "
            "allowed locations"
        ),
    ),
)


@dataclass(frozen=True)
class Asked:
    """Who asked which catalog, for the words of its refusals."""

    warehouse: str
    client_id: str | None
    scope: str
    with_token: bool

    def check(self, response: requests.Response, **_options: Any) -> None:
        """A hook of requests: raise what an answer means if it is a refusal that no caller can go on from."""
        if response.is_redirect:
            raise ConfigurationError(
                f"the catalog sends its callers on to {_address(response.headers.get('Location', '?'))}; write that "
                f"address into catalog.uri in floe.yaml"
            )
        error = self._refusal(response)
        if error is not None:
            raise error

    def _refusal(self, response: requests.Response) -> FloeError | None:
        status = response.status_code
        if status in (401, 419):
            return CatalogAuthenticationError(
                f"{_AUTHENTICATION_FAILED} {self._why(response)}", detail=_detail(response)
            )
        if status == 403:
            return self._forbidden(response)
        if urlsplit(response.url).path.endswith("/v1/config"):
            if status == 404:
                return self._no_warehouse(response) if _error_of(response) else not_a_catalog(response)
            if status in (405, 406, 410):
                return not_a_catalog(response)
        if status == 400 and self._asked_to_vend(response):
            return FloeStorageError(
                f"the catalog cannot vend credentials for the files of '{self.warehouse}': {_told(response)}. If its "
                f"storage has no STS, write access_delegation: none under catalog in floe.yaml and give the keys in "
                f"storage (access_key_id, secret_access_key)",
                detail=_detail(response),
            )
        if status < 300 and response.request.method != "HEAD" and not _is_json(response):
            return not_a_catalog(response)
        return None

    def _why(self, response: requests.Response) -> str:
        told = _told(response)
        said = f" It said: {told}." if told else ""
        if self.with_token:
            return (
                f"The catalog refused the token; it may have expired.{said} Fetch a new one; where catalog.token is a "
                f"${{file:…}}, writing the file is enough"
            )
        if self.client_id is None:
            return f"The catalog wants a token.{said} Give catalog.credentials or catalog.token instead of auth: none"
        return (
            f"A token was issued for '{self.client_id}' and then refused.{said} In Polaris this means that a role of "
            f"the scope '{self.scope}' is not assigned to this principal: assign it (polaris principal-roles grant), "
            f"or name another in catalog.scope. With an identity provider of your own (oauth2_server_uri), see that "
            f"the catalog trusts it"
        )

    def _forbidden(self, response: requests.Response) -> PermissionDeniedError:
        told = _told(response)
        principal = re.search(r"Principal '([^']+)'", told)
        who = principal[1] if principal else self.client_id or "the bearer of the token"
        wanted = re.search(r"not authorized for op (\w+)", told)
        needed = privileges_for(wanted[1]) if wanted else ()
        advice = (
            f"It needs {' and '.join(needed)}: grant that to one of its catalog roles (polaris privileges … grant)"
            if needed
            else next((words for pattern, words in _FORBIDDEN if re.search(pattern, told)), _ASK)
        )
        return PermissionDeniedError(
            f"the catalog knows '{who}' and does not allow {wanted[1] if wanted else 'this'}: "
            f"{told or 'it gave no reason'}. {advice}",
            detail=_detail(response),
        )

    def _no_warehouse(self, response: requests.Response) -> FloeStorageError:
        return FloeStorageError(
            f"the catalog server knows no warehouse '{self.warehouse}' ({_told(response)}); check catalog.warehouse in "
            f"floe.yaml. In Polaris it is the name of the catalog",
            detail=_detail(response),
        )

    @staticmethod
    def _asked_to_vend(response: requests.Response) -> bool:
        asked = response.request.headers.get("X-Iceberg-Access-Delegation")
        return bool(asked) and _NO_VENDING.search(_told(response)) is not None


def check_token_answer(response: requests.Response, *, scope: str) -> None:
    """Raise what the answer of a token endpoint means if it is not a token."""
    status = response.status_code
    if response.ok:
        return
    if status in _AWAY:
        response.raise_for_status()
    said = _oauth_error(response)
    if said is None and status in (400, 401, 403):
        said = ("refused", _told(response))
    if said is None:
        raise not_a_catalog(response, "there is no token endpoint here; is oauth2_server_uri needed, or wrong?")
    kind, words = said
    if kind == "invalid_scope":
        advice = (
            f"The scope '{scope}' is not accepted: Polaris takes PRINCIPAL_ROLE:ALL or PRINCIPAL_ROLE:<name of a "
            f"role>; see catalog.scope"
        )
    elif kind == "unsupported_grant_type":
        advice = "The token endpoint does not take client credentials; see oauth2_server_uri, or give catalog.token"
    else:
        advice = "The client id or the client secret is wrong, or was rotated"
    reason = f" (the server said {kind}{': ' + words if words else ''})"
    raise CatalogAuthenticationError(f"{_AUTHENTICATION_FAILED} {advice}{reason}", detail=_detail(response))


def checked_token(token: str) -> str:
    """A token that can be sent, or a refusal that does not show it."""
    text = token.strip()
    if not text or re.search(r"[^\x21-\x7e]", text):
        raise CatalogAuthenticationError(
            f"{_AUTHENTICATION_FAILED} What catalog.token refers to is "
            f"{'empty' if not text else 'not a token: it holds spaces, line breaks or characters outside of ASCII'}"
        )
    return text


def not_a_catalog(response: requests.Response, why: str = "") -> FloeStorageError:
    """Something answers there, and it is not an Iceberg catalog."""
    kind = response.headers.get("Content-Type", "").partition(";")[0] or "nothing"
    told = why or f"the answer was {response.status_code} with {'a web page' if 'html' in kind else kind}"
    return CatalogConnectionError(
        f"{_address(response.url)} is not an Iceberg REST catalog: {told}. Check catalog.uri in floe.yaml: it ends "
        f"before /v1, and Polaris has its catalog under /api/catalog",
        detail=_detail(response),
    )


def unreachable(exc: BaseException, *, timeout_seconds: float, attempts: int) -> CatalogConnectionError:
    """The catalog could not be asked, or did not answer."""
    request = getattr(exc, "request", None)
    where = _address(request.url) if request is not None and request.url else "the catalog"
    tried = f" ({attempts} attempts)" if attempts > 1 else ""
    status = status_of(exc)
    text = redact(str(exc))
    if isinstance(exc, requests.exceptions.SSLError):
        advice = (
            f"{where} has a certificate that is not trusted here: {_tls_reason(text)}. If it was signed by an "
            f"authority of your own, name its PEM file in catalog.ca_bundle"
        )
    elif isinstance(exc, requests.exceptions.ProxyError):
        advice = f"the proxy on the way to {where} did not let us through{tried}; see HTTPS_PROXY and NO_PROXY"
    elif isinstance(exc, requests.Timeout):
        advice = (
            f"{where} did not answer within {timeout_seconds:g} s{tried}; see that it runs, or raise "
            f"catalog.timeout_seconds"
        )
    elif status == 429:
        asked = retry_after(exc)
        when = f" and asks to wait {asked:.0f} s, longer than retry.max_wait_seconds" if asked is not None else ""
        advice = f"the catalog is asked too often{tried}{when}; try again later, or raise catalog.retry"
    elif status is not None:
        advice = f"the catalog answered {status}{tried}: it is not available now; see that it runs, then try again"
    elif re.search(r"(?i)name or service not known|name resolution|nodename|getaddrinfo", text):
        advice = f"there is no such host as in {where}; check catalog.uri in floe.yaml and the name server{tried}"
    elif re.search(r"(?i)connection refused", text):
        advice = f"nothing listens at {where}{tried}; see that the catalog runs there, and check catalog.uri"
    else:
        advice = f"the connection to {where} broke{tried}; see that the catalog runs and can be reached from here"
    return CatalogConnectionError(
        advice,
        detail=StorageErrorDetail(
            error_type=type(exc).__name__,
            operation="request",
            message=text[:_SHOWN],
            retryable=True,
            retry_count=attempts - 1,
        ),
    )


def is_transient(exc: BaseException) -> bool:
    """May the same request succeed a moment later?"""
    if isinstance(exc, requests.exceptions.SSLError):
        return False
    lost = (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError)
    return isinstance(exc, (*lost, ServiceUnavailableError, TooManyRequestsError)) or status_of(exc) in _AWAY


def status_of(exc: BaseException) -> int | None:
    """The status of the answer behind an exception of requests or of PyIceberg."""
    answer = _answer_of(exc)
    return None if answer is None else answer.status_code


def retry_after(exc: BaseException) -> float | None:
    """How many seconds the server asked us to wait."""
    answer = _answer_of(exc)
    said = answer.headers.get("Retry-After") if answer is not None else None
    if said is None:
        return None
    if said.strip().isdecimal():
        return float(said)
    try:
        moment = email.utils.parsedate_to_datetime(said)
    except ValueError:
        return None
    return max(moment.timestamp() - time.time(), 0.0)


def _answer_of(exc: BaseException) -> requests.Response | None:
    for one in (exc, exc.__cause__):
        response = getattr(one, "response", None)
        if isinstance(response, requests.Response):
            return response
    return None


def _is_json(response: requests.Response) -> bool:
    if response.status_code == 204:
        return True
    body = response.content.lstrip()[:1]
    return body in (b"{", b"[") or (not body and not urlsplit(response.url).path.endswith("/v1/config"))


def _error_of(response: requests.Response) -> dict[str, Any] | None:
    try:
        error = json.loads(response.content).get("error")
    except (ValueError, AttributeError):
        return None
    return error if isinstance(error, dict) else None


def _oauth_error(response: requests.Response) -> tuple[str, str] | None:
    try:
        body = json.loads(response.content)
    except ValueError:
        return None
    if not isinstance(body, dict) or not isinstance(body.get("error"), str):
        return None
    return body["error"], redact(str(body.get("error_description") or ""))[:_SHOWN]


def _told(response: requests.Response) -> str:
    """The server's own words, shortened and without secrets."""
    error = _error_of(response)
    return redact(" ".join(str((error or {}).get("message") or "").split()))[:_SHOWN].rstrip(".")


def _detail(response: requests.Response) -> StorageErrorDetail:
    error = _error_of(response) or {}
    return StorageErrorDetail(
        error_type=str(error.get("type") or f"HTTP {response.status_code}"),
        operation=f"{response.request.method} {urlsplit(response.url).path}",
        message=_told(response) or f"HTTP {response.status_code}",
    )


def _address(url: str) -> str:
    """Where, without what may hold a secret."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = f":{parts.port}" if parts.port else ""
    return redact(f"{parts.scheme}://{host}{port}{parts.path.partition('/v1/')[0]}")


def _tls_reason(text: str) -> str:
    found = re.search(r"certificate verify failed: ([^('\")]+)", text)
    return found[1].strip() if found else "the TLS handshake failed"
