"""Limits on a catalog server's responses: bytes after decompression, seconds, pages, and nesting of its JSON."""

from __future__ import annotations

import codecs
import http.client
import io
import re
import socket
import time
from typing import TYPE_CHECKING, Any, Final, NoReturn

import requests
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection

from floe_core.config import ResponseLimits
from floe_core.errors import CatalogConnectionError
from floe_polaris.transport_errors import address

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["LimitExceededError", "Listing", "limit_time", "read_body"]

_CHUNK: Final = 2**16
_MB: Final = 2**20
_BYTE_ORDER_MARKS: Final = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)
# Brackets, and whole strings, once escapes are gone. No repetition of a group: that would store each character's state.
_PART: Final = re.compile(rb'[\[\]{}]|"[^"]*"?')


class LimitExceededError(CatalogConnectionError):
    """A response was larger, slower, longer or deeper than catalog.limits allows. The request is not retried."""


def _refuse(problem: str, setting: str, *, method: str | None, server: str = "the catalog server") -> NoReturn:
    done = "" if method in ("GET", "HEAD", None) else " The change may have been made: check before you repeat it."
    raise LimitExceededError(
        f"{server} {problem}; Floe stopped reading.{done} A working catalog does not answer like this: check "
        f"catalog.uri, and the server. If the answer is right, raise catalog.limits.{setting} in floe.yaml"
    )


def read_body(response: requests.Response, limits: ResponseLimits) -> None:
    """Read a response to its end, decompressed, or refuse it; afterwards `response.content` is available."""
    method, server = response.request.method, address(response.url)
    pieces, size = [], 0
    try:
        for piece in response.iter_content(_CHUNK):
            size += len(piece)
            if size > limits.response_bytes:
                problem = f"answered with more than {limits.response_bytes / _MB:,.4g} MB"
                _refuse(problem, "response_bytes", method=method, server=server)
            pieces.append(piece)
    except BaseException:
        response.close()
        raise
    body = b"".join(pieces)
    response._content = body  # noqa: SLF001 - as requests itself keeps it
    # The encoding of JSON; in another one that the server names, the same bytes could be nested deeper.
    response.encoding = "utf-8"
    lists = body.count(b"[") + body.count(b"{")
    if lists > limits.lists:
        problem = f"answered with JSON of more than {limits.lists:,} lists and objects"
        _refuse(problem, "lists", method=method, server=server)
    if lists > limits.depth and (b"\x00" in body or body.startswith(_BYTE_ORDER_MARKS)):
        problem = "answered in another encoding than UTF-8, so that the nesting of its JSON cannot be measured"
        _refuse(problem, "depth", method=method, server=server)
    if lists > limits.depth and _is_deeper(body, limits.depth):
        problem = f"answered with JSON that is nested more than {limits.depth} levels deep"
        _refuse(problem, "depth", method=method, server=server)


def _is_deeper(body: bytes, most: int) -> bool:
    flat = body.replace(rb"\\", b"").replace(rb"\"", b"")
    depth = 0
    for part in _PART.finditer(flat):
        sign = flat[part.start()]
        if sign in b"[{":
            depth += 1
            if depth > most:
                return True
        elif sign in b"]}":
            depth -= 1
    return False


class Listing:
    """The pages of one listing."""

    def __init__(self, limits: ResponseLimits) -> None:
        self._limits = limits
        self._pages = self._bytes = 0

    def add(self, response: requests.Response) -> None:
        """Count one response; all pages together may be as large as one response."""
        self._pages += 1
        self._bytes += len(response.content)
        server = address(response.url)
        if self._pages > self._limits.pages:
            problem = f"sent a listing of more than {self._limits.pages:,} pages"
            _refuse(problem, "pages", method=None, server=server)
        if self._bytes > self._limits.response_bytes:
            problem = f"sent a listing of more than {self._limits.response_bytes / _MB:,.4g} MB"
            _refuse(problem, "response_bytes", method=None, server=server)


# Time ---------------------------------------------------------------------------------------------------------------


def limit_time(manager: PoolManager, limits: ResponseLimits) -> None:
    """Limit the total time of every response on the connections of this pool, however it arrives."""

    class TimedResponse(http.client.HTTPResponse):
        def __init__(self, sock: socket.socket, *arguments: Any, **named: Any) -> None:
            super().__init__(sock, *arguments, **named)
            method = named.get("method")
            self.fp.close()
            self.fp = io.BufferedReader(_TimedReads(sock, limits.seconds, method))

    class Plain(HTTPConnection):
        response_class = TimedResponse

    class Secure(HTTPSConnection):
        response_class = TimedResponse

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class SecurePool(HTTPSConnectionPool):
        ConnectionCls = Secure

    manager.pool_classes_by_scheme = {"http": PlainPool, "https": SecurePool}


class _TimedReads(io.RawIOBase):
    """A socket with one deadline for all its reads: a server that trickles bytes never reaches a read timeout."""

    def __init__(self, sock: socket.socket, seconds: float, method: str | None) -> None:
        self._sock = sock
        self._raw = sock.makefile("rb", buffering=0)
        self._seconds = seconds
        self._method = method
        self._ends_at = time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int | None:
        left, timeout = self._ends_at - time.monotonic(), self._sock.gettimeout()
        if left <= 0:
            self._refuse()
        if timeout is not None and timeout <= left:
            return self._raw.readinto(buffer)
        self._sock.settimeout(left)
        try:
            return self._raw.readinto(buffer)
        except TimeoutError:
            self._refuse()
        finally:
            self._sock.settimeout(timeout)

    def _refuse(self) -> NoReturn:
        _refuse(f"has not finished its answer after {self._seconds:g} s", "seconds", method=self._method)

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()
