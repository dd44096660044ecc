"""`floe doctor` on a catalog server: each red line by a real fault, what to do in each, and no probe left behind."""

from __future__ import annotations

import email.utils
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import trustme
from pyarrow.fs import FileSelector, S3FileSystem
from tests.catalogs import rest_settings
from tests.faults.proxy import Answer, FaultProxy, Forward, Request, fault_proxy
from tests.servers.catalogs import open_catalog
from tests.servers.seaweedfs import BUCKET, SeaweedFS

from floe_core.compiler import compile_project
from floe_core.config.spec import SqlCatalogConfig
from floe_iceberg.catalogs.sql import SqlCatalogPlugin
from floe_runtime.doctor import Finding, examine

QUICK = "  retry: {max_attempts: 2, initial_wait_seconds: 0.1, max_wait_seconds: 1, jitter_seconds: 0}\n"
KEYS = ', access_key_id: "${env:FLOE_TEST_S3_ID}", secret_access_key: "${env:FLOE_TEST_S3_KEY}"'
Examine = Callable[..., list[Finding]]


@pytest.fixture(scope="module")
def proxy(server: SeaweedFS) -> Iterator[FaultProxy]:
    with fault_proxy(server.catalog_uri) as running:
        yield running


@pytest.fixture
def examined(tmp_path: Path, server: SeaweedFS) -> Iterator[Examine]:
    """What the doctor finds with this floe.yaml, up to the line before Spark; no secret is shown, nothing is left."""

    def look(settings: str, *, until: str = "storage") -> list[Finding]:
        (tmp_path / "floe.yaml").write_text(f"name: shop\n{settings}", encoding="utf-8")
        findings: list[Finding] = []
        lines = examine(compile_project(tmp_path).artifacts)
        for finding in lines:
            findings.append(finding)
            if finding.ok and finding.name == until:
                break
        lines.close()  # type: ignore[attr-defined] # a generator
        assert server.secret not in str(findings)
        return findings

    yield look
    assert left_behind(server) == []


def left_behind(server: SeaweedFS) -> list[str]:
    """Namespaces and files of a probe."""
    names = [one[0] for one in open_catalog(server).list_namespaces() if one[0].startswith("floe_doctor_")]
    keys = {"access_key": server.key, "secret_key": server.secret}
    store = S3FileSystem(**keys, endpoint_override=server.s3_endpoint, region="us-east-1", scheme="http")
    files = store.get_file_info(FileSelector(BUCKET, recursive=True))
    return names + [one.path for one in files if "floe_doctor_" in one.path]


def names(findings: list[Finding]) -> list[str]:
    return [one.name for one in findings]


def red(findings: list[Finding], name: str) -> str:
    """The message of the one red line."""
    wrong = [one for one in findings if not one.ok]
    assert names(wrong) == [name], findings
    return wrong[0].message


def closed_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def refusing(route: str, answer: Answer) -> Callable[[Request, Forward], Answer | None]:
    """Requests whose method and path end like this get this answer."""
    return lambda request, forward: answer if request.route.endswith(route) else forward()


def forbidden(words: str) -> Answer:
    return Answer.error(403, "ForbiddenException", words)


# The way there ----------------------------------------------------------------------------------------------------


def test_a_closed_port_is_the_address(server: SeaweedFS, examined: Examine) -> None:
    port = closed_port()
    findings = examined(rest_settings(server, uri=f"http://127.0.0.1:{port}"))
    assert names(findings) == ["java", "address"]
    assert f"nothing listens at 127.0.0.1:{port}" in red(findings, "address")
    assert "and catalog.uri in floe.yaml" in red(findings, "address")


def test_an_unknown_host_is_the_address(server: SeaweedFS, examined: Examine) -> None:
    findings = examined(rest_settings(server, uri="https://catalog.invalid/api/catalog"))
    assert names(findings) == ["java", "address"]
    assert "the host 'catalog.invalid' cannot be resolved; check catalog.uri" in red(findings, "address")


