"""Which trace an operation belongs to."""

from __future__ import annotations

import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from floe_core.observability import trace_context
from floe_core.observability.telemetry import operation
from floe_core.observability.trace_context import continued_trace, program_trace, run_traceparent

CALLER = "0af7651916cd43dd8448eb211c80319c"
GIVEN = f"00-{CALLER}-b7ad6b7169203331-01"
RUN = "3b3e4f0e-8f2b-4a0c-9a51-6d3f7a1c2b4d"


@pytest.fixture(autouse=True)
def no_program_trace(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(trace_context, "_program", [])
    monkeypatch.delenv("TRACEPARENT", raising=False)
    yield
    assert trace_context._parents == []


def traces(spans: InMemorySpanExporter) -> list[str]:
    return [trace.format_trace_id(span.context.trace_id) for span in spans.get_finished_spans() if span.context]


def test_the_trace_of_a_run_is_its_run_id_in_every_process() -> None:
    here = run_traceparent(RUN, {})
    script = f"from floe_core.observability.trace_context import run_traceparent as r; print(r('{RUN}', {{}}))"
    there = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert there.stdout.strip() == here
    assert here.split("-")[1] == uuid.UUID(RUN).hex


@pytest.mark.parametrize("run_id", ["nightly", "", "3b3e4f0e"])
def test_a_run_id_that_is_no_uuid_has_a_trace_too(spans: InMemorySpanExporter, run_id: str) -> None:
    with continued_trace(run_traceparent(run_id, {})), operation("first"), operation("second"):
        pass
    assert len(set(traces(spans))) == 1


def test_the_tag_of_a_run_names_its_trace() -> None:
    assert run_traceparent(RUN, {"traceparent": GIVEN}) == GIVEN


@pytest.mark.parametrize("tag", ["", "nonsense", f"00-{'0' * 32}-b7ad6b7169203331-01"])
def test_a_tag_that_is_no_traceparent_is_not_used(tag: str) -> None:
    assert run_traceparent(RUN, {"traceparent": tag}) == run_traceparent(RUN, {})


def test_operations_of_a_run_belong_to_its_trace_in_all_its_threads(spans: InMemorySpanExporter) -> None:
    def work() -> None:
        with operation("in a thread"):
            pass

    with continued_trace(GIVEN):
        with operation("first"):
            pass
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    with operation("after the run"):
        pass
    first, threaded, after = traces(spans)
    assert first == threaded == CALLER != after


def test_a_span_of_the_caller_is_the_parent(spans: InMemorySpanExporter) -> None:
    with operation("the caller's"), continued_trace(GIVEN), operation("inside"):
        pass
    inside, outer = traces(spans)
    assert inside == outer != CALLER


def test_a_program_is_one_trace_that_a_run_in_it_does_not_join(spans: InMemorySpanExporter) -> None:
    for _ in range(2):
        program_trace()
        with operation("of the program"):
            pass
    with continued_trace(GIVEN), operation("of the run"):
        pass
    first, second, run = traces(spans)
    assert first == second != run == CALLER


def test_a_program_continues_the_trace_of_its_environment(
    spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACEPARENT", GIVEN)
    program_trace()
    with operation("of the program"):
        pass
    assert traces(spans) == [CALLER]


def test_the_sampler_of_the_program_decides_about_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_traceparent(RUN, {}).endswith("-01")
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: TracerProvider(sampler=ALWAYS_OFF))
    assert run_traceparent(RUN, {}).endswith("-00")
    assert run_traceparent(RUN, {"traceparent": GIVEN}) == GIVEN
