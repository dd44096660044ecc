"""Dagster's web UI and daemon on a project, in processes of their own."""

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
from floe_runtime.runs.pipeline import open_pipeline

__all__ = ["WebServerError", "WebUI", "open_web_ui", "wait_for_answer"]

_START_SECONDS = 180
_END_SECONDS = 30
# No telemetry; and the backfill policy in the templates is Floe's choice, not the user's.
_SETTINGS = {"DAGSTER_DISABLE_TELEMETRY": "1", "PYTHONWARNINGS": "ignore:Parameter `backfill_policy`"}


class WebServerError(FloeError):
    """Dagster's web server does not start, or ended by itself."""


@dataclass(frozen=True)
class WebUI:
    """A web server that answers."""

    address: str
    _process: subprocess.Popen[bytes]
    access: Access

    def wait(self) -> None:
        """Until somebody interrupts; WebServerError if the server ends by itself."""
        raise WebServerError(f"Dagster's web server ended by itself, with exit code {self._process.wait()}")


@contextmanager
def open_web_ui(artifacts: CompiledArtifacts, *, host: str, port: int) -> Iterator[WebUI]:
    """Start the web UI on the project's definitions and history; all its processes end with the block.

    Port 0 is any free one. While the block lasts, SIGTERM and SIGHUP interrupt like Ctrl-C.
    """
    if importlib.util.find_spec("dagster_webserver") is None:
        raise ConfigurationError(
            "floe dev needs dagster-webserver, which is not installed: pip install 'floe-runtime[all]'"
        )
    access = access_for(host)
    with listeners(host, port, token=access.token) as free:
        port = free[0].getsockname()[1]
    environment = _environment(artifacts)
    settings = {"module": artifacts.pipeline.definitions, "root": str(artifacts.root), "host": host, "port": port}
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
        output = threading.Thread(target=_pass_on, args=(process,), daemon=True)
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
    with suppress(BrokenPipeError), process.stdin as pipe:  # a process that has ended is reported by who waits for it
        pipe.write(json.dumps(settings).encode())


def _environment(artifacts: CompiledArtifacts) -> dict[str, str]:
    """The environment in which Dagster finds what `floe run` finds; definitions that do not load are told here."""
    with open_pipeline(artifacts) as pipeline:
        try:
            Definitions.validate_loadable(pipeline.definitions)
        except DagsterError as exc:
            told = " ".join(str(exc).split())
            raise ConfigurationError(f"Dagster refuses {artifacts.pipeline.definitions}: {told}") from exc
        kept = {name: value for name, value in os.environ.items() if name != TOKEN_VARIABLE}
        return {**kept, **_SETTINGS}


def _reachable(host: str) -> str:
    """Where to ask a server that listens on every address."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - only read here


def _address(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def wait_for_answer(process: subprocess.Popen[bytes], host: str, port: int, token: str | None) -> None:
    """Until the server answers; WebServerError if it ends, refuses this request or takes too long."""
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
    """The status, None without an answer, and the beginning of the text."""
    connection = http.client.HTTPConnection(host, port, timeout=5)
    try:
        connection.request("GET", "/server_info", headers={"Authorization": f"Bearer {token}"} if token else {})
        response = connection.getresponse()
        return response.status, response.read(300).decode(errors="replace").strip()
    except (OSError, http.client.HTTPException):
        return None, ""
    finally:
        connection.close()


def _pass_on(process: subprocess.Popen[bytes]) -> None:
    """Show what the processes print, until the last of them has ended."""
    assert process.stdout is not None  # noqa: S101 - it was opened with a pipe
    with process.stdout as pipe:
        while chunk := os.read(pipe.fileno(), 65536):
            sys.stderr.buffer.write(chunk)
            sys.stderr.buffer.flush()


@contextmanager
def _interruptible() -> Iterator[None]:
    """Every signal to end is a KeyboardInterrupt, also in a shell's background job, which would ignore Ctrl-C."""
    kept = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    for one in kept:
        signal.signal(one, signal.default_int_handler)
    try:
        yield
    finally:
        for one, handler in kept.items():
            signal.signal(one, handler)


def _end(process: subprocess.Popen[bytes], output: threading.Thread) -> None:
    """Interrupt every process of the group, as a terminal would, and runs with them; kill what is left."""
    try:
        _signal(process, signal.SIGINT)
        output.join(_END_SECONDS)
    finally:
        _signal(process, signal.SIGKILL)
        process.wait()


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):  # nobody is left; macOS says it in the other way
        os.killpg(process.pid, number)
