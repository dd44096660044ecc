"""The answers of a catalog server are bounded: in size, pages, time and depth."""

from __future__ import annotations

import base64
import gzip
import itertools
import json
import resource
import socket
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitStateUnknownException
from tests.faults.proxy import Answer, Request
from tests.servers.catalogs import QUICK
from tests.servers.scripted import CONFIG, ScriptedServer, as_json, scripted_server

from floe_core.config.spec import ResponseLimits, RestCatalogConfig
from floe_core.errors import FloeError
from floe_polaris import PolarisCatalog, create_catalog
from floe_polaris.limits import _is_deeper

TABLES = "GET /v1/lake/namespaces/ns/tables"
NAMESPACES = "GET /v1/lake/namespaces"
TABLE = "/v1/lake/namespaces/ns/tables/t"
JSON = ("Content-Type", "application/json")


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted_server() as running:
        yield running


@pytest.fixture
def connect(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> Callable[..., PolarisCatalog]:
    monkeypatch.setenv("FLOE_TEST_SECRET", "secret")

    def open_catalog(uri: str | None = None, **limits: Any) -> PolarisCatalog:
        given = {"client_id": "floe", "client_secret": "${env:FLOE_TEST_SECRET}"}
        config = {"uri": uri or server.uri, "warehouse": "lake", "credentials": given, "retry": QUICK, "limits": limits}
        return create_catalog(RestCatalogConfig.model_validate(config))

    return open_catalog


Connect = Callable[..., PolarisCatalog]


def bomb(members: int) -> bytes:
    """So many times 16 MB of zeros, in a thousandth of the bytes."""
    return gzip.compress(b"\0" * 2**24, 9) * members


def test_a_small_answer_that_decompresses_to_gigabytes_is_refused(server: ScriptedServer, connect: Connect) -> None:
    packed = bomb(64)
    assert len(packed) < 2 * 2**20
    server.answers[TABLES] = Answer(200, (JSON, ("Content-Encoding", "gzip")), packed)
    catalog = connect(response_bytes="32MB")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(FloeError, match=r"more than 32 MB.*catalog\.limits\.response_bytes"):
        catalog.list_tables("ns")
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown < 300, f"{grown:.0f} MB"
    assert server.routes.count(TABLES) == 1  # not asked again


def endless() -> Iterator[bytes]:
    yield b'{"identifiers": ['
    while True:
        yield b" " * 2**20


@pytest.mark.parametrize("route", [TABLES, "GET /v1/config", "POST /v1/oauth/tokens", f"GET {TABLE}"])
def test_an_answer_without_an_end_is_refused(server: ScriptedServer, connect: Connect, route: str) -> None:
    server.answers[route] = Answer(200, (JSON,), pieces=endless)

    def ask() -> None:
        catalog = connect(response_bytes="4MB")
        catalog.load_table("ns.t") if route.endswith("/t") else catalog.list_tables("ns")

    with pytest.raises(FloeError, match=r"more than 4 MB.*catalog\.limits\.response_bytes"):
        ask()
    assert server.routes.count(route) == 1


def drip(first: bytes = b"{") -> Iterator[bytes]:
    yield first
    while True:
        time.sleep(0.1)
        yield b" "


@pytest.mark.parametrize("route", [TABLES, "GET /v1/config", "POST /v1/oauth/tokens"])
def test_an_answer_that_comes_byte_by_byte_is_refused(server: ScriptedServer, connect: Connect, route: str) -> None:
    server.answers[route] = Answer(200, (JSON,), pieces=drip)
    began = time.monotonic()

    def ask() -> None:
        connect(seconds=0.5).list_tables("ns")

    with pytest.raises(FloeError, match=r"has not finished its answer after 0\.5 s.*catalog\.limits\.seconds"):
        ask()
    assert time.monotonic() - began < 10
    assert server.routes.count(route) == 1


def test_a_chunk_that_comes_byte_by_byte_is_refused(server: ScriptedServer, connect: Connect) -> None:
    headers = (JSON, ("Transfer-Encoding", "chunked"))
    server.answers[TABLES] = Answer(200, headers, pieces=lambda: drip(b"FFFFFF\r\n{"))
    with pytest.raises(FloeError, match=r"catalog\.limits\.seconds"):
        connect(seconds=0.5).list_tables("ns")


@pytest.fixture
def slow_headers() -> Iterator[str]:
    """A server whose answer has headers without an end."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    taken, _ = listening.accept()
                except OSError:
                    return
                threading.Thread(target=answer, args=(taken,), daemon=True).start()

        def answer(taken: socket.socket) -> None:
            try:
                taken.recv(65536)
                taken.sendall(b"HTTP/1.1 200 OK\r\n")
                for number in itertools.count():
                    taken.sendall(f"X-{number % 10}: {number}\r\n".encode() if number % 20 == 0 else b"")
                    time.sleep(0.05)
            except OSError:
                taken.close()

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def test_headers_that_come_one_by_one_are_refused(slow_headers: str, connect: Connect) -> None:
    with pytest.raises(FloeError, match=r"catalog\.limits\.seconds"):
        connect(slow_headers, seconds=0.5)


def paged(key: str, entry: Any) -> Callable[[Request], Answer]:
    numbers = itertools.count()
    return lambda _request: as_json({key: [entry], "next-page-token": f"page{next(numbers)}"})


@pytest.mark.parametrize(
    ("route", "key", "entry", "method"),
    [
        (TABLES, "identifiers", {"namespace": ["ns"], "name": "t"}, "list_tables"),
        (NAMESPACES, "namespaces", ["ns"], "list_namespaces"),
        ("GET /v1/lake/namespaces/ns/views", "identifiers", {"namespace": ["ns"], "name": "v"}, "list_views"),
    ],
    ids=["tables", "namespaces", "views"],
)
def test_a_listing_without_a_last_page_is_refused(
    server: ScriptedServer, connect: Connect, route: str, key: str, entry: Any, method: str
) -> None:
    server.answers["GET /v1/config"] = as_json(
        {"defaults": {}, "overrides": {"prefix": "lake", "view-endpoints-supported": "true"}}
    )
    server.answers[route] = paged(key, entry)
    catalog = connect(pages=20)
    with pytest.raises(FloeError, match=r"a listing of more than 20 pages.*catalog\.limits\.pages"):
        getattr(catalog, method)(*(() if method == "list_namespaces" else ("ns",)))
    assert server.routes.count(route) == 21


def test_all_pages_together_are_bounded_too(server: ScriptedServer, connect: Connect) -> None:
    server.answers[TABLES] = paged("identifiers", {"namespace": ["ns"], "name": "t" * 2**20})
    with pytest.raises(FloeError, match=r"a listing of more than 4 MB.*catalog\.limits\.response_bytes"):
        connect(response_bytes="4MB").list_tables("ns")
    assert server.routes.count(TABLES) == 4


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"a":"[\\"["},['], ids=["lists", "objects", "strings"])
@pytest.mark.parametrize("route", [TABLES, "GET /v1/config", "POST /v1/oauth/tokens"])
def test_json_that_is_nested_too_deeply_is_refused(
    server: ScriptedServer, connect: Connect, route: str, opening: bytes
) -> None:
    server.answers[route] = Answer(200, (JSON,), opening * 100_000)

    def ask() -> None:
        connect().list_tables("ns")

    with pytest.raises(FloeError, match=r"nested more than 100 levels deep.*catalog\.limits\.depth"):
        ask()
    assert server.routes.count(route) == 1


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32-be", "utf-8-sig"])
@pytest.mark.parametrize("charset", [True, False])
def test_json_in_an_encoding_that_hides_its_depth_is_refused(
    server: ScriptedServer, connect: Connect, encoding: str, charset: bool
) -> None:
    """In UTF-16 the bytes of a bracket are in other characters too; \u2200 has the byte of a quotation mark."""
    body = ('{"a": "\u2200", "b": ' + "[" * 5000 + "]" * 5000 + "}").encode(encoding)
    header = ("Content-Type", f"application/json; charset={encoding}") if charset else JSON
    server.answers[TABLES] = Answer(200, (header,), body)
    catalog = connect()
    with pytest.raises(FloeError, match="in another encoding than UTF-8"):
        catalog.list_tables("ns")
    assert server.routes.count(TABLES) == 1


def test_the_encoding_that_a_server_names_does_not_hide_the_depth(server: ScriptedServer, connect: Connect) -> None:
    """In UTF-7 the text of a name can be quotation marks and brackets."""
    deep = '","b":' + "[" * 5000 + "]" * 5000 + ',"c":"'
    hidden = base64.b64encode(deep.encode("utf-16-be")).rstrip(b"=").decode()
    body = json.dumps({"identifiers": [{"namespace": ["ns"], "name": f"a+{hidden}-"}]}).encode()
    server.answers[TABLES] = Answer(200, (("Content-Type", "application/json; charset=utf-7"),), body)
    (table,) = connect().list_tables("ns")
    assert table[-1].startswith("a+")


def test_names_in_any_language_are_read(server: ScriptedServer, connect: Connect) -> None:
    names = {"identifiers": [{"namespace": ["ns"], "name": "Umsätze \u2200 \u0000"}]}
    for text in (json.dumps(names), json.dumps(names, ensure_ascii=False)):
        server.answers[TABLES] = Answer(200, (JSON,), text.encode())
        assert connect().list_tables("ns") == [("ns", "Umsätze \u2200 \u0000")]


def test_the_depth_is_measured_in_little_memory() -> None:
    body = b'{"a": "' + b'x\\"' * 2**20 + b'", "b": [' + b"[]," * 150 + b"1]}"
    tracemalloc.start()
    try:
        assert not _is_deeper(body, 100)
        assert _is_deeper(body, 1)
        assert tracemalloc.get_traced_memory()[1] < 4 * len(body)
    finally:
        tracemalloc.stop()


def nested(levels: int) -> Answer:
    value: Any = {"ns": "x"}
    for _ in range(levels - 3):
        value = [value]
    return as_json({"identifiers": [], "more": value})


def test_every_limit_can_be_raised(server: ScriptedServer, connect: Connect) -> None:
    pages = iter([{"next-page-token": "2"}, {"next-page-token": "3"}, {}] * 2)
    server.answers[NAMESPACES] = lambda _request: as_json({"namespaces": [["ns"]], **next(pages)})
    with pytest.raises(FloeError, match="pages"):
        connect(pages=2).list_namespaces()
    next(pages, None)
    pages = iter([{"next-page-token": "2"}, {"next-page-token": "3"}, {}])
    assert len(connect(pages=3).list_namespaces()) == 3

    server.answers[TABLES] = nested(12)
    with pytest.raises(FloeError, match="depth"):
        connect(depth=10).list_tables("ns")
    assert connect(depth=20).list_tables("ns") == []
    with pytest.raises(FloeError, match="more than 10 lists"):
        connect(lists=10).list_tables("ns")

    large = {"identifiers": [{"namespace": ["ns"], "name": "t" * 3000}]}
    server.answers[TABLES] = as_json(large)
    with pytest.raises(FloeError, match="response_bytes"):
        connect(response_bytes="2KB").list_tables("ns")
    assert len(connect(response_bytes="4KB").list_tables("ns")) == 1

    def late() -> Iterator[bytes]:
        for piece in json.dumps(large).encode().partition(b"ttt"):
            time.sleep(0.2)
            yield piece

    server.answers[TABLES] = Answer(200, (JSON,), pieces=late)
    with pytest.raises(FloeError, match="seconds"):
        connect(seconds=0.3).list_tables("ns")
    assert len(connect(seconds=30).list_tables("ns")) == 1


def test_an_answer_within_the_limits_is_read_as_before(server: ScriptedServer, connect: Connect) -> None:
    body = json.dumps({"identifiers": [{"namespace": ["ns"], "name": "[{" * 5000}]}).encode()
    server.answers[TABLES] = Answer(200, (JSON, ("Content-Encoding", "gzip")), gzip.compress(body))
    assert connect().list_tables("ns") == [("ns", "[{" * 5000)]


def test_the_limits_are_far_from_what_catalogs_answer() -> None:
    limits = ResponseLimits()
    assert (limits.response_bytes, limits.seconds, limits.pages, limits.depth) == (256 * 2**20, 900, 10_000, 100)
    assert limits.lists == 5_000_000


@pytest.mark.parametrize("broken", ["size", "time", "depth"])
def test_a_commit_whose_answer_breaks_a_limit_is_in_doubt(
    server: ScriptedServer, connect: Connect, broken: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    from tests.servers.hostile import served_table

    location, metadata = served_table(tmp_path_factory.mktemp("served"))
    server.answers["GET /v1/config"] = CONFIG
    server.answers[f"GET {TABLE}"] = as_json({"metadata-location": location, "metadata": metadata, "config": {}})
    answers = {"size": endless, "time": drip, "depth": lambda: iter([b"[" * 1000])}
    server.answers[f"POST {TABLE}"] = Answer(200, (JSON,), pieces=answers[broken])
    table = connect(response_bytes="4MB", seconds=3).load_table("ns.t")
    with pytest.raises(CommitStateUnknownException, match="may have been made"):
        table.append(pa.table({"n": pa.array([4], pa.int64())}))
    assert server.routes.count(f"POST {TABLE}") == 1


def test_a_token_that_still_holds_is_used_when_its_renewal_breaks_a_limit(
    server: ScriptedServer, connect: Connect
) -> None:
    token = as_json({"access_token": "first", "token_type": "bearer", "expires_in": 2})
    answers = iter([token])
    server.answers["POST /v1/oauth/tokens"] = lambda _request: next(answers, Answer(200, (JSON,), pieces=endless))
    server.answers[TABLES] = as_json({"identifiers": []})
    catalog = connect(response_bytes="4MB")
    time.sleep(1.7)  # after four fifths of its life it is renewed
    assert catalog.list_tables("ns") == []
