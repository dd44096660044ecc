"""Logs and traces: operations, span export and trace context."""

from floe_core.observability import telemetry
from floe_core.observability.span_export import send_remaining
from floe_core.observability.telemetry import Operation, begin, note, observe, operation, warn
from floe_core.observability.trace_context import continued_trace, program_trace, program_traceparent, run_traceparent
from floe_core.observability.write_progress import WriteProgress, followed, writes_in_progress

__all__ = [
    "Operation",
    "WriteProgress",
    "begin",
    "continued_trace",
    "followed",
    "note",
    "observe",
    "operation",
    "program_trace",
    "program_traceparent",
    "run_traceparent",
    "send_remaining",
    "telemetry",
    "warn",
    "writes_in_progress",
]
