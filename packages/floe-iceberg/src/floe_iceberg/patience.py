"""How writers of one table wait for each other."""

from __future__ import annotations

import random
from collections.abc import Callable

from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt

__all__ = ["ATTEMPTS", "DOUBTFUL_ATTEMPTS", "pause", "trying"]

# Commits that others were faster than, on tables that do not say it themselves.
ATTEMPTS = 20
# Commits whose answer was lost.
DOUBTFUL_ATTEMPTS = 5
_FIRST_PAUSE_SECONDS = 0.2
# With pauses of at most 3 s, one of eight writers on a busy machine was seen to lose all 20 attempts: whoever lost is
# met by those who have just won and begin anew. The longer the losers wait, the sooner all of them are done.
_LONGEST_PAUSE_SECONDS = 10.0


def pause(number: int) -> float:
    """How many seconds to wait after so many attempts: chance keeps writers from meeting again."""
    return random.uniform(0, min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2 ** (number - 1)))  # noqa: S311


def trying(attempts: int, may_pass: Callable[[BaseException], bool]) -> Retrying:
    """Try again what may pass; the last failure is raised."""

    def wait(state: RetryCallState) -> float:
        return pause(state.attempt_number)

    return Retrying(retry=retry_if_exception(may_pass), stop=stop_after_attempt(attempts), wait=wait, reraise=True)
