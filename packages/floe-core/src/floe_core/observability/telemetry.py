"""Logs and traces: each operation is one span and one log event, both redacted."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal

from opentelemetry import trace
from pydantic import SecretStr

from floe_core.config.references import resolve_model
from floe_core.errors import FloeStorageError
from floe_core.observability.span_export import export_spans
from floe_core.observability.trace_context import current_trace_id, parent_context
from floe_core.security.redaction import MASK, is_credential_key, masked, redact

if TYPE_CHECKING:
    from floe_core.config.artifacts import CompiledArtifacts
    from floe_core.config.spec import ObservabilityConfig

__all__ = ["Operation", "begin", "configure", "note", "observe", "operation", "warn"]

Event = MutableMapping[str, Any]

# Attributes that spans also have under a second name.
_SPAN_NAMES: Final = {"table": "iceberg.table"}

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


def _add_trace(_logger: Any, _method: str, event: Event) -> Event:
    trace_id, span = current_trace_id(), trace.get_current_span()
    if trace_id is not None:
        event["trace_id"] = trace_id
    if span.is_recording():
        event["span_id"] = trace.format_span_id(span.get_span_context().span_id)
    return event


@dataclass(frozen=True)
class _Log:
    """The logger with its renderer: JSON, lines like those of the floe command, or structlog's.

    structlog, which imports Rich, is imported for the first event.
    """

    renderer: Literal["json", "command", "console"]
    colors: bool

    def bind(self, **facts: Any) -> Any:
        return self._bound().bind(**facts)

    @cache  # noqa: B019 - there are five of them
    def _bound(self) -> Any:
        import structlog

        from floe_core.observability.console import CommandRenderer

        renderer: Any
        if self.renderer == "json":
            renderer = structlog.processors.JSONRenderer()
        else:
            kind = CommandRenderer if self.renderer == "command" else structlog.dev.ConsoleRenderer
            renderer = kind(colors=self.colors)
        return structlog.wrap_logger(
            _LOGGER,
            wrapper_class=structlog.stdlib.BoundLogger,
            processors=[
                structlog.stdlib.filter_by_level,
                structlog.stdlib.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                _redact_event,
                *([_add_trace] if self.renderer == "json" else []),
                renderer,
            ],
            cache_logger_on_first_use=False,
        )


_log = _Log("console", colors=False)
_failure_level = logging.ERROR  # the level of failed operations
_own_level = logging.NOTSET  # the level that Floe set on its logger
_is_command = False  # the floe command, which prints errors and warnings for people
_chosen_format: str | None = None  # the format that the command was asked for, whatever the projects say


class Operation:
    """An operation in progress, with its span and its attributes."""

    def __init__(self, name: str, span: trace.Span, attributes: dict[str, Any]) -> None:
        self._name = name
        self._span = span
        self._attributes: dict[str, Any] = {}
        self._reached: list[tuple[str, float]] = []
        self._started = time.perf_counter()
        self._reported = False
        self.set(**attributes)

    def set(self, **attributes: Any) -> None:
        """Add attributes; None values are skipped."""
        for key, value in attributes.items():
            if value is not None:
                self._attributes[key] = cleaned = _clean(key, value)
                self._span.set_attribute(key, cleaned)
                if key in _SPAN_NAMES:
                    self._span.set_attribute(_SPAN_NAMES[key], cleaned)

    def event(self, name: str, **facts: Any) -> None:
        """Record a state that the operation has reached."""
        self._reached.append((name, time.perf_counter()))
        self._span.add_event(name, {key: _clean(key, value) for key, value in facts.items()})

    def reported(self) -> None:
        """Mark the failure as already logged, by a separate event."""
        self._reported = True

    @contextmanager
    def active(self) -> Iterator[None]:
        """Make this span the current one: the block is part of the operation."""
        # The exception is recorded by _finish, redacted; the span's own recording would keep the raw text.
        with trace.use_span(self._span, record_exception=False, set_status_on_exception=False):
            yield

    def end(self, error: BaseException | None = None) -> None:
        """End the span and log the event."""
        with self.active():
            self._finish(time.perf_counter() - self._started, error)
        self._span.end()

    def seconds(self) -> dict[str, float]:
        """The seconds that the operation spent in each state; the last state lasts until now."""
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
        # Logged once, by the innermost operation that failed.
        if not self._reported and not getattr(error, "_floe_logged", False):
            _log.bind(**{**facts, "error": message}).log(_failure_level, self._name)
        with suppress(AttributeError):
            error._floe_logged = True  # type: ignore[attr-defined]  # noqa: SLF001 - Floe's own marker


def warn(message: str, **facts: Any) -> None:
    """Log a warning, and add it to the current span: something succeeded, but needs attention."""
    cleaned = {key: _clean(key, value) for key, value in facts.items()}
    trace.get_current_span().add_event(redact(message), cleaned)
    _log.bind(**cleaned).warning(redact(message))


def note(event: str, /, **facts: Any) -> None:
    """Log an event for troubleshooting at level info, and add it to the current span."""
    span, logs = trace.get_current_span(), _LOGGER.isEnabledFor(logging.INFO)
    if not (logs or span.is_recording()):  # neither records it, and these events are frequent
        return
    cleaned = {key: _clean(key, value) for key, value in facts.items() if value is not None}
    span.add_event(event, cleaned)
    if logs:
        _log.bind(**cleaned).info(event)


@contextmanager
def operation(name: str, /, **attributes: Any) -> Iterator[Operation]:
    """Span and log event around a block: `with operation("iceberg.append", table=str(table)) as op: ...`."""
    current = begin(name, **attributes)
    try:
        with current.active():
            yield current
    except BaseException as exc:
        current.end(exc)
        raise
    current.end()


def begin(name: str, /, **attributes: Any) -> Operation:
    """An operation that outlives a block, such as rows that are read batch by batch; the caller calls `end`."""
    return Operation(name, trace.get_tracer("floe").start_span(name, context=parent_context()), attributes)


class _Stderr(logging.Handler):
    """Writes to the current sys.stderr, which notebooks and tests replace."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(f"{self.format(record)}\n")
            sys.stderr.flush()
        except Exception:  # noqa: BLE001 - as in logging's own handlers: a failed write fails no caller
            self.handleError(record)


