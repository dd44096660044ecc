"""Pictures of the terminal for README and guides: python -m tools.screens [FOLDER]

Each picture shows the real output of commands on a project that floe init has just created, as a terminal of 100
columns shows it. Takes a minute; ids, times and durations differ each time.
"""

from __future__ import annotations

import codecs
import fcntl
import io
import os
import pty
import re
import shlex
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.text import Text

FLOE = Path(sys.executable).with_name("floe")
IMAGES = Path(__file__).parents[1] / "docs" / "images"
COLUMNS = 100
_CODES = re.compile(r"\x1b\[(?P<argument>[?0-9;]*)(?P<command>[A-Za-z])|(?P<control>[\r\n])|(?P<text>[^\x1b\r\n]+)")
_BEGUN = re.compile(r"\x1b(\[[?0-9;]*)?$")  # a code whose end is not read yet
_SPINNER, _ID = re.compile("[⠀-⣿]"), re.compile(r"\b\d{17,20}\b")
_FOLDER = re.compile(f"{re.escape(tempfile.gettempdir())}/[^/\\s]+")  # of this machine
_FONT = re.compile(r"@font-face\s*\{.*?\}\s*", re.DOTALL)  # would be fetched from another server


class Screen:
    """What a terminal shows of the codes that Rich writes: colours, lines that are erased, and the cursor moved up."""

    def __init__(self) -> None:
        self.lines = [""]
        self._row = 0

    def feed(self, text: str) -> None:
        for code in _CODES.finditer(text):
            if code["text"]:
                self.lines[self._row] += code["text"]
            elif code["control"] == "\n":
                self._row += 1
                self.lines += [""] * (self._row + 1 - len(self.lines))
            elif code["command"] == "m":
                self.lines[self._row] += code[0]
            elif code["command"] == "A":
                self._row = max(0, self._row - int(code["argument"] or 1))
            elif code["command"] == "K":
                self.lines[self._row] = ""

    @property
    def text(self) -> str:
        return "\n".join(self.lines).rstrip()


def run(
    folder: Path, *arguments: str, answer: str = "", until: Callable[[str], bool] = lambda _text: False
) -> tuple[str, str]:
    """What a command shows at its end, and when `until` was last true."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(folder)
        os.execve(FLOE, [str(FLOE), *arguments], {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS)})
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    screen, meanwhile, rest = Screen(), "", ""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while True:
        try:
            rest += decoder.decode(os.read(terminal, 65536))
        except OSError:  # the command has ended
            break
        whole = len(rest) if (begun := _BEGUN.search(rest)) is None else begun.start()
        screen.feed(rest[:whole])
        rest = rest[whole:]
        if answer and screen.text.endswith("]:"):
            os.write(terminal, f"{answer}\n".encode())
            answer = ""
        if until(screen.text):
            meanwhile = screen.text
        time.sleep(0.02)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        raise SystemExit(f"floe {' '.join(arguments)} ended with {code}:\n{screen.text}")
    return screen.text, meanwhile


def draw(name: str, images: Path, *shown: tuple[str, str]) -> None:
    """Write a picture of commands and their output."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for number, (command, output) in enumerate(shown):
        if number:
            console.print()
        console.print(Text.assemble(("$ ", "bold green"), (f"{command}", "bold")))
        console.print(Text.from_ansi(_FOLDER.sub("/lakes", output)))
    console.print()  # the picture cuts the lowest line
    svg = console.export_svg(title="floe", unique_id=name)
    (images / f"{name}.svg").write_text(_FONT.sub("", svg), encoding="utf-8")


def main(images: Path) -> None:
    images.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder).resolve()
        run(at, "init", "shop", "--template", "medallion", "--catalog", "sql")
        shop = at / "shop"
        plan, _ = run(shop, "plan")
        draw("plan", images, ("floe plan", plan))
        run(shop, "run", "--partition-range", "2026-01-01...2026-01-07", "--with-unpartitioned")
        after, during = run(shop, "run", until=lambda text: "✓" in text and bool(_SPINNER.search(text)))
        draw("run", images, ("floe run", during))
        query = "SELECT day, sum(revenue) AS revenue FROM gold.daily_revenue GROUP BY day ORDER BY day"
        listed, rows = run(shop, "tables", "list")[0], run(shop, "sql", query)[0]
        draw("explore", images, ("floe run", after), ("floe tables list", listed), (f'floe sql "{query}"', rows))
        draw("table", images, ("floe tables show silver.orders", run(shop, "tables", "show", "silver.orders")[0]))
        history = run(shop, "tables", "history", "silver.orders")[0]
        earlier = _ID.findall(history)[1]
        arguments = ("snapshots", "rollback", "silver.orders", "--to", earlier)
        back = run(shop, *arguments, answer="y")[0]
        draw(
            "rollback", images, ("floe tables history silver.orders", history), (shlex.join(("floe", *arguments)), back)
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES)
