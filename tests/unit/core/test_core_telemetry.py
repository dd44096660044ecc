"""Each operation is one span and one log event."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from floe_core.config.spec import ObservabilityConfig
from floe_core.errors import ConfigurationError, TableNotFoundError
from floe_core.models import StorageErrorDetail
from floe_core.observability import telemetry
from floe_core.observability.telemetry import configure, operation


def events(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


JSON = ObservabilityConfig(log_format="json", log_level="info")


@pytest.mark.usefixtures("configured_logs")
def test_an_operation_is_one_span_and_one_event(
    spans: InMemorySpanExporter, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(JSON, project="shop")
    with operation("iceberg.append", table="bronze.orders", branch=None) as op:
        op.set(num_rows=7, columns=["a", "b"], snapshot_id=None)
        op.event("committed")
    (span,) = spans.get_finished_spans()
    assert span.name == "iceberg.append"
    assert dict(span.attributes or {}) == {
        "table": "bronze.orders",
        "iceberg.table": "bronze.orders",
        "num_rows": 7,
        "columns": ("a", "b"),
    }
    assert [event.name for event in span.events] == ["committed"]
    assert span.status.status_code is StatusCode.UNSET
    (event,) = events(capsys)
    assert event["event"] == "iceberg.append"
    assert event["level"] == "info"
    assert (event["table"], event["num_rows"], event["columns"]) == ("bronze.orders", 7, ["a", "b"])
    assert event["seconds"] >= 0
    assert event["timestamp"].endswith("Z")
    assert not {"branch", "snapshot_id", "error"} & set(event)


@pytest.mark.usefixtures("configured_logs")
def test_a_failed_operation_is_one_span_and_one_event_with_the_error(
    spans: InMemorySpanExporter, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(JSON, project="shop")
    with pytest.raises(ValueError, match="no such day"), operation("iceberg.append", table="a.b"):
        raise ValueError("no such day")
    (span,) = spans.get_finished_spans()
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == "ValueError: no such day"
    assert span.events == ()
    (event,) = events(capsys)
    assert (event["level"], event["error"], event["table"]) == ("error", "ValueError: no such day", "a.b")


@pytest.mark.usefixtures("configured_logs")
def test_the_detail_of_a_storage_error_reaches_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    configure(JSON, project="shop")
    detail = StorageErrorDetail(error_type="NoSuchTable", operation="load", message="internal words")
    with pytest.raises(TableNotFoundError), operation("iceberg.load_table"):
        raise TableNotFoundError("table 'a.b' not found", detail=detail)
    (event,) = events(capsys)
    assert json.loads(event["detail"])["message"] == "internal words"


@pytest.mark.usefixtures("configured_logs")
def test_an_interruption_is_told_too(spans: InMemorySpanExporter, capsys: pytest.CaptureFixture[str]) -> None:
    configure(JSON, project="shop")
    with pytest.raises(KeyboardInterrupt), operation("iceberg.append"):
        raise KeyboardInterrupt
    (span,) = spans.get_finished_spans()
    assert span.status.status_code is StatusCode.ERROR
    assert [event["level"] for event in events(capsys)] == ["error"]


@pytest.mark.usefixtures("configured_logs")
def test_operations_inside_operations_are_children(spans: InMemorySpanExporter) -> None:
    configure(JSON, project="shop")
    with operation("outer"), operation("inner"):
        pass
    inner, outer = spans.get_finished_spans()
    assert (inner.name, outer.name) == ("inner", "outer")
    assert inner.parent is not None
    assert outer.context is not None
    assert inner.parent.span_id == outer.context.span_id


@pytest.mark.usefixtures("configured_logs")
@pytest.mark.parametrize("name", ["error", "event", "name", "seconds", "detail", "level", "timestamp"])
def test_no_attribute_can_hide_the_failure_of_an_operation(capsys: pytest.CaptureFixture[str], name: str) -> None:
    configure(JSON, project="shop")
    with pytest.raises(ValueError, match="the real error"), operation("iceberg.append", **{name: "x"}):
        raise ValueError("the real error")
    (event,) = events(capsys)
    assert event["event"] == "iceberg.append"
    assert event["error"] == "ValueError: the real error"


def test_the_console_format_is_for_people(configured_logs: None, capsys: pytest.CaptureFixture[str]) -> None:
    configure(ObservabilityConfig(log_format="console", log_level="info"), project="shop")
    with operation("iceberg.append", table="a.b"):
        pass
    (line,) = capsys.readouterr().err.splitlines()
    assert "iceberg.append" in line
    assert "table=a.b" in line
    assert "\x1b" not in line, "no colours where nobody looks"


@pytest.mark.parametrize(("level", "logged"), [("info", 2), ("warning", 1), ("error", 1)])
def test_the_level_decides_what_is_logged(
    configured_logs: None, capsys: pytest.CaptureFixture[str], level: str, logged: int
) -> None:
    configure(ObservabilityConfig.model_validate({"log_format": "json", "log_level": level}), project="shop")
    with operation("fine"):
        pass
    with pytest.raises(ValueError), operation("failed"):
        raise ValueError
    assert len(events(capsys)) == logged


def test_configuring_twice_does_not_log_twice(configured_logs: None, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        configure(JSON, project="shop")
    with operation("once"):
        pass
    assert len(events(capsys)) == 1


def test_a_library_is_silent_until_configured(capsys: pytest.CaptureFixture[str]) -> None:
    script = "from floe_core.observability.telemetry import operation\nwith operation('x'): pass\n"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_a_missing_exporter_is_told_with_what_to_install(
    configured_logs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.grpc.trace_exporter", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'floe-core\[otlp\]'"):
        configure(ObservabilityConfig(otlp_endpoint="http://127.0.0.1:1"), project="shop")


def test_the_seam_is_small() -> None:
    assert telemetry.__all__ == ["Operation", "begin", "configure", "note", "observe", "operation", "warn"]


@pytest.mark.usefixtures("configured_logs")
def test_the_command_prints_warnings_as_its_own_and_programs_get_events(capsys: pytest.CaptureFixture[str]) -> None:
    message = "the data lacks columns of the table, which are NULL"
    console = ObservabilityConfig(log_format="console")
    configure(console, project="shop", errors_printed=True)
    configure(console, project="shop", embedded=True)  # as an asset of the run opens the project again
    telemetry.warn(message, table="bronze.orders", columns=["city", "zip\x1b[2J"])
    telemetry.warn("no preview", table="bronze.orders", reason="OSError: a\nb")
    telemetry.warn("nanoseconds were cut off", values=3)
    assert capsys.readouterr().err.splitlines() == [
        f"warning: {message} (bronze.orders: city, zip\\x1b[2J)",
        "warning: no preview (bronze.orders: OSError: a b)",
        "warning: nanoseconds were cut off (values 3)",
    ]
    configure(JSON, project="shop", errors_printed=True)
    telemetry.warn(message, table="bronze.orders", columns=["city"])
    (event,) = events(capsys)
    assert (event["event"], event["table"], event["columns"]) == (message, "bronze.orders", ["city"])
    configure(console, project="shop")
    telemetry.warn(message, table="bronze.orders", columns=["city"])
    assert "[warning  ] " in capsys.readouterr().err
