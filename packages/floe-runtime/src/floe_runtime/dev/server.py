"""Dagster's web UI and daemon for a project, in separate processes."""

from __future__ import annotations

import http.client
import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from dagster import DagsterError, Definitions

from floe_core.config import CompiledArtifacts
from floe_core.errors import ConfigurationError, FloeError
from floe_runtime.dev.access import TOKEN_VARIABLE, Access, access_for, listeners
from floe_runtime.dev.landing import asset_graph_path
from floe_runtime.runs.pipeline import open_pipeline

__all__ = ["WebServerError", "WebUI", "open_web_ui", "wait_for_answer"]

_START_SECONDS = 180
_END_SECONDS = 30
# No telemetry; and the backfill policy in the templates is Floe's choice, not the user's.
_SETTINGS = {"DAGSTER_DISABLE_TELEMETRY": "1", "PYTHONWARNINGS": "ignore:Parameter `backfill_policy`"}


class WebServerError(FloeError):
    """Dagster's web server did not start, or exited unexpectedly."""


@dataclass(frozen=True)
class WebUI:
    """A running web server."""

    address: str
    _process: subprocess.Popen[bytes]
    access: Access

    def wait(self) -> None:
        """Block until interrupted; WebServerError if the server exits."""
        raise WebServerError(f"Dagster's web server ended unexpectedly, with exit code {self._process.wait()}")


@contextmanager
def open_web_ui(artifacts: CompiledArtifacts, *, host: str, port: int) -> Iterator[WebUI]:
    """Start the web UI on the project's definitions and history; all its processes end with the block.

    Port 0 is any free port. Inside the block, SIGTERM and SIGHUP interrupt like Ctrl-C.
    """
    if importlib.util.find_spec("dagster_webserver") is None:
        raise ConfigurationError(
            "floe dev needs dagster-webserver, which is not installed: pip install 'floe-runtime[all]'"
        )
    access = access_for(host)
    with listeners(host, port, token=access.token) as free:
        port = free[0].getsockname()[1]
    environment, landing = _prepared(artifacts)
    settings = {"module": artifacts.pipeline.definitions, "root": str(artifacts.root), "host": host, "port": port}
    settings["landing"] = landing
    with _interruptible():
        process = subprocess.Popen(
            [sys.executable, "-m", "floe_runtime.dev.services"],
            cwd=artifacts.root,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        output = threading.Thread(target=_forward_output, args=(process,), daemon=True)
        output.start()
        try:
            _send(process, {**settings, "token": access.token, "origin": access.origin})
            wait_for_answer(process, _reachable(host), port, access.token)
            yield WebUI(_address(_reachable(host), port), process, access)
        finally:
            _end(process, output)


def _send(process: subprocess.Popen[bytes], settings: dict[str, object]) -> None:
    """The settings go through a pipe: other users can read the arguments of a process."""
    assert process.stdin is not None  # noqa: S101 - it was opened with a pipe
    with (
        suppress(BrokenPipeError),
        process.stdin as pipe,
    ):  # a process that has ended is reported by the caller, which waits for it
        pipe.write(json.dumps(settings).encode())


def _prepared(artifacts: CompiledArtifacts) -> tuple[dict[str, str], str]:
    """The environment variables of the processes, as for `floe run`, and the first page.

    Raises ConfigurationError if the definitions do not load.
    """
    with open_pipeline(artifacts) as pipeline:
        try:
            Definitions.validate_loadable(pipeline.definitions)
        except DagsterError as exc:
            reason = " ".join(str(exc).split())
            raise ConfigurationError(f"Dagster refuses {artifacts.pipeline.definitions}: {reason}") from exc
        kept = {name: value for name, value in os.environ.items() if name != TOKEN_VARIABLE}
        keys = pipeline.graph.get_all_asset_keys()
        groups = {pipeline.graph.get(key).group_name for key in keys}
        return {**kept, **_SETTINGS}, asset_graph_path(sorted(groups), len(keys))


def _reachable(host: str) -> str:
    """The address at which this machine reaches a server that listens on all interfaces."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - only read here


def _address(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def wait_for_answer(process: subprocess.Popen[bytes], host: str, port: int, token: str | None) -> None:
    """Block until the server answers; WebServerError if it exits, refuses this request or takes too long."""
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            raise WebServerError(f"Dagster's web server did not start; it ended with exit code {process.returncode}")
        status, text = _answer(host, port, token)
        if status == http.HTTPStatus.OK:
            return
        if status in (http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN):
            raise WebServerError(f"what serves {_address(host, port)} refused floe dev itself with {status}: {text}")
        time.sleep(0.2)
    raise WebServerError(f"Dagster's web server did not answer within {_START_SECONDS} seconds")


def _answer(host: str, port: int, token: str | None) -> tuple[int | None, str]:
    """The HTTP status, or None without a response, and the beginning of the body."""
    connection = http.client.HTTPConnection(host, port, timeout=5)
    try:
        connection.request("GET", "/server_info", headers={"Authorization": f"Bearer {token}"} if token else {})
        response = connection.getresponse()
        return response.status, response.read(300).decode(errors="replace").strip()
    except (OSError, http.client.HTTPException):
        return None, ""
    finally:
        connection.close()


def _forward_output(process: subprocess.Popen[bytes]) -> None:
    """Copy the output of the processes to standard error until the last of them has ended."""
    assert process.stdout is not None  # noqa: S101 - it was opened with a pipe
    with process.stdout as pipe:
        while chunk := os.read(pipe.fileno(), 65536):
            sys.stderr.buffer.write(chunk)
            sys.stderr.buffer.flush()


@contextmanager
def _interruptible() -> Iterator[None]:
    """Turn termination signals into KeyboardInterrupt, also in a background job, which ignores SIGINT by default."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    for number in handlers:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _end(process: subprocess.Popen[bytes], output: threading.Thread) -> None:
    """Interrupt every process of the group, runs included, as a terminal would; kill those that remain."""
    try:
        _signal(process, signal.SIGINT)
        output.join(_END_SECONDS)
    finally:
        _signal(process, signal.SIGKILL)
        process.wait()


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):  # no process is left; macOS raises PermissionError
        os.killpg(process.pid, number)
