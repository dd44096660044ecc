"""The process that executes a run, as a tag of the run: it tells a run that was killed from one that is running."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

__all__ = ["PROCESS_TAG", "has_ended", "this_process"]

PROCESS_TAG = "floe/process"


def this_process() -> str:
    """The host, the id and the start of this process; the start tells it from a later process with the same id."""
    pid = os.getpid()
    return f"{platform.node()} {pid} {_start_of(pid) or ''}".strip()


def has_ended(process: str) -> bool:
    """Whether a process of this host is gone; False for those of other hosts, of which nothing is known."""
    host, _, rest = process.partition(" ")
    pid, _, start = rest.partition(" ")
    if host != platform.node() or not pid.isdecimal():
        return False
    now = _start_of(int(pid))
    return now is None or bool(start and now and start != now)


def _start_of(pid: int) -> str | None:
    """When a process started, in the words of the system; empty if that is not known, None if there is no process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:  # of another user
        pass
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return None if state in "ZX" else fields[18]
    except OSError:
        return _start_by_ps(pid)


def _start_by_ps(pid: int) -> str:
    """The start of a process where there is no /proc."""
    environment = {**os.environ, "LC_ALL": "C", "TZ": "UTC"}
    command = ["ps", "-o", "lstart=", "-p", str(pid)]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False, env=environment)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return " ".join(answer.stdout.split())
