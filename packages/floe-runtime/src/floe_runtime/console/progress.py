"""The progress of a run: live on a terminal, elsewhere one line per finished asset."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from floe_core.formatting import counted, human_bytes
from floe_core.observability import WriteProgress, writes_in_progress
from floe_runtime.console.text import can_show, sign

if TYPE_CHECKING:
    from floe_runtime.runs.runner import StepEvent

__all__ = ["progress", "remaining_seconds"]

_SHORT = 8  # the least width of a name
_KNOWN_SHARE = 0.05  # from here on, the time spent so far says how long the rest takes


@contextmanager
def progress(
    console: Console, title: str, *, order: Sequence[str] = (), keep: bool = True
) -> Iterator[Callable[[StepEvent], None]]:
    """Show the state of each asset: live on a terminal, elsewhere one line per finished asset.

    `order` is the order of the assets on a terminal; by default that of Dagster. `keep` leaves the lines of finished
    assets on a terminal; it is off where a table repeats them.
    """
    board = _Board(console, title, order)
    if not console.is_terminal:
        yield board.watch_and_print
        return
    with Live(board, console=console, refresh_per_second=4, transient=True):
        yield board.watch
    for line in board.finished() if keep else ():
        console.print(line)


def remaining_seconds(elapsed: float, usual: float | None, share: float | None) -> float | None:
    """How long an asset still takes: by the share that is written, else by the last time; None if it is not known."""
    if share is not None and _KNOWN_SHARE <= share < 1:
        return elapsed * (1 - share) / share
    if share is None and usual is not None and usual > elapsed:
        return usual - elapsed
    return None


class _Board:
    """The assets of a run and their states; drawn by one thread, changed by another."""

    def __init__(self, console: Console, title: str, order: Sequence[str]) -> None:
        self._console = console
        self._title = title
        self._places = {asset: place for place, asset in enumerate(order)}
        self._lock = threading.Lock()
        self._events: dict[str, StepEvent] = {}
        self._started: dict[str, float] = {}
        self._usual: dict[str, float | None] = {}
        self._spinner = Spinner("dots" if can_show(console, "⠋") else "line")

    def watch(self, event: StepEvent) -> None:
        with self._lock:
            if event.state == "started":
                self._started[event.asset] = time.monotonic()
            if event.state == "planned":
                self._usual[event.asset] = event.usual_seconds
            self._events[event.asset] = event

    def watch_and_print(self, event: StepEvent) -> None:
        self.watch(event)
        if event.state in ("done", "failed"):
            self._console.print(self._line(event))

    def finished(self) -> list[Text]:
        return [self._line(event) for event in self._events.values() if event.state in ("done", "failed")]

    def _line(self, event: StepEvent) -> Text:
        return Text.assemble("  ", self._sign(event), " ", self._ended(event))

    def _sign(self, event: StepEvent) -> Text:
        good = event.state != "failed"
        return Text(sign(self._console, good=good), style="green" if good else "red")

    def _ended(self, event: StepEvent) -> Text:
        made = event.materialized
        facts = [event.partitions] if event.partitions else []
        facts += [f"{event.seconds:.1f} s"] if event.state == "done" else []
        facts += [counted(made.rows, "row"), human_bytes(made.bytes)] if made and not made.deduplicated else []
        return self._described(event.asset, facts)

    def _running(self, asset: str, written: WriteProgress | None) -> Text:
        elapsed = time.monotonic() - self._started[asset]
        left = remaining_seconds(elapsed, self._usual.get(asset), written.share if written else None)
        facts = [f"{elapsed:.1f} s"]
        if left is not None and left >= 1:
            facts.append(f"about {_duration(left)} left")
        if written is not None:
            facts += [counted(written.rows, "row")] if written.rows else []
            facts += [human_bytes(written.bytes)] if written.bytes else []
        return self._described(asset, facts)

    def _described(self, asset: str, facts: list[str]) -> Text:
        """The asset and as many of the facts as fit the console: at least the first, beside a shortened name."""
        width = max(_SHORT, min(self._console.width - 16, max(len(name) for name in self._events)))
        name = asset if len(asset) <= width else f"{asset[: width - 1]}…"
        while len(facts) > 1 and width + 6 + len("  ".join(facts)) > self._console.width:
            facts = facts[:-1]
        return Text.assemble(f"{name:<{width}}  ", ("  ".join(facts), "dim"), overflow="ellipsis", no_wrap=True)

    def __rich__(self) -> Table:
        grid = Table.grid(padding=(0, 1))
        grid.add_column(width=2)
        grid.add_column()
        grid.add_row("", Text(self._title, style="bold", overflow="ellipsis", no_wrap=True))
        writes = {write.asset: write for write in writes_in_progress()}
        with self._lock:
            events = sorted(self._events.values(), key=lambda event: self._places.get(event.asset, len(self._places)))
        for event in events:
            if event.state == "started":
                grid.add_row(self._spinner, self._running(event.asset, writes.get(event.asset)))
            elif event.state == "planned":
                grid.add_row("", Text(event.asset, style="dim", overflow="ellipsis", no_wrap=True))
            else:
                grid.add_row(self._sign(event), self._ended(event))
        return grid


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
