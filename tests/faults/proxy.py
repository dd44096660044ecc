"""A proxy before a REST catalog that loses, changes or delays what passes through it."""

from __future__ import annotations

import http.client
import json
import re
import secrets
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from pyiceberg.catalog.rest import DEFAULT_ENDPOINTS

__all__ = [
    "CONFLICT",
    "Answer",
    "Fault",
    "FaultProxy",
    "HeldRequest",
    "Request",
    "ShortCredentials",
    "ShortTokens",
    "advertising",
    "answered",
    "cut",
    "dropped",
    "fault_proxy",
    "never_arrived",
]

# A commit is a POST to a table, or of several tables; staging a new one, renaming and reporting metrics are POSTs to
# other paths.
_COMMIT = re.compile(r"(?:/.+)?/v1/(?:[^/]+/)?(?:namespaces/[^/]+/tables/[^/]+|transactions/commit)")
_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}


@dataclass(frozen=True)
class Answer:
    """What the client gets."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    is_cut: bool = False  # the connection ends in the middle of the body
    pieces: Callable[[], Iterable[bytes]] | None = None  # instead of a body: sent one by one, as they come

    @classmethod
    def error(cls, status: int, kind: str, message: str) -> Answer:
        body = f'{{"error": {{"message": "{message}", "type": "{kind}", "code": {status}}}}}'.encode()
        return cls(status, (("Content-Type", "application/json"),), body)


Forward = Callable[[], Answer]
# What happens to one commit: given the way to forward it, what the client gets; None cuts the connection.
Fault = Callable[[Forward], Answer | None]

CONFLICT = Answer.error(409, "CommitFailedException", "Requirement failed: the branch has changed")
UNAVAILABLE = Answer.error(503, "ServiceUnavailableException", "try again later")
GATEWAY_TIMEOUT = Answer.error(504, "GatewayTimeout", "no answer in time")


def dropped(forward: Forward) -> Answer | None:
    """The server acts, and the connection is cut before its answer."""
    forward()
    return None


def cut(forward: Forward) -> Answer | None:
    """The server acts, and the connection is cut in the middle of its answer."""
    return replace(forward(), is_cut=True)


def never_arrived(forward: Forward) -> Answer | None:
    """The connection is cut before the server hears of it."""
    return None


def answered(status: int) -> Fault:
    """The server acts, and the client is told this instead."""
    told = {409: CONFLICT, 503: UNAVAILABLE, 504: GATEWAY_TIMEOUT}[status]

    def fault(forward: Forward) -> Answer | None:
        forward()
        return told

    return fault


@dataclass
class HeldRequest:
    """A request that is on its way for so long that its sender gives up on it, and that arrives in the end."""

    told: Answer | None = None
    forward: Forward | None = None
    answer: Answer | None = None

    @property
    def status(self) -> int | None:
        """What the server said to it in the end."""
        return self.answer.status if self.answer else None

    def hold(self, forward: Forward) -> Answer | None:
        self.forward = forward
        return self.told

    def arrive(self) -> None:
        assert self.forward is not None, "nothing is held"
        self.answer = self.forward()

    def arrives_first(self, forward: Forward) -> Answer | None:
        """It arrives just before its repetition."""
        self.arrive()
        return forward()

    def arrives_last(self, forward: Forward) -> Answer | None:
        """It arrives when its repetition has been answered."""
        answer = forward()
        self.arrive()
        return answer


def _moves_main(commit: bytes) -> bool:
    """Does the commit make rows visible? Others change a schema, or a branch that nobody reads yet."""
    sent = json.loads(commit)
    updates = [one for change in sent.get("table-changes", [sent]) for one in change["updates"]]
    return any(one["action"] == "set-snapshot-ref" and one["ref-name"] == "main" for one in updates)


@dataclass(frozen=True)
class Request:
    """What a client sent, and when by the monotonic clock."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    at: float

    @property
    def route(self) -> str:
        """Method and path without the query."""
        return f"{self.method} {urlsplit(self.path).path}"


