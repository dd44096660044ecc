"""Projects on disk, spans in memory, and a clean slate for what is global in floe_core."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from floe_core.compiler import compile_project
from floe_core.errors import ConfigurationError, Problem
from floe_core.security import redaction

# The example of the design, key for key.
DESIGN_EXAMPLE = """\
name: shop
version: 1.0.0
catalog:                       # default: {type: sql} = SQLite under .floe/; a PostgreSQL URI works too
  type: polaris                # polaris | rest | sql
  uri: https://polaris.example.com/api/catalog
  warehouse: shop
  credentials: {client_id: "${env:POLARIS_CLIENT_ID}", client_secret: "${env:POLARIS_CLIENT_SECRET}"}
  retry: {max_attempts: 3, initial_wait_seconds: 1, max_wait_seconds: 30, jitter_seconds: 1,
          circuit_breaker_threshold: 5}
storage: {type: s3, bucket: lake, endpoint: "...", region: eu-central-1, path_style_access: true}
spark: {master: "local[*]", conf: {spark.sql.shuffle.partitions: "8"}}
tables: {properties: {write.parquet.compression-codec: zstd}}
maintenance:                   # policy; namespaces may override
  expire: {older_than: 7d, keep_last: 10}
  compact: {target_file_size: 128MB}
  orphans: {older_than: 3d}
pipeline: {definitions: shop.definitions}
observability: {log_format: console, otlp_endpoint: "https://collector:4317"}
"""


@pytest.fixture
def design_example() -> str:
    return DESIGN_EXAMPLE


@pytest.fixture
def problems_of(new_project: Callable[[str], Path]) -> Callable[..., tuple[Problem, ...]]:
    """What the compiler finds wrong with a floe.yaml."""

    def compiled(text: str, environment: str | None = None) -> tuple[Problem, ...]:
        with pytest.raises(ConfigurationError) as caught:
            compile_project(new_project(text), environment)
        return caught.value.problems

    return compiled


@pytest.fixture(autouse=True)
def nothing_is_protected_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_protected", set())


@pytest.fixture(scope="session")
def _exporter() -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    # The provider can be set once per process; another folder may have been first.
    if not isinstance(trace.get_tracer_provider(), TracerProvider):
        trace.set_tracer_provider(TracerProvider())
    provider = trace.get_tracer_provider()
    assert isinstance(provider, TracerProvider)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return exporter


@pytest.fixture
def spans(_exporter: InMemorySpanExporter) -> InMemorySpanExporter:
    """The spans of this test; read them with get_finished_spans()."""
    _exporter.clear()
    return _exporter
