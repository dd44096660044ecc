"""The floe command and programs for tests: each call is a process, forked from one that has imported what it needs.

A process from nothing costs seconds of imports. Where the start itself is the subject (Ctrl-C, terminals,
the environment of the interpreter), start `FLOE` instead.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

__all__ = ["FLOE", "floe", "python"]

FLOE = str(Path(sys.executable).parent / "floe")

_ROOT = Path(__file__).parents[1]
_TIMEOUT = 300
_COMMAND = "from floe_runtime.cli import main; main()"


def floe(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, with these variables beside the present ones."""
    return _run("floe", _COMMAND, arguments, cwd=cwd, environment={**os.environ, **environment})


def python(
    program: str, *, cwd: Path | None = None, stdin: str = "", environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program in a process that has imported PyIceberg, PySpark and Dagster, but not Floe."""
    return _run("libraries", program, (), cwd=cwd or Path.cwd(), stdin=stdin, environment=environment or os.environ)


def _run(
    server: str,
    program: str,
    arguments: Sequence[str],
    *,
    cwd: Path,
    environment: Mapping[str, str],
    stdin: str = "",
) -> subprocess.CompletedProcess[str]:
    connection = _server(server)
    request = {
        "program": program,
        "arguments": arguments,
        "folder": str(cwd),
        "environment": dict(environment),
    }
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin.encode())
        given.seek(0)
        socket.send_fds(connection, [json.dumps(request).encode()], [one.fileno() for one in (given, out, err)])
        answer = connection.recv(64)
        for one in (out, err):
            one.seek(0)
        printed = [one.read().decode().replace("\r\n", "\n") for one in (out, err)]
    assert answer, "the server of the tests' commands ended"
    return subprocess.CompletedProcess(["floe", *arguments], int(answer), *printed)


@lru_cache
def _server(kind: str) -> socket.socket:
    """The connection to a server, which ends with this process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(_TIMEOUT)
    subprocess.Popen(
        [sys.executable, "-m", "tests.fork_server", str(theirs.fileno()), kind],
        cwd=_ROOT,
        pass_fds=[theirs.fileno()],
        stdin=subprocess.DEVNULL,
    )
    theirs.close()
    return ours
