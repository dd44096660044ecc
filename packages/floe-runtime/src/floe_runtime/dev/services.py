"""The processes of `floe dev`: Dagster's web server behind a guard, its code server and its daemon.

`dagster dev` starts the same processes, but its web server accepts requests from pages of any origin. Run as a module,
with its settings as JSON on standard input.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import uvicorn
import yaml
from dagster import DagsterInstance, serialize_value
from dagster_webserver.app import create_app_from_workspace_process_context
from pydantic import BaseModel

from floe_core.errors import FloeError
from floe_dagster._dagster.services import (
    DAEMON,
    ModuleTarget,
    ProxyServerManager,
    WorkspaceFileTarget,
    WorkspaceProcessContext,
    configure_loggers,
    get_possibly_temporary_instance_for_cli,
    setup_interrupt_handlers,
)
from floe_runtime.dev.access import listeners
from floe_runtime.dev.landing import LandingPage
from floe_runtime.dev.request_guard import RequestGuard

__all__ = ["ServiceSettings", "private_folder", "serve"]

_LOG_LEVEL = "warning"
_POLL_RATE_MS = 2000
_TEMPORARY_BYTES = 60
_STATEMENT_TIMEOUT_MS, _POOL_RECYCLE_SECONDS, _POOL_OVERFLOW = 15_000, 3600, 20  # as in Dagster's own command


class ServiceSettings(BaseModel, frozen=True, extra="forbid"):
    """The module to serve, the address, the first page, and the access control."""

    module: str
    root: str
    host: str
    port: int
    landing: str = "/asset-groups"
    token: str | None = None
    origin: str | None = None


def serve(settings: ServiceSettings) -> int:
    """Serve until interrupted (0), or until the daemon exits (1)."""
    with listeners(settings.host, settings.port, token=settings.token) as sockets:
        return _serve(settings, sockets)


def _serve(settings: ServiceSettings, sockets: list[socket.socket]) -> int:
    os.environ["DAGSTER_IS_DEV_CLI"] = "1"
    os.environ["DAGSTER_verbose"] = ""  # noqa: SIM112 - Dagster spells it so
    configure_loggers(formatter="colored", log_level=_LOG_LEVEL.upper())
    setup_interrupt_handlers()
    with (
        get_possibly_temporary_instance_for_cli("floe dev") as instance,
        private_folder() as folder,
        ProxyServerManager(
            instance=instance,
            workspace_load_target=ModuleTarget(settings.module, None, settings.root, None),
            code_server_log_level=_LOG_LEVEL,
        ) as code_servers,
    ):
        workspace = folder / "workspace.yaml"
        workspace.write_text(yaml.dump({"load_from": code_servers.get_code_server_specs()}), encoding="utf-8")
        with _daemon(instance, workspace) as daemon:
            return _serve_web(settings, sockets, instance, workspace, daemon)


@contextmanager
def private_folder() -> Iterator[Path]:
    """A folder for the temporary files of all these processes, such as sockets, that only this user can access."""
    before = os.environ.get("TMPDIR")
    # A socket path is limited to 103 bytes; the names of this folder and the socket take 30.
    place = None if len(os.fsencode(tempfile.gettempdir())) <= _TEMPORARY_BYTES else "/tmp"  # noqa: S108 - mode 0700
    # Runs of a killed code server may still write to it.
    with tempfile.TemporaryDirectory(prefix="floe-dev-", dir=place, ignore_cleanup_errors=True) as folder:
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        try:
            yield Path(folder)
        finally:
            tempfile.tempdir = None
            del os.environ["TMPDIR"]
            if before is not None:
                os.environ["TMPDIR"] = before


@contextmanager
def _daemon(instance: DagsterInstance, workspace: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", DAEMON, "run", "--log-level", _LOG_LEVEL]
    command += ["--code-server-log-level", _LOG_LEVEL, "--workspace", str(workspace)]
    command += ["--instance-ref", serialize_value(instance.get_ref())]
    # Inherits SIGINT as ignored until it has a handler: an interrupt during its imports would print a traceback.
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process = subprocess.Popen(command)  # noqa: S603 - our own interpreter
    finally:
        signal.signal(signal.SIGINT, handler)
    try:
        yield process
    finally:
        with suppress(KeyboardInterrupt):
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
        process.kill()
        process.wait()


def _serve_web(
    settings: ServiceSettings,
    sockets: list[socket.socket],
    instance: DagsterInstance,
    workspace: Path,
    daemon: subprocess.Popen[bytes],
) -> int:
    instance.optimize_for_webserver(_STATEMENT_TIMEOUT_MS, _POOL_RECYCLE_SECONDS, _POOL_OVERFLOW)
    target = WorkspaceFileTarget([str(workspace)])
    with WorkspaceProcessContext(instance, workspace_load_target=target, code_server_log_level=_LOG_LEVEL) as context:
        dagster = create_app_from_workspace_process_context(context, "", _POLL_RATE_MS)
        landing = LandingPage(dagster, settings.landing)
        app = RequestGuard(landing, token=settings.token, origin=settings.origin)
        config = uvicorn.Config(app, log_level=_LOG_LEVEL, timeout_graceful_shutdown=3, server_header=False)
        server = uvicorn.Server(config)

        def stop_with_daemon() -> None:
            daemon.wait()
            server.should_exit = True

        threading.Thread(target=stop_with_daemon, daemon=True).start()
        with suppress(KeyboardInterrupt):  # uvicorn re-raises the signal that stopped it
            server.run(sockets=sockets)
            return 1
    return 0


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        try:
            sys.exit(serve(ServiceSettings.model_validate(json.load(sys.stdin))))
        except FloeError as exc:
            sys.exit(str(exc))
