"""The span of a write has its states; the span of a read ends with its rows, and has their number."""

from __future__ import annotations

import gc
from pathlib import Path

import pyarrow as pa
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pyiceberg.exceptions import CommitFailedException
from tests.faults.catalog import faulty, not_applied
from tests.lakes import open_manager

from floe_core.errors import FloeStorageError, SchemaEvolutionError
from floe_core.identifiers import Namespace, TableIdentifier
from floe_iceberg import IcebergTableManager

ORDERS = TableIdentifier.from_string("bronze.orders")
ROWS = pa.table({"id": [1, 2, 3]})


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    return exporter


@pytest.fixture
def tables(tmp_path: Path, spans: InMemorySpanExporter) -> IcebergTableManager:
    manager = open_manager(tmp_path)
    manager.write_data(ORDERS, ROWS, mode="append")
    manager.write_data(ORDERS, pa.table({"id": [4, 5]}), mode="append")
    spans.clear()
    return manager


def named(spans: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if span.name == name]


def facts(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


def states(spans: InMemorySpanExporter) -> list[str]:
    (span,) = named(spans, "iceberg.append")
    return [event.name for event in span.events]


def test_a_write_is_pending_and_then_committed(tables: IcebergTableManager, spans: InMemorySpanExporter) -> None:
    tables.write_data(ORDERS, ROWS, mode="append")
    assert states(spans) == ["pending", "validating", "writing", "committed"]


def test_a_write_that_evolves_says_so(tables: IcebergTableManager, spans: InMemorySpanExporter) -> None:
    tables.write_data(ORDERS, pa.table({"id": [6], "city": ["Oslo"]}), mode="append")
    assert states(spans) == ["pending", "validating", "evolving", "writing", "committed"]


def test_a_write_that_was_done_before_is_committed(tables: IcebergTableManager, spans: InMemorySpanExporter) -> None:
    tables.write_data(ORDERS, ROWS, mode="append", write_id="once")
    spans.clear()
    tables.write_data(ORDERS, ROWS, mode="append", write_id="once")
    assert states(spans) == ["pending", "validating", "committed"]


def test_a_write_that_meets_a_conflict_is_retried(
    tables: IcebergTableManager, spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    with faulty(tables.catalog_plugin.connect(), monkeypatch, not_applied(CommitFailedException("busy"))):
        tables.write_data(ORDERS, ROWS, mode="append")
    assert states(spans) == ["pending", "validating", "writing", "retrying", "committed"]


def test_a_write_that_is_refused_has_failed(tables: IcebergTableManager, spans: InMemorySpanExporter) -> None:
    with pytest.raises(SchemaEvolutionError):
        tables.write_data(ORDERS, pa.table({"id": ["one"]}), mode="append")
    assert states(spans) == ["pending", "validating", "failed"]
    (span,) = named(spans, "iceberg.append")
    assert dict(span.events[-1].attributes or {}) == {"error": "SchemaEvolutionError"}
    assert span.status.status_code is trace.StatusCode.ERROR


def test_a_namespace_that_another_writer_creates_first_is_no_error(
    tables: IcebergTableManager, spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables.catalog_plugin.connect(), "namespace_exists", lambda _levels: False)
    tables.ensure_namespace(Namespace.from_string("bronze"))
    (span,) = named(spans, "iceberg.create_namespace")
    assert span.status.status_code is not trace.StatusCode.ERROR


def test_reading_a_table_counts_its_rows(tables: IcebergTableManager, spans: InMemorySpanExporter) -> None:
    scan = tables.scan(ORDERS, columns=["id"], row_filter="id > 2")
    assert named(spans, "iceberg.scan") == []
    scan.to_arrow()
    (span,) = named(spans, "iceberg.scan")
    head = tables.current_snapshot(ORDERS)
    assert head is not None
    assert facts(span) == {
        "table": "bronze.orders",
        "iceberg.table": "bronze.orders",
        "engine": "arrow",
        "columns": ("id",),
        "row_filter": "id > 2",
        "snapshot_id": head.snapshot_id,
        "num_rows": 3,
    }


def test_a_scan_that_is_narrowed_later_shows_what_it_reads(
    tables: IcebergTableManager, spans: InMemorySpanExporter
) -> None:
    tables.scan(ORDERS, row_filter="id > 2").filter("id < 5").to_arrow()
    (span,) = named(spans, "iceberg.scan")
    assert facts(span)["num_rows"] == 2
    assert "LessThan" in str(facts(span)["row_filter"])


def test_a_reader_ends_its_span_with_the_last_batch(tables: IcebergTableManager, spans: InMemorySpanExporter) -> None:
    reader = tables.scan(ORDERS).to_arrow_batch_reader()
    reader.read_next_batch()
    assert named(spans, "iceberg.scan") == []
    assert not trace.get_current_span().is_recording(), "what the consumer does meanwhile is no part of the read"
    assert reader.read_all().num_rows > 0
    (span,) = named(spans, "iceberg.scan")
    assert facts(span)["num_rows"] == 5


@pytest.mark.parametrize("batches", [0, 1])
def test_a_reader_that_is_abandoned_ends_its_span(
    tables: IcebergTableManager, spans: InMemorySpanExporter, batches: int
) -> None:
    reader = tables.scan(ORDERS).to_arrow_batch_reader()
    read = sum(reader.read_next_batch().num_rows for _ in range(batches))
    del reader
    gc.collect()
    (span,) = named(spans, "iceberg.scan")
    assert facts(span)["num_rows"] == read


def test_a_read_that_fails_is_an_error_of_its_span(
    tables: IcebergTableManager, spans: InMemorySpanExporter, tmp_path: Path
) -> None:
    scan = tables.scan(ORDERS)
    for file in tmp_path.rglob("*.parquet"):
        file.unlink()
    with pytest.raises(FloeStorageError):
        scan.to_arrow_batch_reader().read_all()
    (span,) = named(spans, "iceberg.scan")
    assert span.status.status_code is trace.StatusCode.ERROR


def test_reading_what_is_new_counts_its_rows(tables: IcebergTableManager, spans: InMemorySpanExporter) -> None:
    first = tables.list_snapshots(ORDERS)[0].snapshot_id
    tables.scan_changes(ORDERS, since=first).to_arrow()
    (span,) = named(spans, "iceberg.scan_changes")
    assert (facts(span)["num_rows"], facts(span)["since"]) == (2, first)
