"""One demo project, one `floe dev` on it, and one browser."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
from rich.console import Console
from selenium import webdriver

from floe_core.config.artifacts import CompiledArtifacts
from floe_core.plugins.discovery import create_catalog_plugin, create_storage_plugin
from floe_iceberg import IcebergTableManager
from floe_runtime.demo.story import DAYS, prepare
from tests.commands import floe
from tests.ui.dev_server import DevServer, floe_dev
from tests.ui.page import Page

_MISSING = "the browser tests need Debian's Chromium: apt-get install chromium chromium-driver"


@pytest.fixture(scope="session")
def browser() -> Iterator[webdriver.Chrome]:
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.fail(_MISSING)
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless=new", "--window-size=1400,1000", "--hide-scrollbars", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    if os.geteuid() == 0:  # Chromium's own sandbox does not work for root
        options.add_argument("--no-sandbox")
    opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield opened
    opened.quit()


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> CompiledArtifacts:
    """The retailer of the demo, small, filled by `floe run`."""
    artifacts = prepare(tmp_path_factory.mktemp("ui") / "retail", rows=20_000, console=Console(quiet=True))
    days = f"{DAYS[0]}...{DAYS[-1]}"
    ran = floe("run", "--partition-range", days, "--with-unpartitioned", cwd=artifacts.root)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return artifacts


@pytest.fixture(scope="session")
def server(demo: CompiledArtifacts) -> Iterator[DevServer]:
    with floe_dev(demo.root) as running:
        running.ask("mutation {setNuxSeen}")  # Dagster's invitation to its community covers the page once
        yield running


@pytest.fixture(scope="session")
def tables(demo: CompiledArtifacts) -> IcebergTableManager:
    return IcebergTableManager(create_catalog_plugin(demo), create_storage_plugin(demo))


@pytest.fixture
def page(request: pytest.FixtureRequest, browser: webdriver.Chrome, server: DevServer) -> Iterator[Page]:
    """A page whose last sight is kept, whatever becomes of the test."""
    opened = Page(browser, server.address)
    yield opened
    opened.keep(request.node.name)
