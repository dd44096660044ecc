"""Tokens that end while work goes on: renewed before their end, and once when the catalog refuses one."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from tests.catalogs import rest_settings, side_lake
from tests.engines import ArrowEngine, SparkEngine, events, rows_of
from tests.faults.proxy import Answer, FaultProxy, Forward, Request, ShortTokens, fault_proxy
from tests.servers.catalogs import open_catalog, settings_of
from tests.servers.seaweedfs import SeaweedFS

from floe_core.errors import CatalogAuthenticationError
from floe_core.identifiers import TableIdentifier
from floe_iceberg import Lake
from floe_polaris import create_catalog


@pytest.fixture
def proxy(server: SeaweedFS) -> Iterator[FaultProxy]:
    with fault_proxy(server.catalog_uri) as running:
        yield running


@pytest.mark.full  # waits for tokens to end
@pytest.mark.parametrize("kind", [ArrowEngine, SparkEngine], ids=["arrow", "spark"])
def test_work_goes_on_while_tokens_end_every_three_seconds(
    lake: Lake, server: SeaweedFS, proxy: FaultProxy, table: TableIdentifier, tmp_path: Path, kind: type[ArrowEngine]
) -> None:
    tokens = ShortTokens(3)
    with proxy.intercepted(tokens):
        engine = kind(side_lake(lake, tmp_path, rest_settings(server, uri=proxy.uri)))
        begun, days = time.monotonic(), 0
        while time.monotonic() - begun < 10 or days < 3:
            engine.write(table, events(days), mode="append")
            assert len(rows_of(engine.read(table))) == 10 * (days + 1)
            days += 1
    assert tokens.issued >= 4
    # The engines know when a token ends, and do not wait to be refused.
    assert tokens.refused == 0


@pytest.mark.parametrize("status", [401, 419])
def test_a_token_that_is_refused_is_renewed_once_and_the_request_sent_again(
    server: SeaweedFS, proxy: FaultProxy, namespace: str, status: int
) -> None:
    """The server forgot the token before it said it would: it was restarted, or the token was revoked."""
    tokens = ShortTokens(3600, status=status)
    with proxy.intercepted(tokens):
        catalog = open_catalog(server, proxy.uri)
        catalog.create_namespace((namespace,))
        tokens.upstream.clear()
        proxy.requests.clear()
        table = catalog.create_table((namespace, "events"), pa.schema([("id", pa.int64())]))
        assert [one.rpartition("/")[2] for one in proxy.routes()] == ["tables", "tokens", "tables"]
        tokens.upstream.clear()
        table.append(pa.table({"id": [1, 2]}))  # a commit that was refused was not made
    assert catalog.load_table((namespace, "events")).scan().to_arrow().num_rows == 2


def test_spark_takes_a_new_token_once_when_its_own_is_refused(
    lake: Lake, server: SeaweedFS, proxy: FaultProxy, table: TableIdentifier, tmp_path: Path
) -> None:
    tokens = ShortTokens(3600)
    with proxy.intercepted(tokens):
        side = side_lake(lake, tmp_path, rest_settings(server, uri=proxy.uri))
        side.write(side.spark.range(5), table, mode="append")
        tokens.upstream.clear()
        side.write(side.spark.range(5, 7), table, mode="append")
        tokens.upstream.clear()
        assert side.read(table).count() == 7
        tokens.upstream.clear()
        side.write(side.spark.range(6, 9), table, mode="upsert", keys=["id"])
        assert sorted(row.id for row in side.read(table).collect()) == list(range(9))
        tokens.seconds = 0
        tokens.upstream.clear()
        with pytest.raises(CatalogAuthenticationError, match=r"^Authentication failed: check catalog credentials"):
            side.write(side.spark.range(1), table, mode="append")


def test_spark_takes_the_token_that_is_in_its_file_by_then(
    lake: Lake, server: SeaweedFS, proxy: FaultProxy, table: TableIdentifier, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(first := server.token())
    good = {first}
    settings = rest_settings(server, uri=proxy.uri).splitlines()
    with_token = ['  token: "${file:token}"' if "credentials" in line else line for line in settings]

    def only_good(request: Request, forward: Forward) -> Answer:
        return forward() if request.headers.get("authorization", "")[7:] in good else Answer(401)

    with proxy.intercepted(only_good):
        side = side_lake(lake, tmp_path, "\n".join(with_token) + "\n")
        side.write(side.spark.range(5), table, mode="append")
        time.sleep(1.1)  # tokens of one second are the same
        (tmp_path / "token").write_text(second := server.token())
        assert second != first
        good = {second}
        side.write(side.spark.range(5, 7), table, mode="append")
        assert side.read(table).count() == 7


def test_a_token_that_is_refused_again_is_final(server: SeaweedFS, proxy: FaultProxy) -> None:
    tokens = ShortTokens(3600)
    with proxy.intercepted(tokens):
        catalog = open_catalog(server, proxy.uri)
    tokens.seconds = 0
    tokens.upstream.clear()
    with proxy.intercepted(tokens):
        with pytest.raises(CatalogAuthenticationError, match=r"^Authentication failed: check catalog credentials"):
            catalog.list_namespaces()
        assert [one.rpartition("/")[2] for one in proxy.routes()] == ["namespaces", "tokens", "namespaces"]


def test_a_token_without_an_end_is_renewed_when_it_is_refused(server: SeaweedFS, proxy: FaultProxy) -> None:
    tokens = ShortTokens(1, says_when=False)
    with proxy.intercepted(tokens):
        catalog = open_catalog(server, proxy.uri)
        time.sleep(1.1)
        catalog.list_namespaces()
    assert (tokens.issued, tokens.refused) == (2, 1)


def test_sixteen_threads_renew_a_token_once(server: SeaweedFS, proxy: FaultProxy) -> None:
    tokens = ShortTokens(3600)
    with proxy.intercepted(tokens):
        catalog = open_catalog(server, proxy.uri)
        tokens.upstream.clear()
        barrier = threading.Barrier(16)

        def work(_number: int) -> None:
            barrier.wait()
            catalog.list_namespaces()

        with ThreadPoolExecutor(16) as pool:
            list(pool.map(work, range(16)))
    assert tokens.issued == 1


def test_no_token_is_renewed_where_that_is_switched_off(server: SeaweedFS, proxy: FaultProxy) -> None:
    tokens = ShortTokens(1)
    with proxy.intercepted(tokens):
        catalog = open_catalog(server, proxy.uri, token_refresh_enabled=False)
        time.sleep(1.1)
        with pytest.raises(CatalogAuthenticationError):
            catalog.list_namespaces()
    assert tokens.issued == 1


@pytest.mark.full  # waits for tokens to end
@pytest.mark.parametrize("off", [-300, 300], ids=["behind", "ahead"])
def test_a_wrong_clock_ends_neither_a_token_nor_a_write(
    server: SeaweedFS, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch, namespace: str, off: int
) -> None:
    right = time.time
    tokens = ShortTokens(2)
    monkeypatch.setattr(time, "time", lambda: right() + off)
    name = (namespace, "events")
    with proxy.intercepted(tokens):
        catalog = open_catalog(server, proxy.uri)
        assert abs(catalog.clock_skew + off) < 2
        catalog.create_namespace((namespace,))
        table = catalog.create_table(name, pa.schema([("id", pa.int64())]))
        before = tokens.issued
        time.sleep(2.1)
        table.append(pa.table({"id": [1]}))
        assert catalog.load_table(name).scan().to_arrow().num_rows == 1
        assert tokens.issued - before >= 1
        assert tokens.refused == 0


# A token from elsewhere ------------------------------------------------------------------------------------------


def test_a_token_in_a_file_is_read_again_when_it_is_refused(
    server: SeaweedFS, proxy: FaultProxy, tmp_path: Path
) -> None:
    good = {server.token()}
    (tmp_path / "token").write_text(f"{next(iter(good))}\n")
    settings = settings_of(server, proxy.uri, credentials=None, token="${file:token}")

    def only_good(request: Request, forward: Forward) -> Answer:
        return forward() if request.headers.get("authorization", "")[7:] in good else Answer(401)

    with proxy.intercepted(only_good):
        catalog = create_catalog(settings, root=tmp_path)
        catalog.list_namespaces()
        time.sleep(1.1)  # tokens of one second are the same
        good = {server.token()}
        (tmp_path / "token").write_text(next(iter(good)))
        catalog.list_namespaces()
        good = set()
        proxy.requests.clear()
        with pytest.raises(CatalogAuthenticationError, match=r"refused the token; it may have expired.*\$\{file:"):
            catalog.list_namespaces()
        assert len(proxy.requests) == 1  # the file holds what was refused: nothing else to try


@pytest.mark.parametrize("text", ["", "  \n", "two words", "line\nbreak", "tökén", "a\x00b"])
def test_what_is_not_a_token_is_not_sent(server: SeaweedFS, tmp_path: Path, text: str) -> None:
    (tmp_path / "token").write_text(text, encoding="utf-8")
    with pytest.raises(CatalogAuthenticationError, match=r"^Authentication failed.*(empty|not a token)") as caught:
        create_catalog(settings_of(server, credentials=None, token="${file:token}"), root=tmp_path)
    assert not text.strip() or text not in str(caught.value)


# An identity provider --------------------------------------------------------------------------------------------


def test_credentials_are_exchanged_where_it_is_said(server: SeaweedFS, proxy: FaultProxy) -> None:
    """The proxy is the identity provider; the catalog itself is asked directly."""
    elsewhere = f"{proxy.uri}/v1/oauth/tokens"
    with proxy.intercepted(lambda _request, forward: forward()):
        open_catalog(server, oauth2_server_uri=elsewhere).list_namespaces()
    assert proxy.routes() == ["POST /v1/oauth/tokens"]
    form = proxy.requests[0].body.decode()
    assert "grant_type=client_credentials" in form
    assert "scope=PRINCIPAL_ROLE%3AALL" in form


def test_the_scope_is_the_configured_one(server: SeaweedFS, proxy: FaultProxy) -> None:
    with proxy.intercepted(lambda _request, forward: forward()):
        open_catalog(server, proxy.uri, scope="PRINCIPAL_ROLE:analyst")
    assert "scope=PRINCIPAL_ROLE%3Aanalyst" in proxy.requests[0].body.decode()


def test_a_secret_may_hold_any_character(server: SeaweedFS, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = "a:b&c=d e%41+ü/\\"
    sent: list[str] = []

    def provider(request: Request, forward: Forward) -> Answer:
        sent.append(request.body.decode())
        return Answer(
            200, (("Content-Type", "application/json"),), json.dumps({"access_token": server.token()}).encode()
        )

    settings = settings_of(server, oauth2_server_uri=f"{proxy.uri}/token")
    monkeypatch.setenv("FLOE_TEST_REST_SECRET", odd)
    with proxy.intercepted(provider):
        create_catalog(settings).list_namespaces()
    from urllib.parse import parse_qs

    assert parse_qs(sent[0])["client_secret"] == [odd]