_STDERR: Final = _Stderr()


def configure(
    settings: ObservabilityConfig, *, project: str, embedded: bool = False, errors_printed: bool = False
) -> None:
    """Send Floe's log events to standard error, and its spans to the collector if one is configured.

    Args:
        embedded: The process is not the floe command. If the program has handlers of its own, on the logger `floe` or
            on the root logger, events go only to these.
        errors_printed: The caller prints errors itself; in the console format they are logged at level info, and
            warnings are lines like those of the caller.
    """
    global _log, _failure_level, _is_command, _own_level
    if not embedded:  # of every project that the command opens
        _is_command = errors_printed
    to_host = embedded and _host_has_handlers()
    log_format = _chosen_format or settings.log_format
    if not to_host and _STDERR not in _LOGGER.handlers:  # otherwise set up already; keep handlers added since
        _LOGGER.handlers[:] = [_STDERR]
        _LOGGER.propagate = False
    if _LOGGER.level in (logging.NOTSET, _own_level) or not embedded:  # otherwise the program set its own level
        _LOGGER.setLevel(settings.log_level.upper())
        _own_level = _LOGGER.level
    if log_format == "json":
        _log = _Log("json", colors=False)
    elif _is_command:
        _log = _Log("command", colors=sys.stderr.isatty())
    else:
        _log = _Log("console", colors=not to_host and sys.stderr.isatty())
    if not embedded:  # the command's level applies to every project it opens
        _failure_level = logging.INFO if errors_printed and log_format == "console" else logging.ERROR
    if settings.otlp_endpoint is not None:
        export_spans(settings.otlp_endpoint, project, warn)


def observe(artifacts: CompiledArtifacts, *, embedded: bool = True, log_format: str | None = None) -> None:
    """Configure logs and traces by the project's settings; every entry point of a project calls it.

    Args:
        artifacts: The project.
        embedded: The process is not the floe command.
        log_format: The format of this process, in place of that of the projects that it opens from now on.
    """
    global _chosen_format
    _chosen_format = log_format or _chosen_format
    settings = resolve_model(artifacts.observability, root=artifacts.root)
    configure(settings, project=artifacts.name, embedded=embedded, errors_printed=not embedded)


def _host_has_handlers() -> bool:
    if _STDERR in _LOGGER.handlers:
        return False
    own = [handler for handler in _LOGGER.handlers if not isinstance(handler, logging.NullHandler)]
    return bool(own or logging.getLogger().handlers)
