"""`catalog.retry` holds for a catalog in a database: attempts and breaker, on SQLite and on PostgreSQL."""

from __future__ import annotations

import socket
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pg8000  # type: ignore[import-untyped]  # it ships no types
import pytest
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField
from sqlalchemy.exc import DBAPIError

from floe_core.config.spec import RetryConfig, SqlCatalogConfig
from floe_core.errors import CatalogConnectionError
from floe_iceberg.catalogs import sqlite
from floe_iceberg.catalogs.database_retry import NotConnectedError, is_away, was_not_sent
from floe_iceberg.catalogs.sql import SqlCatalogPlugin
from floe_iceberg.catalogs.storage_catalog import StorageCatalog
from floe_iceberg.errors import translated


def plugin(root: Path, uri: str = "sqlite:///catalog.db", **retry: Any) -> SqlCatalogPlugin:
    quick = {"initial_wait_seconds": 0.1, "max_wait_seconds": 1, "jitter_seconds": 0, "circuit_breaker_threshold": 0}
    return SqlCatalogPlugin(SqlCatalogConfig(uri=uri, retry=RetryConfig.model_validate(quick | retry)), root=root)


@contextmanager
def counting_server() -> Iterator[tuple[int, list[int]]]:
    """A port that takes connections and closes them at once; how many is counted."""
    taken: list[int] = []
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                taken.append(1)
                connection.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1], taken
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize("attempts", [1, 3])
def test_postgresql_is_asked_as_often_as_the_settings_say(tmp_path: Path, attempts: int) -> None:
    with counting_server() as (port, taken):
        catalog = plugin(tmp_path, f"postgresql://anna@127.0.0.1:{port}/shop?sslmode=disable", max_attempts=attempts)
        with pytest.raises(CatalogConnectionError, match="no connection to"):
            catalog.connect()
    assert len(taken) == attempts


def test_a_postgresql_that_does_not_answer_is_not_asked_for_a_while(tmp_path: Path) -> None:
    with counting_server() as (port, taken):
        uri = f"postgresql://anna@127.0.0.1:{port}/shop?sslmode=disable"
        catalog = plugin(tmp_path, uri, max_attempts=1, circuit_breaker_threshold=2, max_wait_seconds=300)
        for words in ("no connection to", "no connection to", "2 times in a row, so no request was sent"):
            with pytest.raises(CatalogConnectionError, match=words):
                catalog.list_namespaces()
    assert len(taken) == 2


@contextmanager
def lock(path: Path, *, seconds: float) -> Iterator[None]:
    """Nobody else may write to the file for so long."""
    with closing(sqlite3.connect(path, check_same_thread=False, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        release = threading.Timer(seconds, lambda: other.execute("ROLLBACK"))
        release.start()
        try:
            yield
        finally:
            release.join()


@pytest.mark.parametrize(("attempts", "succeeds"), [(1, False), (10, True)])
def test_a_locked_sqlite_file_is_tried_as_often_as_the_settings_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attempts: int, succeeds: bool
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.1)
    catalog = plugin(tmp_path, max_attempts=attempts)
    catalog.connect()
    with lock(tmp_path / "catalog.db", seconds=1.0):
        if succeeds:
            catalog.create_namespace("bronze")
        else:
            with pytest.raises(CatalogConnectionError, match="another process has locked the catalog database"):
                catalog.create_namespace("bronze")
    assert catalog.list_namespaces() == (["bronze"] if succeeds else [])


def test_what_the_catalog_answers_is_not_asked_again(tmp_path: Path) -> None:
    catalog = plugin(
        tmp_path, max_attempts=10, initial_wait_seconds=30, max_wait_seconds=60, circuit_breaker_threshold=1
    )
    for _ in range(3):
        with pytest.raises(NoSuchTableError):
            catalog.connect().load_table("bronze.orders")


def test_a_change_whose_answer_was_lost_is_not_repeated() -> None:
    lost = DBAPIError.instance(None, None, pg8000.InterfaceError("network error"), pg8000.Error)
    assert isinstance(lost, DBAPIError)
    assert is_away(lost)
    assert not was_not_sent(lost)
    with (
        pytest.raises(CatalogConnectionError, match="check whether it was applied"),
        translated("create_tag", "b.orders"),
    ):
        raise lost


SCHEMA = Schema(NestedField(1, "id", LongType()))


def let_loads_fail(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """The next looks at tables that exist find no connection; a row that is not there is found to be missing."""
    load = StorageCatalog._convert_orm_to_iceberg
    left = list(range(times))

    def fail(self: StorageCatalog, row: Any) -> Table:
        if left:
            left.pop()
            raise NotConnectedError("no connection")
        return load(self, row)

    monkeypatch.setattr(StorageCatalog, "_convert_orm_to_iceberg", fail)


def test_a_change_is_not_repeated_when_only_the_look_after_it_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = plugin(tmp_path, max_attempts=3).connect()
    catalog.create_namespace("bronze")
    let_loads_fail(monkeypatch, 1)
    assert catalog.create_table("bronze.orders", SCHEMA).name() == ("bronze", "orders")
    let_loads_fail(monkeypatch, 2)
    assert catalog.rename_table("bronze.orders", "bronze.sales").name() == ("bronze", "sales")
    let_loads_fail(monkeypatch, 3)
    with pytest.raises(NotConnectedError):  # and not that the table exists already, or that there is none
        catalog.rename_table("bronze.sales", "bronze.orders")
    assert catalog.list_tables("bronze") == [("bronze", "orders")]
