"""Time two things alternately, so that both meet the same noise."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Row", "compare"]


@dataclass(frozen=True)
class Row:
    """The median of one thing beside the median of another."""

    what: str
    seconds: float
    beside: str
    beside_seconds: float
    target: str


def compare(
    what: str, run: Callable[[], object], beside: str, run_beside: Callable[[], object], *, times: int, target: str
) -> Row:
    """Each once to warm up, then alternately."""
    run()
    run_beside()
    ours, theirs = [], []
    for _ in range(times):
        ours.append(_seconds(run))
        theirs.append(_seconds(run_beside))
    return Row(what, statistics.median(ours), beside, statistics.median(theirs), target)


def _seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started
