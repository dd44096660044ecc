"""How the `sql` catalog opens PostgreSQL: new databases, odd passwords, and refusals that say what to do."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from sqlalchemy import text
from tests.servers.postgres import PASSWORD, PostgresServer, postgres_server

from floe_core.config.spec import LocalStorageConfig, RetryConfig, SqlCatalogConfig
from floe_core.errors import (
    CatalogAuthenticationError,
    CatalogConnectionError,
    ConfigurationError,
    FloeStorageError,
    NamespaceAlreadyExistsError,
    PermissionDeniedError,
)
from floe_core.identifiers import Namespace, TableIdentifier
from floe_iceberg import IcebergTableManager
from floe_iceberg.catalogs import postgres
from floe_iceberg.catalogs.sql import SqlCatalogPlugin
from floe_iceberg.storage.local import LocalStoragePlugin

# As a constant, so that the source lines of a traceback do not show it.
PLANTED = "planted%40value"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as running:
        yield running


@pytest.fixture
def database(server: PostgresServer) -> str:
    """The name of a new database."""
    name = f"db_{uuid.uuid4().hex[:10]}"
    server.run(f"CREATE DATABASE {name}")
    return name


# What a failure means is seen at the first one.
ONCE = RetryConfig(max_attempts=1, circuit_breaker_threshold=0)


def plugin(uri: str) -> SqlCatalogPlugin:
    return SqlCatalogPlugin(SqlCatalogConfig(uri=uri, retry=ONCE), root=Path())


# New databases ---------------------------------------------------------------------------------------------------


def test_several_that_open_a_new_catalog_at_once_all_succeed(server: PostgresServer) -> None:
    names = [f"new_{uuid.uuid4().hex[:8]}" for _ in range(8)]
    for name in names:
        server.run(f"CREATE DATABASE {name}")
    together = threading.Barrier(4)

    def open_all(_: int) -> None:
        for name in names:
            catalog = plugin(server.uri(name))
            together.wait(60)
            with suppress(NamespaceAlreadyExistsError):
                catalog.create_namespace("bronze")
            catalog.shutdown()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(open_all, range(4)))
    for name in names:
        assert plugin(server.uri(name)).list_namespaces() == ["bronze"]


def test_a_database_that_is_serializable_by_default_loses_no_append(
    server: PostgresServer, database: str, tmp_path: Path
) -> None:
    server.run(f"ALTER DATABASE {database} SET default_transaction_isolation = 'serializable'")
    storage = LocalStoragePlugin(LocalStorageConfig(), root=tmp_path)
    tables = IcebergTableManager(plugin(server.uri(database)), storage)
    table = TableIdentifier.from_string("bronze.events")
    with tables.catalog_plugin.connect().engine.connect() as connection:  # type: ignore[attr-defined]  # PyIceberg's
        assert connection.get_isolation_level() == "READ COMMITTED"

    def append(place: int) -> None:
        for number in range(6):
            tables.write_data(table, pa.table({"writer": [place], "number": [number]}), mode="append")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(append, range(4)))
    assert len(tables.scan(table).to_arrow()) == 24


def test_a_transaction_that_the_server_takes_back_is_a_conflict(server: PostgresServer, database: str) -> None:
    catalog = plugin(server.uri(database))
    catalog.create_namespace("bronze")
    strict = catalog.connect().engine.execution_options(isolation_level="SERIALIZABLE")
    touch = text("UPDATE iceberg_namespace_properties SET property_value = 'x'")
    with strict.connect() as first, strict.connect() as second:
        for one in (first, second):
            one.execute(text("SELECT * FROM iceberg_namespace_properties"))
        first.execute(touch)
        first.commit()
        with pytest.raises(CommitFailedException, match="40001"):
            second.execute(touch)


def backend(catalog: SqlCatalogPlugin) -> int:
    """The process of the server behind the catalog's connection."""
    with catalog.connect().engine.connect() as connection:
        return int(connection.execute(text("SELECT pg_backend_pid()")).scalar_one())


def test_a_forked_process_opens_a_connection_of_its_own(server: PostgresServer, database: str) -> None:
    catalog = plugin(server.uri(database))
    mine = backend(catalog)
    here, there = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=lambda: there.send(backend(catalog)))
    child.start()
    assert here.poll(60)
    assert here.recv() != mine
    child.join(60)
    assert backend(catalog) == mine


def test_a_connection_that_fell_silent_is_replaced_by_another(
    server: PostgresServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "ANSWER_SECONDS", 0.5)
    catalog = plugin(server.uri(database))
    silent = backend(catalog)
    os.kill(silent, signal.SIGSTOP)
    try:
        assert backend(catalog) != silent
    finally:
        os.kill(silent, signal.SIGCONT)


# Passwords -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "meant"), [("p@ss:w/rd?#&=+ x", "p@ss:w/rd?#&=+ x"), ("100%", "100%"), ("p%40ss", "p@ss")]
)
def test_what_a_reference_leads_to_may_be_escaped_or_not(
    server: PostgresServer, database: str, monkeypatch: pytest.MonkeyPatch, written: str, meant: str
) -> None:
    role = f"role_{uuid.uuid4().hex[:8]}"
    server.run(f"CREATE ROLE {role} SUPERUSER LOGIN PASSWORD '{meant}'")
    monkeypatch.setenv("FLOE_TEST_PASSWORD", written)
    assert plugin(server.uri(database, user=role, password="${env:FLOE_TEST_PASSWORD}")).list_namespaces() == []


