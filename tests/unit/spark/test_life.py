"""How a Spark process that ended is reported, and where its log is; real processes stand for the JVM."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]  # it has no stubs
from pyspark import SparkContext

from floe_core.errors import CatalogConnectionError
from floe_spark.jvm.logs import KEPT, new_log
from floe_spark.jvm.process import ending

REFUSED = ConnectionRefusedError(111, "Connection refused")
LOST = [
    REFUSED,
    Py4JNetworkError("Answer from Java side is empty"),
    Py4JError("An error occurred while calling o12.append"),
]
Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Start]:
    """Start a program in the place of the JVM; it listens where Py4J would call it if `listening`."""
    made: list[subprocess.Popen[bytes]] = []
    server = socket.socket()
    server.bind(("127.0.0.1", 0))
    # Dagster ignores SIGTERM where SIGINT is ignored, as it is in the background of a script; children inherit that.
    handler = signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def run(program: str, *, log: str = "", listening: bool = False) -> subprocess.Popen[bytes]:
        # -S: the hook of coverage would answer SIGTERM, and fails while it is half set up.
        process = subprocess.Popen([sys.executable, "-S", "-c", program])
        made.append(process)
        port = server.getsockname()[1]
        if listening:  # otherwise the port stays taken and refuses, and no other process can listen there
            server.listen()
        (tmp_path / "spark.log").write_text(log)
        address = SimpleNamespace(address="127.0.0.1", port=port)
        jvm = SimpleNamespace(proc=process, gateway_parameters=address, floe_log=tmp_path / "spark.log")
        monkeypatch.setattr(SparkContext, "_gateway", jvm)
        return process

    yield run
    signal.signal(signal.SIGTERM, handler)
    server.close()
    for process in made:
        process.kill()
        process.wait()


@pytest.mark.parametrize("lost", LOST, ids=lambda exc: type(exc).__name__)
def test_the_end_of_the_process_is_awaited_and_memory_is_named_as_its_log_does(
    start: Start, tmp_path: Path, lost: Exception
) -> None:
    log = "26/01/01 ERROR Executor: Exception in task\njava.lang.OutOfMemoryError: Java heap space\n\tat a.B\n"
    start("import time; time.sleep(0.5); raise SystemExit(52)", log=log)
    told = str(ending(lost))
    assert "the Spark process ended while it worked: it ran out of memory" in told
    assert "java.lang.OutOfMemoryError: Java heap space" in told
    assert "spark.driver.memory: 4g" in told
    assert str(tmp_path / "spark.log") in told


def test_an_end_whose_cause_is_not_memory_does_not_name_it(start: Start) -> None:
    start("raise SystemExit(1)", log="ERROR something else\n").wait()
    told = str(ending(REFUSED))
    assert "the Spark process ended while it worked: exit code 1" in told
    assert "memory" not in told


def test_a_killed_process_says_who_may_have_killed_it(start: Start) -> None:
    start("import time; time.sleep(60)").send_signal(signal.SIGKILL)
    assert "killed (signal 9), as the system does when memory runs out" in str(ending(REFUSED))


@pytest.mark.parametrize("code", [0, 128 + signal.SIGTERM, -signal.SIGTERM])
def test_an_end_that_was_asked_for_is_not_blamed_on_memory_that_was_short_before(start: Start, code: int) -> None:
    log = "26/01/01 ERROR Executor: Exception in task\njava.lang.OutOfMemoryError: Java heap space\n\tat a.B\n"
    process = start(f"raise SystemExit({code})" if code >= 0 else "import time; time.sleep(60)", log=log)
    if code < 0:
        process.send_signal(-code)
    process.wait()
    told = str(ending(REFUSED))
    assert ("exit code 0" if code == 0 else "it was ended by signal 15") in told
    assert "memory" not in told


@pytest.mark.parametrize("exc", [REFUSED, CatalogConnectionError("the catalog did not answer")])
def test_a_process_that_goes_on_listening_has_not_ended(start: Start, exc: Exception) -> None:
    start("import time; time.sleep(60)", listening=True)
    begun = time.monotonic()
    assert ending(exc) is None
    assert time.monotonic() - begun < 10


def test_a_session_that_floe_did_not_start_has_no_process_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_gateway", None)
    assert ending(REFUSED) is None


def test_the_log_of_an_earlier_process_stays_and_spark_log_leads_to_the_newest(tmp_path: Path) -> None:
    latest = tmp_path / "logs" / "spark.log"
    first = new_log(latest)
    first.write_text("first")
    second = new_log(latest)
    second.write_text("second")
    assert (first.read_text(), latest.read_text()) == ("first", "second")
    assert second.stat().st_mode & 0o077 == 0


def test_a_log_of_before_is_kept_too(tmp_path: Path) -> None:
    latest = tmp_path / "spark.log"
    latest.write_text("before")
    new_log(latest)
    assert [path.read_text() for path in tmp_path.glob("spark-0.log")] == ["before"]


def test_only_the_last_logs_are_kept(tmp_path: Path) -> None:
    made = [new_log(tmp_path / "spark.log") for _ in range(KEPT + 3)]
    assert sorted(tmp_path.glob("spark-*.log")) == sorted(made[3:])


def test_the_log_of_a_process_that_still_runs_is_kept_however_old_it_is(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        quiet = [tmp_path / f"spark-2026010{day}T000000000000-{other.pid}.log" for day in (1, 2)]
        for day, path in enumerate(quiet, 1):
            path.touch()
            os.utime(path, (day, day))
        for _ in range(KEPT + 1):
            new_log(tmp_path / "spark.log")
        assert [path.exists() for path in quiet] == [False, True]  # of its two processes the second runs
        other.kill()
    new_log(tmp_path / "spark.log")
    assert not quiet[1].exists()
