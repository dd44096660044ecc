"""A table that cannot be loaded blocks only what could share files with it, as far as the catalog can tell."""

from __future__ import annotations

import shutil
import uuid
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import InputStream
from pyiceberg.io.pyarrow import PyArrowFile
from pyiceberg.table import Table
from tests.faults.damage import damage, file_of
from tests.lakes import open_manager

from floe_core.config.policy import ExpirePolicy, MaintenancePolicy
from floe_core.errors import DamagedFileError, FloeStorageError
from floe_core.identifiers import TableIdentifier
from floe_core.maintenance.reports import Step
from floe_iceberg import IcebergTableManager
from floe_iceberg.catalog_rows import RowName, load_row
from floe_iceberg.files import known_tables
from floe_iceberg.maintenance.plan import plan_table

ORDERS = TableIdentifier.from_string("bronze.orders")
OTHER = TableIdentifier.from_string("bronze.other")
ROWS = pa.table({"id": [1, 2]})


@pytest.fixture
def tables(tmp_path: Path) -> IcebergTableManager:
    made = open_manager(tmp_path)
    for one in (ORDERS, OTHER):
        made.write_data(one, ROWS, mode="append")
        made.write_data(one, ROWS, mode="append")
    return made


def damage_all_metadata(tables: IcebergTableManager, identifier: TableIdentifier) -> None:
    for path in file_of(tables.load_table(identifier), "metadata").parent.glob("*.metadata.json"):
        path.write_bytes(b"")


@pytest.mark.parametrize("how", ["half", "gone"])
@pytest.mark.parametrize("kind", ["metadata", "manifest list", "manifest"])
def test_a_damaged_table_does_not_block_expiry_orphans_and_purge_of_others(
    tables: IcebergTableManager, kind: str, how: str
) -> None:
    damage(tables.load_table(OTHER), kind, how)
    others, table = tables.neighbours(), tables.load_table(ORDERS)
    others.refuse_same(table, ORDERS)
    others.refuse_unreadable(ORDERS)
    others.refuse_below(table, ORDERS)
    assert others.references(ORDERS, ["/somewhere/else.parquet"]) == {}
    tables.drop_table(ORDERS, purge=True)
    assert not tables.table_exists(ORDERS)


def test_a_table_without_any_readable_metadata_is_placed_by_the_catalogs_row(tables: IcebergTableManager) -> None:
    damage_all_metadata(tables, OTHER)
    others, table = tables.neighbours(), tables.load_table(ORDERS)
    others.refuse_same(table, ORDERS)
    others.refuse_below(table, ORDERS)
    tables.drop_table(ORDERS, purge=True)


@pytest.mark.parametrize("everything", [False, True])
def test_a_damaged_second_name_blocks_expiry_orphans_and_purge(tables: IcebergTableManager, everything: bool) -> None:
    second = TableIdentifier.from_string("bronze.second")
    tables.register_table(second, tables.load_table(ORDERS).metadata_location)
    table = tables.load_table(ORDERS)
    for _ in range(2 if everything else 1):
        tables.write_data(second, ROWS, mode="append")
    newest = tables.load_table(second)
    if everything:
        Path(newest.metadata.metadata_log[-1].metadata_file.removeprefix("file://")).write_bytes(b"")
    damage(newest, "metadata", "half")
    others = tables.neighbours()
    with pytest.raises(FloeStorageError, match=r"'bronze\.second'"):
        others.refuse_same(table, ORDERS)
    with pytest.raises(FloeStorageError, match=r"'bronze\.second'"):
        others.refuse_below(table, ORDERS)
    with pytest.raises(FloeStorageError, match=r"'bronze\.second' is the same table"):
        tables.drop_table(ORDERS, purge=True)
    assert tables.scan(ORDERS).to_arrow().num_rows == 4


def test_files_that_a_damaged_table_had_before_are_no_orphans(tables: IcebergTableManager) -> None:
    file = file_of(tables.load_table(ORDERS), "data")
    tables.load_table(OTHER).add_files([f"file://{file}"])
    tables.write_data(OTHER, ROWS, mode="append")
    damage(tables.load_table(OTHER), "metadata", "half")
    with pytest.raises(DamagedFileError):
        tables.load_table(OTHER)
    assert tables.neighbours().references(ORDERS, [str(file)]) == {str(file): "bronze.other"}


@pytest.mark.parametrize("how", ["half", "gone"])
@pytest.mark.parametrize("kind", ["manifest list", "manifest"])
def test_files_that_were_added_to_a_table_are_no_orphans_while_they_are_unknown(
    tables: IcebergTableManager, kind: str, how: str
) -> None:
    file = file_of(tables.load_table(ORDERS), "data")
    tables.load_table(OTHER).add_files([f"file://{file}"])
    damage(tables.load_table(OTHER), kind, how)
    with pytest.raises(
        FloeStorageError, match=r"the files of 'bronze\.other' are unknown, and must not be taken.*repair or drop"
    ):
        tables.neighbours().references(ORDERS, [str(file)])


def fail_to_open(monkeypatch: pytest.MonkeyPatch, part: str, failure: OSError) -> None:
    """Files with this part in their address cannot be opened."""
    opened = PyArrowFile.open

    def refuse(self: PyArrowFile, seekable: bool = True) -> InputStream:
        if part in self.location:
            raise failure
        return opened(self, seekable)

    monkeypatch.setattr(PyArrowFile, "open", refuse)


