"""Retries and backoff of writers that commit to one table."""

from __future__ import annotations

import random
from collections.abc import Callable

from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt

from floe_core.errors import ConcurrencyConflictError

__all__ = ["ATTEMPTS", "DOUBTFUL_ATTEMPTS", "delay", "is_conflict", "retrying"]

# Attempts at a commit that meets conflicts, on tables that do not set commit.retry.num-retries.
ATTEMPTS = 20
# Attempts at a commit whose outcome is unknown.
DOUBTFUL_ATTEMPTS = 5
_FIRST_PAUSE_SECONDS = 0.2
# With delays of at most 3 s, one of eight writers on a busy machine was seen to lose all 20 attempts: a retry competes
# with the writers that have just committed and started again. The longer the losers wait, the sooner all are done.
_LONGEST_PAUSE_SECONDS = 10.0


def delay(number: int) -> float:
    """Seconds to wait after this many attempts: exponential, with jitter so that writers do not collide again."""
    return random.uniform(0, min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2 ** (number - 1)))  # noqa: S311


def is_conflict(exc: BaseException) -> bool:
    """Did another writer commit first?"""
    return isinstance(exc, ConcurrencyConflictError)


def retrying(attempts: int, may_pass: Callable[[BaseException], bool]) -> Retrying:
    """Retry failures for which `may_pass` is true; the last failure is raised."""

    def wait(state: RetryCallState) -> float:
        return delay(state.attempt_number)

    return Retrying(retry=retry_if_exception(may_pass), stop=stop_after_attempt(attempts), wait=wait, reraise=True)
