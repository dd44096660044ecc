"""`floe dev` answers its own pages and local programs; what a page of another origin sends is refused."""

from __future__ import annotations

import base64
import json
import os
import socket
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
import requests
from tests.ui.dev_server import DevServer, floe_dev

PLAIN = """
from dagster import Definitions, asset

@asset
def orders() -> None: ...

defs = Definitions([orders])
"""
LAUNCH = """
mutation {
  launchPipelineExecution(executionParams: {mode: "default", selector: {
    repositoryName: "__repository__", repositoryLocationName: "definitions", pipelineName: "__ASSET_JOB",
    assetSelection: [{path: ["orders"]}]}}) { __typename }
}
"""
HARMLESS = "mutation {setNuxSeen}"
FOREIGN = "http://evil.example"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    project = tmp_path_factory.mktemp("dev")
    (project / "floe.yaml").write_text("name: dev\n")
    (project / "definitions.py").write_text(PLAIN)
    with floe_dev(project) as running:
        yield running
        assert len(running.runs()) == 1  # the one that a test launches with success


def post(server: DevServer, query: str = LAUNCH, **headers: str) -> requests.Response:
    sent = {"Content-Type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}}
    return requests.post(f"{server.address}/graphql", data=json.dumps({"query": query}), headers=sent, timeout=60)


def refused(answer: requests.Response, status: int = 403) -> str:
    assert answer.status_code == status, answer.text[:500]
    assert answer.headers["content-type"].startswith("text/plain")
    assert "launchPipelineExecution" not in answer.text
    return answer.text


def test_the_pages_of_the_server_itself_launch_a_run(server: DevServer) -> None:
    answer = post(server, Origin=server.address, Sec_Fetch_Site="same-origin")
    assert answer.json()["data"]["launchPipelineExecution"]["__typename"] == "LaunchRunSuccess"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Host": "localhost:8080", "Origin": "http://localhost:8080", "Sec_Fetch_Site": "same-origin"},
        {"Host": "[::1]:3000", "Origin": "http://[::1]:3000"},
    ],
    ids=["a program on this machine", "a port that ssh forwards", "IPv6"],
)
def test_a_mutation_from_this_machine_is_answered(server: DevServer, headers: dict[str, str]) -> None:
    assert post(server, HARMLESS, **headers).json() == {"data": {"setNuxSeen": True}}


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": FOREIGN},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://localhost"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"},
        {"Origin": FOREIGN, "Host": "evil.example"},
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": "localhost.evil.example:3000"},
        {"Host": "localhost@evil.example"},
        {"Host": ""},
    ],
    ids=str,
)
def test_a_mutation_from_another_origin_or_for_another_host_is_refused(
    server: DevServer, headers: dict[str, str]
) -> None:
    refused(post(server, **headers))


def test_a_simple_request_of_a_web_page_is_refused(server: DevServer) -> None:
    """What a form or `fetch(…, {mode: "no-cors"})` sends without asking the server first."""
    address = f"{server.address}/graphql?query={quote(LAUNCH)}"
    headers = {"Content-Type": "text/plain", "Origin": FOREIGN, "Host": "evil.example"}
    refused(requests.post(address, data="{}", headers=headers, timeout=60))
    assert "application/json" in refused(
        requests.post(address, data="{}", headers={"Content-Type": "text/plain"}, timeout=60), 415
    )


@pytest.mark.parametrize("path", ["/graphql", "/graphql%0A", "//graphql", "/%67raphql"])
@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT"])
def test_only_a_post_is_a_query(server: DevServer, method: str, path: str) -> None:
    address = f"{server.address}{path}?query={quote(LAUNCH)}"
    answer = requests.request(method, address, headers={"Accept": "application/json"}, timeout=60)
    assert answer.status_code in (403, 404, 405) or "<html" in answer.text.lower() or method == "HEAD"
    assert "LaunchRunSuccess" not in answer.text


def test_a_get_with_a_mutation_is_refused(server: DevServer) -> None:
    answer = requests.get(f"{server.address}/graphql?query={quote(LAUNCH)}", timeout=60)
    assert "POST" in refused(answer, 405)


def test_no_preflight_is_granted(server: DevServer) -> None:
    asked = {"Origin": FOREIGN, "Access-Control-Request-Method": "POST"}
    answer = requests.options(f"{server.address}/graphql", headers=asked, timeout=60)
    assert answer.status_code == 403
    assert not [name for name in answer.headers if name.lower().startswith("access-control")]


@pytest.mark.parametrize("path", ["/report_asset_materialization/orders", "/report_asset_check/orders"])
def test_reports_about_assets_from_another_origin_are_refused(server: DevServer, path: str) -> None:
    refused(requests.post(f"{server.address}{path}", headers={"Origin": FOREIGN}, timeout=60))


def test_a_link_from_another_site_opens_and_cannot_be_framed(server: DevServer) -> None:
    visit = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Accept": "text/html"}
    opened = requests.get(f"{server.address}/runs", headers={**visit, "Sec-Fetch-Dest": "document"}, timeout=60)
    assert opened.status_code == 200
    assert opened.headers["X-Frame-Options"] == "SAMEORIGIN"
    refused(requests.get(f"{server.address}/runs", headers={**visit, "Sec-Fetch-Dest": "iframe"}, timeout=60))


def test_a_page_of_another_site_reads_nothing(server: DevServer) -> None:
    script = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"}
    refused(requests.get(f"{server.address}/server_info", headers=script, timeout=60))


def websocket(server: DevServer, **headers: str) -> str:
    """The status line with which the server answers a WebSocket's handshake."""
    target = urlsplit(server.address)
    key = base64.b64encode(os.urandom(16)).decode()
    sent = {"Host": target.netloc, "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
    sent |= {"Sec-WebSocket-Key": key, "Sec-WebSocket-Protocol": "graphql-ws", **headers}
    lines = ["GET /graphql HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items()), "", ""]
    with socket.create_connection((target.hostname or "", target.port or 0), timeout=30) as connection:
        connection.sendall("\r\n".join(lines).encode())
        return connection.recv(4096).decode(errors="replace").splitlines()[0]


def test_websockets_are_for_the_pages_of_the_server_itself(server: DevServer) -> None:
    assert " 101 " in websocket(server)
    assert " 101 " in websocket(server, Origin=server.address)
    assert " 403 " in websocket(server, Origin=FOREIGN)
    assert " 403 " in websocket(server, Origin="null")
    assert " 403 " in websocket(server, Host="evil.example", Origin=FOREIGN)
    assert " 403 " in websocket(server, Host="evil.example")


def test_the_code_server_listens_on_no_port_and_in_a_folder_of_its_own(server: DevServer) -> None:
    web = urlsplit(server.address).port
    processes = server.processes()
    listed = subprocess.run(["ss", "-H", "-l", "-n", "-p"], capture_output=True, text=True, check=True).stdout
    own = [line.split() for line in listed.splitlines() if any(f"pid={pid}," in line for pid in processes)]
    assert {line[4] for line in own if line[0] == "tcp"} == {f"127.0.0.1:{web}"}
    sockets = [Path(line[4]) for line in own if line[0] == "u_str"]
    assert sockets
    for one in sockets:
        assert stat.S_IMODE(one.parent.stat().st_mode) == 0o700


def test_a_query_is_answered(server: DevServer) -> None:
    found: Any = server.ask("{assetNodes{assetKey{path}}}")
    assert found["assetNodes"] == [{"assetKey": {"path": ["orders"]}}]
