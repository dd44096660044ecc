"""Retries with backoff, behind a circuit breaker, for a server that is briefly unavailable.

The breaker is closed while the server answers. When `threshold` calls in a row went unanswered in all their attempts,
it opens: calls fail at once without being sent. After `max_wait_seconds` it is half-open and lets one trial call
through, whose outcome closes it or opens it again. Thread-safe.
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
    """A circuit breaker for one server. A threshold of 0 disables it."""

    def __init__(
        self, server: str, threshold: int, recovery_seconds: float, is_failure: Callable[[BaseException], bool]
    ) -> None:
        self._server = server
        self._threshold = threshold
        self._is_failure = is_failure
        self._lock = threading.Lock()
        self._trial = False
        # It counts failures and keeps the time. It is not thread-safe: every use of it holds the lock.
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
        """Around one call: refuse it while the breaker is open, else count its outcome."""
        if self._threshold == 0:
            yield
            return
        trial = self._enter()
        try:
            yield
        except Exception as exc:
            self._leave(exc, trial=trial)
            raise
        except BaseException:  # an interrupted call says nothing about the server
            self._end_trial(trial)
            raise
        self._leave(None, trial=trial)

    def _enter(self) -> bool:
        with self._lock:
            state = self._states.state
            if state == STATE_OPEN or (state == STATE_HALF_OPEN and self._trial):
                wait = max(self._states.open_remaining, 0.0)
                when = f"in {wait:.0f} s" if wait >= 1 else "in a moment"
                raise CatalogConnectionError(
                    f"{self._server} did not answer {self._threshold} times in a row, so no request was sent; Floe "
                    f"tries again {when}. Check that it runs and is reachable from here"
                )
            if state == STATE_HALF_OPEN:
                self._trial = True
                return True
            return False

    def _leave(self, exc: Exception | None, *, trial: bool) -> None:
        with self._lock:
            before = self._states.state
            late = exc is not None and before != STATE_CLOSED and not trial and self._is_failure(exc)
            if not late:  # a call that began before the breaker opened must not extend its wait
                self._states.__exit__(type(exc) if exc else None, exc, None)
            self._trial = self._trial and not trial
            after = self._states.state
        if before != after:
            note("circuit_breaker", server=self._server, before=before, after=after)

    def _end_trial(self, trial: bool) -> None:
        with self._lock:
            self._trial = self._trial and not trial


class Retry:
    """Retries calls to one server.

    Args:
        is_transient: Whether a retry of the same call may succeed; other errors are raised at once.
        retry_after: The delay in seconds that the server requested, or None.
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
        """The result of `act`, in at most `max_attempts` attempts.

        Args:
            settle: Resolves the outcome of a failed attempt, which may have taken effect. Called before each retry, and
                once more at the end if an attempt failed transiently; its result, if not None, is returned.
            may_repeat: Which transient failures are retried; by default all of them.
        """
        with self.breaker.guard():
            return self._with_retries(act, settle, may_repeat)

    def call_unguarded(self, act: Callable[[], Result]) -> Result:
        """`call` without the breaker, for requests inside a call that the breaker already guards."""
        return self._retrying()(act)

    def _with_retries(
        self,
        act: Callable[[], Result],
        settle: Callable[[Exception], Result | None] | None,
        may_repeat: Callable[[BaseException], bool] | None,
    ) -> Result:
        failures: list[Exception] = []

        def attempt() -> Result:
            settled = settle(failures[-1]) if failures and settle is not None else None
            if settled is not None:
                return settled
            try:
                return act()
            except Exception as exc:
                failures.append(exc)
                raise

        try:
            return self._retrying(may_repeat)(attempt)
        except Exception as exc:
            # Any attempt without a response may have taken effect.
            if settle is not None and any(self._is_transient(failure) for failure in failures):
                with suppress(Exception):  # the caller must see the original error
                    settled = settle(exc)
                    if settled is not None:
                        return settled
            raise

    def once(self, act: Callable[[], Result]) -> Result:
        """One attempt under the breaker, for calls that must not be retried before their outcome is known."""
        with self.breaker.guard():
            return act()

    def _retrying(self, may_repeat: Callable[[BaseException], bool] | None = None) -> Retrying:
        def is_retried(exc: BaseException) -> bool:
            transient = self._is_transient(exc) and not isinstance(exc, FloeError)
            return transient and (may_repeat is None or may_repeat(exc))

        return Retrying(
            retry=retry_if_exception(is_retried),
            stop=_StopRetrying(self._config, self._retry_after),
            wait=self._wait,
            sleep=lambda seconds: _sleep(seconds),
            before_sleep=_note_retry,
            reraise=True,
        )

    def _wait(self, state: RetryCallState) -> float:
        requested = self._retry_after(_failure(state))
        return min(self._backoff(state), self._config.max_wait_seconds) if requested is None else requested


class _StopRetrying(stop_base):
    """Stops after `max_attempts`, or when the server requests a delay longer than `max_wait_seconds`."""

    def __init__(self, config: RetryConfig, retry_after: Callable[[BaseException], float | None]) -> None:
        self._attempts = stop_after_attempt(config.max_attempts)
        self._longest = config.max_wait_seconds
        self._retry_after = retry_after

    def __call__(self, state: RetryCallState) -> bool:
        requested = self._retry_after(_failure(state))
        return self._attempts(state) or (requested is not None and requested > self._longest)


def _failure(state: RetryCallState) -> BaseException:
    exc = state.outcome.exception() if state.outcome else None
    assert exc is not None, "called only after a failure"  # noqa: S101 - guaranteed by tenacity
    return exc


def _note_retry(state: RetryCallState) -> None:
    exc = _failure(state)
    wait = state.next_action.sleep if state.next_action else 0.0
    note("retrying", attempt=state.attempt_number, wait_seconds=round(wait, 3), reason=f"{type(exc).__name__}: {exc}")
