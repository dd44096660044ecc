"""Runs the floe command, or a program, in processes forked from this one, which has imported what they need once.

`python -m tests.fork_server FD floe|libraries`: requests arrive on a Unix socket, one JSON document each with the
standard streams as file descriptors; the answer is the exit code. A forked process has its own folder, environment and
streams. `libraries` has imported what Floe is made of, but not Floe.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import signal
import socket
import sys
import traceback
from typing import Any

_LIBRARIES = (
    "dagster",
    "pandas",
    "pyiceberg.catalog.rest",
    "pyiceberg.catalog.sql",
    "pyiceberg.io.pyarrow",
    "pyspark.sql.connect.session",
)
_FLOE = (
    *_LIBRARIES,
    "duckdb",
    "floe_iceberg.query.duckdb_engine",
    "floe_dagster",
    "floe_dagster.differences",
    "floe_polaris",
    "floe_runtime.cli",
    "floe_runtime.console",
    "floe_runtime.dagster_storage",
    "floe_runtime.doctor",
    "floe_runtime.runs.runner",
    "floe_spark",
    "floe_iceberg.maintenance.run",
)


def serve(connection: socket.socket, names: tuple[str, ...]) -> None:
    for name in names:
        importlib.import_module(name)
    gc.freeze()
    while True:
        message, descriptors, _, _ = socket.recv_fds(connection, 1_000_000, 3)
        if not message:
            return
        request = json.loads(message)
        child = os.fork()
        if child == 0:
            connection.close()
            run(request, descriptors)
        for one in descriptors:
            os.close(one)
        _, status = os.waitpid(child, 0)
        connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())


def run(request: dict[str, Any], descriptors: list[int]) -> None:
    """Become the command; does not return."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    for number, given in enumerate(descriptors):
        os.dup2(given, number)
        os.close(given)
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):  # it may be a terminal
        setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
    sys.argv = ["floe", *request["arguments"]]
    sys.path[:0] = [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]
    sys.modules["__main__"].__package__ = None  # Click names the program by it
    code = 0
    try:
        exec(request["program"], {"__name__": "__main__"})
    except SystemExit as exc:
        code = exc.code if isinstance(exc.code, int) else int(exc.code is not None)
    except BaseException:  # noqa: BLE001 - whatever a program raises
        traceback.print_exc()
        code = 1
    # Not the end of the interpreter: it would take down every module one by one.
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), _FLOE if sys.argv[2] == "floe" else _LIBRARIES)