def test_the_whole_address_may_be_a_reference(
    server: PostgresServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOE_TEST_URI", server.uri(database))
    assert plugin("${env:FLOE_TEST_URI}").list_namespaces() == []
    monkeypatch.setenv("FLOE_TEST_URI", f"{server.uri(database)}?sslmode=perhaps")
    with pytest.raises(ConfigurationError, match="sslmode must be one of"):
        plugin("${env:FLOE_TEST_URI}").connect()


# Refusals --------------------------------------------------------------------------------------------------------


def shown(error: BaseException) -> str:
    """All that a log, a terminal or a tracker may get to see of an error."""
    detail = error.detail.model_dump_json() if isinstance(error, FloeStorageError) and error.detail else ""
    return "".join((*traceback.format_exception(error), repr(error), detail))


def test_a_wrong_password_is_told_without_showing_it(server: PostgresServer) -> None:
    with pytest.raises(
        CatalogAuthenticationError, match=r"refused the user or the password.*Check catalog\.uri"
    ) as met:
        plugin(server.uri(password=PLANTED)).connect()
    assert "planted" not in shown(met.value)


def test_an_unknown_database_is_told_by_its_name(server: PostgresServer) -> None:
    with pytest.raises(CatalogConnectionError, match=r'database "nowhere" does not exist\. Create it') as met:
        plugin(server.uri("nowhere")).connect()
    assert PASSWORD not in shown(met.value)


def test_a_user_who_may_not_create_tables_is_told_so(server: PostgresServer, database: str) -> None:
    server.run(f"CREATE ROLE guest_{database} LOGIN PASSWORD '{PLANTED.replace('%40', '@')}'")
    with pytest.raises(PermissionDeniedError, match=r"permission denied for schema public\. Ask for that") as met:
        plugin(server.uri(database, user=f"guest_{database}", password=PLANTED)).connect()
    assert "planted" not in shown(met.value)


def test_whatever_is_asked_of_a_server_that_stopped_is_a_connection_error(
    server: PostgresServer, database: str, tmp_path: Path
) -> None:
    tables = IcebergTableManager(plugin(server.uri(database)), LocalStoragePlugin(LocalStorageConfig(), root=tmp_path))
    bronze, data = Namespace.from_string("bronze"), pa.table({"id": [1]})
    here, new = (TableIdentifier.from_string(f"bronze.{name}") for name in ("here", "new"))
    tables.write_data(here, data, mode="append")
    asked: dict[str, Callable[[], object]] = {
        "ensure_namespace": lambda: tables.ensure_namespace(Namespace.from_string("silver")),
        "create_table": lambda: tables.create_table(new, data.schema),
        "append": lambda: tables.write_data(here, data, mode="append"),
        "append to a new table": lambda: tables.write_data(new, data, mode="append"),
        "load_table": lambda: tables.load_table(here),
        "table_exists": lambda: tables.table_exists(here),
        "list_tables": lambda: tables.list_tables(bronze),
        "rename_table": lambda: tables.rename_table(here, new),
        "drop_table": lambda: tables.drop_table(here),
        "scan": lambda: tables.scan(here),
        "list_namespaces": tables.catalog_plugin.list_namespaces,
        "delete_namespace": lambda: tables.catalog_plugin.delete_namespace("bronze"),
    }
    server.stop()
    try:
        for name, ask in asked.items():
            with pytest.raises(CatalogConnectionError) as met:
                ask()
            assert f"no connection to 127.0.0.1:{server.port}" in str(met.value), name
            assert PASSWORD not in shown(met.value)
    finally:
        server.start()
    assert tables.scan(here).to_arrow() == data


def test_a_server_without_encryption_is_refused_where_it_is_required(server: PostgresServer) -> None:
    with pytest.raises(ConfigurationError, match=r"Server refuses SSL.*sslmode=disable"):
        plugin(server.uri() + "?sslmode=require").connect()


def test_a_missing_file_of_authorities_is_named(server: PostgresServer) -> None:
    with pytest.raises(ConfigurationError, match=r"sslrootcert: there is no file .*nowhere\.pem"):
        plugin(server.uri() + "?sslmode=verify-full&sslrootcert=nowhere.pem").connect()


@pytest.mark.parametrize("host", ["127.0.0.1:1", "nowhere.invalid:5432", "[::1]:1"])
def test_a_server_that_is_not_there_is_told_at_once(host: str) -> None:
    began = time.monotonic()
    with pytest.raises(CatalogConnectionError, match=r"Check that it runs, and check catalog\.uri") as met:
        plugin(f"postgresql://anna:{PLANTED}@{host}/shop").connect()
    assert time.monotonic() - began < 10
    assert f"no connection to {host}" in str(met.value)
    assert "planted" not in shown(met.value)


@pytest.mark.parametrize("silent", ["before the connection is there", "after it"])
def test_a_server_that_says_nothing_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch, silent: str) -> None:
    late = "CONNECT_SECONDS" if silent.startswith("before") else "ANSWER_SECONDS"
    monkeypatch.setattr(postgres, late, 0.3)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        waiting = [socket.socket() for _ in range(4 if silent.startswith("before") else 0)]
        for one in waiting:  # they fill the queue: whoever comes later gets no answer at all
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        began = time.monotonic()
        with pytest.raises(CatalogConnectionError, match=rf"no connection to 127\.0\.0\.1:{port}: timed out"):
            plugin(f"postgresql://anna:{PLANTED}@127.0.0.1:{port}/shop").connect()
        assert time.monotonic() - began < 5
        for one in waiting:
            one.close()
