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
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

__all__ = ["FLOE", "floe", "python", "request"]

FLOE = str(Path(sys.executable).parent / "floe")

_ROOT = Path(__file__).parents[1]
_TIMEOUT = 300
_COMMAND = "from floe_runtime.cli import main; main()"


def floe(*arguments: str, cwd: Path, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, with these variables beside the present ones."""
    return _run("floe", _COMMAND, arguments, cwd=cwd, stdin=stdin, environment={**os.environ, **environment})


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
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin.encode())
        given.seek(0)
        streams = [one.fileno() for one in (given, out, err)]
        code = request(server, arguments, cwd=cwd, environment=environment, streams=streams, program=program)()
        for one in (out, err):
            one.seek(0)
        printed = [one.read().decode().replace("\r\n", "\n") for one in (out, err)]
    return subprocess.CompletedProcess(["floe", *arguments], code, *printed)


def request(
    server: str,
    arguments: Sequence[str],
    *,
    cwd: Path,
    environment: Mapping[str, str],
    streams: Sequence[int],
    program: str = _COMMAND,
) -> Callable[[], int]:
    """Start a process with these standard streams; the function that is returned waits for its exit code."""
    connection = _server(server)
    wanted = {"program": program, "arguments": arguments, "folder": str(cwd), "environment": dict(environment)}
    socket.send_fds(connection, [json.dumps(wanted).encode()], list(streams))

    def finish() -> int:
        answer = connection.recv(64)
        assert answer, "the server of the tests' commands ended"
        return int(answer)

    return finish


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
