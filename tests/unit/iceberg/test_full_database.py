"""A catalog database that cannot grow: what is refused is named, and nothing is half done."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy import event
from tests.lakes import open_manager

from floe_core.errors import FloeStorageError
from floe_core.identifiers import Namespace, TableIdentifier
from floe_iceberg import IcebergTableManager

ORDERS = TableIdentifier.from_string("bronze.orders")


def fill(manager: IcebergTableManager) -> None:
    """Let SQLite take no further page, as on a disk without space."""
    catalog = manager.catalog_plugin.connect()
    assert isinstance(catalog, SqlCatalog)
    catalog.engine.dispose()

    def limit(connection: object, _record: object) -> None:
        connection.execute("PRAGMA max_page_count = 1")  # type: ignore[attr-defined]  # SQLite takes the current size

    event.listen(catalog.engine, "connect", limit)


def create_many(manager: IcebergTableManager) -> None:
    """More than fits into the room that the pages still have."""
    for number in range(1000):
        manager.create_namespace(Namespace.from_string(f"filling_{number:04}"), {"comment": "x" * 500})


def test_a_namespace_that_finds_no_space_says_so(tmp_path: Path) -> None:
    manager = open_manager(tmp_path)
    manager.write_data(ORDERS, pa.table({"id": [1]}), mode="append")
    fill(manager)
    with pytest.raises(FloeStorageError, match=r"no space left on the disk with the catalog database.*free some space"):
        create_many(manager)
    assert manager.scan(ORDERS).count() == 1
