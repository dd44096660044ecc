"""One seam for logs and traces: each operation is one span and one log event, and no secret is in either."""

from __future__ import annotations

import atexit
import logging
import sys
import threading
import time
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import structlog
from opentelemetry import trace
from pydantic import SecretStr

from floe_core.errors import ConfigurationError, FloeStorageError
from floe_core.redaction import MASK, is_credential_key, masked, redact

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

    from floe_core.spec import ObservabilityConfig

__all__ = ["Operation", "configure", "note", "operation", "warn"]

Event = MutableMapping[str, Any]

# How long a process that ends waits for the collector to take its last spans.
EXIT_SECONDS: Final = 5.0

_LOGGER = logging.getLogger("floe")
_LOGGER.addHandler(logging.NullHandler())


def _clean(key: str, value: Any) -> Any:
    if is_credential_key(key) or isinstance(value, SecretStr):
        return MASK
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, list | tuple):
        return [str(_clean(key, item)) for item in value]
    if isinstance(value, Mapping):
        return redact(str(masked(key, value)))
    return redact(str(value))


def _redact_event(_logger: Any, _method: str, event: Event) -> Event:
    for key, value in event.items():
        event[key] = _clean(key, value)
    return event


def _bound(renderer: Any) -> Any:
    return structlog.wrap_logger(
        _LOGGER,
        wrapper_class=structlog.stdlib.BoundLogger,
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _redact_event,
            renderer,
        ],
        cache_logger_on_first_use=False,
    )


_log = _bound(structlog.dev.ConsoleRenderer(colors=False))


class Operation:
    """What is known about an operation so far."""

    def __init__(self, name: str, span: trace.Span, attributes: dict[str, Any]) -> None:
        self._name = name
        self._span = span
        self._attributes: dict[str, Any] = {}
        self._reached: list[tuple[str, float]] = []
        self.set(**attributes)

    def set(self, **attributes: Any) -> None:
        """Add facts; None is left out."""
        for key, value in attributes.items():
            if value is not None:
                self._attributes[key] = cleaned = _clean(key, value)
                self._span.set_attribute(key, cleaned)

    def event(self, name: str) -> None:
        """Note a state the operation has reached."""
        self._reached.append((name, time.perf_counter()))
        self._span.add_event(name)

    def seconds(self) -> dict[str, float]:
        """How long the operation was in each of its states; the last one lasts until now."""
        spent: dict[str, float] = {}
        ends = [began for _, began in self._reached[1:]] + [time.perf_counter()]
        for (name, began), ended in zip(self._reached, ends, strict=True):
            spent[name] = spent.get(name, 0.0) + ended - began
        return spent

    def _finish(self, seconds: float, error: BaseException | None) -> None:
        facts = {**self._attributes, "seconds": round(seconds, 3)}
        if error is None:
            if _LOGGER.isEnabledFor(logging.INFO):
                _log.bind(**facts).info(self._name)
            return
        if isinstance(error, FloeStorageError) and error.detail is not None:
            facts["detail"] = error.detail.model_dump_json(exclude_none=True)
        message = redact(f"{type(error).__name__}: {error}")
        self._span.set_status(trace.StatusCode.ERROR, message)
        if not getattr(error, "_floe_told", False):  # once, where it happened, and not again in everything around it
            _log.bind(**{**facts, "error": message}).error(self._name)
            with suppress(AttributeError):
                error._floe_told = True  # type: ignore[attr-defined] # a mark of ours


def warn(message: str, **facts: Any) -> None:
    """Say that something went through which somebody should look at; in the log and on the span at hand."""
    cleaned = {key: _clean(key, value) for key, value in facts.items()}
    trace.get_current_span().add_event(redact(message), cleaned)
    _log.bind(**cleaned).warning(redact(message))


def note(event: str, /, **facts: Any) -> None:
    """An event worth knowing when something is looked into: in the log at level info, and on the span at hand."""
    span, logs = trace.get_current_span(), _LOGGER.isEnabledFor(logging.INFO)
    if not (logs or span.is_recording()):  # nobody listens, and these are many
        return
    cleaned = {key: _clean(key, value) for key, value in facts.items() if value is not None}
    span.add_event(event, cleaned)
    if logs:
        _log.bind(**cleaned).info(event)


@contextmanager
def operation(name: str, /, **attributes: Any) -> Iterator[Operation]:
    """Span and log event around a block: `with operation("iceberg.append", table=str(table)) as op: ...`."""
    tracer = trace.get_tracer("floe")
    # The exception is recorded by _finish, redacted; the span's own recording would keep the raw text.
    with tracer.start_as_current_span(name, record_exception=False, set_status_on_exception=False) as span:
        current = Operation(name, span, attributes)
        started = time.perf_counter()
        try:
            yield current
        except BaseException as exc:
            current._finish(time.perf_counter() - started, exc)
            raise
        current._finish(time.perf_counter() - started, None)


def configure(settings: ObservabilityConfig, *, project: str) -> None:
    """Send Floe's log events to standard error, and its spans to the collector if one is configured."""
    global _log
    renderer: Any = (
        structlog.processors.JSONRenderer()
        if settings.log_format == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    _LOGGER.handlers[:] = [handler]
    _LOGGER.setLevel(settings.log_level.upper())
    _LOGGER.propagate = False
    _log = _bound(renderer)
    if settings.otlp_endpoint is not None:
        _export_spans(settings.otlp_endpoint, project)


_collector: tuple[str, str] | None = None


def _export_spans(endpoint: str, project: str) -> None:
    global _collector
    if _collector == (endpoint, project):
        return
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
    if isinstance(trace.get_tracer_provider(), TracerProvider):
        warn("observability.otlp_endpoint is not used: tracing was set up before in this process, and stays as it is")
        return
    _retell_losses()
    resource = Resource.create({"service.name": f"floe-{project}"})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    exporter = OTLPSpanExporter(endpoint=endpoint, insecure=address.scheme == "http")
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    _leave_in_time(provider, exporter, address.netloc)
    _collector = (endpoint, project)


class _Retelling(logging.Handler):
    """What the exporter complains of, in Floe's own log: in its format, and without secrets."""

    def emit(self, record: logging.LogRecord) -> None:
        warn("spans were lost", reason=self.format(record))


def _retell_losses() -> None:
    logger = logging.getLogger("opentelemetry")
    logger.handlers[:] = [_Retelling()]
    logger.propagate = False
    # Otherwise each attempt that is repeated would be a line too.
    logging.getLogger("opentelemetry.exporter.otlp").setLevel(logging.ERROR)


def _leave_in_time(provider: TracerProvider, exporter: SpanExporter, collector: str) -> None:
    """At the end, send the spans that are left; the provider alone would wait 30 s for a collector that is away."""
    leaving, left = threading.Event(), threading.Event()

    def watch() -> None:
        leaving.wait()
        if not left.wait(EXIT_SECONDS):
            warn("spans were lost", reason=f"{collector} did not take the last ones within {EXIT_SECONDS:g} s")
            exporter.shutdown()  # which ends the attempt under way, too

    def leave() -> None:
        leaving.set()
        provider.shutdown()
        left.set()

    # Started now: a process that ends can start no thread any more.
    threading.Thread(target=watch, name="floe-spans", daemon=True).start()
    atexit.register(leave)