def test_a_proxy_that_is_away_is_told_from_the_catalog(
    server: SeaweedFS, examined: Examine, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = closed_port()
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    findings = examined(rest_settings(server, uri="http://catalog.invalid", catalog="  allow_insecure: true\n"))
    assert f"nothing listens at 127.0.0.1:{port}" in red(findings, "address")
    assert "HTTPS_PROXY, HTTP_PROXY and NO_PROXY" in red(findings, "address")


def test_a_setting_that_cannot_be_resolved_is_told(server: SeaweedFS, examined: Examine) -> None:
    settings = rest_settings(server).replace("FLOE_TEST_REST_SECRET", "FLOE_TEST_NOT_SET")
    assert "FLOE_TEST_NOT_SET" in red(examined(settings), "config")


@contextmanager
def tls_server(certificate: trustme.LeafCert) -> Iterator[int]:
    """Something on loopback that speaks TLS and knows nothing."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - name of http.server
            del format, args

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.daemon_threads = True
        running.handle_error = lambda *_about: None  # type: ignore[method-assign] # clients that trust nobody go away
        running.socket = context.wrap_socket(running.socket, server_side=True)
        thread = threading.Thread(target=running.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield running.server_port
        finally:
            running.shutdown()
            thread.join()


def test_a_trusted_certificate_is_green_and_says_when_it_ends(
    server: SeaweedFS, examined: Examine, tmp_path: Path
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    ends = datetime.now(timezone.utc) + timedelta(days=5, hours=1)
    with tls_server(authority.issue_cert("127.0.0.1", not_after=ends)) as port:
        settings = rest_settings(server, uri=f"https://127.0.0.1:{port}", catalog="  ca_bundle: ca.pem\n")
        findings = examined(settings, until="tls")
    assert all(one.ok for one in findings)
    assert names(findings) == ["java", "address", "tls"]
    told = findings[-1].message
    assert f"the certificate of 127.0.0.1 is trusted, and valid until {ends:%Y-%m-%d} (5 days): renew it" in told


@pytest.mark.parametrize(
    ("name", "days", "trusted", "reason"),
    [
        ("127.0.0.1", 90, False, "catalog.ca_bundle"),
        ("catalog.example.com", 90, True, "Use the host name of its certificate in catalog.uri"),
        ("127.0.0.1", -1, True, "Renew its certificate"),
    ],
)
def test_a_certificate_that_is_not_trusted_is_tls(
    server: SeaweedFS, examined: Examine, tmp_path: Path, name: str, days: int, trusted: bool, reason: str
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    certificate = authority.issue_cert(name, not_after=datetime.now(timezone.utc) + timedelta(days=days))
    with tls_server(certificate) as port:
        bundle = "  ca_bundle: ca.pem\n" if trusted else ""
        findings = examined(rest_settings(server, uri=f"https://127.0.0.1:{port}", catalog=bundle))
    assert names(findings) == ["java", "address", "tls"]
    assert reason in red(findings, "tls")


def test_a_missing_ca_bundle_is_tls(server: SeaweedFS, examined: Examine) -> None:
    with tls_server(trustme.CA().issue_cert("127.0.0.1")) as port:
        settings = rest_settings(server, uri=f"https://127.0.0.1:{port}", catalog="  ca_bundle: nowhere.pem\n")
        assert "nowhere.pem does not exist; put the authorities' PEM there" in red(examined(settings), "tls")


# Being let in -----------------------------------------------------------------------------------------------------


def test_a_wrong_secret_is_the_token(server: SeaweedFS, examined: Examine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOE_TEST_WRONG", "hunter2-hunter2")
    findings = examined(rest_settings(server, catalog=QUICK).replace("FLOE_TEST_REST_SECRET", "FLOE_TEST_WRONG"))
    assert names(findings) == ["java", "address", "token"]
    assert "Authentication failed: check catalog credentials in floe.yaml" in red(findings, "token")
    assert "hunter2-hunter2" not in str(findings)


def test_a_token_that_is_refused_is_the_config(server: SeaweedFS, examined: Examine, proxy: FaultProxy) -> None:
    with proxy.intercepted(refusing("/v1/config", Answer(401))):
        findings = examined(rest_settings(server, uri=proxy.uri, catalog=QUICK))
    assert names(findings) == ["java", "address", "token", "clock", "config"]
    assert "Authentication failed" in red(findings, "config")
    by_name = {one.name: one.message for one in findings}
    assert "fetched for 'floe' with the scope 'PRINCIPAL_ROLE:ALL', valid for 60 min" in by_name["token"]


def test_no_token_is_said_to_be_none(server: SeaweedFS, examined: Examine, proxy: FaultProxy) -> None:
    settings = rest_settings(server, uri=proxy.uri, catalog=f"  auth: none\n{QUICK}")
    lines = [line for line in settings.splitlines(keepends=True) if "credentials:" not in line]
    with proxy.intercepted(refusing("/v1/config", Answer(401))):
        findings = examined("".join(lines))
    assert {one.name: one.message for one in findings}["token"] == "none: auth is none in floe.yaml"
    assert "requires a token" in red(findings, "config")


def test_a_token_of_ones_own_is_not_shown(
    server: SeaweedFS, examined: Examine, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = server.token()
    monkeypatch.setenv("FLOE_TEST_TOKEN", token)
    settings = rest_settings(server, catalog=f'  token: "${{env:FLOE_TEST_TOKEN}}"\n{QUICK}')
    lines = [line for line in settings.splitlines(keepends=True) if "credentials:" not in line]
    findings = examined("".join(lines))
    assert all(one.ok for one in findings)
    assert token not in str(findings)


def test_an_unknown_warehouse_is_the_config(server: SeaweedFS, examined: Examine, proxy: FaultProxy) -> None:
    unknown = Answer.error(404, "NotFoundException", "Unable to find warehouse s3://lake")
    with proxy.intercepted(refusing("/v1/config", unknown)):
        findings = examined(rest_settings(server, uri=proxy.uri, catalog=QUICK))
    assert "has no warehouse" in red(findings, "config")
    assert "catalog.warehouse" in red(findings, "config")


def test_namespaces_that_may_not_be_listed_are_the_list(
    server: SeaweedFS, examined: Examine, proxy: FaultProxy
) -> None:
    words = "Principal 'floe' is not authorized for op LIST_NAMESPACES"
    with proxy.intercepted(refusing(f"GET /v1/{BUCKET}/namespaces", forbidden(words))):
        findings = examined(rest_settings(server, uri=proxy.uri, catalog=QUICK))
    assert "NAMESPACE_LIST" in red(findings, "list")


@pytest.mark.parametrize("seconds", [-300, 300])
def test_a_clock_that_differs_by_minutes_is_red_and_the_rest_is_looked_at(
    server: SeaweedFS, examined: Examine, proxy: FaultProxy, seconds: int
) -> None:
    def shifted(_request: Request, forward: Forward) -> Answer:
        answer = forward()
        date = email.utils.formatdate(time.time() + seconds, usegmt=True)
        return replace(answer, headers=(*(one for one in answer.headers if one[0] != "Date"), ("Date", date)))

    with proxy.intercepted(shifted):
        findings = examined(rest_settings(server, uri=proxy.uri, catalog=QUICK), until="list")
    told = red(findings, "clock")
    assert ("behind the catalog's" if seconds > 0 else "ahead of the catalog's") in told
    assert "NTP" in told
    assert names(findings)[-2:] == ["config", "list"]


# What one may do there --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    ["no", "Principal 'floe' with activated PrincipalRoles '[]' is not authorized for op CREATE_NAMESPACE"],
    ids=["without words", "in the words of Polaris"],
)
def test_a_refused_namespace_names_the_privilege(
    server: SeaweedFS, examined: Examine, proxy: FaultProxy, words: str
) -> None:
    with proxy.intercepted(refusing(f"POST /v1/{BUCKET}/namespaces", forbidden(words))):
        findings = examined(rest_settings(server, uri=proxy.uri, catalog=QUICK))
    assert names(findings)[-2:] == ["list", "privileges"]
    assert red(findings, "privileges").count("NAMESPACE_CREATE") == 1


def test_a_refused_table_names_the_privilege_and_the_namespace_is_removed(
    server: SeaweedFS, examined: Examine, proxy: FaultProxy
) -> None:
    words = "Principal 'floe' is not authorized for op CREATE_TABLE_DIRECT_WITH_WRITE_DELEGATION"
    with proxy.intercepted(refusing("/tables", forbidden(words))):
        findings = examined(rest_settings(server, uri=proxy.uri, catalog=QUICK))
    assert "TABLE_CREATE and TABLE_WRITE_DATA" in red(findings, "privileges")
    assert findings[-1].message == "the probe table and its namespace are gone"


def test_a_refused_commit_is_the_storage_and_names_the_privilege(
    server: SeaweedFS, examined: Examine, proxy: FaultProxy
) -> None:
    with proxy.intercepted(
        lambda request, forward: (
            forbidden("no") if request.method == "POST" and request.path.endswith("/tables/probe") else forward()
        )
    ):
        findings = examined(rest_settings(server, uri=proxy.uri, catalog=QUICK))
    assert "TABLE_WRITE_DATA" in red(findings, "storage")
    assert findings[-1].name == "removal"


def test_a_namespace_whose_creation_is_in_doubt_is_looked_for_and_removed(
    server: SeaweedFS, examined: Examine, proxy: FaultProxy
) -> None:
    def breaks(request: Request, forward: Forward) -> Answer | None:
        if request.route == f"POST /v1/{BUCKET}/namespaces":
            forward()
            return Answer.error(500, "InternalServerError", "after it was made")
        return forward() if not request.path.endswith("/tables") else forbidden("no")

    with proxy.intercepted(breaks):
        findings = examined(rest_settings(server, uri=proxy.uri, catalog=QUICK))
    assert names(findings)[-1] == "removal"
    assert findings[-1].ok


def test_a_probe_that_may_not_be_dropped_is_told(server: SeaweedFS, examined: Examine, proxy: FaultProxy) -> None:
    def no_deletes(request: Request, forward: Forward) -> Answer | None:
        if request.method == "DELETE":
            return forbidden("no")
        # The last line before Spark ends what is looked at here.
        return forbidden("no") if request.method == "POST" and request.path.endswith("/tables/probe") else forward()

    with proxy.intercepted(no_deletes):
        findings = examined(rest_settings(server, uri=proxy.uri, catalog=QUICK))
    told = {one.name: one for one in findings}["removal"]
    assert not told.ok
    assert "TABLE_DROP" in told.message
    (left,) = [one for one in left_behind(server) if "/" not in one]
    assert f"floe namespaces drop {left}" in told.message
    catalog = open_catalog(server)
    catalog.purge_table((left, "probe"))
    catalog.drop_namespace((left,))


def test_a_store_that_cannot_be_reached_is_the_storage(server: SeaweedFS, examined: Examine, proxy: FaultProxy) -> None:
    elsewhere = f"http://127.0.0.1:{closed_port()}"

    def moved(_request: Request, forward: Forward) -> Answer:
        answer = forward()
        return replace(answer, body=answer.body.replace(server.s3_endpoint.encode(), elsewhere.encode()))

    with proxy.intercepted(moved):
        findings = examined(rest_settings(server, uri=proxy.uri, catalog=QUICK))
    told = red(findings, "storage")
    assert f"the object store at {elsewhere} did not (with credentials that the catalog vends for 15 min)" in told
    assert "storage.endpoint" in told
    assert findings[-1].name == "removal"


def test_a_store_that_does_not_take_the_keys_is_the_storage(
    server: SeaweedFS, examined: Examine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOE_TEST_S3_ID", "guest")
    monkeypatch.setenv("FLOE_TEST_S3_KEY", f"{server.secret}-guest")
    findings = examined(rest_settings(server, catalog=f"  access_delegation: none\n{QUICK}", storage=KEYS))
    told = red(findings, "storage")
    assert "the catalog agreed and the object store did not" in told
    assert "check the keys in storage" in told
    assert findings[-1].name == "removal"


def test_a_local_storage_beside_tables_on_s3_says_what_to_write(server: SeaweedFS, examined: Examine) -> None:
    settings, _, _ = rest_settings(server, catalog=QUICK).partition("storage:")
    told = red(examined(settings), "storage")
    assert f"Write storage: {{type: s3, bucket: {BUCKET}, endpoint: '{server.s3_endpoint}'" in told


def test_whoever_stops_the_doctor_in_the_middle_leaves_nothing_behind(server: SeaweedFS, examined: Examine) -> None:
    findings = examined(rest_settings(server, catalog=QUICK))
    assert all(one.ok for one in findings)
    assert names(findings)[-2:] == ["privileges", "storage"]
    assert "with credentials that the catalog vends for 15 min" in findings[-1].message


@pytest.mark.full
def test_everything_is_green_with_spark(server: SeaweedFS, tmp_path: Path) -> None:
    (tmp_path / "floe.yaml").write_text(f"name: shop\n{rest_settings(server)}", encoding="utf-8")
    floe = str(Path(sys.executable).parent / "floe")
    ran = subprocess.run(
        [floe, "doctor", "--json"], cwd=tmp_path, env={**os.environ}, capture_output=True, text=True, timeout=300
    )
    report = json.loads(ran.stdout)
    assert ran.returncode == 0, report
    assert [one["name"] for one in report["checks"]] == [
        *("java", "address", "token", "clock", "config", "list"),
        *("privileges", "storage", "spark", "tables", "removal"),
    ]
    assert all(one["ok"] for one in report["checks"])
    assert server.secret not in ran.stdout + ran.stderr
    assert left_behind(server) == []


def test_a_catalog_without_steps_of_its_own_is_asked_for_its_health(tmp_path: Path) -> None:
    assert list(SqlCatalogPlugin(SqlCatalogConfig(), root=tmp_path).diagnose()) == []
