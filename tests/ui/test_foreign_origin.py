"""In a real browser, a page of another origin cannot launch a run on `floe dev`; Dagster's own pages can."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from selenium import webdriver
from selenium.webdriver.support.wait import WebDriverWait

from tests.ui.dev_server import DevServer, floe_dev
from tests.ui.page import Page

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]

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
# Everything that a page can send without asking the server first, a request that asks first, and a WebSocket.
ATTACK = """
<body><form id="form" method="POST" target="frame" enctype="text/plain" action="%(url)s"></form>
<iframe name="frame"></iframe><iframe src="%(target)s/assets/orders"></iframe>
<script>
const send = (address, options) => fetch(address, options).then(r => r.type + ' ' + r.status, e => 'failed');
(async () => {
  const seen = {};
  seen.simple = await send("%(url)s", {method: "POST", mode: "no-cors", headers: {"Content-Type": "text/plain"}});
  seen.get = await send("%(url)s", {mode: "no-cors"});
  seen.json = await send("%(target)s/graphql", {method: "POST", headers: {"Content-Type": "application/json"},
    body: %(body)s});
  seen.beacon = navigator.sendBeacon("%(url)s", new Blob(["{}"], {type: "text/plain"}));
  new Image().src = "%(url)s";
  document.getElementById("form").submit();
  const socket = new WebSocket("%(target)s/graphql".replace("http", "ws"), "graphql-ws");
  seen.websocket = await new Promise(done => {
    socket.onopen = () => done("open"); socket.onerror = () => done("closed");
  });
  await new Promise(done => setTimeout(done, 3000));
  window.seen = seen;
})();
</script>
"""
REBOUND = """
const done = arguments[arguments.length - 1];
fetch("/graphql", {method: "POST", headers: {"Content-Type": "application/json"}, body: arguments[0]})
  .then(r => r.text().then(text => done(r.status + " " + text)), e => done("failed"));
"""
SCRIPT = json.dumps({"query": LAUNCH})


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    project = tmp_path_factory.mktemp("dev")
    (project / "floe.yaml").write_text("name: dev\n")
    (project / "definitions.py").write_text(PLAIN)
    with floe_dev(project) as running:
        running.ask("mutation {setNuxSeen}")
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    """For it, evil.example is this machine, as after DNS rebinding."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.fail("the browser tests need Debian's Chromium: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    rules = "--host-resolver-rules=MAP evil.example 127.0.0.1"
    for argument in ("--headless=new", "--window-size=1400,1000", "--disable-dev-shm-usage", rules):
        options.add_argument(argument)
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")
    opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    opened.set_script_timeout(60)
    yield opened
    opened.quit()


@pytest.fixture
def attacker(server: DevServer) -> Iterator[int]:
    """The port of a web server whose page attacks `floe dev`."""
    url = f"{server.address}/graphql?query={quote(LAUNCH)}"
    page = ATTACK % {"url": url, "target": server.address, "body": json.dumps(SCRIPT)}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(page.encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the parent's argument
            del format, args

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        yield serving.server_address[1]
        serving.shutdown()


@pytest.mark.parametrize("host", ["evil.example", "localhost", "127.0.0.1"])
def test_a_page_of_another_origin_cannot_launch_a_run(
    browser: webdriver.Chrome, server: DevServer, attacker: int, host: str
) -> None:
    before = server.runs()
    browser.get(f"http://{host}:{attacker}/")
    seen = WebDriverWait(browser, 60).until(lambda opened: opened.execute_script("return window.seen"))
    assert seen["json"] == "failed"
    assert seen["websocket"] == "closed"
    assert server.runs() == before


def test_a_foreign_name_that_leads_here_gets_no_page_and_launches_no_run(
    browser: webdriver.Chrome, server: DevServer
) -> None:
    before = server.runs()
    browser.get(f"http://evil.example:{urlsplit(server.address).port}/server_info")
    assert "floe dev refused this request" in browser.page_source
    answer = browser.execute_async_script(REBOUND, SCRIPT)
    assert answer.startswith("403 floe dev refused this request")
    assert server.runs() == before


def test_dagsters_own_page_launches_a_run(browser: webdriver.Chrome, server: DevServer) -> None:
    before = server.runs()
    page = Page(browser, server.address)
    page.open("/assets/orders")
    page.click("Materialize")
    server.wait_for_run(before)
    page.keep("test_dagsters_own_page_launches_a_run")


def test_beyond_this_machine_the_browser_needs_the_token(browser: webdriver.Chrome, tmp_path: Path) -> None:
    (tmp_path / "floe.yaml").write_text("name: dev\n")
    (tmp_path / "definitions.py").write_text(PLAIN)
    with floe_dev(tmp_path, "--host", "0.0.0.0") as running:
        address, _, token = running.address.partition("/?token=")
        assert len(token) >= 32
        browser.get(address)
        assert "it has no valid token" in browser.page_source
        browser.get(running.address)
        WebDriverWait(browser, 60).until(lambda opened: "Dagster" in opened.title or "Assets" in opened.page_source)
        assert "token" not in browser.current_url
        assert '"__typename":"LaunchRunSuccess"' in browser.execute_async_script(REBOUND, SCRIPT).replace(" ", "")
