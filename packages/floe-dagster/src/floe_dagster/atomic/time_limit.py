"""A limit on the time that a check may take."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from floe_core.errors import TimeLimitError
from floe_core.observability import warn

__all__ = ["time_limit"]


@contextmanager
def time_limit(seconds: float | None, what: str) -> Iterator[None]:
    """Raise an error inside the block when the time is over; None sets no limit.

    The timer of the process interrupts Python code and calls to Spark. It works in the main thread only, where
    Dagster's executors run steps; elsewhere a warning says that there is no limit.
    """
    if seconds is None:
        yield
        return
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        warn("a check has no time limit outside of the main thread", check=what)
        yield
        return

    def over(_number: int, _frame: FrameType | None) -> None:
        raise TimeLimitError(f"{what} took longer than {seconds:g} seconds, its time limit, and was stopped")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
