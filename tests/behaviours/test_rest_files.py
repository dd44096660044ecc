"""The files of tables behind a catalog server: who may read them, and what happens when credentials end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyspark.sql import DataFrame
from tests.catalogs import SideLake, rest_settings, side_lake
from tests.engines import ArrowEngine, Engine, SparkEngine, events, rows_of
from tests.faults.proxy import FaultProxy, ShortCredentials, fault_proxy
from tests.servers.seaweedfs import SeaweedFS, seaweedfs_server

from floe_core.config.spec import S3StorageConfig
from floe_core.errors import StorageAuthenticationError
from floe_core.identifiers import TableIdentifier
from floe_core.plugins.discovery import create_catalog_plugin
from floe_core.plugins.ports import FileIO
from floe_iceberg import IcebergTableManager, Lake
from floe_iceberg.storage.s3 import S3StoragePlugin

ENGINES = pytest.mark.parametrize("kind", [ArrowEngine, SparkEngine], ids=["arrow", "spark"])
KEYS = ', access_key_id: "${env:FLOE_TEST_S3_KEY}", secret_access_key: "${env:FLOE_TEST_S3_SECRET}"'


# Who may read ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rest(lake: Lake, server: SeaweedFS) -> SideLake:
    return side_lake(lake, lake.artifacts.root / "files", rest_settings(server))


def test_what_is_vended_for_one_table_opens_no_other(rest: SideLake, namespace: str) -> None:
    ours, theirs = (TableIdentifier(namespace=(namespace,), name=name) for name in ("ours", "theirs"))
    for one in (ours, theirs):
        rest.tables.write_data(one, events(0), mode="append")
    files = PyArrowFileIO(rest.tables.catalog_plugin.vend_credentials(str(ours)))
    own, other = (rest.tables.load_table(one).metadata_location for one in (ours, theirs))
    with files.new_input(own).open() as stream:
        assert stream.read(1) == b"{"
    with pytest.raises(OSError, match="ACCESS_DENIED"), files.new_input(other).open() as stream:
        stream.read(1)
    with pytest.raises(OSError, match="ACCESS_DENIED"), files.new_output(f"{other}.mine").create() as stream:
        stream.write(b"x")
    with pytest.raises(OSError, match="ACCESS_DENIED"):
        files.delete(other)
    assert rest.tables.scan(theirs).to_arrow().num_rows == 10


@ENGINES
def test_keys_of_our_own_serve_where_none_are_vended(
    lake: Lake, server: SeaweedFS, table: TableIdentifier, tmp_path: Path, kind: type[ArrowEngine],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("FLOE_TEST_S3_KEY", server.key)
    monkeypatch.setenv("FLOE_TEST_S3_SECRET", server.secret)
    with fault_proxy(server.catalog_uri) as proxy, proxy.intercepted(lambda _request, forward: forward()):
        settings = rest_settings(server, uri=proxy.uri, catalog="  access_delegation: none\n", storage=KEYS)
        engine = kind(side_lake(lake, tmp_path, settings))
        engine.write(table, events(0), mode="append")
        assert rows_of(engine.read(table)) == rows_of(events(0))
        assert not any("x-iceberg-access-delegation" in one.headers for one in proxy.requests)


@ENGINES
def test_a_store_that_refuses_though_the_catalog_agreed_is_told_apart(
    lake: Lake, server: SeaweedFS, table: TableIdentifier, tmp_path: Path, kind: type[ArrowEngine], rest: SideLake,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    rest.tables.write_data(table, events(0), mode="append")
    monkeypatch.setenv("FLOE_TEST_S3_KEY", server.key)
    monkeypatch.setenv("FLOE_TEST_S3_SECRET", "planted-and-wrong")
    settings = rest_settings(server, catalog="  access_delegation: none\n", storage=KEYS)
    engine = kind(side_lake(lake, tmp_path, settings))
    acts: list[Callable[[], object]] = [
        lambda: engine.write(table, events(1), mode="append"),
        lambda: engine.write(table, events(0), mode="overwrite"),
    ]
    if kind is ArrowEngine:  # a frame of Spark is read when Floe has long handed it over
        acts.append(lambda: engine.read(table))
    for act in acts:
        with pytest.raises(StorageAuthenticationError, match=r"the catalog agreed and the object store did not") as no:
            act()
        assert "planted-and-wrong" not in str(no.value)
    assert rows_of(rest.tables.scan(table).to_arrow()) == rows_of(events(0))


# Credentials that end --------------------------------------------------------------------------------------------


@dataclass
class Short:
    """A server whose credentials end after seconds, as far as anybody can tell."""

    server: SeaweedFS
    catalog: FaultProxy
    store: FaultProxy

    @contextmanager
    def vending(self, credentials: ShortCredentials) -> Iterator[None]:
        with self.catalog.intercepted(credentials.catalog), self.store.intercepted(credentials.store):
            yield

    def lake(self, beside: Lake, root: Path) -> SideLake:
        return side_lake(beside, root, rest_settings(self.server, uri=self.catalog.uri))


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Short]:
    with ExitStack() as stack:
        stores: list[FaultProxy] = []

        def before(address: str) -> str:
            stores.append(stack.enter_context(fault_proxy(address)))
            return stores[-1].uri

        server = stack.enter_context(seaweedfs_server(tmp_path_factory.mktemp("short"), s3_endpoint=before))
        catalog = stack.enter_context(fault_proxy(server.catalog_uri))
        yield Short(server, catalog, stores[-1])


SMALL_FILES = {"write.target-file-size-bytes": "20000"}


def slowly(seconds: float, batches: int = 8) -> pa.RecordBatchReader:
    """Days one after the other, with a pause after each."""

    def produce() -> Iterator[pa.RecordBatch]:
        for number in range(batches):
            yield from events(number, rows=2000).to_batches()
            time.sleep(seconds / batches)

    return pa.RecordBatchReader.from_batches(events(0).schema, produce())


def slow_frame(lake: Lake, seconds: float, tasks: int = 6) -> DataFrame:
    def wait(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        time.sleep(seconds)
        yield from batches

    frame = lake.spark.range(0, 600, 1, tasks)
    return frame.mapInArrow(wait, frame.schema)


@pytest.mark.full  # waits for credentials to end
@pytest.mark.parametrize("first", [True, False], ids=["first write", "append"])
def test_a_write_of_arrow_outlives_its_credentials(
    lake: Lake, short: Short, table: TableIdentifier, tmp_path: Path, first: bool
) -> None:
    credentials = ShortCredentials(3)
    with short.vending(credentials):
        side = short.lake(lake, tmp_path)
        if not first:
            side.tables.create_table(table, events(0).schema, properties=SMALL_FILES)
        side.tables.write_data(table, slowly(9), mode="append", properties=SMALL_FILES if first else None)
        assert side.tables.scan(table).to_arrow().num_rows == 16_000
        assert len(side.tables.list_snapshots(table)) == 1
    assert credentials.refused == 0
    assert credentials.vended >= 3


@pytest.mark.full  # waits for credentials to end
def test_a_scan_of_arrow_outlives_its_credentials(
    lake: Lake, short: Short, table: TableIdentifier, tmp_path: Path
) -> None:
    credentials = ShortCredentials(3)
    with short.vending(credentials):
        side = short.lake(lake, tmp_path)
        for number in range(24):
            side.tables.write_data(table, events(number), mode="append")
        rows = 0
        for batch in side.tables.scan(table).to_arrow_batch_reader():
            rows += batch.num_rows
            time.sleep(0.4)
        assert rows == 240
    assert credentials.refused == 0


@pytest.mark.full
def test_a_write_of_spark_outlives_its_credentials_where_the_catalog_renews_them(
    lake: Lake, short: Short, table: TableIdentifier, tmp_path: Path
) -> None:
    credentials = ShortCredentials(4)
    with short.vending(credentials):
        side = short.lake(lake, tmp_path)
        side.write(side.spark.range(1), table, mode="append")
        side.write(slow_frame(side, 3), table, mode="append")
        assert side.read(table).count() == 601
    assert credentials.refused == 0
    assert short.catalog.routes("/credentials$") or credentials.vended > 1


def _write_spark_slowly(side: SideLake, table: TableIdentifier) -> None:
    side.write(slow_frame(side, 2), table, mode="append")


def _write_arrow_slowly(side: SideLake, table: TableIdentifier) -> None:
    side.tables.write_data(table, slowly(6), mode="append")


@pytest.mark.full  # waits for credentials to end
@ENGINES
def test_where_nobody_can_renew_them_the_store_is_named_and_nothing_is_half_written(
    lake: Lake, short: Short, table: TableIdentifier, tmp_path: Path, kind: type[ArrowEngine]
) -> None:
    """The server does not say when they end, and has no endpoint for new ones."""
    credentials = ShortCredentials(3, says_when=False, can_renew=False)
    with short.vending(credentials):
        side = short.lake(lake, tmp_path)
        engine: Engine = kind(side)
        engine.write(table, pa.table({"id": [-1]}), mode="append", properties=SMALL_FILES)
        before = side.tables.list_snapshots(table)
        write = _write_arrow_slowly if kind is ArrowEngine else _write_spark_slowly
        with pytest.raises(StorageAuthenticationError, match=r"object store did not"):
            write(side, table)
        assert credentials.refused > 0
        assert side.tables.list_snapshots(table) == before
        assert side.tables.scan(table).to_arrow()["id"].to_pylist() == [-1]


# The FileIO of a storage plugin ----------------------------------------------------------------------------------


class _OwnFileIO(PyArrowFileIO):
    """A class of a third party."""


class _OwnStorage(S3StoragePlugin):
    def get_pyiceberg_fileio(self) -> FileIO:
        return _OwnFileIO(self.get_pyiceberg_properties())


@pytest.mark.parametrize("delegation", ["none", "vended-credentials"])
def test_a_fileio_of_a_storage_plugins_own_class_is_used_as_it_is(
    lake: Lake, server: SeaweedFS, table: TableIdentifier, tmp_path: Path, delegation: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("FLOE_TEST_S3_KEY", server.key)
    monkeypatch.setenv("FLOE_TEST_S3_SECRET", server.secret)
    settings = rest_settings(server, catalog=f"  access_delegation: {delegation}\n", storage=KEYS)
    artifacts = side_lake(lake, tmp_path, settings).artifacts
    assert isinstance(artifacts.storage, S3StorageConfig)
    storage = _OwnStorage(artifacts.storage, root=tmp_path)
    tables = IcebergTableManager(create_catalog_plugin(artifacts), storage)
    tables.write_data(table, events(0), mode="append")
    assert type(tables.load_table(table).io) is _OwnFileIO
    assert rows_of(tables.scan(table).to_arrow()) == rows_of(events(0))
