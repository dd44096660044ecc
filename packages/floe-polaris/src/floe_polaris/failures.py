"""When no answer came: what a failed request means, and whether the next one may succeed."""

from __future__ import annotations

import email.utils
import re
import time
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urljoin, urlsplit

import requests
from pyiceberg.exceptions import ServiceUnavailableError, TooManyRequestsError

from floe_core.errors import CatalogConnectionError
from floe_core.models import StorageErrorDetail
from floe_core.redaction import redact

__all__ = [
    "AWAY",
    "Server",
    "address",
    "corrected_uri",
    "is_transient",
    "retry_after",
    "shown",
    "status_of",
    "was_not_sent",
]

# A server that gives one of these may answer a moment later.
AWAY: Final = (429, 502, 503, 504)
_SHOWN = 500
# A handshake that broke, and not one that failed.
_CUT: Final = re.compile(r"(?i)SSLEOFError|UNEXPECTED_EOF|EOF occurred|ConnectionReset|SSLZeroReturn")


@dataclass(frozen=True)
class Server:
    """Whom we ask, for the words in which a failure to reach it is told; `setting` is the key that names it."""

    uri: str = field(repr=False)
    setting: str
    timeout_seconds: float
    corrected: str | None = None  # the address that was probably meant

    def unreachable(self, exc: BaseException, *, attempts: int, changes: bool = False) -> CatalogConnectionError:
        """The server could not be asked, or did not answer; `changes` says that it was asked to change something."""
        advice = self._advice(exc, f" ({attempts} attempts)" if attempts > 1 else "")
        if changes and is_transient(exc) and not was_not_sent(exc):
            advice += ". What was asked may have been done all the same: look before you repeat it"
        return CatalogConnectionError(
            advice,
            detail=StorageErrorDetail(
                error_type=type(exc).__name__,
                operation=_operation(exc),
                message=shown(str(exc)),
                retryable=is_transient(exc),
                retry_count=attempts - 1,
            ),
        )

    def _advice(self, exc: BaseException, tried: str) -> str:
        where, text, status = address(self.uri), str(exc), status_of(exc)
        if isinstance(exc, requests.exceptions.SSLError):
            return self._tls_advice(where, text)
        if isinstance(exc, requests.exceptions.ProxyError):
            return f"the proxy on the way to {where} did not let us through{tried}; see HTTPS_PROXY and NO_PROXY"
        if isinstance(exc, requests.Timeout):
            return (
                f"{where} did not answer within {self.timeout_seconds:g} s{tried}; see that it runs, or raise "
                f"catalog.timeout_seconds"
            )
        if status == 429:
            asked = retry_after(exc)
            when = f" and asks to wait {asked:.0f} s, longer than retry.max_wait_seconds" if asked is not None else ""
            return f"{where} is asked too often{tried}{when}; try again later, or raise catalog.retry"
        if status is not None:
            return f"{where} answered {status}{tried}: it is not available now; see that it runs, then try again"
        if isinstance(exc, ValueError) and not isinstance(exc, requests.ConnectionError):
            return f"{where} is not an address that can be asked; check {self.setting} in floe.yaml"
        if re.search(r"(?i)name or service not known|name resolution|nodename|getaddrinfo|failed to resolve", text):
            return f"there is no such host as in {where}{tried}; check {self.setting} in floe.yaml and the name server"
        if re.search(r"(?i)connection refused", text):
            return f"nothing listens at {where}{tried}; see that the catalog runs there, and check {self.setting}"
        secure = ", and whether it wants https://" if where.startswith("http:") else ""
        return (
            f"the connection to {where} broke{tried}; see that the catalog runs and can be reached from here; check "
            f"{self.setting} in floe.yaml{secure}"
        )

    def _tls_advice(self, where: str, text: str) -> str:
        found = re.search(r"certificate verify failed: (.+?) \(_ssl", text)
        if _CUT.search(text):
            return f"the connection to {where} broke during the TLS handshake; see that it runs, then try again"
        if found is None:
            return (
                f"{where} does not answer in TLS; if it takes plain connections only, write http:// into {self.setting}"
            )
        reason = shown(found[1]).rstrip(".")
        if re.search(r"(?i)mismatch|not valid for", reason):
            advice = f"Write the name that its certificate is made for into {self.setting}"
        elif re.search(r"(?i)expired|not yet valid", reason):
            advice = "Have its certificate renewed, and see that this machine's clock is right"
        else:
            advice = "If it was signed by an authority of your own, name its PEM file in catalog.ca_bundle"
        return f"{where} has a certificate that is not trusted here: {reason}. {advice}"


def is_transient(exc: BaseException) -> bool:
    """May the same request succeed a moment later?"""
    if isinstance(exc, requests.exceptions.SSLError):
        return _CUT.search(str(exc)) is not None
    lost = (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError)
    return isinstance(exc, (*lost, ServiceUnavailableError, TooManyRequestsError)) or status_of(exc) in AWAY


def was_not_sent(exc: BaseException) -> bool:
    """Did the request never leave, because there was nobody to send it to?"""
    return (
        isinstance(exc, requests.ConnectTimeout) or "NewConnectionError" in repr(exc) or "NameResolution" in repr(exc)
    )


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
        said_now = answer.headers.get("Date") if answer is not None else None
        now = email.utils.parsedate_to_datetime(said_now).timestamp() if said_now else time.time()
    except (ValueError, OverflowError):
        return None
    return max(moment.timestamp() - now, 0.0)


def _answer_of(exc: BaseException) -> requests.Response | None:
    for one in (exc, exc.__cause__):
        response = getattr(one, "response", None)
        if isinstance(response, requests.Response):
            return response
    return None


def shown(text: str) -> str:
    """Somebody else's words: on one line, shortened and without secrets."""
    words = redact(" ".join(text.split()))
    return words if len(words) <= _SHOWN else f"{words[:_SHOWN]}…"


def _operation(exc: BaseException) -> str:
    """Method and path of the request that failed, where the exception has it."""
    request = exc.request if isinstance(exc, requests.RequestException) else None
    if request is None or request.method is None:
        return "request"
    return shown(f"{request.method} {urlsplit(str(request.url)).path}")


def address(url: str, *, seen_from: str = "") -> str:
    """Where, without what may hold a secret."""
    try:
        parts = urlsplit(urljoin(seen_from, url))
        port = f":{parts.port}" if parts.port else ""
    except ValueError:  # no port, or no address at all
        return "what is written there"
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
    return shown(f"{parts.scheme}://{host}{port}{parts.path.partition('/v1/')[0]}".rstrip("/"))


def corrected_uri(uri: str, *, polaris: bool) -> str | None:
    """The address without /v1 at its end, and with the /api/catalog of a Polaris; None if nothing is to correct."""
    given = uri.rstrip("/")
    # Not a /v1/ further in front, which may belong to the address: some servers are under one.
    base = re.sub(r"/v1(/(config|oauth/tokens|[^/]+/namespaces(/.*)?|namespaces(/.*)?))?$", "", given)
    if polaris and not base.endswith("/api/catalog"):
        base = f"{re.sub(r'/api(/[^/]*)?$', '', base)}/api/catalog"
    return address(base) if base != given else None
