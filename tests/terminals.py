"""The floe command in a terminal of a given width, whose prompts a test answers."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import termios
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tests.commands import FLOE, request

__all__ = ["in_a_terminal"]

_CTRL_C = b"\x03"


def in_a_terminal(
    *arguments: str,
    cwd: Path,
    answers: Mapping[str, str] | None = None,
    columns: int = 80,
    environment: Mapping[str, str] | None = None,
    forked: bool = True,
) -> tuple[int, str]:
    """Run the command and answer each prompt, known by its text; returns the exit code and what the terminal showed.

    A forked process has the encoding of its parent, and Ctrl-C does not reach it.
    """
    # Not the size of the terminal of the tests, which the processes of a run hand on.
    inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    given = {**inherited, "TERM": "xterm", **(environment or {})}
    waiting = dict(answers or {})
    if forked:
        terminal, other_end = pty.openpty()
        _set_width(terminal, columns)
        finish = request("floe", arguments, cwd=cwd, environment=given, streams=[other_end] * 3)
        os.close(other_end)
        shown = _answered(terminal, waiting)
        code = finish()
    else:
        child, terminal = pty.fork()
        if child == 0:
            os.chdir(cwd)
            os.execve(FLOE, [FLOE, *arguments], given)
        _set_width(terminal, columns)
        shown = _answered(terminal, waiting)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert waiting == {}, shown
    return code, shown


def _set_width(terminal: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))


def _answered(terminal: int, waiting: dict[str, str]) -> str:
    """What the terminal shows until the other end is closed; prompts that were answered are removed."""
    shown, answer = b"", b""
    while True:
        if answer == _CTRL_C and not select.select([terminal], [], [], 1)[0]:
            # Python misses one that arrives between its prompt and its wait for the answer.
            with suppress(OSError):
                os.write(terminal, answer)
            continue
        try:
            read = os.read(terminal, 4096)
        except OSError:  # the other end is closed
            break
        if not read:
            break
        shown += read
        for prompt in [one for one in waiting if one.encode() in shown]:
            answer = waiting.pop(prompt).encode()
            os.write(terminal, answer)
    os.close(terminal)
    return shown.decode().replace("\r\n", "\n")
