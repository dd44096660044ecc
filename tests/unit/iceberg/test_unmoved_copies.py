"""A lake that was copied, before `floe move`: nothing in the copy writes into the original."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from tests.unit.iceberg.test_relocation import digests, move_all, opened

from floe_core.errors import FloeStorageError
from floe_core.identifiers import TableIdentifier
from floe_core.models import PartitionTransform
from floe_iceberg import IcebergTableManager
from floe_iceberg.maintenance.leases import leased, release
from floe_iceberg.relocation import plan_moves
from floe_iceberg.schema.changes import AddColumn

T, RENAMED, PLACED = "a.x", "b.x", "a.placed"
ROWS = pa.table({"n": [1]})

pytestmark = pytest.mark.usefixtures("configured_logs")


@pytest.fixture
def original(tmp_path: Path) -> Path:
    """A project with a table, a renamed one, and one that was placed in the project beside the warehouse."""
    root = tmp_path / "original"
    root.mkdir()
    (root / "floe.yaml").write_text("name: shop\n")
    tables = opened(root)
    for name in (T, "a.y"):
        tables.write_data(name, ROWS, mode="append")
        tables.write_data(name, ROWS, mode="append")
    tables.rename_table("a.y", RENAMED)
    tables.create_table(PLACED, ROWS.schema, location=f"file://{root}/apart/orders")
    tables.write_data(PLACED, ROWS, mode="append")
    tables.close()
    return root


@pytest.fixture
def copy(original: Path) -> Path:
    root = original.with_name("copy")
    shutil.copytree(original, root)
    return root


def newest(root: Path, folder: str) -> str:
    """The newest metadata file of a table."""
    return f"file://{max((root / folder / 'metadata').glob('*.metadata.json'))}"


@pytest.mark.parametrize("table", [T, RENAMED, PLACED])
def test_a_table_of_the_original_is_not_written_in_a_copy(original: Path, copy: Path, table: str) -> None:
    before = digests(original)
    with pytest.raises(FloeStorageError, match="this lake was moved or copied"):
        opened(copy).write_data(table, ROWS, mode="append")
    assert digests(original) == before
    move_all(copy, copy=True)
    assert opened(copy).write_data(table, ROWS, mode="append").count("added-records") == 1
    assert digests(original) == before


def test_a_table_that_was_committed_to_the_original_through_its_copy_is_refused_too(original: Path, copy: Path) -> None:
    tables = opened(copy)
    with tables.load_table(RENAMED).transaction() as changes:  # as an earlier version of Floe let it do
        changes.set_properties({"owner": "me"})
    with pytest.raises(FloeStorageError, match="this lake was moved or copied"):
        tables.write_data(RENAMED, ROWS, mode="append")
    assert opened(original).write_data(RENAMED, ROWS, mode="append").count("total-records") == 3


def test_a_registered_table_of_another_folder_is_written(original: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "floe.yaml").write_text("name: other\n")
    tables = opened(other)
    tables.register_table("c.z", newest(original, ".floe/warehouse/a/x"))
    tables.create_tag("c.z", "mine")
    assert tables.write_data("c.z", ROWS, mode="append").count("total-records") == 3
    assert plan_moves(tables).elsewhere.keys() == {"c.z"}


CHANGES: dict[str, Callable[[IcebergTableManager, str, int], object]] = {
    "create_tag": lambda tables, table, _first: tables.create_tag(table, "v2"),
    "move_tag": lambda tables, table, first: tables.move_tag(table, "v1", first),
    "remove_tag": lambda tables, table, _first: tables.remove_tag(table, "v1"),
    "create_branch": lambda tables, table, _first: tables.create_branch(table, "audit"),
    "remove_branch": lambda tables, table, _first: tables.remove_branch(table, "staged"),
    "fast_forward": lambda tables, table, _first: tables.fast_forward(table, "staged"),
    "rollback": lambda tables, table, first: tables.rollback_to_snapshot(table, first),
    "rollback_in_time": lambda tables, table, _first: tables.rollback_to_timestamp(table, datetime.now(timezone.utc)),
    "evolve_schema": lambda tables, table, _first: tables.evolve_schema(table, AddColumn("phone", pa.string())),
    "evolve_partitions": lambda tables, table, _first: tables.evolve_partitions(
        table, [PartitionTransform(source_column="n", transform_type="identity")]
    ),
    "repair": lambda tables, table, _first: tables.repair_timestamps(tables.load_table(table), table),
    "rename": lambda tables, table, _first: tables.rename_table(table, "d.new"),
}


@pytest.mark.parametrize("table", [T, RENAMED])
@pytest.mark.parametrize("change", CHANGES)
def test_metadata_of_the_original_is_not_changed_in_a_copy(original: Path, table: str, change: str) -> None:
    tables = opened(original)
    first = tables.list_snapshots(table)[0].snapshot_id
    tables.create_tag(table, "v1")
    tables.create_branch(table, "staged")
    tables.close()
    copy = original.with_name("copy")
    shutil.copytree(original, copy)
    before = digests(original), digests(copy)
    tables = opened(copy)
    with pytest.raises(FloeStorageError, match="this lake was moved or copied"):
        CHANGES[change](tables, table, first)
    assert not tables.namespace_exists("d")
    tables.close()
    assert (digests(original), digests(copy)) == before


@pytest.mark.parametrize("table", [T, RENAMED])
def test_maintenance_of_a_copy_takes_and_ends_no_lease_of_the_original(original: Path, copy: Path, table: str) -> None:
    identifier, before = TableIdentifier.from_string(table), digests(original)
    tables = opened(copy)
    with pytest.raises(FloeStorageError, match="this lake was moved or copied"), leased(tables, identifier):
        pass
    with pytest.raises(FloeStorageError, match="this lake was moved or copied"):
        release(tables, identifier)
    assert digests(original) == before


def test_a_table_that_the_copy_changed_in_the_original_is_refused_with_the_way_out(original: Path, copy: Path) -> None:
    tables = opened(copy)
    with tables.load_table(T).transaction() as changes:  # as an earlier version of Floe let it do
        changes.set_properties({"owner": "me"})
    recorded = tables.load_table(T).metadata_location
    assert recorded.startswith(f"file://{original}/")
    tables.close()
    for _attempt in range(2):  # also if no other table is left to move
        plan = move_all(copy, copy=True)
        (refused,) = plan.refused
        assert (refused.table, plan.elsewhere) == (T, {})
        assert recorded in refused.reasons[0]
    own = newest(copy, ".floe/warehouse/a/x").removeprefix("file://")
    assert f"floe tables drop {T}; floe tables register {T} {own}; and floe move again" in refused.reasons[0]
    before = digests(original)
    tables = opened(copy)
    tables.drop_table(T)
    tables.register_table(T, f"file://{own}")
    assert not move_all(copy, copy=True).refused
    assert opened(copy).write_data(T, ROWS, mode="append").count("total-records") == 3
    assert digests(original) == before


def test_a_table_of_the_original_without_a_file_in_the_copy_is_refused(original: Path, copy: Path) -> None:
    shutil.rmtree(copy / ".floe/warehouse/a/y")  # that of the renamed table
    plan = plan_moves(opened(copy), copy=True)
    assert [planned.table for planned in plan.moves] == [PLACED, T]
    (refused,) = plan.refused
    assert refused.table == RENAMED
    assert refused.reasons[0].endswith(f"run: floe tables drop {RENAMED}")


@pytest.mark.parametrize(
    ("table", "folder"), [(T, ".floe/warehouse/a/x"), ("c.other", ".floe/warehouse/a/x"), (PLACED, "apart/orders")]
)
def test_a_metadata_file_of_the_copy_that_names_the_original_is_moved(
    original: Path, copy: Path, table: str, folder: str
) -> None:
    tables = opened(copy)
    tables.drop_table(PLACED if table == PLACED else T)
    tables.register_table(table, newest(copy, folder))
    before = digests(original)
    with pytest.raises(FloeStorageError, match="this lake was moved or copied"):
        tables.write_data(table, ROWS, mode="append")
    refused = {one.table: one.reasons for one in plan_moves(tables).refused}
    assert refused[table][0].startswith(f"this is a copy: the original at {original}/.floe/warehouse exists")
    tables.close()
    plan = move_all(copy, copy=True)
    assert table in {planned.table for planned in plan.moves}
    tables = opened(copy)
    tables.write_data(table, ROWS, mode="append")
    assert plan_moves(tables).in_place == 3
    assert digests(original) == before
