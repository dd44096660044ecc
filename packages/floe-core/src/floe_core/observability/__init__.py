"""Logs and traces: operations, span export and trace context."""

from floe_core.observability import telemetry
from floe_core.observability.span_export import send_remaining
from floe_core.observability.telemetry import Operation, begin, note, observe, operation, warn
from floe_core.observability.trace_context import continued_trace, program_trace, program_traceparent, run_traceparent

__all__ = [
    "Operation",
    "begin",
    "continued_trace",
    "note",
    "observe",
    "operation",
    "program_trace",
    "program_traceparent",
    "run_traceparent",
    "send_remaining",
    "telemetry",
    "warn",
]
