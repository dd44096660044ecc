"""Which requests `floe dev` accepts: those of its own pages and of authorized programs, never of a foreign origin."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from floe_core.security import is_loopback

__all__ = ["RequestGuard"]

_QUERY_TYPES = ("application/json", "application/graphql")


@dataclass(frozen=True)
class _Refusal:
    status: int
    reason: str


_ADVICE = "open the address that floe dev printed; behind a proxy, start floe dev with FLOE_DEV_ORIGIN=https://PROXY"
_FOREIGN_HOST = _Refusal(403, f"the Host header names another server; {_ADVICE}")
_FOREIGN_ORIGIN = _Refusal(403, f"it was sent by a page of another origin; {_ADVICE}")
_NOT_A_POST = _Refusal(405, "send GraphQL as POST with Content-Type: application/json")
_NOT_JSON = _Refusal(415, "send GraphQL with Content-Type: application/json")
_NO_TOKEN = _Refusal(
    401, "it has no valid token; open the address that floe dev printed, or send the header Authorization: Bearer TOKEN"
)


class RequestGuard:
    """ASGI middleware that forwards only authorized requests to Dagster, WebSockets included.

    With a token, every request needs it. Without one, only requests to a loopback name are accepted, so that a foreign
    name that resolves to this machine (DNS rebinding) is refused. `origin` is that of a proxy, whose pages are accepted
    too; it needs a token.
    """

    def __init__(self, app: ASGIApp, *, token: str | None = None, origin: str | None = None) -> None:
        if origin is not None and token is None:
            raise ValueError("another origin needs a token")
        self._app = app
        self._token = token
        self._origin = origin
        # Cookies are sent to every port of a host: the tokens of two servers need two names.
        self._cookie = f"floe_dev_{hashlib.sha256((token or '').encode()).hexdigest()[:8]}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        visit = None if refusal in (_FOREIGN_HOST, _FOREIGN_ORIGIN) else self._visit(scope)
        if visit is not None:
            await visit(scope, receive, send)
        elif refusal is None:
            await self._app(scope, receive, _not_framed(send))
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": refusal.reason})
        else:
            await _answer(refusal)(scope, receive, send)

    def _refusal(self, scope: Scope) -> _Refusal | None:
        headers = Headers(scope=scope)
        if not self._is_own_host(headers):
            return _FOREIGN_HOST
        if not self._is_own_origin(headers) or not _is_own_site(scope, headers):
            return _FOREIGN_ORIGIN
        if self._token is not None and not self._has_token(headers):
            return _NO_TOKEN
        return _query_refusal(scope, headers)

    def _is_own_host(self, headers: Headers) -> bool:
        hosts = headers.getlist("host")
        # A foreign name has no cookie with the token: where there is a token, names need no check.
        return len(hosts) == 1 and (self._token is not None or is_loopback(_hostname(hosts[0])))

    def _is_own_origin(self, headers: Headers) -> bool:
        """Browsers name the origin of a page in each POST and WebSocket."""
        host = headers["host"].lower()
        own = {f"http://{host}", f"https://{host}", self._origin}
        return all(origin.lower() in own for origin in headers.getlist("origin"))

    def _has_token(self, headers: Headers) -> bool:
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        given = [bearer.strip()] if scheme.lower() == "bearer" else []
        # Not SimpleCookie: it drops all cookies for one, perhaps of another program, that it cannot parse.
        stored = cookie_parser("; ".join(headers.getlist("cookie"))).get(self._cookie)
        return any(self._is_token(token) for token in (*given, stored or ""))

    def _is_token(self, given: str) -> bool:
        return self._token is not None and secrets.compare_digest(given.encode(), self._token.encode())

    def _visit(self, scope: Scope) -> Response | None:
        """A GET with the token in its query string: set the cookie, and redirect to the address without the token."""
        if scope["type"] != "http" or scope["method"] != "GET":
            return None
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        if not any(self._is_token(value) for key, value in query if key == "token"):
            return None
        rest = urlencode([(key, value) for key, value in query if key != "token"])
        path = f"/{str(scope['path']).strip('/')}"  # a path that begins with // would lead to another server
        visit = RedirectResponse(f"{path}?{rest}" if rest else path, status_code=303)
        # Lax: a link in a message opens the UI; other origins are refused by their Origin header.
        visit.set_cookie(self._cookie, self._token or "", httponly=True, samesite="lax")
        visit.headers["Cache-Control"] = "no-store"
        return visit


def _answer(refusal: _Refusal) -> Response:
    return PlainTextResponse(
        f"floe dev refused this request: {refusal.reason}\n",
        status_code=refusal.status,
        headers={"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"},
    )


def _hostname(host: str) -> str:
    """The host name in a Host header; empty if invalid."""
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port  # raises if it is not a number
    except ValueError:
        return ""
    return (parts.hostname or "") if parts.netloc == host and "@" not in host else ""


def _is_own_site(scope: Scope, headers: Headers) -> bool:
    """For requests without an Origin, browsers send Sec-Fetch-Site: how the sending page relates to this server."""
    site = headers.get("sec-fetch-site", "none")
    if site in ("same-origin", "none"):
        return True
    # A link on another site may open a page here, in a tab but not in a frame.
    visits = scope["type"] == "http" and scope["method"] == "GET" and headers.get("sec-fetch-mode") == "navigate"
    return visits and headers.get("sec-fetch-dest") == "document"


def _query_refusal(scope: Scope, headers: Headers) -> _Refusal | None:
    """A query must be a POST of JSON: any page can send a GET or a form without a CORS preflight."""
    # Starlette's routes also match a path that ends in a newline.
    if scope["type"] != "http" or str(scope["path"]).strip().strip("/") != "graphql":
        return None
    if scope["method"] == "POST":
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        return None if kind in _QUERY_TYPES else _NOT_JSON
    shows_editor = scope["method"] == "GET" and "text/html" in headers.get("accept", "")
    return None if shows_editor else _NOT_A_POST


def _not_framed(send: Send) -> Send:
    """Forbid framing by other origins (clickjacking)."""

    async def send_unframed(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message)["X-Frame-Options"] = "SAMEORIGIN"
        await send(message)

    return send_unframed
