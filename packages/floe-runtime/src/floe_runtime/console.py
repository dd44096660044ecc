"""What people see: progress while assets run, and tables of what was written."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from floe_runtime.runner import Materialized, RunReport, StepEvent

__all__ = ["check_lines", "command_name", "human_bytes", "progress", "report_table"]


def command_name() -> str:
    """How to type this command from any folder."""
    return "floe" if shutil.which("floe") else str(Path(sys.argv[0]).resolve())


def human_bytes(count: int) -> str:
    """1,234,567 as 1.2 MB."""
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    raise AssertionError  # the loop always returns


def report_table(report: RunReport, console: Console) -> Table:
    """What each asset wrote; a narrow screen does without the asset where the table says the same."""
    plain = all(one.asset.replace("/", ".") == one.table for one in report.materialized)
    with_asset = console.width >= 100 or not plain
    table = Table(header_style="bold", box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for name in ("asset", "table") if with_asset else ("table",):
        table.add_column(name, overflow="fold")
    for name in ("rows", "files", "bytes", "snapshot", "seconds"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in report.materialized:
        table.add_row(
            *([escape(one.asset)] if with_asset else []),
            escape(one.table),
            f"{one.rows:,}",
            _files(one),
            human_bytes(one.bytes),
            str(one.snapshot_id),
            f"{one.seconds:.1f}",
        )
    return table


def check_lines(report: RunReport) -> Iterator[Text]:
    """One line for each asset check."""
    for one in report.checks:
        sign = ("  ✓ ", "green") if one.passed else ("  ✗ ", "red" if one.severity == "ERROR" else "yellow")
        yield Text.assemble(sign, f"check {one.check} of {one.asset}", (f"  {one.description}", "dim"))


def _files(one: Materialized) -> str:
    if one.deduplicated:
        return "done before"
    return f"+{one.files} -{one.files_removed}" if one.files_removed else f"+{one.files}"


@contextmanager
def progress(console: Console, title: str, *, keep: bool = True) -> Iterator[Callable[[StepEvent], None]]:
    """Show what each asset is doing; on a terminal it moves, elsewhere each finished asset is a line.

    `keep` leaves the lines of the finished assets on a terminal; a table that says the same makes them needless.
    """
    board = _Board(console, title)
    if not console.is_terminal:
        yield board.tell
        return
    with Live(board, console=console, refresh_per_second=8, transient=True):
        yield board.watch
    for line in board.finished() if keep else ():
        console.print(line)


class _Board:
    """The assets of a run and their states; drawn by one thread, changed by another."""

    def __init__(self, console: Console, title: str) -> None:
        self._console = console
        self._title = title
        self._lock = threading.Lock()
        self._events: dict[str, StepEvent] = {}
        self._started: dict[str, float] = {}
        self._spinner = Spinner("dots")

    def watch(self, event: StepEvent) -> None:
        with self._lock:
            if event.state == "started":
                self._started[event.asset] = time.monotonic()
            self._events[event.asset] = event

    def tell(self, event: StepEvent) -> None:
        self.watch(event)
        if event.state in ("done", "failed"):
            self._console.print(self._line(event))

    def finished(self) -> list[Text]:
        return [self._line(event) for event in self._events.values() if event.state in ("done", "failed")]

    def _line(self, event: StepEvent) -> Text:
        if event.state == "failed":
            return Text.assemble(("  ✗ ", "red"), event.asset)
        facts = f"{event.materialized.rows:>12,} rows" if event.materialized else ""
        return Text.assemble(("  ✓ ", "green"), f"{event.asset:<32}", (f"{facts}  {event.seconds:6.1f} s", "dim"))

    def __rich__(self) -> Table:
        grid = Table.grid(padding=(0, 1))
        grid.add_column(width=3)
        grid.add_column()
        grid.add_row("", Text(self._title, style="bold"))
        with self._lock:
            events = list(self._events.values())
        for event in events:
            if event.state == "started":
                running = time.monotonic() - self._started[event.asset]
                grid.add_row(self._spinner, Text.assemble(f"{event.asset:<32}", (f"{running:6.1f} s", "dim")))
            elif event.state == "planned":
                grid.add_row("", Text(event.asset, style="dim"))
            else:
                grid.add_row("", self._line(event))
        return grid
