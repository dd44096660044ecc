"""The `sql` catalog in PostgreSQL, under both engines: many writers, a server that goes away, secrets, encryption."""

from __future__ import annotations

import multiprocessing
import signal
import ssl
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import quote

import pyarrow as pa
import pytest
import trustme
from pyiceberg.table.snapshots import ancestors_of
from sqlalchemy import Connection, event
from tests.catalogs import SideLake
from tests.engines import ArrowEngine, SparkEngine, events, rows_of
from tests.faults.processes import Project, Writer
from tests.servers.postgres import PASSWORD, PostgresServer, postgres_server
from tests.servers.seaweedfs import OTHER_BUCKET, seaweedfs_server
from tests.servers.tls import tls_front

from floe_core.compiler import compile_project
from floe_core.config.artifacts import CompiledArtifacts
from floe_core.config.spec import SqlCatalogConfig
from floe_core.errors import CatalogConnectionError, FloeError, NamespaceAlreadyExistsError
from floe_core.identifiers import Namespace, TableIdentifier
from floe_core.jvm import iceberg_aws_bundle
from floe_core.models import SnapshotInfo
from floe_core.plugins.discovery import check_health
from floe_iceberg import Lake
from floe_iceberg.catalogs.sql import SqlCatalogPlugin

Answer = TypeVar("Answer")
JARS = f"spark.jars.packages: '{iceberg_aws_bundle()}'"


class Engine(Protocol):
    def write(self, table: TableIdentifier, data: pa.Table, **options: Any) -> SnapshotInfo: ...

    def read(self, table: TableIdentifier) -> pa.Table: ...


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as running:
        yield running


@pytest.fixture(scope="module")
def shop(server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> CompiledArtifacts:
    """A project with a database of its own, which both engines open as a user with an odd name and password."""
    server.run("CREATE DATABASE shop")
    root = tmp_path_factory.mktemp("shop")
    (root / "password").write_text(quote(PASSWORD, safe=""), encoding="utf-8")
    # Spark is asked for tables in S3 too, and jars cannot be added to it later.
    return compiled(root, server.uri("shop", password="${file:password}"), f"spark: {{conf: {{{JARS}}}}}\n")


def compiled(root: Path, uri: str, rest: str) -> CompiledArtifacts:
    (root / "floe.yaml").write_text(f'name: shop\ncatalog: {{type: sql, uri: "{uri}"}}\n{rest}', encoding="utf-8")
    artifacts = compile_project(root).artifacts
    artifacts.write()
    return artifacts


@pytest.fixture(scope="module")
def arrow(shop: CompiledArtifacts) -> ArrowEngine:
    return ArrowEngine(Lake(shop))


@pytest.fixture(scope="module")
def plugin(arrow: ArrowEngine) -> SqlCatalogPlugin:
    made = arrow.lake.tables.catalog_plugin
    assert isinstance(made, SqlCatalogPlugin)
    return made


class SparkProcess:
    """Spark on the same project, in a process of its own: that of the tests has another catalog."""

    def __init__(self, artifacts: CompiledArtifacts) -> None:
        self._root = artifacts.root
        self._pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))

    def do(self, act: Callable[..., Answer], *arguments: Any) -> Answer:
        """What a function of this module returns there, given the lake first."""
        return self._pool.submit(_with_lake, act, self._root, arguments).result(300)

    def write(self, table: TableIdentifier, data: pa.Table, **options: Any) -> SnapshotInfo:
        return self.do(_write, table, data, options)

    def read(self, table: TableIdentifier) -> pa.Table:
        return self.do(_read, table)

    def close(self) -> None:
        self.do(_stop)
        self._pool.shutdown()


@cache
def _lake(root: Path) -> Lake:
    return Lake(CompiledArtifacts.load(root))


def _with_lake(act: Callable[..., Answer], root: Path, arguments: tuple[Any, ...]) -> Answer:
    try:
        return act(_lake(root), *arguments)
    except FloeError:
        raise
    except Exception as exc:  # noqa: BLE001 - those of Java cannot be sent to another process
        raise RuntimeError(f"{type(exc).__name__}: {exc}") from None


def _write(lake: Lake, table: TableIdentifier, data: pa.Table, options: dict[str, Any]) -> SnapshotInfo:
    return SparkEngine(lake).write(table, data, **options)


def _read(lake: Lake, table: TableIdentifier) -> pa.Table:
    return SparkEngine(lake).read(table)


