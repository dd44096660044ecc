"""Trying again, patiently and not for ever: what a server that is away for a moment asks of its callers.

Every call goes through a breaker. It is closed while the server answers; after as many calls in a row as the threshold
says went without an answer, all their attempts used, it opens, and calls fail at once without being sent; after
`max_wait_seconds` it lets one call through (half-open), whose outcome closes it or opens it again. Threads share it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import sleep as _sleep
from typing import TypeVar

from circuitbreaker import (  # type: ignore[import-untyped] # no stubs
    STATE_CLOSED,
    STATE_HALF_OPEN,
    STATE_OPEN,
    CircuitBreaker,
)
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt, wait_exponential, wait_random
from tenacity.stop import stop_base

from floe_core.config.spec import RetryConfig
from floe_core.errors import CatalogConnectionError, FloeError
from floe_core.observability.telemetry import note

__all__ = ["Breaker", "Retry"]

Result = TypeVar("Result")


class Breaker:
    """Stops asking a server that does not answer. A threshold of 0 switches it off."""

    def __init__(
        self, server: str, threshold: int, recovery_seconds: float, is_failure: Callable[[BaseException], bool]
    ) -> None:
        self._server = server
        self._threshold = threshold
        self._is_failure = is_failure
        self._lock = threading.Lock()
        self._trial = False
        # It counts and keeps the time; it does not know about threads, so each of its steps is taken under the lock.
        self._states = CircuitBreaker(
            failure_threshold=max(threshold, 1),
            recovery_timeout=recovery_seconds,
            expected_exception=lambda _kind, exc: is_failure(exc),
            name=server,
        )

    @property
    def state(self) -> str:
        """`closed`, `open` or `half_open`."""
        with self._lock:
            return str(self._states.state)

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Around one call: refused while the breaker is open, counted afterwards."""
        if self._threshold == 0:
            yield
            return
        trial = self._enter()
        try:
            yield
        except Exception as exc:
            self._leave(exc, trial=trial)
            raise
        except BaseException:  # an interrupted call tells nothing about the server
            self._give_up(trial)
            raise
        self._leave(None, trial=trial)

    def _enter(self) -> bool:
        with self._lock:
            state = self._states.state
            if state == STATE_OPEN or (state == STATE_HALF_OPEN and self._trial):
                wait = max(self._states.open_remaining, 0.0)
                when = f"in {wait:.0f} s" if wait >= 1 else "in a moment"
                raise CatalogConnectionError(
                    f"{self._server} did not answer {self._threshold} times in a row, so it is not asked now; Floe "
                    f"asks again {when}. See that it runs and can be reached from here"
                )
            if state == STATE_HALF_OPEN:
                self._trial = True
                return True
            return False

    def _leave(self, exc: Exception | None, *, trial: bool) -> None:
        with self._lock:
            before = self._states.state
            late = exc is not None and before != STATE_CLOSED and not trial and self._is_failure(exc)
            if not late:  # a call that began before the breaker opened must not put its end off
                self._states.__exit__(type(exc) if exc else None, exc, None)
            self._trial = self._trial and not trial
            after = self._states.state
        if before != after:
            note("circuit_breaker", server=self._server, before=before, after=after)

    def _give_up(self, trial: bool) -> None:
        with self._lock:
            self._trial = self._trial and not trial


class Retry:
    """How calls to one server are repeated.

    Args:
        is_transient: May the same call succeed a moment later? What it says no to is raised at once.
        retry_after: How many seconds the server asked to wait, if it did.
    """

    def __init__(
        self,
        config: RetryConfig,
        server: str,
        *,
        is_transient: Callable[[BaseException], bool],
        retry_after: Callable[[BaseException], float | None] = lambda _exc: None,
    ) -> None:
        self._config = config
        self._is_transient = is_transient
        self._retry_after = retry_after
        self._backoff = wait_exponential(config.initial_wait_seconds) + wait_random(0, config.jitter_seconds)
        self.breaker = Breaker(
            server,
            config.circuit_breaker_threshold,
            config.max_wait_seconds,
            lambda exc: is_transient(exc) or isinstance(exc, CatalogConnectionError),
        )

    def call(
        self,
        act: Callable[[], Result],
        *,
        settle: Callable[[Exception], Result | None] | None = None,
        may_repeat: Callable[[BaseException], bool] | None = None,
    ) -> Result:
        """What `act` returns, in as many attempts as are configured.

        Args:
            settle: Asked before a repetition of what may have been done already, and once more when all else failed:
                its answer, if it has one, is returned instead.
            may_repeat: Which transient failures allow a repetition; by default all of them.
        """
        with self.breaker.guard():
            return self._patiently(act, settle, may_repeat)

    def call_unguarded(self, act: Callable[[], Result]) -> Result:
        """The same without the breaker, for what happens inside of a call that it guards already."""
        return self._retrying()(act)

    def _patiently(
        self,
        act: Callable[[], Result],
        settle: Callable[[Exception], Result | None] | None,
        may_repeat: Callable[[BaseException], bool] | None,
    ) -> Result:
        failures: list[Exception] = []

        def attempt() -> Result:
            found = settle(failures[-1]) if failures and settle is not None else None
            if found is not None:
                return found
            try:
                return act()
            except Exception as exc:
                failures.append(exc)
                raise

        try:
            return self._retrying(may_repeat)(attempt)
        except Exception as exc:
            # Any attempt without an answer may have been the one that did it.
            if settle is not None and any(self._is_transient(one) for one in failures):
                with suppress(Exception):  # what could not be done is what the caller must know
                    found = settle(exc)
                    if found is not None:
                        return found
            raise

    def once(self, act: Callable[[], Result]) -> Result:
        """One attempt under the breaker, for what must never be repeated without looking."""
        with self.breaker.guard():
            return act()

    def _retrying(self, may_repeat: Callable[[BaseException], bool] | None = None) -> Retrying:
        def is_repeated(exc: BaseException) -> bool:
            transient = self._is_transient(exc) and not isinstance(exc, FloeError)
            return transient and (may_repeat is None or may_repeat(exc))

        return Retrying(
            retry=retry_if_exception(is_repeated),
            stop=_Enough(self._config, self._retry_after),
            wait=self._wait,
            sleep=lambda seconds: _sleep(seconds),
            before_sleep=_note_retry,
            reraise=True,
        )

    def _wait(self, state: RetryCallState) -> float:
        asked = self._retry_after(_failure(state))
        return min(self._backoff(state), self._config.max_wait_seconds) if asked is None else asked


class _Enough(stop_base):
    """All attempts used, or the server wants to be left alone for longer than we may wait."""

    def __init__(self, config: RetryConfig, retry_after: Callable[[BaseException], float | None]) -> None:
        self._attempts = stop_after_attempt(config.max_attempts)
        self._longest = config.max_wait_seconds
        self._retry_after = retry_after

    def __call__(self, state: RetryCallState) -> bool:
        asked = self._retry_after(_failure(state))
        return self._attempts(state) or (asked is not None and asked > self._longest)


def _failure(state: RetryCallState) -> BaseException:
    exc = state.outcome.exception() if state.outcome else None
    assert exc is not None, "asked only after a failure"  # noqa: S101 - tenacity promises it
    return exc


def _note_retry(state: RetryCallState) -> None:
    exc = _failure(state)
    wait = state.next_action.sleep if state.next_action else 0.0
    note("retrying", attempt=state.attempt_number, wait_seconds=round(wait, 3), reason=f"{type(exc).__name__}: {exc}")
