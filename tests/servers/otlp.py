"""An OTLP collector: a real gRPC receiver that keeps what it gets."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Any

import grpc  # type: ignore[import-untyped]  # ships no types
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

__all__ = ["Collector", "attributes", "value"]


class Collector:
    """A real OTLP receiver that keeps what it gets."""

    def __init__(self, credentials: grpc.ServerCredentials | None = None) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        service = import_module("opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc")
        received = self.requests

        class Service(service.TraceServiceServicer):  # type: ignore[misc, name-defined]  # generated, without types
            def Export(self, request: ExportTraceServiceRequest, _: object) -> ExportTraceServiceResponse:  # noqa: N802
                received.append(request)
                return ExportTraceServiceResponse()

        self.server = grpc.server(ThreadPoolExecutor(2))
        service.add_TraceServiceServicer_to_server(Service(), self.server)
        if credentials is None:
            self.port = self.server.add_insecure_port("127.0.0.1:0")
        else:
            self.port = self.server.add_secure_port("127.0.0.1:0", credentials)
        self.server.start()

    @property
    def spans(self) -> list[Span]:
        """In the order in which they ended."""
        found = [
            s for r in self.requests for group in r.resource_spans for scope in group.scope_spans for s in scope.spans
        ]
        return sorted(found, key=lambda span: span.end_time_unix_nano)

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.spans]


def value(found: AnyValue) -> Any:
    kind = found.WhichOneof("value")
    return [value(one) for one in found.array_value.values] if kind == "array_value" else getattr(found, str(kind))


def attributes(span: Span) -> dict[str, Any]:
    return {one.key: value(one.value) for one in span.attributes}
