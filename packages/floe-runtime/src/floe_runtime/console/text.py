"""Facts as text: the command to type, ages and times."""

from __future__ import annotations

import shlex
import shutil
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from floe_core.formatting import moment_text

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["age", "can_show", "command_name", "exact_text", "sign"]


def command_name() -> str:
    """The running command as it can be typed in this shell: `floe`, or its path if PATH has another one."""
    running, found = Path(sys.argv[0]), shutil.which("floe")
    is_temporary = Path(sys.prefix).parent.name.startswith("archive-v")  # of uvx: it is on the PATH only until uvx ends
    if not running.is_file() or (found is not None and running.samefile(found) and not is_temporary):
        return "floe"
    return shlex.quote(str(running.absolute()))


def sign(console: Console, *, good: bool) -> str:
    """The sign of a result, or a word where the encoding of the console lacks the signs."""
    shown, word = ("✓", "ok") if good else ("✗", "x")
    return shown if can_show(console, shown) else word


def can_show(console: Console, text: str) -> bool:
    """Whether the encoding of the console has these characters."""
    try:
        text.encode(console.encoding)
    except UnicodeEncodeError:
        return False
    return True


def age(moment: datetime | None) -> str:
    """How long ago, in the largest unit that fits."""
    if moment is None:
        return "never"
    seconds = (datetime.now(timezone.utc) - moment).total_seconds()
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit} ago"
    return f"{max(0, int(seconds))} s ago"


def exact_text(moment: datetime) -> str:
    """A time in UTC to the millisecond, as a snapshot has it: with it, `--as-of` finds that very snapshot."""
    return f"{moment_text(moment)}.{moment.microsecond // 1000:03}Z"
