"""In a program that is not the floe command, its own logging is kept, and Floe's is set up once."""

from __future__ import annotations

import json
import subprocess
import sys

# Handlers are global in a process, so each program has a process of its own.
START = """
import json, logging, sys
from floe_core.observability import telemetry
from floe_core.config.spec import ObservabilityConfig

def open_lake(level='info'):
    settings = ObservabilityConfig(log_format='json', log_level=level)
    telemetry.configure(settings, project='shop', embedded=True)

def work():
    with telemetry.operation('work'): pass
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    ran = subprocess.run([sys.executable, "-c", START + program], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran


def test_without_handlers_events_go_to_standard_error_once() -> None:
    ran = run("open_lake(); open_lake(); work()")
    (line,) = ran.stderr.splitlines()
    assert json.loads(line)["event"] == "work"


def test_handlers_of_the_root_get_the_events_and_nothing_else_does() -> None:
    ran = run("logging.basicConfig(stream=sys.stdout, format='%(name)s|%(message)s'); open_lake(); work()")
    name, _, message = ran.stdout.strip().partition("|")
    assert (name, json.loads(message)["event"], ran.stderr) == ("floe", "work", "")


def test_a_handler_and_a_level_of_the_logger_floe_are_kept() -> None:
    ran = run(
        "logger = logging.getLogger('floe')\n"
        "logger.addHandler(logging.StreamHandler(sys.stdout)); logger.setLevel('WARNING'); logger.propagate = False\n"
        "open_lake('debug'); work(); telemetry.warn('careful')\n"
    )
    (line,) = ran.stdout.splitlines()
    assert (json.loads(line)["event"], ran.stderr) == ("careful", "")


def test_standard_error_that_is_replaced_later_gets_the_events() -> None:
    ran = run("open_lake(); sys.stderr = sys.stdout; work()")
    assert (json.loads(ran.stdout)["event"], ran.stderr) == ("work", "")


def test_a_handler_that_the_program_adds_later_does_not_double_the_events() -> None:
    ran = run("open_lake(); logging.basicConfig(); open_lake(); work()")
    assert len(ran.stderr.splitlines()) == 1


def test_what_the_program_sets_after_a_lake_was_opened_is_kept_when_another_is() -> None:
    ran = run(
        "open_lake(); logger = logging.getLogger('floe')\n"
        "logger.addHandler(logging.StreamHandler(sys.stdout)); logger.setLevel('WARNING'); logger.propagate = True\n"
        "open_lake(); work(); telemetry.warn('careful')\n"
        "assert logger.propagate\n"
    )
    (line,) = ran.stdout.splitlines()
    assert (json.loads(line)["event"], len(ran.stderr.splitlines())) == ("careful", 1)