def _stop(lake: Lake) -> None:
    lake.spark.stop()


@pytest.fixture(scope="module")
def spark(shop: CompiledArtifacts) -> Iterator[SparkProcess]:
    process = SparkProcess(shop)
    yield process
    process.close()


# Both engines ----------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_what_each_engine_writes_in_nested_namespaces_both_read(
    arrow: ArrowEngine, spark: SparkProcess, plugin: SqlCatalogPlugin, namespace: str
) -> None:
    both: dict[str, Engine] = {"arrow": arrow, "spark": spark}
    for name, other in (("arrow", "spark"), ("spark", "arrow")):
        table = TableIdentifier.from_string(f"{namespace}.raw.events.by_{name}")
        both[name].write(table, events(0), mode="append")
        both[other].write(table, events(1), mode="append")
        assert rows_of(arrow.read(table)) == rows_of(spark.read(table)) == rows_of(events(0, 1))
        assert arrow.lake.tables.load_table(table).location().endswith(f"/{namespace}/raw/events/by_{name}")
    assert plugin.list_namespaces(namespace) == [f"{namespace}.raw"]
    listed = arrow.lake.tables.list_tables(Namespace.from_string(f"{namespace}.raw.events"))
    assert sorted(one.name for one in listed) == ["by_arrow", "by_spark"]


def test_a_table_is_renamed_and_purged_and_its_namespace_dropped(
    arrow: ArrowEngine, plugin: SqlCatalogPlugin, namespace: str
) -> None:
    old, new = (TableIdentifier.from_string(f"{namespace}.raw.{name}") for name in ("old", "new"))
    arrow.write(old, events(0), mode="append")
    arrow.lake.tables.rename_table(old, new)
    assert rows_of(arrow.read(new)) == rows_of(events(0))
    plugin.drop_table(str(new), purge=True)
    assert plugin.list_tables(f"{namespace}.raw") == []
    with pytest.raises(NamespaceAlreadyExistsError):
        plugin.create_namespace(f"{namespace}.raw")
    plugin.delete_namespace(f"{namespace}.raw")
    assert plugin.list_namespaces(namespace) == []


def _append_beside(lake: Lake, root: Path, table: TableIdentifier, data: pa.Table) -> pa.Table:
    """Append to a table of another project, and read it."""
    own, engine = lake.spark, SparkEngine(SideLake(CompiledArtifacts.load(root), lake))
    try:
        engine.write(table, data, mode="append")
        return engine.read(table)
    finally:
        own.createDataFrame([(0,)], "n int")  # the active session is the one that made the last frame


@pytest.mark.full
def test_the_files_may_be_in_s3(
    server: PostgresServer, spark: SparkProcess, tmp_path: Path, table: TableIdentifier
) -> None:
    server.run("CREATE DATABASE elsewhere")
    with seaweedfs_server(tmp_path / "s3") as store:
        for name, secret in (("password", quote(PASSWORD, safe="")), ("key", store.key), ("secret", store.secret)):
            (tmp_path / name).write_text(secret, encoding="utf-8")
        keys = 'access_key_id: "${file:key}", secret_access_key: "${file:secret}"'
        endpoint = f"endpoint: '{store.s3_endpoint}', path_style_access: true"
        project = compiled(
            tmp_path,
            server.uri("elsewhere", password="${file:password}"),
            f"storage: {{type: s3, bucket: {OTHER_BUCKET}, {endpoint}, {keys}}}\n",
        )
        arrow = ArrowEngine(Lake(project))
        arrow.write(table, events(0), mode="append")
        read = spark.do(_append_beside, project.root, table, events(1))
        assert rows_of(read) == rows_of(arrow.read(table)) == rows_of(events(0, 1))
        place = f"s3://{OTHER_BUCKET}/{table.namespace[0]}/{table.name}"
        assert arrow.lake.tables.load_table(table).location() == place
        # Another catalog in the same database and bucket keeps its files apart.
        catalog = project.catalog.model_copy(update={"name": "other"})
        other = ArrowEngine(Lake(project.model_copy(update={"catalog": catalog}).at(project.root)))
        assert not other.lake.tables.table_exists(table)
        other.write(table, events(2), mode="append")
        assert other.lake.tables.load_table(table).location().startswith(f"{place}-")
        other.lake.tables.drop_table(table, purge=True)
        assert rows_of(arrow.read(table)) == rows_of(events(0, 1))


