"""What Floe costs over bare PyIceberg on a catalog server: OAuth2, vended credentials, S3."""

from __future__ import annotations

import itertools
import os
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog
from tests.servers.seaweedfs import BUCKET, seaweedfs_server

from benchmarks.measurement import Row, compare
from floe_core.compiler import compile_project
from floe_core.identifiers import Namespace, TableIdentifier
from floe_core.models import WriteMode
from floe_iceberg import IcebergTableManager

__all__ = ["measure"]

DATA = pa.table({"id": pa.array(range(1000), pa.int64())})
TABLE = TableIdentifier(namespace=("bench",), name="events")
KEY = ("bench", "events")


def measure() -> Iterator[Row]:
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder, seaweedfs_server(Path(folder) / "server") as server:
        os.environ["BENCH_SECRET"] = server.secret
        root = Path(folder) / "lake"
        root.mkdir()
        (root / "floe.yaml").write_text(
            f"name: bench\n"
            f"catalog:\n  type: rest\n  uri: {server.catalog_uri}\n  warehouse: s3://{BUCKET}\n"
            f'  credentials: {{client_id: {server.key}, client_secret: "${{env:BENCH_SECRET}}"}}\n'
            f"storage: {{type: s3, bucket: {BUCKET}, endpoint: '{server.s3_endpoint}', path_style_access: true}}\n"
        )
        manager = IcebergTableManager.open(compile_project(root).artifacts)
        bare = RestCatalog(
            "bare", uri=server.catalog_uri, warehouse=f"s3://{BUCKET}", credential=f"{server.key}:{server.secret}"
        )
        manager.write_data(TABLE, DATA, mode=WriteMode.APPEND)
        yield from _compared(manager, bare)


def _compared(manager: IcebergTableManager, bare: RestCatalog) -> Iterator[Row]:
    numbers = itertools.count()
    properties = dict(manager.config.table_properties)
    target = "at most 1.2, under 2 s"
    yield compare(
        "load a table",
        lambda: manager.load_table(TABLE),
        "pyiceberg load_table",
        lambda: bare.load_table(KEY),
        times=61,
        target=target,
    )
    yield compare(
        "list tables",
        lambda: manager.list_tables(Namespace(levels=("bench",))),
        "pyiceberg list_tables",
        lambda: bare.list_tables(("bench",)),
        times=61,
        target=target,
    )
    yield compare(
        "list namespaces",
        lambda: manager.catalog_plugin.list_namespaces(),
        "pyiceberg list_namespaces",
        lambda: bare.list_namespaces(),
        times=61,
        target=target,
    )
    yield compare(
        "create a namespace",
        lambda: manager.catalog_plugin.create_namespace(f"made_{next(numbers)}"),
        "pyiceberg create_namespace",
        lambda: bare.create_namespace((f"bare_{next(numbers)}",)),
        times=31,
        target=target,
    )
    yield compare(
        "create a table",
        lambda: manager.create_table(TableIdentifier(namespace=("bench",), name=f"made_{next(numbers)}"), DATA.schema),
        "pyiceberg create_table",
        lambda: bare.create_table(("bench", f"bare_{next(numbers)}"), DATA.schema, properties=properties),
        times=31,
        target=target,
    )
    yield compare(
        "append 1,000 rows",
        lambda: manager.write_data(TABLE, DATA, mode=WriteMode.APPEND),
        "pyiceberg Table.append",
        lambda: bare.load_table(KEY).append(DATA),
        times=15,
        target="near 1",
    )
