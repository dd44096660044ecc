"""Tokens and credentials that end, answers that come late: what is kept, what is shared, what is left alone."""

from __future__ import annotations

import json
import pickle
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import requests
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import LongType, NestedField
from tests.faults.proxy import Answer, Request
from tests.servers.scripted import ScriptedServer, as_json

from floe_core.errors import CatalogAuthenticationError, CatalogConnectionError, FloeStorageError
from floe_polaris import PolarisCatalog
from floe_polaris.catalog import CREATE_ID
from floe_polaris.files import VendedFileIO
from floe_polaris.transport_errors import address, retry_after

Connect = Callable[..., PolarisCatalog]
TOKENS, NAMESPACES, ORDERS = "POST /v1/oauth/tokens", "/v1/lake/namespaces", "/v1/lake/namespaces/sales/tables/orders"
EMPTY = as_json({"namespaces": []})
SCHEMA = Schema(NestedField(1, "id", LongType()))


class Steady:
    """The monotonic clock of the tokens alone."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr("floe_polaris.tokens.time", SimpleNamespace(monotonic=lambda: self.now))


def token(seconds: float, text: str = "a-token-of-ours") -> Answer:
    return as_json({"access_token": text, "expires_in": seconds})


def test_a_token_is_kept_to_its_end_when_no_new_one_is_to_be_had(
    server: ScriptedServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Steady(monkeypatch)
    server.answers |= {TOKENS: token(100), f"GET {NAMESPACES}": EMPTY}
    catalog = connect()
    server.answers[TOKENS] = Answer(503)
    clock.now += 85
    server.requests.clear()
    catalog.list_namespaces()
    asked = server.routes.count(TOKENS)
    catalog.list_namespaces()
    assert asked >= 1
    assert server.routes.count(TOKENS) == asked  # and it is left alone for a moment
    clock.now += 16
    with pytest.raises(CatalogConnectionError, match="answered 503"):
        catalog.list_namespaces()


def test_threads_that_waited_for_a_token_do_not_wait_again(server: ScriptedServer, connect: Connect) -> None:
    server.answers |= {TOKENS: token(0.01), f"GET {NAMESPACES}": EMPTY}
    catalog = connect(timeout_seconds=0.3, retry={"max_attempts": 2, "initial_wait_seconds": 0.1, "jitter_seconds": 0})
    done, begun = threading.Event(), threading.Barrier(8)

    def hung(_request: Request) -> Answer | None:
        done.wait(3)
        return None

    server.answers[TOKENS] = hung
    time.sleep(0.02)  # the token at hand has ended
    server.requests.clear()

    def look(_number: int) -> str:
        begun.wait()
        try:
            catalog.list_namespaces()
        except CatalogConnectionError as exc:
            return str(exc)
        return ""

    with ThreadPoolExecutor(8) as pool:
        told = list(pool.map(look, range(8)))
    done.set()
    assert {"did not answer within" in one for one in told} == {True}, told
    assert server.routes.count(TOKENS) <= 4


def test_a_token_that_may_not_be_renewed_and_ended_is_told_so(server: ScriptedServer, connect: Connect) -> None:
    server.answers[f"GET {NAMESPACES}"] = Answer(401)
    with pytest.raises(CatalogAuthenticationError, match="token_refresh_enabled is false; remove that setting"):
        connect(token_refresh_enabled=False).list_namespaces()


def test_a_table_that_somebody_wrote_to_is_not_taken_back(server: ScriptedServer, connect: Connect) -> None:
    made: list[Answer] = []

    def create(request: Request) -> Answer:
        mark = json.loads(request.body)["properties"][CREATE_ID]
        metadata = new_table_metadata(
            SCHEMA, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "file:///nowhere/orders", {CREATE_ID: mark}
        )
        told = {**json.loads(metadata.model_dump_json()), "snapshots": [{"snapshot-id": 1}]}
        made.append(as_json({"metadata-location": "file:///nowhere/1.json", "metadata": told, "config": {}}))
        return Answer.error(400, "IllegalArgumentException", "Credential vending is not supported for this table")

    server.answers |= {f"POST {NAMESPACES}/sales/tables": create, f"GET {ORDERS}": lambda _request: made[0]}
    with pytest.raises(FloeStorageError):
        connect().create_table(("sales", "orders"), SCHEMA)
    assert made
    assert f"DELETE {ORDERS}" not in server.routes


def test_what_follows_a_drop_in_its_answer_does_not_matter(server: ScriptedServer, connect: Connect) -> None:
    metadata = new_table_metadata(SCHEMA, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "file:///nowhere/o", {})
    told = json.loads(metadata.model_dump_json())
    server.answers |= {
        f"GET {ORDERS}": as_json({"metadata-location": "file:///nowhere/1.json", "metadata": told, "config": {}}),
        f"DELETE {ORDERS}": Answer(200, (("Content-Type", "text/plain"),), b"gone"),
    }
    connect().drop_table(("sales", "orders"))


def test_the_files_of_a_table_can_be_sent_to_another_process() -> None:
    vended = {"s3.access-key-id": "k", "s3.secret-access-key": "s3cret", "s3.session-token-expires-at-ms": "1"}
    files = VendedFileIO({"s3.endpoint": "http://127.0.0.1:9"}, vended, dict, lambda: 0.0)
    again = pickle.loads(pickle.dumps(files))
    assert again.properties == files.properties
    assert again.fs_by_scheme("file", None).type_name == "local"  # and no renewal is asked for there


def test_a_moment_to_ask_again_is_by_the_clock_of_the_server() -> None:
    answer = requests.Response()
    answer.headers.update({"Date": "Sun, 15 Nov 2026 12:00:00 GMT", "Retry-After": "Sun, 15 Nov 2026 12:00:02 GMT"})
    assert retry_after(requests.HTTPError(response=answer)) == 2
    answer.headers["Retry-After"] = "whenever"
    assert retry_after(requests.HTTPError(response=answer)) is None


def test_an_address_is_shown_as_it_is_written() -> None:
    assert address("http://[::1]:8181/api/catalog/v1/config") == "http://[::1]:8181/api/catalog"
    assert address("https://user:planted@h:1/x") == "https://h:1/x"
