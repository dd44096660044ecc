"""The way to a catalog: ports, names, certificates and proxies, each failure with the setting to look at."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext

import pytest
import requests
import trustme
from tests.faults.proxy import Answer, Request
from tests.refusals import check_discreet
from tests.servers.catalogs import QUICK
from tests.servers.scripted import ScriptedServer, as_json, page, scripted_server

from floe_core.config.spec import RestCatalogConfig
from floe_core.errors import CatalogConnectionError, ConfigurationError
from floe_polaris import PolarisCatalog, create_catalog
from floe_polaris.plugin import RestCatalogPlugin

Connect = Callable[..., PolarisCatalog]
NAMESPACES = "GET /v1/lake/namespaces"
TWICE = {**QUICK, "max_attempts": 2}


# Ports and names -------------------------------------------------------------------------------------------------


def test_a_port_that_nobody_listens_at_is_told(connect: Connect) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        uri = f"http://127.0.0.1:{unused.getsockname()[1]}"
    with pytest.raises(CatalogConnectionError, match=rf"nothing listens at {uri}.*2 attempts.*catalog\.uri") as caught:
        connect(uri=uri, auth="none", credentials=None, retry=TWICE)
    assert isinstance(caught.value.__cause__, requests.ConnectionError)
    assert caught.value.detail is not None
    assert (caught.value.detail.retryable, caught.value.detail.retry_count) == (True, 1)
    assert caught.value.detail.operation == "GET /v1/config"
    with pytest.raises(CatalogConnectionError, match=r"nothing listens .*oauth2_server_uri") as caught:
        connect(oauth2_server_uri=f"{uri}/token", retry=TWICE)
    check_discreet(caught.value)


def test_a_host_that_does_not_exist_is_told(connect: Connect) -> None:
    words = r"the host of http://catalog\.invalid.*cannot be resolved.*check catalog\.uri"
    with pytest.raises(CatalogConnectionError, match=words) as caught:
        connect(uri="http://catalog.invalid/api/catalog", retry={"max_attempts": 1})
    check_discreet(caught.value)


@pytest.mark.parametrize("uri", ["http://host:port", "http://[::1", "http://host:99999", "https://*.x", "http://.x"])
def test_what_is_no_address_is_told_and_not_tried(connect: Connect, uri: str) -> None:
    with pytest.raises(CatalogConnectionError, match=r"is not a valid address; check catalog\.uri"):
        connect(uri=uri)


def test_a_server_that_says_nothing_is_given_up_on(server: ScriptedServer, connect: Connect) -> None:
    ended = threading.Event()

    def silent(_request: Request) -> Answer | None:
        ended.wait(5)
        return None

    server.answers["GET /v1/config"] = silent
    words = r"did not answer within 0\.2 s \(2 attempts\); .*raise catalog\.timeout_seconds"
    with pytest.raises(CatalogConnectionError, match=words):
        connect(timeout_seconds=0.2, retry=TWICE)
    ended.set()
    assert server.routes.count("GET /v1/config") == 2


# TLS -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def served(authority: trustme.CA, *names: str, until: datetime | None = None) -> SSLContext:
    context = SSLContext(PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names, not_after=until).configure_cert(context)
    return context


@pytest.fixture
def encrypted(authority: trustme.CA) -> Iterator[ScriptedServer]:
    with scripted_server(served(authority, "127.0.0.1", "localhost")) as running:
        running.answers[NAMESPACES] = as_json({"namespaces": [["raw"]]})
        yield running


def test_a_certificate_of_an_unknown_authority_is_refused_at_once(encrypted: ScriptedServer, connect: Connect) -> None:
    words = r"is not trusted here: .*set catalog\.ca_bundle to its PEM file$"
    with pytest.raises(CatalogConnectionError, match=words) as caught:
        connect(uri=encrypted.uri)
    check_discreet(caught.value)
    assert encrypted.connections == 1
    assert encrypted.requests == []


@pytest.mark.parametrize("environment", [False, True], ids=["alone", "with REQUESTS_CA_BUNDLE"])
def test_an_authority_of_our_own_is_trusted_where_its_file_is_named(
    encrypted: ScriptedServer,
    settings: Callable[..., RestCatalogConfig],
    authority: trustme.CA,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    environment: bool,
) -> None:
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "other.pem"))
    if environment:
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "other.pem"))
    catalog = create_catalog(settings(uri=encrypted.uri, ca_bundle="ca.pem"), root=tmp_path)
    assert catalog.list_namespaces() == [("raw",)]
    with pytest.raises(CatalogConnectionError, match="not trusted here"):
        create_catalog(settings(uri=encrypted.uri, ca_bundle="other.pem"), root=tmp_path)


def test_a_file_of_authorities_that_is_missing_or_none_is_told(
    settings: Callable[..., RestCatalogConfig], tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match=r"catalog\.ca_bundle: .*gone\.pem does not exist"):
        create_catalog(settings(ca_bundle="gone.pem"), root=tmp_path)
    for number, content in enumerate([b"", b"not a certificate", b"\xff\x00"]):
        (tmp_path / f"{number}.pem").write_bytes(content)
        with pytest.raises(ConfigurationError, match=r"catalog\.ca_bundle: .*holds no readable certificates"):
            create_catalog(settings(ca_bundle=f"{number}.pem"), root=tmp_path)


@pytest.mark.parametrize(
    ("names", "until", "words"),
    [
        (("catalog.example",), None, r"not valid for '127\.0\.0\.1'.*Use the host name .* in catalog\.uri"),
        (("127.0.0.1",), datetime.now(timezone.utc) - timedelta(days=1), r"expired\. Renew its certificate"),
    ],
    ids=["another name", "expired"],
)
def test_a_certificate_that_does_not_hold_says_why(
    settings: Callable[..., RestCatalogConfig],
    authority: trustme.CA,
    tmp_path: Path,
    names: tuple[str, ...],
    until: datetime | None,
    words: str,
) -> None:
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    with (
        scripted_server(served(authority, *names, until=until)) as running,
        pytest.raises(CatalogConnectionError, match=words),
    ):
        create_catalog(settings(uri=running.uri, ca_bundle="ca.pem"), root=tmp_path)


def test_plain_words_to_a_tls_port_are_told(encrypted: ScriptedServer, connect: Connect) -> None:
    with pytest.raises(CatalogConnectionError, match=r"connection to .* broke.*whether it needs https://"):
        connect(uri=encrypted.uri.replace("https", "http"), retry=TWICE)


def test_tls_to_a_plain_port_is_told_at_once(server: ScriptedServer, connect: Connect) -> None:
    with pytest.raises(CatalogConnectionError, match=r"does not speak TLS; .*use http:// in catalog\.uri"):
        connect(uri=server.uri.replace("http", "https"))
    assert server.connections == 1


# Proxies ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def proxy() -> Iterator[ScriptedServer]:
    """A proxy that answers itself what it is asked to fetch."""
    with scripted_server() as running:
        yield running


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
def test_the_proxy_of_the_environment_is_used(
    proxy: ScriptedServer, connect: Connect, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, proxy.uri)
    proxy.answers[NAMESPACES] = as_json({"namespaces": [["raw"]]})
    assert connect(uri="http://catalog.invalid").list_namespaces() == [("raw",)]
    assert [one.headers["host"] for one in proxy.requests] == ["catalog.invalid"] * 3


def test_hosts_that_need_no_proxy_are_asked_directly(
    server: ScriptedServer, proxy: ScriptedServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy.uri)
    monkeypatch.setenv("NO_PROXY", "example.com,127.0.0.1")
    connect()
    assert proxy.connections == 0
    assert len(server.requests) == 2


def test_a_proxy_that_wants_a_login_is_told(
    proxy: ScriptedServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy.uri)
    proxy.answers["POST /v1/oauth/tokens"] = page(407)
    with pytest.raises(CatalogConnectionError, match=r"requires a login \(407\).*HTTPS_PROXY") as caught:
        connect(uri="http://catalog.invalid")
    check_discreet(caught.value)
    assert len(proxy.requests) == 1


def test_a_proxy_that_is_given_a_login_gets_it(
    proxy: ScriptedServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy.uri.replace("//", "//me:p%40ss@"))
    connect(uri="http://catalog.invalid")
    assert proxy.requests[0].headers["proxy-authorization"] == "Basic bWU6cEBzcw=="


@pytest.mark.parametrize("status", [403, 407, 502])
def test_a_proxy_that_lets_nobody_through_is_told(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    with refusing_tunnel(status) as address:
        monkeypatch.setenv("HTTPS_PROXY", f"http://me:hunter22@{address}")
        words = r"the proxy on the way to https://catalog\.invalid.* refused the request.*HTTPS_PROXY and NO_PROXY"
        with pytest.raises(CatalogConnectionError, match=words) as caught:
            connect(uri="https://catalog.invalid/api", retry=TWICE)
    check_discreet(caught.value)
    assert "hunter22" not in f"{caught.value} {caught.value.__cause__} {caught.value.detail!r}"


def test_a_proxy_that_does_not_run_is_told(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{unused.getsockname()[1]}")
    with pytest.raises(CatalogConnectionError, match=r"the proxy on the way .* refused the request"):
        connect(uri="http://catalog.invalid", retry=TWICE)


@contextmanager
def refusing_tunnel(status: int) -> Iterator[str]:
    """A proxy that refuses every CONNECT; its host and port."""

    def serve() -> None:
        with suppress(OSError):
            while True:
                client, _ = listening.accept()
                with client:
                    client.recv(65536)
                    client.sendall(f"HTTP/1.1 {status} Refused\r\nContent-Length: 0\r\n\r\n".encode())

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
    thread.join()


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, {}),
        ({"HTTPS_PROXY": "http://proxy.lan:3128"}, {"hostname": "proxy.lan", "port": "3128"}),
        ({"https_proxy": "proxy.lan:3128"}, {"hostname": "proxy.lan", "port": "3128"}),
        ({"ALL_PROXY": "http://proxy.lan"}, {"hostname": "proxy.lan", "port": "80"}),
        ({"HTTPS_PROXY": "https://proxy.lan"}, {"hostname": "proxy.lan", "port": "443"}),
        ({"HTTP_PROXY": "http://proxy.lan:3128"}, {}),
        ({"HTTPS_PROXY": "http://proxy.lan:3128", "NO_PROXY": ".example.com"}, {}),
        ({"HTTPS_PROXY": "http://proxy.lan:3128", "NO_PROXY": "*"}, {}),
        (
            {"HTTPS_PROXY": "http://me:p%40ss@proxy.lan:3128", "NO_PROXY": "other.com"},
            {"hostname": "proxy.lan", "port": "3128", "username": "me", "password": "p@ss"},
        ),
    ],
    ids=str,
)
def test_spark_is_told_of_the_proxy_that_python_would_use(
    settings: Callable[..., RestCatalogConfig],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    expected: dict[str, str],
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    plugin = RestCatalogPlugin(settings(uri="https://catalog.example.com/api/catalog"), root=tmp_path)
    prefix = "spark.sql.catalog.lake.rest.client.proxy."
    conf = plugin.get_spark_conf("lake", "")
    assert {key.removeprefix(prefix): value for key, value in conf.items() if key.startswith(prefix)} == expected
