"""Somebody else drops or replaces a table between the look at it and the commit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType
from tests.faults.catalog import after, faulty

from floe_core.config.spec import LocalStorageConfig, SqlCatalogConfig
from floe_core.errors import ConcurrencyConflictError, TableNotFoundError
from floe_core.identifiers import TableIdentifier
from floe_core.plugins.discovery import start
from floe_iceberg import IcebergTableManager
from floe_iceberg.arguments import TableName
from floe_iceberg.catalogs.sql import SqlCatalogPlugin
from floe_iceberg.errors import translated
from floe_iceberg.schema.changes import AddColumn, DropColumn
from floe_iceberg.storage.local import LocalStoragePlugin

T = TableIdentifier.from_string("bronze.orders")
SCHEMA = pa.schema([("n", pa.int64()), ("note", pa.string())])
DATA = pa.table({"n": [1], "note": ["x"]}, SCHEMA)


class Overtaken(IcebergTableManager):
    """After its next look at the table, somebody else does something."""

    meanwhile: Callable[[], object] | None = None

    def load_table(self, identifier: TableName) -> Table:
        table = super().load_table(identifier)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return table


@pytest.fixture
def manager(tmp_path: Path) -> Overtaken:
    """A table with two snapshots, a tag and a branch."""
    storage = LocalStoragePlugin(LocalStorageConfig(), root=tmp_path)
    start(storage)
    opened = Overtaken(SqlCatalogPlugin(SqlCatalogConfig(), root=tmp_path), storage)
    create(opened)
    return opened


def create(manager: IcebergTableManager) -> None:
    table = manager.create_table(T, SCHEMA)
    table.append(DATA)
    table.append(DATA)
    manager.create_tag(T, "v1")
    manager.create_branch(T, "audit")
    manager.load_table(T).append(DATA, branch="audit")


def first(manager: IcebergTableManager) -> int:
    return manager.list_snapshots(T)[0].snapshot_id


CHANGES: dict[str, Callable[[IcebergTableManager, int], object]] = {
    "add a column": lambda manager, _: manager.evolve_schema(T, AddColumn("price", pa.float64())),
    "drop a column": lambda manager, _: manager.evolve_schema(T, DropColumn("note"), allow_incompatible_changes=True),
    "tag": lambda manager, _: manager.create_tag(T, "v2"),
    "branch": lambda manager, _: manager.create_branch(T, "other"),
    "remove a tag": lambda manager, _: manager.remove_tag(T, "v1"),
    "remove a branch": lambda manager, _: manager.remove_branch(T, "audit"),
    "fast-forward": lambda manager, _: manager.fast_forward(T, "audit"),
    "roll back": lambda manager, snapshot_id: manager.rollback_to_snapshot(T, snapshot_id),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_meant_for_another_table_is_a_conflict_and_touches_nothing(
    manager: Overtaken, change: Callable[[IcebergTableManager, int], object]
) -> None:
    snapshot_id = first(manager)

    def replace() -> None:
        manager.drop_table(T)
        create(manager)

    manager.meanwhile = replace
    with pytest.raises(ConcurrencyConflictError, match=r"(changed|replaced) 'bronze\.orders'.*; nothing was written"):
        change(manager, snapshot_id)
    table = manager.load_table(T)
    assert table.schema().column_names == ["n", "note"]
    assert set(table.refs()) == {"main", "v1", "audit"}
    assert len(table.history()) == 2


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_of_a_table_that_is_gone_does_not_bring_it_back(
    manager: Overtaken, change: Callable[[IcebergTableManager, int], object]
) -> None:
    snapshot_id = first(manager)
    manager.meanwhile = lambda: manager.drop_table(T)
    with pytest.raises((ConcurrencyConflictError, TableNotFoundError), match=r"bronze\.orders"):
        change(manager, snapshot_id)
    assert not manager.table_exists(T)


def test_rows_meant_for_another_table_are_not_appended_to_one_of_the_same_name_and_schema(
    manager: Overtaken, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = pa.table({"n": [7], "note": ["theirs"]}, SCHEMA)

    def replace() -> None:
        manager.drop_table(T)
        manager.create_table(T, SCHEMA).append(theirs)

    with (
        faulty(manager.catalog_plugin.connect(), monkeypatch, after(replace)),
        pytest.raises(ConcurrencyConflictError, match=r"dropped and created again during this write; nothing was"),
    ):
        manager.write_data(T, DATA, mode="append")
    assert manager.scan(T).to_arrow().to_pylist() == theirs.to_pylist()
    assert len(manager.list_snapshots(T)) == 1


def test_evolving_for_data_looks_again_and_fits_the_table_that_is_there_now(manager: Overtaken) -> None:
    def replace() -> None:
        manager.drop_table(T)
        manager.create_table(T, pa.schema([("n", pa.int64())]))

    manager.meanwhile = replace
    wide = Schema(
        NestedField(1, "n", LongType()), NestedField(2, "note", StringType()), NestedField(3, "price", LongType())
    )
    manager.evolve_for(T, wide)
    assert manager.load_table(T).schema().column_names == ["n", "note", "price"]


def test_a_handle_of_the_old_table_says_that_it_was_replaced(manager: Overtaken) -> None:
    old = manager.load_table(T)
    manager.drop_table(T)
    create(manager)
    with (
        pytest.raises(ConcurrencyConflictError, match=r"replaced 'bronze\.orders' by another table"),
        translated("x", T),
    ):
        old.refresh()
    with pytest.raises(ConcurrencyConflictError, match=r"'bronze\.orders'"), translated("x", T):
        old.append(DATA)
    assert len(manager.load_table(T).history()) == 2
