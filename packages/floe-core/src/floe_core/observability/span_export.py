"""Send spans to a collector by OTLP: one exporter per process, and none where the program traces already."""

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

# How long a process that ends waits for the collector to take its last spans.
EXIT_SECONDS: Final = 5.0

_LOCK = threading.Lock()
_seen: set[tuple[str, str]] = set()
_leaving: list[Callable[[], None]] = []


def export_spans(endpoint: str, project: str, warn: Warn) -> None:
    """Send the spans of this process to the collector; once, however often it is called."""
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
            "observability.otlp_endpoint: write http://host:4317, or https://host:4317 for a collector with TLS; what "
            "it asks callers for belongs into the environment variable OTEL_EXPORTER_OTLP_HEADERS"
        )
    with _LOCK:
        if (endpoint, project) in _seen:
            return
        _seen.add((endpoint, project))
        if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
            warn(
                "observability.otlp_endpoint is not used: tracing was set up before in this process, and stays as it is"
            )
            return
        _report_losses(warn)
        resource = Resource.create({"service.name": f"floe-{project}"})
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        exporter = OTLPSpanExporter(endpoint=endpoint, insecure=address.scheme == "http")
        provider.add_span_processor(BatchSpanProcessor(exporter))
        trace.set_tracer_provider(provider)
        _leave_in_time(provider, exporter, address.netloc, warn)


def send_remaining() -> None:
    """Send the last spans; for a process that ends without atexit."""
    for leave in _leaving:
        leave()


class _Losses(logging.Handler):
    """What the exporter complains of, in Floe's own log: in its format, and without secrets."""

    def __init__(self, warn: Warn) -> None:
        super().__init__()
        self._warn = warn

    def emit(self, record: logging.LogRecord) -> None:
        self._warn("spans were lost", reason=self.format(record))


def _report_losses(warn: Warn) -> None:
    logger = logging.getLogger("opentelemetry")
    if logger.handlers:  # the program's own
        return
    logger.handlers[:] = [_Losses(warn)]
    logger.propagate = False
    # Otherwise each attempt that is repeated would be a line too.
    logging.getLogger("opentelemetry.exporter.otlp").setLevel(logging.ERROR)


def _leave_in_time(provider: TracerProvider, exporter: SpanExporter, collector: str, warn: Warn) -> None:
    """At the end, send the spans that are left; the provider alone would wait 30 s for a collector that is away."""
    leaving, left = threading.Event(), threading.Event()

    def watch() -> None:
        leaving.wait()
        if not left.wait(EXIT_SECONDS):
            warn("spans were lost", reason=f"{collector} did not take the last ones within {EXIT_SECONDS:g} s")
            exporter.shutdown()  # which ends the attempt under way, too

    def leave() -> None:
        if not leaving.is_set():
            leaving.set()
            provider.shutdown()
            left.set()

    # Started now: a process that ends can start no thread any more.
    threading.Thread(target=watch, name="floe-spans", daemon=True).start()
    _leaving.append(leave)
    atexit.register(leave)
    if parent_process() is not None:
        # A forked child of multiprocessing, such as a step from Dagster's forkserver, ends without atexit.
        util.Finalize(None, leave, exitpriority=0)