# Many at once ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def writers(shop: CompiledArtifacts) -> Iterator[list[Writer]]:
    """Processes that write with Arrow."""
    made = [Writer(Project(shop), "arrow") for _ in range(3)]
    for one in made:
        one.wait_until_ready()
    yield made
    for one in made:
        one.close()


@pytest.mark.full
def test_appends_of_processes_of_both_engines_all_land_once(
    arrow: ArrowEngine, spark: SparkProcess, writers: list[Writer], table: TableIdentifier
) -> None:
    """The table itself is created in the race too."""
    plan: list[tuple[Engine, int]] = [*((one, 8) for one in writers), (spark, 4)]

    def append(place: int) -> list[int]:
        engine, times = plan[place]
        rows = [pa.table({"writer": [place], "number": [number]}) for number in range(times)]
        return [engine.write(table, one, mode="append").snapshot_id for one in rows]

    with ThreadPoolExecutor(len(plan)) as pool:
        acknowledged = [snapshot for made in pool.map(append, range(len(plan))) for snapshot in made]
    expected = [(place, number) for place, (_, times) in enumerate(plan) for number in range(times)]
    assert rows_of(arrow.read(table)) == rows_of(spark.read(table)) == sorted(expected, key=str)
    loaded = arrow.lake.tables.load_table(table)
    history = [one.snapshot_id for one in ancestors_of(loaded.current_snapshot(), loaded.metadata)]
    assert sorted(history) == sorted(acknowledged)


# A server that goes away -----------------------------------------------------------------------------------------


@pytest.mark.full  # starts servers or processes of its own
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["stopped", "killed"])
def test_a_server_that_was_started_anew_is_met_as_if_nothing_had_been(
    server: PostgresServer, arrow: ArrowEngine, spark: SparkProcess, table: TableIdentifier, how: signal.Signals
) -> None:
    arrow.write(table, events(0), mode="append")
    spark.write(table, events(1), mode="append")
    server.stop(how)
    with pytest.raises(CatalogConnectionError, match=rf"no connection to 127\.0\.0\.1:{server.port}"):
        arrow.read(table)
    server.start()
    arrow.write(table, events(2), mode="append")
    server.stop(how)
    server.start()
    spark.write(table, events(3), mode="append")
    assert rows_of(arrow.read(table)) == rows_of(spark.read(table)) == rows_of(events(0, 1, 2, 3))


@pytest.mark.full
def test_a_connection_that_was_closed_while_it_was_idle_is_opened_again(
    server: PostgresServer, arrow: ArrowEngine, spark: SparkProcess, table: TableIdentifier
) -> None:
    arrow.write(table, events(0), mode="append")
    server.end_connections()
    spark.write(table, events(1), mode="append")
    server.end_connections()
    assert rows_of(arrow.read(table)) == rows_of(events(0, 1))
    server.end_connections()
    assert rows_of(spark.read(table)) == rows_of(events(0, 1))


@pytest.mark.parametrize("moment", ["before the server commits", "after the server committed"])
def test_a_commit_whose_connection_is_lost_is_there_once(
    server: PostgresServer, arrow: ArrowEngine, plugin: SqlCatalogPlugin, table: TableIdentifier, moment: str
) -> None:
    arrow.write(table, events(0), mode="append")
    engine = plugin.connect().engine
    lost: list[str] = []

    def remember(connection: Connection, _cursor: Any, statement: str, *_: Any) -> None:
        connection.info["updates"] = statement.startswith("UPDATE iceberg_tables")

    def lose(connection: Connection) -> None:
        if not lost and connection.info.get("updates"):
            lost.append(moment)
            if moment.startswith("after"):
                connection.exec_driver_sql("COMMIT")
            server.end_connections()

    event.listen(engine, "before_cursor_execute", remember)
    event.listen(engine, "commit", lose)
    try:
        arrow.write(table, events(1), mode="append")
    finally:
        event.remove(engine, "commit", lose)
        event.remove(engine, "before_cursor_execute", remember)
    assert lost == [moment]
    assert rows_of(arrow.read(table)) == rows_of(events(0, 1))
    assert len(arrow.lake.tables.list_snapshots(table)) == 2


# Secrets ---------------------------------------------------------------------------------------------------------