# What happens to one request; None cuts the connection.
Intercept = Callable[[Request, Forward], Answer | None]


def advertising(request: Request, forward: Callable[..., Answer]) -> Answer | None:
    """The server lists commits of several tables, which SeaweedFS has and does not list: it applies them one by one."""
    answer = forward(**{"accept-encoding": "identity"})
    if urlsplit(request.path).path.endswith("/v1/config"):
        endpoints = [*map(str, DEFAULT_ENDPOINTS), "POST /v1/{prefix}/transactions/commit"]
        told = {**json.loads(answer.body), "endpoints": endpoints}
        return Answer(answer.status, answer.headers, json.dumps(told).encode())
    return answer


@dataclass
class ShortTokens:
    """Tokens that live as long as the proxy says: it gives out its own, and refuses them once they are old."""

    seconds: float
    status: int = 401
    says_when: bool = True
    upstream: dict[str, tuple[str, float]] = field(default_factory=dict)
    refused: int = 0

    @property
    def issued(self) -> int:
        return len(self.upstream)

    def __call__(self, request: Request, forward: Callable[..., Answer]) -> Answer | None:
        if request.path.endswith("/oauth/tokens"):
            answer = forward()
            told = json.loads(answer.body)
            if "access_token" not in told:
                return answer
            ours = f"short-{secrets.token_hex(16)}"
            self.upstream[ours] = (told["access_token"], time.monotonic() + self.seconds)
            told = {"access_token": ours, "token_type": "bearer"} | (
                {"expires_in": self.seconds} if self.says_when else {}
            )
            return replace(answer, body=json.dumps(told).encode())
        theirs, ends_at = self.upstream.get(request.headers.get("authorization", "").removeprefix("Bearer "), ("", 0.0))
        if time.monotonic() >= ends_at:
            self.refused += 1
            return Answer(self.status)
        return forward(authorization=f"Bearer {theirs}")


@dataclass
class ShortCredentials:
    """Vended credentials that live as long as we say: the catalog's answers say so, and the store holds to it."""

    seconds: float
    says_when: bool = True
    can_renew: bool = True  # whether the catalog has the endpoint that Spark asks for new ones
    ends_at: dict[str, float] = field(default_factory=dict)
    refused: int = 0

    @property
    def vended(self) -> int:
        return len(self.ends_at)

    def catalog(self, request: Request, forward: Callable[..., Answer]) -> Answer | None:
        """Before the catalog."""
        path = urlsplit(request.path).path
        if path.endswith("/credentials") and self.can_renew:
            answer = forward(path=path.removesuffix("/credentials"))
            told = json.loads(answer.body)
            self._shorten(told, path)
            return replace(answer, body=json.dumps({"storage-credentials": told["storage-credentials"]}).encode())
        answer = forward()
        if b"s3.session-token" not in answer.body:
            return answer
        told = json.loads(answer.body)
        self._shorten(told, f"{path}/credentials")
        return replace(answer, body=json.dumps(told).encode())

    def _shorten(self, told: dict[str, Any], endpoint: str) -> None:
        for config in (told["config"], *(one["config"] for one in told["storage-credentials"])):
            config["s3.session-token-expires-at-ms"] = str(int((time.time() + self.seconds) * 1000))
            if not self.says_when:
                del config["s3.session-token-expires-at-ms"]
            if self.can_renew and not endpoint.endswith("/tables/credentials"):  # a table that is being created
                config["client.refresh-credentials-endpoint"] = endpoint
            self.ends_at.setdefault(config["s3.session-token"], time.monotonic() + self.seconds)

    def store(self, request: Request, forward: Callable[..., Answer]) -> Answer | None:
        """Before the store."""
        token = request.headers.get("x-amz-security-token", "")
        if time.monotonic() >= self.ends_at.get(token, float("inf")):
            self.refused += 1
            body = b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"
            return Answer(400, (("Content-Type", "application/xml"),), body)
        return forward()


