"""Export spans by OTLP: one exporter per process, and none if the program has already set up tracing."""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Callable
from multiprocessing import parent_process, util
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from opentelemetry import trace

from floe_core.errors import ConfigurationError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

__all__ = ["EXIT_SECONDS", "export_spans", "send_remaining"]

Warn = Callable[..., None]

# How long an exiting process waits for the collector to accept its last spans.
EXIT_SECONDS: Final = 5.0

_LOCK = threading.Lock()
_configured: set[tuple[str, str]] = set()
_flushes: list[Callable[[], None]] = []


def export_spans(endpoint: str, project: str, warn: Warn) -> None:
    """Send the spans of this process to the collector. Idempotent."""
    try:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as exc:
        raise ConfigurationError(
            "observability.otlp_endpoint needs the exporter: pip install 'floe-core[otlp]'"
        ) from exc
    address = urlsplit(endpoint)
    if address.scheme not in ("http", "https") or not address.netloc or "@" in address.netloc:
        raise ConfigurationError(
            "observability.otlp_endpoint: write http://host:4317, or https://host:4317 for a collector with TLS; set "
            "credentials of the collector in the environment variable OTEL_EXPORTER_OTLP_HEADERS"
        )
    with _LOCK:
        if (endpoint, project) in _configured:
            return
        if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
            _configured.add((endpoint, project))
            warn("observability.otlp_endpoint is not used: tracing is already set up in this process")
            return
        _report_losses(warn)
        resource = Resource.create({"service.name": f"floe-{project}"})
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        exporter = OTLPSpanExporter(endpoint=endpoint, insecure=address.scheme == "http")
        provider.add_span_processor(BatchSpanProcessor(exporter))
        trace.set_tracer_provider(provider)
        _configured.add((endpoint, project))
        _flush_at_exit(provider, exporter, address.netloc, warn)


def send_remaining() -> None:
    """Send the last spans; for a process that exits without atexit handlers."""
    for flush in _flushes:
        flush()


class _LossHandler(logging.Handler):
    """Forwards the exporter's errors to Floe's log, in its format and redacted."""

    def __init__(self, warn: Warn) -> None:
        super().__init__()
        self._warn = warn

    def emit(self, record: logging.LogRecord) -> None:
        self._warn("spans were lost", reason=self.format(record))


def _report_losses(warn: Warn) -> None:
    logger = logging.getLogger("opentelemetry")
    if logger.handlers:  # the program's own
        return
    logger.handlers[:] = [_LossHandler(warn)]
    logger.propagate = False
    # Otherwise each retry would be logged too.
    logging.getLogger("opentelemetry.exporter.otlp").setLevel(logging.ERROR)


def _flush_at_exit(provider: TracerProvider, exporter: SpanExporter, collector: str, warn: Warn) -> None:
    """Send the remaining spans at exit; the provider alone would wait 30 s for an unavailable collector."""
    exiting, flushed = threading.Event(), threading.Event()

    def watch() -> None:
        exiting.wait()
        if not flushed.wait(EXIT_SECONDS):
            warn("spans were lost", reason=f"{collector} did not take the last ones within {EXIT_SECONDS:g} s")
            exporter.shutdown()  # also aborts the attempt in progress

    def flush() -> None:
        if not exiting.is_set():
            exiting.set()
            provider.shutdown()
            flushed.set()

    # Started now: an exiting process cannot start threads.
    threading.Thread(target=watch, name="floe-spans", daemon=True).start()
    _flushes.append(flush)
    atexit.register(flush)
    if parent_process() is not None:
        # A forked child of multiprocessing, such as a step from Dagster's forkserver, exits without atexit handlers.
        util.Finalize(None, flush, exitpriority=0)
