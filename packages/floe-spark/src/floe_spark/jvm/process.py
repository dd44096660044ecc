"""The Spark process (JVM) that this process started: whether it runs, how it ended, and the reset after its end."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from pyspark.sql import DataFrame

from floe_core.errors import FloeError
from floe_spark._pyspark import (
    current_gateway,
    forget_gateway,
    gateway_client_of,
    instantiated_session,
    java_frame,
    stop_active_context,
)
from floe_spark.errors import LOST_TEXT, is_lost_process, text_of
from floe_spark.jvm.connect import forget_sessions, is_remote

__all__ = ["ending", "is_of_ended_process", "jvm_has_died", "log_of_jvm", "remember_log", "reset_dead_jvm"]

# A connection breaks before the process is gone: it runs its shutdown hooks first.
_WAIT_SECONDS = 15.0
_PAUSE_SECONDS = 0.1
# Spark's exit code after an OutOfMemoryError.
_OUT_OF_MEMORY = 52
# Errors of calls to a JVM that is about to exit; the first of its shutdown hooks stops Spark.
_EXITS = re.compile(rf"java\.lang\.OutOfMemoryError|SparkContext was shut down|stopped SparkContext|{LOST_TEXT}")
# Exit codes of a requested stop, for which the log is not searched: a much earlier task may have run out of memory.
_STOP_SIGNALS = {
    code: number for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM) for code in (-number, 128 + number)
}
_LOG_BYTES = 1 << 20
_MEMORY_ERRORS = re.compile(
    r"java\.lang\.OutOfMemoryError(?:: [^\n]+)?|insufficient memory for the Java Runtime Environment[^\n]*"
)


def _process() -> subprocess.Popen[bytes] | None:
    return getattr(current_gateway(), "proc", None)


def jvm_has_died() -> bool:
    """Whether the JVM of this process has ended; killed when memory ran out, for example."""
    process = _process()
    return process is not None and process.poll() is not None


def ending(exc: BaseException) -> str | None:
    """How the Spark process that this process started has ended; None if it runs, or there is none.

    If the failure shows that the process is ending, its end is awaited.
    """
    process = _process()
    if process is None:
        return None
    if not isinstance(exc, FloeError):
        _await_end(process, [error for error in _chain(exc) if _is_sign_of_end(error)])
    code = process.poll()
    if code is None:
        return None
    log = log_of_jvm()
    reason = _reason(code, log)
    place = f" Its log is {log}." if log is not None else ""
    return f"the Spark process ended while it worked: {reason}.{place}"


def _await_end(process: subprocess.Popen[bytes], signs: Sequence[BaseException]) -> None:
    """Wait while the process may be ending; a process that still accepts calls is not."""
    deadline, listened = time.monotonic() + _WAIT_SECONDS, 0
    # After an OutOfMemoryError of a task Spark exits, but accepts calls until its shutdown hooks are done.
    exits = any(_EXITS.search(text_of(sign)) for sign in signs)
    while signs and process.poll() is None and time.monotonic() < deadline:
        listened = listened + 1 if _listens() else 0
        if listened > 1 and not exits:
            return
        time.sleep(_PAUSE_SECONDS)


def _listens() -> bool:
    address = current_gateway().gateway_parameters
    try:
        socket.create_connection((address.address, address.port), timeout=_PAUSE_SECONDS).close()
    except OSError:
        return False
    return True


def _reason(code: int, log: Path | None) -> str:
    if code in _STOP_SIGNALS:
        return f"it was ended by signal {int(_STOP_SIGNALS[code])}"
    memory_errors = _MEMORY_ERRORS.findall(_tail(log))
    more = "give it more with spark: {conf: {spark.driver.memory: 4g}} in floe.yaml, or write in smaller parts"
    if (memory_errors and code != 0) or code == _OUT_OF_MEMORY:
        return f"it ran out of memory ({memory_errors[-1].strip() if memory_errors else f'exit code {code}'}); {more}"
    if code == -signal.SIGKILL:  # which leaves nothing in the log
        return f"it was killed (signal 9), as the system does when memory runs out; if that was the cause, {more}"
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"


def _tail(log: Path | None) -> str:
    if log is None or not log.is_file():
        return ""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _LOG_BYTES))
        return file.read().decode("utf-8", errors="replace")


def _chain(exc: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while exc is not None and id(exc) not in seen:
        seen.add(id(exc))
        yield exc
        exc = exc.__cause__ or exc.__context__


def _is_sign_of_end(exc: BaseException) -> bool:
    """Whether this is how Py4J reports a JVM that has ended or is about to."""
    names = {kind.__name__ for kind in type(exc).__mro__}
    if isinstance(exc, ConnectionError) or is_lost_process(exc):
        return True
    # Py4J reports names in a JVM that has ended as not existing; a response of the JVM has a trace.
    unanswered = type(exc).__name__ == "Py4JError" and "Trace:" not in text_of(exc)
    return unanswered or ("Py4JError" in names and _EXITS.search(text_of(exc)) is not None)


def remember_log(log: Path) -> None:
    """Store the path of the log with the JVM, which may serve several sessions."""
    gateway = current_gateway()
    if gateway is not None:
        gateway.floe_log = log


def log_of_jvm() -> Path | None:
    """The log of the JVM, if Floe started it."""
    return getattr(current_gateway(), "floe_log", None)


def is_of_ended_process(frame: DataFrame) -> bool:
    """Whether the frame was made in a Spark process that has ended since, and was replaced by another."""
    gateway = current_gateway()
    if gateway is None or is_remote(frame.sparkSession):
        return False
    return gateway_client_of(java_frame(frame)) is not gateway_client_of(gateway)


def reset_dead_jvm() -> None:
    """Let PySpark start a new JVM: by itself it would keep calling the one that has ended."""
    if not jvm_has_died():
        return
    session = instantiated_session()
    with suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stop_active_context()
    with suppress(Exception):
        current_gateway().shutdown()
    if session is not None:
        forget_sessions(session)
    forget_gateway()