def _what_spark_shows(lake: Lake) -> tuple[str, list[str], str | None]:
    settings = "\n".join(f"{row.key}={row.value}" for row in lake.spark.sql("SET").collect())
    commands = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # ended meanwhile
            commands.append(process.read_text(errors="replace"))
    return settings, commands, lake.spark.conf.get("spark.sql.catalog.lake.jdbc.password")


@pytest.mark.full  # starts servers or processes of its own
def test_the_password_reaches_spark_and_nobody_sees_it(
    shop: CompiledArtifacts, arrow: ArrowEngine, spark: SparkProcess, plugin: SqlCatalogPlugin, table: TableIdentifier
) -> None:
    spark.write(table, events(0), mode="append")
    settings, commands, given = spark.do(_what_spark_shows)
    assert given == PASSWORD
    assert "spark.sql.catalog.lake.jdbc.user=" in settings
    assert any("spark.sql.catalog.lake.jdbc.user" in one for one in commands)
    health = check_health(plugin)
    assert health.healthy
    assert "/shop (" in health.message
    properties = arrow.lake.tables.load_table(table).io.properties
    seen = [repr(one) for one in (shop, vars(arrow.lake), plugin.connect().engine, plugin.database, properties)]
    written = [path.read_text(errors="replace") for path in (shop.root / ".floe").rglob("*") if path.is_file()]
    for secret in (PASSWORD, quote(PASSWORD), quote(PASSWORD, safe="")):
        assert not [one for one in (settings, *commands, health.message, *seen, *written) if secret in one]


# Encryption ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, trustme.CA]:
    """An authority, and the folder of its certificate and of that of another one."""
    folder = tmp_path_factory.mktemp("certificates")
    known = trustme.CA()
    known.cert_pem.write_to_path(str(folder / "known.pem"))
    trustme.CA().cert_pem.write_to_path(str(folder / "other.pem"))
    return folder, known


@pytest.fixture(scope="module")
def ports(server: PostgresServer, certificates: tuple[Path, trustme.CA]) -> Iterator[dict[str, int]]:
    """Where the server takes encrypted connections only, by the name in its certificate."""
    with ExitStack() as stack:
        made = {}
        for name in ("127.0.0.1", "elsewhere.example"):
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            certificates[1].issue_cert(name).configure_cert(context)
            made[name] = stack.enter_context(tls_front(server.port, context))
        yield made


def _refusal(lake: Lake, settings: dict[str, str]) -> str:
    """What Spark says about a catalog with these settings; nothing if it works."""
    name = f"c_{uuid.uuid4().hex[:8]}"
    prefix = f"spark.sql.catalog.{name}"
    lake.spark.conf.set(prefix, "org.apache.iceberg.spark.SparkCatalog")
    for key, value in {"type": "jdbc", "warehouse": "file:///nowhere", **settings}.items():
        lake.spark.conf.set(f"{prefix}.{key}", value)
    try:
        lake.spark.sql(f"SHOW NAMESPACES IN {name}").collect()
    except Exception as exc:  # noqa: BLE001 - whatever Java says
        return str(exc)
    return ""


@pytest.mark.full  # starts servers or processes of its own
@pytest.mark.parametrize(
    ("options", "name", "works"),
    [
        ("", "elsewhere.example", True),
        ("?sslmode=disable", "127.0.0.1", False),
        ("?sslmode=require", "elsewhere.example", True),
        ("?sslmode=verify-ca&sslrootcert=known.pem", "elsewhere.example", True),
        ("?sslmode=verify-ca&sslrootcert=other.pem", "127.0.0.1", False),
        ("?sslmode=verify-full&sslrootcert=known.pem", "127.0.0.1", True),
        ("?sslmode=verify-full&sslrootcert=known.pem", "elsewhere.example", False),
    ],
)
def test_both_engines_encrypt_and_verify_as_the_address_says(
    server: PostgresServer,
    spark: SparkProcess,
    ports: dict[str, int],
    certificates: tuple[Path, trustme.CA],
    options: str,
    name: str,
    works: bool,
) -> None:
    uri = server.uri("shop", port=ports[name]) + options
    opened = SqlCatalogPlugin(SqlCatalogConfig(uri=uri), root=certificates[0])
    if works:
        assert check_health(opened).healthy
    else:
        with pytest.raises(CatalogConnectionError):
            opened.connect()
    refusal = spark.do(_refusal, opened.database.jdbc_settings())
    assert (refusal == "") is works, refusal
    assert PASSWORD not in refusal
