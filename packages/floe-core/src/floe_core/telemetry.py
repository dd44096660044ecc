"""One seam for logs and traces: each operation is one span and one log event, and no secret is in either."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import structlog
from opentelemetry import trace
from pydantic import SecretStr

from floe_core.errors import ConfigurationError, FloeStorageError
from floe_core.redaction import MASK, is_credential_key, masked, redact

if TYPE_CHECKING:
    from floe_core.spec import ObservabilityConfig

__all__ = ["Operation", "configure", "operation", "warn"]

Event = MutableMapping[str, Any]

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
        self.set(**attributes)

    def set(self, **attributes: Any) -> None:
        """Add facts; None is left out."""
        for key, value in attributes.items():
            if value is not None:
                self._attributes[key] = cleaned = _clean(key, value)
                self._span.set_attribute(key, cleaned)

    def event(self, name: str) -> None:
        """Note a state the operation has reached."""
        self._span.add_event(name)

    def _finish(self, seconds: float, error: BaseException | None) -> None:
        facts = {**self._attributes, "seconds": round(seconds, 3)}
        if error is None:
            _log.bind(**facts).info(self._name)
            return
        if isinstance(error, FloeStorageError) and error.detail is not None:
            facts["detail"] = error.detail.model_dump_json(exclude_none=True)
        message = redact(f"{type(error).__name__}: {error}")
        self._span.set_status(trace.StatusCode.ERROR, message)
        _log.bind(**{**facts, "error": message}).error(self._name)


def warn(message: str, **facts: Any) -> None:
    """Say that something went through which somebody should look at; in the log and on the span at hand."""
    cleaned = {key: _clean(key, value) for key, value in facts.items()}
    trace.get_current_span().add_event(redact(message), cleaned)
    _log.bind(**cleaned).warning(redact(message))


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


def _export_spans(endpoint: str, project: str) -> None:
    try:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as exc:
        raise ConfigurationError(
            "observability.otlp_endpoint needs the exporter: pip install 'floe-core[otlp]'"
        ) from exc
    provider = TracerProvider(resource=Resource.create({"service.name": f"floe-{project}"}))
    exporter = OTLPSpanExporter(endpoint=endpoint, insecure=endpoint.startswith("http://"))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
