"""How often, how patiently, and when not at all: the waits by a clock of our own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from floe_core.config.spec import RetryConfig
from floe_core.errors import CatalogConnectionError, FloeStorageError
from floe_core.retry import Retry


class AwayError(Exception):
    """The server is away for a moment."""

    def __init__(self, after: float | None = None) -> None:
        super().__init__("away")
        self.after = after


class Time:
    """A clock that stands still while nobody waits."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.waits: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    made = Time()
    monkeypatch.setattr("floe_core.retry._sleep", made.sleep)
    monkeypatch.setattr("circuitbreaker.monotonic", lambda: made.now)
    return made


def retry_of(**settings: float) -> Retry:
    return Retry(
        RetryConfig.model_validate({"jitter_seconds": 0, "circuit_breaker_threshold": 0, **settings}),
        "the catalog",
        is_transient=lambda exc: isinstance(exc, AwayError),
        retry_after=lambda exc: exc.after if isinstance(exc, AwayError) else None,
    )


class Server:
    """Fails so often, and then answers."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.failures:
            raise self.failures.pop(0)
        return "answer"


def test_an_answer_needs_one_call(clock: Time) -> None:
    server = Server()
    assert (retry_of().call(server), server.calls, clock.waits) == ("answer", 1, [])


def test_the_waits_double_up_to_the_longest(clock: Time) -> None:
    server = Server(*(AwayError() for _ in range(6)))
    assert retry_of(max_attempts=7, initial_wait_seconds=1, max_wait_seconds=10).call(server) == "answer"
    assert clock.waits == [1, 2, 4, 8, 10, 10]


def test_jitter_is_added_to_each_wait(clock: Time) -> None:
    server = Server(*(AwayError() for _ in range(4)))
    retry_of(max_attempts=5, initial_wait_seconds=1, jitter_seconds=2).call(server)
    assert all(base <= wait <= base + 2 for base, wait in zip([1, 2, 4, 8], clock.waits, strict=True))
    assert clock.waits != [1, 2, 4, 8]


@pytest.mark.parametrize("attempts", [1, 2, 5])
def test_after_the_last_attempt_the_failure_itself_is_raised(clock: Time, attempts: int) -> None:
    server = Server(*(AwayError() for _ in range(20)))
    with pytest.raises(AwayError):
        retry_of(max_attempts=attempts).call(server)
    assert (server.calls, len(clock.waits)) == (attempts, attempts - 1)


def test_what_cannot_pass_is_not_tried_again(clock: Time) -> None:
    server = Server(ValueError("wrong"))
    with pytest.raises(ValueError, match="wrong"):
        retry_of().call(server)
    assert (server.calls, clock.waits) == (1, [])


def test_the_server_says_how_long_to_wait(clock: Time) -> None:
    server = Server(AwayError(after=7), AwayError(after=0), AwayError())
    assert retry_of(max_attempts=4).call(server) == "answer"
    assert clock.waits == [7, 0, 4]


def test_a_server_that_wants_to_be_left_alone_for_longer_than_we_may_wait_is_left_alone(clock: Time) -> None:
    server = Server(AwayError(after=31))
    with pytest.raises(AwayError):
        retry_of(max_wait_seconds=30).call(server)
    assert (server.calls, clock.waits) == (1, [])


def test_what_may_be_done_already_is_looked_at_before_it_is_repeated(clock: Time) -> None:
    server, looks = Server(AwayError()), Server()

    def settle(failure: Exception) -> str:
        assert isinstance(failure, AwayError)
        return looks()

    assert retry_of().call(server, settle=settle) == "answer"
    assert (server.calls, looks.calls) == (1, 1)


def test_what_was_not_done_is_repeated_after_the_look(clock: Time) -> None:
    server = Server(AwayError(), AwayError())
    assert retry_of().call(server, settle=lambda _failure: None) == "answer"
    assert server.calls == 3


def test_what_the_last_attempt_may_have_done_is_looked_at_too(clock: Time) -> None:
    server = Server(*(AwayError() for _ in range(9)))
    looks = iter([None, None, "found"])
    assert retry_of(max_attempts=3).call(server, settle=lambda _failure: next(looks)) == "found"
    assert server.calls == 3
    assert retry_of(max_attempts=1).call(Server(AwayError()), settle=lambda _failure: "found") == "found"


def test_a_repetition_that_is_refused_may_have_been_done_by_the_first(clock: Time) -> None:
    looks = iter([None, "found"])
    server = Server(AwayError(), ValueError("exists"))
    assert retry_of().call(server, settle=lambda _failure: next(looks)) == "found"


def test_a_refusal_of_the_first_attempt_is_not_looked_at(clock: Time) -> None:
    with pytest.raises(ValueError, match="exists"):
        retry_of().call(Server(ValueError("exists")), settle=lambda _failure: "found")


def test_what_must_not_be_repeated_is_not(clock: Time) -> None:
    server = Server(AwayError())
    with pytest.raises(AwayError):
        retry_of().once(server)
    assert server.calls == 1


# The breaker -----------------------------------------------------------------------------------------------------


def opened(clock: Time, threshold: int = 3, **settings: float) -> Retry:
    retry = retry_of(max_attempts=1, circuit_breaker_threshold=threshold, max_wait_seconds=30, **settings)
    for _ in range(threshold):
        assert retry.breaker.state == "closed"
        with pytest.raises(AwayError):
            retry.call(Server(AwayError()))
    assert retry.breaker.state == "open"
    return retry


def test_an_open_breaker_fails_at_once_and_says_when_it_asks_again(clock: Time) -> None:
    retry, server = opened(clock), Server()
    clock.now += 12
    with pytest.raises(CatalogConnectionError, match=r"the catalog did not answer 3 times in a row.*again in 18 s"):
        retry.call(server)
    with pytest.raises(CatalogConnectionError):
        retry.once(server)
    assert server.calls == 0


def test_after_a_while_one_call_is_let_through_and_closes_it(clock: Time) -> None:
    retry = opened(clock)
    clock.now += 31
    assert retry.breaker.state == "half_open"
    assert retry.call(Server()) == "answer"
    assert retry.breaker.state == "closed"


def test_a_call_that_fails_in_between_opens_it_again(clock: Time) -> None:
    retry = opened(clock)
    clock.now += 31
    with pytest.raises(AwayError):
        retry.call(Server(AwayError()))
    assert retry.breaker.state == "open"
    clock.now += 29
    with pytest.raises(CatalogConnectionError):
        retry.call(Server())


def test_only_failures_in_a_row_count(clock: Time) -> None:
    retry = retry_of(max_attempts=1, circuit_breaker_threshold=2)
    for _ in range(5):
        with pytest.raises(AwayError):
            retry.call(Server(AwayError()))
        retry.call(Server())
    assert retry.breaker.state == "closed"


def test_a_refusal_is_an_answer(clock: Time) -> None:
    retry = retry_of(max_attempts=1, circuit_breaker_threshold=2)
    for _ in range(5):
        with pytest.raises(FloeStorageError):
            retry.call(Server(FloeStorageError("not allowed")))
    assert retry.breaker.state == "closed"


def test_a_call_makes_all_its_attempts_and_counts_once(clock: Time) -> None:
    retry, server = retry_of(max_attempts=9, circuit_breaker_threshold=2), Server(*(AwayError() for _ in range(99)))
    with pytest.raises(AwayError):
        retry.call(server)
    assert (server.calls, len(clock.waits), retry.breaker.state) == (9, 8, "closed")
    with pytest.raises(AwayError):
        retry.call(server)
    assert (server.calls, retry.breaker.state) == (18, "open")


def test_a_call_that_succeeds_in_the_end_counts_for_nothing(clock: Time) -> None:
    retry = retry_of(max_attempts=3, circuit_breaker_threshold=1)
    for _ in range(5):
        assert retry.call(Server(AwayError(), AwayError())) == "answer"
    assert retry.breaker.state == "closed"


def test_a_threshold_of_zero_switches_it_off(clock: Time) -> None:
    retry = retry_of(max_attempts=1, circuit_breaker_threshold=0)
    for _ in range(50):
        with pytest.raises(AwayError):
            retry.call(Server(AwayError()))
    assert retry.call(Server()) == "answer"


def test_an_interrupted_call_tells_nothing_and_blocks_nobody(clock: Time) -> None:
    retry = opened(clock)
    clock.now += 31

    def interrupted() -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        retry.call(interrupted)
    assert retry.breaker.state == "half_open"
    assert retry.call(Server()) == "answer"


# Threads ---------------------------------------------------------------------------------------------------------


def together(act: Callable[[int], object], threads: int = 16) -> list[BaseException | None]:
    """What each of so many threads ends with, all of them begun at once."""
    barrier = threading.Barrier(threads)

    def run(number: int) -> BaseException | None:
        barrier.wait()
        try:
            act(number)
        except Exception as exc:  # noqa: BLE001 - the outcome is what is looked at
            return exc
        return None

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(run, range(threads)))


def test_sixteen_threads_work_side_by_side() -> None:
    retry = retry_of(max_attempts=1, circuit_breaker_threshold=5)
    inside, most = 0, 0
    lock = threading.Lock()

    def act() -> None:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        time.sleep(0.2)
        with lock:
            inside -= 1

    assert together(lambda _: retry.call(act)) == [None] * 16
    assert most == 16


def test_sixteen_threads_open_it_once_and_one_of_them_tries(clock: Time) -> None:
    retry = retry_of(max_attempts=1, circuit_breaker_threshold=8, max_wait_seconds=30)
    outcomes = together(lambda _: retry.call(Server(AwayError())))
    assert {type(one) for one in outcomes} <= {AwayError, CatalogConnectionError}
    assert sum(isinstance(one, AwayError) for one in outcomes) >= 8
    assert retry.breaker.state == "open"
    clock.now += 31
    calls: list[int] = []
    begun, done = threading.Event(), threading.Event()

    def slow() -> None:
        calls.append(1)
        begun.set()
        done.wait(10)

    trial = threading.Thread(target=lambda: retry.call(slow))
    trial.start()
    assert begun.wait(10)
    refused = together(lambda _: retry.call(lambda: calls.append(1)))
    done.set()
    trial.join()
    assert all(isinstance(one, CatalogConnectionError) for one in refused)
    assert calls == [1]
    assert retry.breaker.state == "closed"
    assert together(lambda _: retry.call(Server())) == [None] * 16


def test_late_failures_do_not_put_the_next_try_off(clock: Time) -> None:
    """Calls that began before the breaker opened and end after it."""
    retry = retry_of(max_attempts=1, circuit_breaker_threshold=1, max_wait_seconds=30)
    begun, fail = threading.Event(), threading.Event()

    def slow() -> None:
        begun.set()
        fail.wait(10)
        raise AwayError

    outcome: list[BaseException] = []

    def run() -> None:
        try:
            retry.call(slow)
        except AwayError as exc:
            outcome.append(exc)

    late = threading.Thread(target=run)
    late.start()
    assert begun.wait(10)
    with pytest.raises(AwayError):
        retry.call(Server(AwayError()))
    clock.now += 20
    fail.set()
    late.join()
    assert len(outcome) == 1
    clock.now += 11
    assert retry.call(Server()) == "answer"
