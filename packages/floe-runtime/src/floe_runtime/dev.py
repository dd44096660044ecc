"""Dagster's web UI and daemon on a project, in processes of their own."""

from __future__ import annotations

import http.client
import importlib.util
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from dagster import DagsterError, Definitions

from floe_core.artifacts import CompiledArtifacts
from floe_core.errors import ConfigurationError, FloeError
from floe_core.loopback import is_loopback
from floe_core.redaction import protect
from floe_runtime.pipeline import open_pipeline

__all__ = ["WebServerError", "WebUI", "open_web_ui"]

_START_SECONDS = 180
_END_SECONDS = 30
# No telemetry; and the backfill policy in the templates is Floe's choice, not the user's.
_SETTINGS = {"DAGSTER_DISABLE_TELEMETRY": "1", "PYTHONWARNINGS": "ignore:Parameter `backfill_policy`"}
TOKEN_VARIABLE = "FLOE_DEV_TOKEN"  # noqa: S105 - the name of a variable


class WebServerError(FloeError):
    """Dagster's web server does not start, or ended by itself."""


@dataclass(frozen=True)
class WebUI:
    """A web server that answers."""

    address: str
    _process: subprocess.Popen[bytes]
    token: str | None = field(default=None, repr=False)

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
    port = _free_port(host, port)
    token = _token(host, port)
    environment = _environment(artifacts)
    settings = {"module": artifacts.pipeline.definitions, "root": str(artifacts.root), "host": host, "port": port}
    with _interruptible():
        process = subprocess.Popen(
            [sys.executable, "-m", "floe_runtime.dev_services"],
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
            _send(process, {**settings, "token": token})
            _wait_for_answer(process, _reachable(host), port, token)
            yield WebUI(_address(_reachable(host), port), process, token)
        finally:
            _end(process, output)


def _token(host: str, port: int) -> str | None:
    """The token that every request needs: the user's, or a new one where other machines can reach the server."""
    given = os.environ.get(TOKEN_VARIABLE)
    if given:
        protect(given)
        return given
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return None if all(is_loopback(str(one[4][0])) for one in found) else secrets.token_urlsafe(32)


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


def _free_port(host: str, port: int) -> int:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            # As the server will: a port that was closed a moment ago is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            return int(probe.getsockname()[1])
    except OSError as exc:
        raise ConfigurationError(
            f"cannot serve on port {port} of {host}: {exc.strerror}; choose another with --port (0 takes a free one)"
        ) from exc


def _reachable(host: str) -> str:
    """Where to ask a server that listens on every address."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - only read here


def _address(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _wait_for_answer(process: subprocess.Popen[bytes], host: str, port: int, token: str | None) -> None:
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            raise WebServerError(f"Dagster's web server did not start; it ended with exit code {process.returncode}")
        if _answers(host, port, token):
            return
        time.sleep(0.2)
    raise WebServerError(f"Dagster's web server did not answer within {_START_SECONDS} seconds")


def _answers(host: str, port: int, token: str | None) -> bool:
    connection = http.client.HTTPConnection(host, port, timeout=5)
    try:
        connection.request("GET", "/server_info", headers={"Authorization": f"Bearer {token}"} if token else {})
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
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
