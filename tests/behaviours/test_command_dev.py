"""`floe dev`: what it refuses before anything starts, what it serves, and how it ends."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.commands import FLOE
from tests.ui.dev_server import DevServer, floe_dev, living

from floe_core.config.artifacts import CompiledArtifacts
from floe_core.errors import ConfigurationError
from floe_runtime.dev.server import open_web_ui
from floe_runtime.templates import copy_template

ASSETS = {"bronze/measurements", "gold/daily_averages"}
SLOW = """
import time
from dagster import asset
from pyspark.sql import DataFrame
from floe_dagster import LakeResource, create_definitions

@asset(metadata={"write_mode": "overwrite"})
def slow(lake: LakeResource) -> DataFrame:
    lake.spark.range(1).count()
    print("computing", flush=True)
    time.sleep(300)
    return lake.spark.range(1)

defs = create_definitions([slow])
"""
HOMELESS = """
from dagster import AssetExecutionContext, asset
from floe_dagster import create_definitions

@asset(metadata={"write_mode": "overwrite"}, required_resource_keys={"warehouse"})
def orders(context: AssetExecutionContext) -> None: ...

defs = create_definitions([orders])
"""
LAUNCH = """
mutation($assets: [AssetKeyInput!]!, $location: String!) {
  launchPipelineExecution(executionParams: {mode: "default", selector: {
    repositoryName: "__repository__", repositoryLocationName: $location, pipelineName: "__ASSET_JOB",
    assetSelection: $assets}}) { __typename }
}
"""


def refused(project: Path, *arguments: str) -> str:
    """The one sentence with which the command ends."""
    pipe = subprocess.PIPE
    process = subprocess.Popen([FLOE, "dev", *arguments], cwd=project, stdout=pipe, stderr=pipe, text=True)
    try:
        shown, told = process.communicate(timeout=60)
    finally:
        process.send_signal(signal.SIGINT)  # one that serves, where it should have refused
    assert (process.returncode, shown) == (1, "")
    assert told.startswith("error: ")
    assert "Traceback" not in told
    return told


@pytest.fixture
def starter(tmp_path: Path) -> Path:
    copy_template("spark", tmp_path / "starter", {"name: spark": "name: starter\nenvironments: {test: {}}"})
    return tmp_path / "starter"


def test_a_port_in_use_is_refused(starter: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        told = refused(starter, "--port", str(port))
    assert f"cannot serve on port {port} of 127.0.0.1: Address already in use" in told
    assert "--port" in told


def test_an_address_of_another_machine_is_refused(starter: Path) -> None:
    assert "cannot serve on port 0 of 203.0.113.1" in refused(starter, "--port", "0", "--host", "203.0.113.1")


@pytest.mark.parametrize(
    ("definitions", "sentence"),
    [
        (None, "pipeline.definitions is 'definitions', but"),
        ("import nothing_like_this\n", "importing definitions failed at definitions.py:1: ModuleNotFoundError"),
        (HOMELESS, "definitions do not fit together: resource with key 'warehouse'"),
    ],
    ids=["missing", "broken", "refused by Dagster"],
)
def test_definitions_that_do_not_load_are_told_before_a_server_starts(
    starter: Path, definitions: str | None, sentence: str
) -> None:
    (starter / "definitions.py").unlink()
    if definitions is not None:
        (starter / "definitions.py").write_text(definitions)
    assert sentence in refused(starter, "--port", "0")


def test_without_the_web_server_it_says_what_to_install(
    project: CompiledArtifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "dagster_webserver", None)
    with (
        pytest.raises(ConfigurationError, match=r"pip install 'floe-runtime\[all\]'"),
        open_web_ui(project, host="127.0.0.1", port=0),
    ):
        pass


@pytest.mark.full  # starts the web server
def test_it_serves_the_assets_and_ends_with_all_its_processes(starter: Path) -> None:
    with floe_dev(starter, "--env", "test") as server:
        assert server.assets() == ASSETS
        queue = server.ask("{instance{runQueueConfig{maxConcurrentRuns}}}")["instance"]["runQueueConfig"]
        assert queue == {"maxConcurrentRuns": 2}
        started = server.processes()
        assert len(started) >= 4  # Dagster's own, its two code servers, the web server, the daemon
        assert server.interrupt() == 130
        assert not living(started)
        assert server.log.read_text().startswith("stopped")
    assert (starter / ".floe" / "dagster.test" / "history").is_dir()
    assert not (starter / ".floe" / "dagster").exists()


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.wide)])
def test_a_run_under_way_fails_and_its_spark_ends_with_the_server(starter: Path, number: signal.Signals) -> None:
    (starter / "definitions.py").write_text(SLOW)
    with floe_dev(starter) as server:
        asked = server.ask(LAUNCH, assets=[{"path": ["slow"]}], location="definitions")
        assert asked["launchPipelineExecution"]["__typename"] == "LaunchRunSuccess"
        wait_for(server, "computing")
        started = server.processes()
        assert server.interrupt(number) == 130
        assert not living(started)
    with floe_dev(starter) as server:
        assert list(server.runs().values()) == ["FAILURE"]


def wait_for(server: DevServer, word: str, seconds: float = 200) -> None:
    end = time.monotonic() + seconds
    while word not in server.log.read_text():
        assert time.monotonic() < end, server.log.read_text()[-4000:]
        time.sleep(0.5)