DENIED = [
    PermissionError("Cannot open file, access denied"),
    OSError("When reading information for key 'x' in bucket 'y': AWS Error ACCESS_DENIED during HeadObject operation"),
]


@pytest.mark.parametrize("failure", DENIED)
def test_a_table_whose_files_are_hidden_from_this_user_is_not_asked(
    tables: IcebergTableManager, monkeypatch: pytest.MonkeyPatch, failure: OSError
) -> None:
    """As the table of another team, in a bucket of its own; whether it has added files makes no difference."""
    tables.load_table(OTHER).add_files([f"file://{file_of(tables.load_table(ORDERS), 'data')}"])
    within = f"{tables.load_table(OTHER).location()}/data/of-two-tables.parquet"
    fail_to_open(monkeypatch, "/bronze/other/metadata/", failure)
    others, table = tables.neighbours(), tables.load_table(ORDERS)
    others.refuse_same(table, ORDERS)
    others.refuse_below(table, ORDERS)
    assert others.references(ORDERS, ["/somewhere/else.parquet"]) == {}
    monkeypatch.undo()
    fail_to_open(monkeypatch, ".avro", failure)
    # Its location is known: a file there may be its own.
    assert tables.neighbours().references(ORDERS, [within, "/somewhere/else.parquet"]) == {within: "bronze.other"}
    monkeypatch.undo()
    fail_to_open(monkeypatch, "/bronze/other/", failure)
    assert tables.drop_table(ORDERS, purge=True) == ()


def test_files_that_cannot_be_read_for_a_moment_are_asked_for_again(
    tables: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_to_open(monkeypatch, "/bronze/other/metadata/snap-", OSError("AWS Error NETWORK_CONNECTION during GetObject"))
    with pytest.raises(FloeStorageError, match=r"NETWORK_CONNECTION.*run it again once") as caught:
        tables.neighbours().references(ORDERS, ["/somewhere/else.parquet"])
    assert "drop" not in str(caught.value)


@pytest.mark.parametrize("added", [False, True])
def test_the_plan_refuses_what_the_run_would_refuse(tables: IcebergTableManager, added: bool) -> None:
    file = file_of(tables.load_table(ORDERS), "data")
    if added:
        tables.load_table(OTHER).add_files([f"file://{file}"])
    damage(tables.load_table(OTHER), "manifest", "gone")
    orphan = file.with_name(f"00000-0-{uuid.uuid4()}.parquet")
    orphan.write_bytes(b"left")
    now = datetime.now(timezone.utc) + timedelta(days=10)
    plan = plan_table(
        tables.load_table(ORDERS),
        ORDERS,
        MaintenancePolicy(expire=ExpirePolicy(keep_last=1)),
        now=now,
        only=(Step.EXPIRE, Step.ORPHANS),
        neighbours=tables.neighbours(),
        homes=tables.homes(),
    )
    if added:
        assert plan.refused == {Step.EXPIRE, Step.ORPHANS}
        assert all("the files of 'bronze.other' are unknown" in why for _, why in plan.skipped)
    else:
        assert [one.step for one in plan.steps] == [Step.EXPIRE, Step.ORPHANS]


def test_the_plan_counts_no_orphan_that_another_table_uses(tables: IcebergTableManager) -> None:
    file = file_of(tables.load_table(ORDERS), "data")
    orphan = file.with_name(f"00000-0-{uuid.uuid4()}.parquet")
    shutil.copy(file, orphan)
    tables.load_table(OTHER).add_files([orphan.as_uri()])
    now = datetime.now(timezone.utc) + timedelta(days=10)
    plan = plan_table(
        tables.load_table(ORDERS),
        ORDERS,
        MaintenancePolicy(),
        now=now,
        only=[Step.ORPHANS],
        neighbours=tables.neighbours(),
        homes=tables.homes(),
    )
    assert plan.steps == ()
    assert {one.path: one.reason for one in plan.not_removed}[str(orphan)] == "'bronze.other' uses it"


def test_a_table_that_cannot_be_loaded_for_a_moment_blocks_what_deletes_files(
    tables: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can be damaged as little as its newest commit can be known: that one may have added files of others."""

    def load(catalog: SqlCatalog, row: RowName) -> Table:
        if row.name == ("bronze", "other"):
            raise OSError("AWS Error NETWORK_CONNECTION during GetObject operation")
        return load_row(catalog, row)

    monkeypatch.setattr(known_tables, "load_row", load)
    others, table = tables.neighbours(), tables.load_table(ORDERS)
    for refuse in (others.refuse_same, others.refuse_below):
        with pytest.raises(FloeStorageError, match=r"NETWORK_CONNECTION.*run it again") as caught:
            refuse(table, ORDERS)
        assert "drop" not in str(caught.value)


def test_files_of_a_damaged_table_that_are_unknown_for_a_moment_block_the_removal_of_orphans(
    tables: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage(tables.load_table(OTHER), "metadata", "half")

    def fail(*_arguments: object, **_named: object) -> set[str]:
        raise OSError("AWS Error NETWORK_CONNECTION during GetObject operation")

    others = tables.neighbours()
    monkeypatch.setattr(known_tables, "present_files", fail)
    with pytest.raises(FloeStorageError, match=r"files of 'bronze\.other' are unknown.*run it again"):
        others.references(ORDERS, ["/somewhere/else.parquet"])
