"""Time two things alternately, so that both meet the same noise."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

__all__ = ["Row", "alternately", "compare", "compared", "seconds_of"]


@dataclass(frozen=True)
class Row:
    """The median of one thing beside the median of another; None where the other did not survive."""

    what: str
    seconds: float
    beside: str
    beside_seconds: float | None
    target: str
    ratio: float | None


def compare(
    what: str, run: Callable[[], object], beside: str, run_beside: Callable[[], object], *, times: int, target: str
) -> Row:
    """Each once to warm up, then alternately."""
    runs = {"ours": lambda: seconds_of(run), "theirs": lambda: seconds_of(run_beside)}
    told = alternately(runs, times=times)
    return compared(what, told["ours"], beside, told["theirs"], target=target)


def alternately(runs: Mapping[str, Callable[[], float]], *, times: int) -> dict[str, list[float]]:
    """What each says it took: once to warm up, which does not count, then `times` times in turns."""
    for run in runs.values():
        run()
    told: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(times):
        for name, run in runs.items():
            told[name].append(run())
    return told


def compared(what: str, ours: list[float], beside: str, theirs: list[float], *, target: str) -> Row:
    """Both medians, and the median of the ratios of neighbours."""
    ratio = statistics.median(one / other for one, other in zip(ours, theirs, strict=True))
    return Row(what, statistics.median(ours), beside, statistics.median(theirs), target, ratio)


def seconds_of(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started
