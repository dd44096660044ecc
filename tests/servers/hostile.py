"""A catalog server that is not to be trusted: it serves one real table, and sends whatever settings a test plants."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from tests.faults.proxy import Answer, Request
from tests.servers.scripted import ScriptedServer, as_json, scripted_server

__all__ = ["ROWS", "HostileCatalog", "hostile_catalog", "served_table"]

ROWS = pa.table({"n": pa.array([1, 2, 3], pa.int64())})


def served_table(folder: Path, *, properties: dict[str, str] | None = None) -> tuple[str, dict[str, Any]]:
    """A table of three rows made by bare PyIceberg: where its metadata is, and the metadata itself."""
    folder.mkdir(parents=True, exist_ok=True)
    catalog = SqlCatalog("seed", uri=f"sqlite:///{folder / 'seed.db'}", warehouse=f"file://{folder}")
    catalog.create_namespace("ns")
    table = catalog.create_table("ns.t", ROWS.schema, properties=properties or {})
    table.append(ROWS)
    location = catalog.load_table("ns.t").metadata_location
    catalog.close()
    return location, json.loads(Path(location.removeprefix("file://")).read_text(encoding="utf-8"))


@dataclass
class HostileCatalog:
    """What the server sends. All of it may be changed while it runs."""

    server: ScriptedServer
    metadata_location: str
    metadata: dict[str, Any]
    defaults: dict[str, Any] = field(default_factory=dict)
    overrides: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    credentials: list[dict[str, Any]] = field(default_factory=list)
    properties: dict[str, Any] = field(default_factory=dict)

    @property
    def uri(self) -> str:
        return self.server.uri

    def config_answer(self, _request: Request) -> Answer:
        return as_json({"defaults": self.defaults, "overrides": {"prefix": "lake", **self.overrides}})

    def table_answer(self, _request: Request) -> Answer:
        metadata = {**self.metadata, "properties": {**self.metadata["properties"], **self.properties}}
        return as_json(
            {
                "metadata-location": self.metadata_location,
                "metadata": metadata,
                "config": self.config,
                "storage-credentials": self.credentials,
            }
        )


@contextmanager
def hostile_catalog(served: tuple[str, dict[str, Any]]) -> Iterator[HostileCatalog]:
    """A running server with a `served_table` as `ns.t`."""
    location, metadata = served
    with scripted_server() as server:
        hostile = HostileCatalog(server, location, metadata)
        table = {"namespace": ["ns"], "name": "t"}
        server.answers |= {
            "GET /v1/config": hostile.config_answer,
            "GET /v1/lake/namespaces": as_json({"namespaces": [["ns"]]}),
            "GET /v1/lake/namespaces/ns": as_json({"namespace": ["ns"], "properties": {}}),
            "GET /v1/lake/namespaces/ns/tables": as_json({"identifiers": [table]}),
            "GET /v1/lake/namespaces/ns/tables/t": hostile.table_answer,
            "POST /v1/lake/namespaces/ns/tables/t": hostile.table_answer,
        }
        yield hostile
