"""`floe dev` as its users run it, and what it answers."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from tests.commands import FLOE

__all__ = ["DevServer", "floe_dev", "living"]

_ENDED = ("SUCCESS", "FAILURE", "CANCELED")


@dataclass
class DevServer:
    """A running `floe dev`."""

    address: str
    process: subprocess.Popen[str]
    log: Path

    def ask(self, query: str, **variables: object) -> Any:
        """The data of a GraphQL answer."""
        asked = {"query": query, "variables": variables}
        answer = requests.post(f"{self.address}/graphql", json=asked, timeout=60).json()
        assert "errors" not in answer, json.dumps(answer["errors"])[:2000]
        return answer["data"]

    def assets(self) -> set[str]:
        return {"/".join(one["assetKey"]["path"]) for one in self.ask("{assetNodes{assetKey{path}}}")["assetNodes"]}

    def runs(self) -> dict[str, str]:
        """The runs by their ids, with their states."""
        found = self.ask("{runsOrError{... on Runs{results{runId status}}}}")["runsOrError"]["results"]
        return {one["runId"]: one["status"] for one in found}

    def wait_for_run(self, before: dict[str, str], seconds: float = 300, *, state: str = "SUCCESS") -> str:
        """Until the run that is new has ended, in this state; returns its id."""
        end = time.monotonic() + seconds
        new: dict[str, str] = {}
        while time.monotonic() < end:
            new = {run: found for run, found in self.runs().items() if run not in before}
            if new and all(found in _ENDED for found in new.values()):
                break
            time.sleep(1)
        assert list(new.values()) == [state], f"{new}\n{self.log.read_text()[-4000:]}"
        return next(iter(new))

    def interrupt(self, number: signal.Signals = signal.SIGINT) -> int:
        """The exit code after a signal."""
        self.process.send_signal(number)
        return self.process.wait(60)

    def processes(self) -> set[int]:
        """Everything that it started, by pid."""
        parents = {pid: parent for pid, parent, _ in _processes()}
        found = {self.process.pid}
        while more := {pid for pid, parent in parents.items() if parent in found} - found:
            found |= more
        return found - {self.process.pid}


@contextmanager
def floe_dev(project: Path, *arguments: str) -> Iterator[DevServer]:
    """The web UI of a project, on a free port; its output is in dev.log."""
    log = project / "dev.log"
    command = [FLOE, "dev", "--port", "0", *arguments]
    with log.open("w") as errors:
        process = subprocess.Popen(command, cwd=project, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        assert process.stdout is not None
        told = process.stdout.readline()
        assert "http://127.0.0.1:" in told, log.read_text()
        yield DevServer(told.split()[-1], process, log)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait(60)


def living(pids: set[int]) -> set[int]:
    """Those that still run; one that waits to be buried does not."""
    return {pid for pid, _, state in _processes() if pid in pids and not state.startswith("Z")}


def _processes() -> list[tuple[int, int, str]]:
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,stat="], capture_output=True, text=True, check=True).stdout
    rows = (line.split() for line in listed.splitlines())
    return [(int(pid), int(parent), state) for pid, parent, state, *_ in rows]