@dataclass
class FaultProxy:
    """The proxy's address, what passed through it, and what it does to the next commits: visible ones, or any.

    `intercept` stands before all that: it sees every request.
    """

    uri: str = ""
    intercept: Intercept | None = None
    requests: list[Request] = field(default_factory=list)
    script: deque[Fault] = field(default_factory=deque)
    any_commit: bool = False
    dark: bool = False

    def routes(self, pattern: str = "") -> list[str]:
        """The requests so far whose method and path match."""
        return [one.route for one in list(self.requests) if re.search(pattern, one.route)]

    @contextmanager
    def intercepted(self, intercept: Intercept) -> Iterator[None]:
        """Let every request go through this, and count from here."""
        self.requests.clear()
        self.intercept = intercept
        try:
            yield
        finally:
            self.intercept = None

    @contextmanager
    def faults(self, *script: Fault, any_commit: bool = False) -> Iterator[None]:
        """Let the next commits go as the script says, and those after it well; the whole script must be used."""
        self.script.extend(script)
        self.any_commit = any_commit
        try:
            yield
        finally:
            unmet = len(self.script)
            self.script.clear()
        assert not unmet, f"{unmet} faults were not met"

    def goes_dark(self, forward: Forward) -> Answer | None:
        """The server acts, and then cannot be reached at all until `dark` is set back."""
        forward()
        self.dark = True
        return None

    def answer(self, commit: bytes, forward: Forward) -> Answer | None:
        if self.script and (self.any_commit or _moves_main(commit)):
            return self.script.popleft()(forward)
        return forward()


@contextmanager
def fault_proxy(upstream: str, *, tls: ssl.SSLContext | None = None) -> Iterator[FaultProxy]:
    """A proxy on loopback that forwards everything to `upstream`, itself over TLS if there is a context."""
    target = urlsplit(upstream)
    proxy = FaultProxy()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Headers and body in two packets would wait for each other's acknowledgement.
        disable_nagle_algorithm = True

        def _handle(self) -> None:
            body = self._body()
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP}

            command, asked_path = self.command, self.path  # those of a later request on this connection are others

            def forward(*, path: str | None = None, content: bytes = body, **changed: str) -> Answer:
                sent = {name: value for name, value in headers.items() if name.lower() not in changed} | changed
                connection = http.client.HTTPConnection(target.hostname or "", target.port, timeout=60)
                try:
                    connection.request(command, path or asked_path, content, sent)
                    got = connection.getresponse()
                    # The answer to a HEAD tells how long a body would be.
                    passed = _HOP_BY_HOP - ({"content-length"} if command == "HEAD" else set())
                    kept = tuple((name, value) for name, value in got.getheaders() if name.lower() not in passed)
                    return Answer(got.status, kept, got.read())
                finally:
                    connection.close()

            is_commit = self.command == "POST" and _COMMIT.fullmatch(urlsplit(self.path).path)
            lowered = {name.lower(): value for name, value in self.headers.items()}
            request = Request(self.command, self.path, lowered, body, time.monotonic())
            proxy.requests.append(request)
            if proxy.intercept is not None:
                answer = proxy.intercept(request, forward)
            else:
                answer = None if proxy.dark else proxy.answer(body, forward) if is_commit else forward()
            if answer is None:
                self.close_connection = True
                return
            self.send_response_only(answer.status)  # the date is the server's own
            for name, value in answer.headers:
                self.send_header(name, value)
            if not any(name.lower() == "content-length" for name, _ in answer.headers):
                self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            if answer.is_cut:
                self.wfile.write(answer.body[: len(answer.body) // 2])
                self.close_connection = True
            elif self.command != "HEAD":
                self.wfile.write(answer.body)

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            chunks = []
            while size := int(self.rfile.readline().partition(b";")[0], 16):
                chunks.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(chunks)

        do_GET = do_POST = do_DELETE = do_HEAD = do_PUT = _handle  # noqa: N815 - names of http.server

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - name of http.server
            del format, args

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        proxy.uri = f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}"
        try:
            yield proxy
        finally:
            server.shutdown()
            thread.join()
