"""A catalog server that answers what a test tells it to, and keeps what it was asked; with TLS or without."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.faults.proxy import Answer, Request

__all__ = ["CONFIG", "TOKEN", "TOKEN_TEXT", "ScriptedServer", "as_json", "page", "scripted_server"]

# None cuts the connection.
Script = Callable[[Request], Answer | None]
TOKEN_TEXT = "tok-7f%3D/+odd~token"


def as_json(body: Any, status: int = 200) -> Answer:
    return Answer(status, (("Content-Type", "application/json"),), json.dumps(body).encode())


def page(status: int = 200) -> Answer:
    return Answer(status, (("Content-Type", "text/html; charset=utf-8"),), b"<!doctype html><title>Welcome</title>")


CONFIG = as_json({"defaults": {}, "overrides": {"prefix": "lake"}})
TOKEN = as_json({"access_token": TOKEN_TEXT, "token_type": "bearer", "expires_in": 3600})


@dataclass
class ScriptedServer:
    """Answers by route, such as `GET /v1/config`: first those of the test, then a token and a configuration."""

    uri: str = ""
    answers: dict[str, Answer | Script | None] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    connections: int = 0

    @property
    def routes(self) -> list[str]:
        return [one.route for one in self.requests]

    def answer(self, request: Request) -> Answer | None:
        known: Mapping[str, Answer | Script | None] = {
            "POST /v1/oauth/tokens": TOKEN,
            "GET /v1/config": CONFIG,
            **self.answers,
        }
        given = known.get(request.route, known.get("*", Answer.error(404, "NotFoundException", "nothing scripted")))
        return given(request) if callable(given) else given


@contextmanager
def scripted_server(tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> Iterator[ScriptedServer]:
    """A server on loopback; `host` is the name in its address."""
    scripted = ScriptedServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        timeout = 10

        def setup(self) -> None:
            scripted.connections += 1
            if tls is not None:
                self.request = tls.wrap_socket(self.request, server_side=True)
            super().setup()

        def _handle(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            # A client that takes this for its proxy sends the whole address.
            path = self.path if self.path.startswith("/") else f"/{self.path.split('/', 3)[3]}"
            request = Request(self.command, path, headers, body, time.monotonic())
            scripted.requests.append(request)
            answer = scripted.answer(request)
            if answer is None:
                self.close_connection = True
                return
            self.send_response_only(answer.status)
            for name, value in answer.headers:
                self.send_header(name, value)
            if answer.pieces is not None:
                self.close_connection = True
                self.end_headers()
                for piece in answer.pieces():
                    self.wfile.write(piece)
                return
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            if answer.is_cut:
                self.wfile.write(answer.body[: len(answer.body) // 2])
                self.close_connection = True
            elif self.command != "HEAD":
                self.wfile.write(answer.body)

        do_GET = do_POST = do_DELETE = do_HEAD = do_CONNECT = _handle  # noqa: N815 - names of http.server

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - name of http.server
            del format, args

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def process_request_thread(self, request: Any, client_address: Any) -> None:
            with suppress(OSError):  # clients that trust nobody go away in the middle of a handshake
                self.finish_request(request, client_address)
            with suppress(OSError):
                self.shutdown_request(request)

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        scripted.uri = f"http{'s' if tls else ''}://{host}:{server.server_port}"
        try:
            yield scripted
        finally:
            server.shutdown()
            thread.join()
