"""The parts of `dagster dev`: the code servers, the daemon, and the workspace of the web server."""

from __future__ import annotations

import importlib.util

from floe_core.engines import incompatible, private_names

_DEV = "floe dev starts Dagster's web server behind its guard"
with private_names("dagster", _DEV):
    from dagster._cli.proxy_server_manager import ProxyServerManager
    from dagster._cli.utils import get_possibly_temporary_instance_for_cli
    from dagster._core.workspace.context import WorkspaceProcessContext
    from dagster._core.workspace.load_target import ModuleTarget, WorkspaceFileTarget
    from dagster._utils.interrupts import setup_interrupt_handlers
    from dagster._utils.log import configure_loggers

__all__ = [
    "DAEMON",
    "ModuleTarget",
    "ProxyServerManager",
    "WorkspaceFileTarget",
    "WorkspaceProcessContext",
    "configure_loggers",
    "get_possibly_temporary_instance_for_cli",
    "setup_interrupt_handlers",
]

DAEMON = "dagster._daemon"  # run as a module

if importlib.util.find_spec(DAEMON) is None:
    raise incompatible("dagster", f"there is no module {DAEMON}", _DEV)
