"""A child process that does what it is asked for by name, so that two environments take turns."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

__all__ = ["ROOT", "Worker", "serve"]

ROOT = Path(__file__).resolve().parents[1]
_SHOWN_CHARACTERS = 3000


def serve(orders: Mapping[str, Callable[..., Any]], asked: list[str]) -> None:
    """Do the one thing asked for, or what comes line by line until nothing comes any more."""
    # Whatever else prints, the answers go alone.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for words in [asked] if asked else map(json.loads, sys.stdin):
        name, *arguments = words
        answers.write(json.dumps(orders[name](*arguments)) + "\n")
        answers.flush()


class Worker:
    """The parent's side of `serve`."""

    def __init__(self, *command: str, log: Path) -> None:
        self._command = command
        self._log = log
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )

    def ask(self, *words: str) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            told = self._log.read_text()[-_SHOWN_CHARACTERS:]
            raise RuntimeError(f"{' '.join(self._command)} did not answer to {' '.join(words)}:\n{told}")
        return json.loads(answer)

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
