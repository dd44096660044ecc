"""Failed requests: the error for each, and whether a retry may succeed."""

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
from floe_core.security import redact

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

# The statuses after which a retry may succeed.
AWAY: Final = (429, 502, 503, 504)
_SHOWN = 500
# A TLS handshake that was cut off, as opposed to one that failed.
_CUT: Final = re.compile(r"(?i)SSLEOFError|UNEXPECTED_EOF|EOF occurred|ConnectionReset|SSLZeroReturn")


@dataclass(frozen=True)
class Server:
    """A server, for the errors about reaching it; `setting` is the key of its address."""

    uri: str = field(repr=False)
    setting: str
    timeout_seconds: float
    corrected: str | None = None  # the address that was probably meant

    def unreachable(self, exc: BaseException, *, attempts: int, changes: bool = False) -> CatalogConnectionError:
        """The error for a server that cannot be reached or does not answer; `changes` for a request to change it."""
        advice = self._advice(exc, f" ({attempts} attempts)" if attempts > 1 else "")
        if changes and is_transient(exc) and not was_not_sent(exc):
            advice += ". The change may still have been made: check before you repeat it"
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
            return f"the proxy on the way to {where} refused the request{tried}; check HTTPS_PROXY and NO_PROXY"
        if isinstance(exc, requests.Timeout):
            return (
                f"{where} did not answer within {self.timeout_seconds:g} s{tried}; check that it runs, or raise "
                f"catalog.timeout_seconds"
            )
        if status == 429:
            delay = retry_after(exc)
            when = f" and asks to wait {delay:.0f} s, longer than retry.max_wait_seconds" if delay is not None else ""
            return f"{where} gets too many requests{tried}{when}; try again later, or raise catalog.retry"
        if status is not None:
            return f"{where} answered {status}{tried}: it is not available; check that it runs, then try again"
        if isinstance(exc, ValueError) and not isinstance(exc, requests.ConnectionError):
            return f"{where} is not a valid address; check {self.setting} in floe.yaml"
        if re.search(r"(?i)name or service not known|name resolution|nodename|getaddrinfo|failed to resolve", text):
            return f"the host of {where} cannot be resolved{tried}; check {self.setting} in floe.yaml, and DNS"
        if re.search(r"(?i)connection refused", text):
            return f"nothing listens at {where}{tried}; check that the catalog runs there, and check {self.setting}"
        secure = ", and whether it needs https://" if where.startswith("http:") else ""
        return (
            f"the connection to {where} broke{tried}; check that the catalog runs and is reachable from here, and "
            f"{self.setting} in floe.yaml{secure}"
        )

    def _tls_advice(self, where: str, text: str) -> str:
        failure = re.search(r"certificate verify failed: (.+?) \(_ssl", text)
        if _CUT.search(text):
            return f"the connection to {where} broke during the TLS handshake; check that it runs, then try again"
        if failure is None:
            return f"{where} does not speak TLS; if it accepts only plain connections, use http:// in {self.setting}"
        reason = shown(failure[1]).rstrip(".")
        if re.search(r"(?i)mismatch|not valid for", reason):
            advice = f"Use the host name of its certificate in {self.setting}"
        elif re.search(r"(?i)expired|not yet valid", reason):
            advice = "Renew its certificate, and check this machine's clock"
        else:
            advice = "If it was signed by an authority of your own, set catalog.ca_bundle to its PEM file"
        return f"the certificate of {where} is not trusted here: {reason}. {advice}"


def is_transient(exc: BaseException) -> bool:
    """Whether a retry of the same request may succeed."""
    if isinstance(exc, requests.exceptions.SSLError):
        return _CUT.search(str(exc)) is not None
    lost = (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError)
    return isinstance(exc, (*lost, ServiceUnavailableError, TooManyRequestsError)) or status_of(exc) in AWAY


def was_not_sent(exc: BaseException) -> bool:
    """Whether the request was never sent, because no connection was made."""
    return (
        isinstance(exc, requests.ConnectTimeout) or "NewConnectionError" in repr(exc) or "NameResolution" in repr(exc)
    )


def status_of(exc: BaseException) -> int | None:
    """The status of the response behind an exception of requests or of PyIceberg."""
    answer = _answer_of(exc)
    return None if answer is None else answer.status_code


def retry_after(exc: BaseException) -> float | None:
    """The number of seconds to wait, from the server's Retry-After header."""
    answer = _answer_of(exc)
    value = answer.headers.get("Retry-After") if answer is not None else None
    if value is None:
        return None
    if value.strip().isdecimal():
        return float(value)
    try:
        moment = email.utils.parsedate_to_datetime(value)
        date = answer.headers.get("Date") if answer is not None else None
        now = email.utils.parsedate_to_datetime(date).timestamp() if date else time.time()
    except (ValueError, OverflowError):
        return None
    return max(moment.timestamp() - now, 0.0)


def _answer_of(exc: BaseException) -> requests.Response | None:
    for error in (exc, exc.__cause__):
        response = getattr(error, "response", None)
        if isinstance(response, requests.Response):
            return response
    return None


def shown(text: str) -> str:
    """A text that Floe did not write: on one line, shortened and without secrets."""
    line = redact(" ".join(text.split()))
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"


def _operation(exc: BaseException) -> str:
    """Method and path of the request that failed, where the exception has it."""
    request = exc.request if isinstance(exc, requests.RequestException) else None
    if request is None or request.method is None:
        return "request"
    return shown(f"{request.method} {urlsplit(str(request.url)).path}")


def address(url: str, *, seen_from: str = "") -> str:
    """The address without the parts that may hold a secret."""
    try:
        parts = urlsplit(urljoin(seen_from, url))
        port = f":{parts.port}" if parts.port else ""
    except ValueError:  # no port, or no address at all
        return "the given address"
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
    return shown(f"{parts.scheme}://{host}{port}{parts.path.partition('/v1/')[0]}".rstrip("/"))


def corrected_uri(uri: str, *, polaris: bool) -> str | None:
    """The address without /v1 at its end, and with the /api/catalog of a Polaris; None if it needs no correction."""
    given = uri.rstrip("/")
    # Only at the end: an earlier /v1/ may belong to the server's own path.
    base = re.sub(r"/v1(/(config|oauth/tokens|[^/]+/namespaces(/.*)?|namespaces(/.*)?))?$", "", given)
    if polaris and not base.endswith("/api/catalog"):
        base = f"{re.sub(r'/api(/[^/]*)?$', '', base)}/api/catalog"
    return address(base) if base != given else None
