"""Which trace an operation belongs to: that of the current span, else of the Dagster run, else of the program.

A parent is a W3C traceparent: `00-<trace id>-<span id>-01`.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

__all__ = [
    "TRACEPARENT",
    "continued_trace",
    "current_trace_id",
    "parent_context",
    "program_trace",
    "program_traceparent",
    "run_traceparent",
]

# The key of a run's tag; in upper case, the environment variable.
TRACEPARENT: Final = "traceparent"

_W3C = TraceContextTextMapPropagator()
_LOCK = threading.Lock()
# The parents of operations outside of any span, newest last. Threads do not inherit the context of the thread that
# started them, so these are process-wide.
_parents: list[trace.SpanContext] = []
_program: list[trace.SpanContext] = []


def run_traceparent(run_id: str, tags: Mapping[str, str]) -> str:
    """The parent of a Dagster run's operations: its tag `traceparent`, else one derived from the run id.

    Every process derives the same; its trace id is the run id without dashes.
    """
    given = tags.get(TRACEPARENT, "")
    if _parsed(given) is not None:
        return given
    digest = hashlib.sha256(run_id.encode()).digest()
    try:
        number = uuid.UUID(run_id).bytes
    except ValueError:
        number = digest[8:24]
    return f"00-{number.hex()}-{digest[:8].hex()}-{_flags(number)}"


@contextmanager
def continued_trace(traceparent: str) -> Iterator[None]:
    """Operations in this block belong to this trace, unless a span of the caller is active."""
    parent = _parsed(traceparent)
    if parent is None or _active() is not None:
        yield
        return
    with _LOCK:
        _parents.append(parent)
    token = contexts.attach(trace.set_span_in_context(trace.NonRecordingSpan(parent)))
    try:
        yield
    finally:
        contexts.detach(token)
        with _LOCK:
            _parents.remove(parent)


def program_traceparent() -> str:
    """The parent of a program's operations: the environment variable TRACEPARENT, else a new one."""
    given = os.environ.get(TRACEPARENT.upper(), "")
    if _parsed(given) is not None:
        return given
    number = secrets.token_bytes(16)
    return f"00-{number.hex()}-{secrets.token_hex(8)}-{_flags(number)}"


def program_trace() -> None:
    """Put the operations of this process that have no other parent into one trace. Idempotent."""
    with _LOCK:
        if not _program:
            parent = _parsed(program_traceparent())
            _program.extend([parent] if parent is not None else [])


def parent_context() -> contexts.Context | None:
    """The context to start a span in; None for the current one."""
    parent = None if _active() is not None else _fallback()
    return None if parent is None else trace.set_span_in_context(trace.NonRecordingSpan(parent))


def current_trace_id() -> str | None:
    """The trace that an event belongs to, in hexadecimal."""
    span_context = _active() or _fallback()
    return None if span_context is None else trace.format_trace_id(span_context.trace_id)


def _active() -> trace.SpanContext | None:
    span_context = trace.get_current_span().get_span_context()
    return span_context if span_context.is_valid else None


def _fallback() -> trace.SpanContext | None:
    with _LOCK:
        return next(reversed([*_program, *_parents]), None)


def _flags(trace_id: bytes) -> str:
    """Sampled or not, as the sampler of this process decides for a root span; with none, sampled."""
    sampler = getattr(trace.get_tracer_provider(), "sampler", None)
    if sampler is None:
        return "01"
    decision = sampler.should_sample(None, int.from_bytes(trace_id, "big"), "floe").decision
    return "01" if decision.is_sampled() else "00"


def _parsed(traceparent: str) -> trace.SpanContext | None:
    carried = _W3C.extract({TRACEPARENT: traceparent}, contexts.Context())
    span_context = trace.get_current_span(carried).get_span_context()
    return span_context if span_context.is_valid else None
