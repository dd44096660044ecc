"""Branches of the lake: what they show, what they leave alone, and what main gets of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pytest

from floe_core import PartitionTransform, PartitionTransformType, TableSlice, WriteMode, compile_project
from floe_core.config import CompiledArtifacts
from floe_core.errors import (
    ConcurrencyConflictError,
    ConfigurationError,
    FloeError,
    SchemaEvolutionError,
    TableNotFoundError,
)
from floe_core.identifiers import TableIdentifier
from floe_iceberg import AddColumn, DropColumn, Lake, Maintenance
from floe_iceberg.branches import TableState
from floe_iceberg.catalogs import BranchRecords
from floe_iceberg.maintenance import expiring, held_by_cursor, to_ms
from floe_iceberg.maintenance.pins import keep_pinned
from floe_iceberg.snapshots import StagingBranch, write_summary
from floe_iceberg.transactions import NewTable, publish
from floe_iceberg.writing import Target, WriteRequest

ORDERS, STORES, TOTALS = "bronze.orders", "bronze.stores", "gold.totals"
FIRST = datetime(2026, 1, 1, tzinfo=timezone.utc)
BY_DAY = [PartitionTransform(source_column="at", transform_type=PartitionTransformType.DAY)]


def rows(*days: int, note: str = "v1") -> pa.Table:
    moments = pa.array([FIRST + timedelta(days=day, hours=1) for day in days], pa.timestamp("us", "UTC"))
    return pa.table({"at": moments, "note": [note] * len(days)})


def day(number: int) -> TableSlice:
    return TableSlice.of_windows("at", [(FIRST + timedelta(days=number), FIRST + timedelta(days=number + 1))])


@pytest.fixture
def artifacts(tmp_path: Path) -> CompiledArtifacts:
    (tmp_path / "floe.yaml").write_text("name: shop\n", encoding="utf-8")
    return compile_project(tmp_path).artifacts


@pytest.fixture
def main(artifacts: CompiledArtifacts) -> Iterator[Lake]:
    with Lake(artifacts) as lake:
        lake.tables.write_data(ORDERS, rows(0, 1, 2), mode="append", partition_by=BY_DAY)
        lake.tables.write_data(STORES, pa.table({"id": [1]}), mode="append")
        yield lake


@pytest.fixture
def at(artifacts: CompiledArtifacts, main: Lake) -> Iterator[Callable[[str], Lake]]:
    opened: list[Lake] = []

    def lake(name: str) -> Lake:
        opened.append(Lake(artifacts.on_branch(name)))
        _ = opened[-1].tables
        return opened[-1]

    yield lake
    for one in opened:
        one.close()


def seen(lake: Lake, table: str = ORDERS) -> list[tuple[int, str]]:
    found = lake.tables.scan(table).to_arrow().to_pylist()
    return sorted(((row["at"] - FIRST).days, row["note"]) for row in found)


def state_of(lake: Lake, name: str, table: str = ORDERS) -> TableState:
    return {one.table: one.state for one in lake.branches.show(name).tables}[table]


V1 = [(0, "v1"), (1, "v1"), (2, "v1")]


def test_writes_to_a_branch_are_seen_there_and_not_on_main(main: Lake, at: Callable[[str], Lake]) -> None:
    trial = at("trial")
    trial.tables.write_data(ORDERS, rows(1, note="v2"), mode="overwrite", slice=day(1))
    assert seen(trial) == [(0, "v1"), (1, "v2"), (2, "v1")]
    assert seen(main) == V1
    assert trial.sql(f"SELECT count(*) AS n FROM {ORDERS} WHERE note = 'v2'").to_arrow()["n"].to_pylist() == [1]
    assert main.sql(f"SELECT count(*) AS n FROM {ORDERS} WHERE note = 'v2'").to_arrow()["n"].to_pylist() == [0]
    heads = trial.at_once([ORDERS, STORES])
    assert heads[ORDERS].scan().to_arrow().num_rows == 3
    assert heads[ORDERS].snapshot_id != main.at_once([ORDERS])[ORDERS].snapshot_id


def test_no_data_is_copied_when_a_branch_is_created_and_written_to(main: Lake, at: Callable[[str], Lake]) -> None:
    before = {task.file.file_path for task in main.tables.scan(ORDERS).plan_files()}
    trial = at("trial")
    trial.tables.write_data(ORDERS, rows(1, note="v2"), mode="overwrite", slice=day(1))
    after = {task.file.file_path for task in trial.tables.scan(ORDERS).plan_files()}
    assert len(after & before) == 2
    assert len(after - before) == 1


def test_what_a_branch_has_not_written_it_reads_as_main_was(main: Lake, at: Callable[[str], Lake]) -> None:
    trial = at("trial")
    main.tables.write_data(ORDERS, rows(5, note="later"), mode="append")
    main.tables.evolve_schema(ORDERS, AddColumn("city", pa.string()))
    assert seen(trial) == V1
    assert trial.tables.scan(ORDERS).to_arrow().column_names == ["at", "note"]
    assert trial.sql(f"SELECT count(*) AS n FROM {ORDERS}").to_arrow()["n"].to_pylist() == [3]
    again = at("trial")
    assert seen(again) == V1
    main.branches.update("trial")
    assert len(seen(at("trial"))) == 4


def test_columns_that_main_gains_are_not_those_of_the_branch(main: Lake, at: Callable[[str], Lake]) -> None:
    trial = at("trial")
    trial.tables.write_data(ORDERS, rows(5, note="v2"), mode="append")
    main.tables.evolve_schema(ORDERS, AddColumn("city", pa.string()))
    main.tables.write_data(ORDERS, rows(6).append_column("city", [["Oslo"]]), mode="append")
    assert trial.tables.scan(ORDERS).to_arrow().column_names == ["at", "note"]
    assert trial.sql(f"SELECT * FROM {ORDERS}").to_arrow().column_names == ["at", "note"]
    trial.tables.write_data(ORDERS, rows(7).append_column("city", [["Rome"]]), mode="append")
    assert trial.tables.scan(ORDERS).to_arrow().column_names == ["at", "note", "city"]
    main.branches.publish("trial")
    cities = main.tables.scan(ORDERS).to_arrow()["city"].to_pylist()
    assert sorted(filter(None, cities)) == ["Oslo", "Rome"]


def test_a_table_of_main_that_is_younger_than_the_branch_is_absent_there(main: Lake, at: Callable[[str], Lake]) -> None:
    trial = at("trial")
    main.tables.write_data(TOTALS, pa.table({"n": [1]}), mode="append")
    with pytest.raises(TableNotFoundError, match="floe branches update trial"):
        trial.tables.scan(TOTALS)
    with pytest.raises(TableNotFoundError, match="floe branches update trial"):
        trial.tables.write_data(TOTALS, pa.table({"n": [2]}), mode="append")
    main.branches.update("trial")
    assert at("trial").tables.scan(TOTALS).count() == 1


def test_a_renamed_table_is_found_by_its_identity(main: Lake, at: Callable[[str], Lake]) -> None:
    trial = at("trial")
    main.tables.rename_table(STORES, "bronze.shops")
    main.tables.write_data("bronze.shops", pa.table({"id": [2]}), mode="append")
    assert trial.tables.scan("bronze.shops").count() == 1


def test_a_new_table_is_absent_on_main_until_the_branch_is_published(main: Lake, at: Callable[[str], Lake]) -> None:
    trial = at("trial")
    trial.tables.write_data(TOTALS, pa.table({"n": [1, 2]}), mode="overwrite")
    assert trial.tables.scan(TOTALS).count() == 2
    with pytest.raises(TableNotFoundError, match="--branch trial"):
        main.tables.scan(TOTALS)
    assert [one.created for one in main.branches.show("trial").tables] == [True]
    published = main.branches.publish("trial")
    assert [(one.table, one.created) for one in published.tables] == [(TOTALS, True)]
    assert main.tables.scan(TOTALS).count() == 2


def test_all_tables_are_published_at_once_and_the_branch_is_gone(main: Lake, at: Callable[[str], Lake]) -> None:
    trial = at("trial")
    trial.tables.write_data(ORDERS, rows(1, note="v2"), mode="overwrite", slice=day(1))
    trial.tables.write_data(STORES, pa.table({"id": [2]}), mode="append")
    main.branches.publish("trial")
    assert seen(main) == [(0, "v1"), (1, "v2"), (2, "v1")]
    assert main.tables.scan(STORES).count() == 2
    assert list(main.branches.list()) == []
    for name in (ORDERS, STORES):
        assert main.tables.load_table(name).metadata.refs.keys() == {"main"}
    assert "floe_branch" not in " ".join(str(name) for name in main.tables.list_namespaces())


def test_main_that_moved_in_other_slices_is_kept_below_the_branch(main: Lake, at: Callable[[str], Lake]) -> None:
    trial = at("trial")
    trial.tables.write_data(ORDERS, rows(1, note="v2"), mode="overwrite", slice=day(1))
    trial.tables.write_data(ORDERS, rows(1, note="v3"), mode="overwrite", slice=day(1))
    main.tables.write_data(ORDERS, rows(2, 2, note="theirs"), mode="overwrite", slice=day(2))
    assert state_of(main, "trial") is TableState.BEHIND
    published = main.branches.publish("trial")
    assert published.tables[0].replayed
    assert seen(main) == [(0, "v1"), (1, "v3"), (2, "theirs"), (2, "theirs")]


def test_the_same_slice_is_refused_by_name_and_nothing_of_the_branch_is_published(
    main: Lake, at: Callable[[str], Lake]
) -> None:
    trial = at("trial")
    trial.tables.write_data(ORDERS, rows(1, note="v2"), mode="overwrite", slice=day(1))
    trial.tables.write_data(STORES, pa.table({"id": [2]}), mode="append")
    main.tables.write_data(ORDERS, rows(1, note="theirs"), mode="overwrite", slice=day(1))
    with pytest.raises(ConcurrencyConflictError, match=r"'bronze\.orders'.*floe branches update trial --restart"):
        main.branches.publish("trial")
    assert seen(main) == [(0, "v1"), (1, "theirs"), (2, "v1")]
    assert main.tables.scan(STORES).count() == 1
    assert seen(at("trial")) == [(0, "v1"), (1, "v2"), (2, "v1")]


def test_a_day_that_was_empty_is_the_same_slice_too(main: Lake, at: Callable[[str], Lake]) -> None:
    trial = at("trial")
    trial.tables.write_data(ORDERS, rows(7, note="v2"), mode="overwrite", slice=day(7))
    main.tables.write_data(ORDERS, rows(7, note="theirs"), mode="overwrite", slice=day(7))
    assert state_of(main, "trial") is TableState.CONFLICT


def test_an_overwrite_of_the_whole_table_conflicts_with_every_change(main: Lake, at: Callable[[str], Lake]) -> None:
    at("trial").tables.write_data(ORDERS, rows(1, note="v2"), mode="overwrite")
    main.tables.write_data(ORDERS, rows(9), mode="append")
    assert state_of(main, "trial") is TableState.CONFLICT


def test_appends_of_both_sides_are_kept(main: Lake, at: Callable[[str], Lake]) -> None:
    at("trial").tables.write_data(STORES, pa.table({"id": [2]}), mode="append")
    main.tables.write_data(STORES, pa.table({"id": [3]}), mode="append")
    main.branches.publish("trial")
    assert sorted(main.tables.scan(STORES).to_arrow()["id"].to_pylist()) == [1, 2, 3]


def test_an_asset_that_appended_the_same_partition_on_both_sides_is_a_conflict(
    main: Lake, at: Callable[[str], Lake]
) -> None:
    said = {"floe.asset": "bronze/stores", "floe.partition": "2026-01-01"}
    for lake in (at("trial"), main):
        lake.tables.write_data(STORES, pa.table({"id": [2]}), mode="append", snapshot_properties=said)
    assert state_of(main, "trial", STORES) is TableState.CONFLICT
    assert "was written to main too for 2026-01-01" in str(main.branches.show("trial").problems)


def test_a_range_of_partitions_that_both_sides_appended_is_a_conflict(main: Lake, at: Callable[[str], Lake]) -> None:
    def append(lake: Lake, label: str, *days: int) -> None:
        properties = {"floe.asset": "bronze/orders", "floe.partition": label}
        lake.tables.write_data(ORDERS, rows(*days), mode="append", snapshot_properties=properties)

    append(at("span"), "2026-01-05...2026-01-07 (3)", 4, 5, 6)
    append(at("day"), "2026-01-05", 4)
    append(main, "2026-01-06", 5)
    assert state_of(main, "span") is TableState.CONFLICT
    assert state_of(main, "day") is TableState.BEHIND
    append(main, "2026-01-03...2026-01-05 (3)", 2, 3, 4)
    assert "written to main too for 2026-01-03...2026-01-05 (3)" in str(main.branches.show("day").problems)


def test_an_update_begins_conflicting_tables_again_only_when_asked(main: Lake, at: Callable[[str], Lake]) -> None:
    trial = at("trial")
    trial.tables.write_data(ORDERS, rows(1, note="v2"), mode="overwrite", slice=day(1))
    trial.tables.write_data(STORES, pa.table({"id": [2]}), mode="append")
    main.tables.write_data(ORDERS, rows(1, note="theirs"), mode="overwrite", slice=day(1))
    main.tables.write_data(STORES, pa.table({"id": [3]}), mode="append")
    with pytest.raises(ConcurrencyConflictError, match="--restart"):
        main.branches.update("trial")
    assert state_of(main, "trial", STORES) is TableState.BEHIND
    status = main.branches.update("trial", restart=True)
    assert [(one.table, one.state) for one in status.tables] == [(STORES, TableState.READY)]
    again = at("trial")
    assert seen(again) == [(0, "v1"), (1, "theirs"), (2, "v1")]
    again.tables.write_data(ORDERS, rows(1, note="v3"), mode="overwrite", slice=day(1))
    main.branches.publish("trial")
    assert seen(main) == [(0, "v1"), (1, "v3"), (2, "v1")]
    assert sorted(main.tables.scan(STORES).to_arrow()["id"].to_pylist()) == [1, 2, 3]


def files_below(lake: Lake) -> set[Path]:
    return {path for path in (lake.artifacts.root / ".floe" / "warehouse").rglob("*.parquet") if path.is_file()}


def test_discarding_leaves_nothing_behind(main: Lake, at: Callable[[str], Lake]) -> None:
    before = files_below(main)
    trial = at("trial")
    trial.tables.write_data(ORDERS, rows(1, note="v2"), mode="overwrite", slice=day(1))
    trial.tables.write_data(ORDERS, rows(1, note="v3"), mode="overwrite", slice=day(1))
    trial.tables.write_data(TOTALS, pa.table({"n": [1]}), mode="append")
    assert len(files_below(main)) == len(before) + 3
    main.branches.discard("trial")
    assert files_below(main) == before
    assert seen(main) == V1
    assert not main.tables.table_exists(TOTALS)
    assert len(main.tables.list_snapshots(ORDERS)) == 1
    assert list(main.branches.list()) == []


def test_files_that_a_tag_keeps_survive_the_discard(main: Lake, at: Callable[[str], Lake]) -> None:
    trial = at("trial")
    kept = trial.tables.write_data(ORDERS, rows(1, note="v2"), mode="overwrite", slice=day(1))
    main.tables.create_tag(ORDERS, "audited", snapshot_id=kept.snapshot_id)
    main.branches.discard("trial")
    assert main.tables.scan(ORDERS, ref="audited").to_arrow()["note"].to_pylist().count("v2") == 1


def test_two_branches_do_not_see_each_other(main: Lake, at: Callable[[str], Lake]) -> None:
    at("one").tables.write_data(ORDERS, rows(1, note="one"), mode="overwrite", slice=day(1))
    at("two").tables.write_data(ORDERS, rows(2, note="two"), mode="overwrite", slice=day(2))
    assert seen(at("one")) == [(0, "v1"), (1, "one"), (2, "v1")]
    main.branches.publish("one")
    assert seen(at("two")) == [(0, "v1"), (1, "v1"), (2, "two")]
    main.branches.publish("two")
    assert seen(main) == [(0, "v1"), (1, "one"), (2, "two")]


def test_a_change_of_columns_that_main_would_see_needs_consent(main: Lake, at: Callable[[str], Lake]) -> None:
    wider = rows(1, note="v2").append_column("city", pa.array(["Oslo"]))
    with pytest.raises(ConfigurationError, match="readers of main would see that"):
        at("trial").tables.write_data(ORDERS, wider, mode="overwrite", slice=day(1))
    assert "city" not in main.tables.scan(ORDERS).to_arrow().column_names
    assert main.branches.show("trial").tables == ()


@pytest.mark.parametrize("name", ["main", "floe-x", "a/b", "x y", "2026-01-01", "12345", "-x", "", "é" * 3])
def test_names_that_a_branch_cannot_have(main: Lake, name: str) -> None:
    with pytest.raises(ConfigurationError, match="branch"):
        main.branches.create(name)
    assert list(main.branches.list()) == []


def test_the_name_of_a_tag_or_branch_of_a_table_is_refused(main: Lake, at: Callable[[str], Lake]) -> None:
    main.tables.create_tag(ORDERS, "audited")
    with pytest.raises(ConfigurationError, match=r"'bronze\.orders' \(tag\)"):
        main.branches.create("audited")
    trial = at("trial")
    main.tables.create_tag(ORDERS, "trial")
    with pytest.raises(ConfigurationError, match="a tag 'trial' of its own"):
        trial.tables.write_data(ORDERS, rows(1), mode="append")


def test_a_write_that_names_the_branch_itself_is_one_of_the_branch(main: Lake, at: Callable[[str], Lake]) -> None:
    trial = at("trial")
    trial.tables.write_data(STORES, pa.table({"id": [2]}), mode="append", branch="trial")
    main.tables.create_branch(ORDERS, "trial")
    with pytest.raises(ConfigurationError, match="which the branch of the lake did not create"):
        trial.tables.write_data(ORDERS, rows(7), mode="append", branch="trial")
    main.tables.remove_branch(ORDERS, "trial")
    main.branches.publish("trial")
    assert main.tables.scan(STORES).count() == 2


def test_a_branch_that_differs_in_case_only_is_refused(main: Lake) -> None:
    main.branches.create("trial")
    with pytest.raises(ConfigurationError, match="'trial'"):
        main.branches.create("Trial")


def test_an_unknown_branch_is_named_with_the_nearest_one(main: Lake) -> None:
    main.branches.create("trial")
    with pytest.raises(ConfigurationError, match="did you mean trial"):
        main.branches.show("trail")


def test_a_branch_that_was_removed_from_a_table_stops_its_publication(main: Lake, at: Callable[[str], Lake]) -> None:
    trial = at("trial")
    trial.tables.write_data(ORDERS, rows(1, note="v2"), mode="overwrite", slice=day(1))
    trial.tables.write_data(STORES, pa.table({"id": [2]}), mode="append")
    main.tables.remove_branch(ORDERS, "trial")
    assert state_of(main, "trial") is TableState.LOST
    with pytest.raises(ConcurrencyConflictError, match=r"'bronze\.orders': branch 'trial' was removed"):
        main.branches.publish("trial")
    assert main.tables.scan(STORES).count() == 1
    with pytest.raises(ConcurrencyConflictError, match="was removed with what was written"):
        trial.tables.write_data(ORDERS, rows(2, note="v2"), mode="overwrite", slice=day(2))


def test_a_run_on_a_branch_that_was_discarded_or_published_is_refused(main: Lake, at: Callable[[str], Lake]) -> None:
    trial = at("trial")
    trial.tables.write_data(STORES, pa.table({"id": [2]}), mode="append")
    main.branches.publish("trial")
    for table in (STORES, ORDERS):
        with pytest.raises(FloeError, match="trial"):
            trial.tables.write_data(table, rows(1) if table == ORDERS else pa.table({"id": [3]}), mode="append")
    assert main.tables.scan(STORES).count() == 2
    assert main.tables.load_table(ORDERS).metadata.refs.keys() == {"main"}


@pytest.mark.parametrize("restart", [True, False])
def test_a_branch_leaves_a_table_that_was_renamed_since(main: Lake, at: Callable[[str], Lake], restart: bool) -> None:
    trial, other = at("trial"), "bronze.purchases"
    trial.tables.write_data(ORDERS, rows(5, note="v2"), mode="append")
    main.tables.rename_table(ORDERS, other)
    main.tables.write_data(ORDERS, rows(9), mode="append")
    assert state_of(main, "trial") is TableState.GONE
    if restart:
        main.branches.update("trial", restart=True)
        assert seen(at("trial"), other) == V1
        at("trial").tables.write_data(other, rows(6), mode="append")
    main.branches.discard("trial")
    for table in (ORDERS, other):
        assert main.tables.load_table(table).metadata.refs.keys() == {"main"}
    main.branches.create("trial")


def test_a_dropped_table_stops_the_publication(main: Lake, at: Callable[[str], Lake]) -> None:
    trial = at("trial")
    trial.tables.write_data(ORDERS, rows(1, note="v2"), mode="overwrite", slice=day(1))
    trial.tables.write_data(STORES, pa.table({"id": [2]}), mode="append")
    main.tables.drop_table(STORES)
    main.tables.write_data(STORES, pa.table({"id": [9]}), mode="append")
    assert state_of(main, "trial", STORES) is TableState.GONE
    with pytest.raises(ConcurrencyConflictError, match=r"'bronze\.stores'"):
        main.branches.publish("trial")
    assert seen(main) == V1
    main.branches.discard("trial")
    assert main.tables.scan(STORES).to_arrow()["id"].to_pylist() == [9]


def test_changed_columns_and_partitions_of_main_stop_the_publication(main: Lake, at: Callable[[str], Lake]) -> None:
    at("trial").tables.write_data(ORDERS, rows(1, note="v2"), mode="overwrite", slice=day(1))
    by_note = [PartitionTransform(source_column="note", transform_type=PartitionTransformType.IDENTITY)]
    main.tables.evolve_partitions(ORDERS, by_note)
    main.tables.write_data(ORDERS, rows(5), mode="append")
    assert state_of(main, "trial") is TableState.CONFLICT
    assert "partitioning" in str(main.branches.show("trial").problems)


def test_columns_that_main_changes_without_a_commit_stop_the_publication_too(
    main: Lake, at: Callable[[str], Lake]
) -> None:
    at("trial").tables.write_data(ORDERS, rows(5, note="v2"), mode="append")
    main.tables.evolve_schema(ORDERS, DropColumn("note"), allow_incompatible_changes=True)
    main.tables.evolve_schema(ORDERS, AddColumn("note", pa.string()))
    with pytest.raises(ConcurrencyConflictError, match=r"another writer changed the columns.*--restart"):
        main.branches.publish("trial")
    main.branches.update("trial", restart=True)
    assert at("trial").tables.scan(ORDERS).count() == 3


def test_main_cannot_be_changed_through_a_branch(main: Lake, at: Callable[[str], Lake]) -> None:
    tables = at("trial").tables
    changes: list[Callable[[], object]] = [
        lambda: tables.create_table("bronze.new", pa.schema({"id": pa.int64()})),
        lambda: tables.drop_table(ORDERS),
        lambda: tables.rename_table(ORDERS, "bronze.other"),
        lambda: tables.evolve_schema(ORDERS, AddColumn("city", pa.string())),
        lambda: tables.evolve_partitions(ORDERS, ()),
        lambda: tables.rollback_to_snapshot(ORDERS, 1),
    ]
    for change in changes:
        with pytest.raises(ConfigurationError, match="would change main"):
            change()
    tables.write_data(ORDERS, rows(8), mode="append", branch="main")
    assert seen(main) == V1


def test_expiry_keeps_what_a_branch_reads_until_it_is_gone(main: Lake, at: Callable[[str], Lake]) -> None:
    trial, identifier = at("trial"), TableIdentifier.from_string(ORDERS)
    main.tables.write_data(ORDERS, rows(3), mode="append")
    keep_pinned(main.tables, identifier, main.tables.lake_branches())
    pinned = main.tables.load_table(ORDERS).metadata.refs["floe-pin-trial"]
    assert main.tables.scan(ORDERS, snapshot_id=pinned.snapshot_id).count() == 3
    assert seen(trial) == V1
    main.branches.discard("trial")
    keep_pinned(main.tables, identifier, main.tables.lake_branches())
    assert main.tables.load_table(ORDERS).metadata.refs.keys() == {"main"}


def expired(main: Lake, table: str, days: int = 30) -> int:
    """Expire what a policy of seven days and ten snapshots does not keep then; returns how many."""
    keep_pinned(main.tables, TableIdentifier.from_string(table), main.tables.lake_branches())
    loaded, day_ms = main.tables.load_table(table), 86_400_000
    now = to_ms(datetime.now(timezone.utc)) + days * day_ms
    _tag, held_ms = held_by_cursor(loaded.metadata) or ("", now)
    going = expiring(loaded.metadata, older_than_ms=min(now - 7 * day_ms, held_ms), keep_last=10, now_ms=now)
    loaded.maintenance.expire_snapshots().by_ids(list(going.snapshots)).commit()
    return len(going.snapshots)


def test_expiry_keeps_what_the_publication_of_an_old_branch_compares(main: Lake, at: Callable[[str], Lake]) -> None:
    trial = at("trial")
    for number in range(12):
        trial.tables.write_data(ORDERS, rows(10 + number), mode="append")
        main.tables.write_data(ORDERS, rows(30 + number), mode="append")
    trial.tables.write_data(TOTALS, pa.table({"n": [1]}), mode="append")
    assert expired(main, ORDERS) == 0
    assert expired(main, TOTALS) == 0
    main.branches.update("trial")
    assert state_of(main, "trial") is TableState.READY
    assert len(seen(at("trial"))) == 27
    main.branches.discard("trial")
    assert main.tables.find_table(TOTALS) is None
    assert expired(main, ORDERS) > 0
    assert main.tables.load_table(ORDERS).metadata.refs.keys() == {"main"}


def test_pins_stay_if_it_is_unknown_which_branches_there_are(main: Lake, at: Callable[[str], Lake]) -> None:
    at("trial")
    main.tables.write_data(ORDERS, rows(3), mode="append")
    for branches in (main.tables.lake_branches(), None):
        keep_pinned(main.tables, TableIdentifier.from_string(ORDERS), branches)
        assert "floe-pin-trial" in main.tables.load_table(ORDERS).metadata.refs


def test_a_snapshot_that_expired_all_the_same_is_named_with_the_way_on(main: Lake, at: Callable[[str], Lake]) -> None:
    trial = at("trial")
    table = main.tables.load_table(ORDERS)
    first = table.current_snapshot()
    assert first is not None
    main.tables.write_data(ORDERS, rows(3), mode="append")
    main.tables.load_table(ORDERS).maintenance.expire_snapshots().by_id(first.snapshot_id).commit()
    for attempt in (lambda: trial.tables.scan(ORDERS), lambda: trial.tables.write_data(ORDERS, rows(4), mode="append")):
        with pytest.raises(FloeError, match=r"(?s)expired.*floe branches update trial"):
            attempt()
    main.branches.update("trial")
    assert len(seen(at("trial"))) == 4


def test_a_branch_that_nobody_uses_is_discarded(main: Lake, at: Callable[[str], Lake]) -> None:
    at("old").tables.write_data(ORDERS, rows(1, note="old"), mode="append")
    at("new")
    now = datetime.now(timezone.utc)
    assert main.branches.discard_unused(now) == []
    main.tables.branch_records.touch("old", int((now - timedelta(days=15)).timestamp() * 1000))
    assert main.branches.discard_unused(now) == ["old"]
    assert [one.name for one in main.branches.list()] == ["new"]
    assert main.tables.load_table(ORDERS).metadata.refs.keys() == {"main"}


def test_a_publication_whose_process_ended_before_it_was_recorded_is_recorded_once(
    main: Lake, at: Callable[[str], Lake]
) -> None:
    at("trial").tables.write_data(STORES, pa.table({"id": [2]}), mode="append")
    recorded: list[str] = []

    def killed(_publication: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        main.branches.publish("trial", record=killed)
    assert main.tables.scan(STORES).count() == 2
    again = main.branches.publish("trial", record=lambda one: recorded.extend(table.table for table in one.tables))
    assert recorded == [STORES]
    assert [one.table for one in again.tables] == [STORES]
    assert main.tables.scan(STORES).count() == 2
    assert list(main.branches.list()) == []


def test_what_is_published_and_not_recorded_yet_is_not_discarded(main: Lake, at: Callable[[str], Lake]) -> None:
    at("trial").tables.write_data(STORES, pa.table({"id": [2]}), mode="append")

    def killed(_publication: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        main.branches.publish("trial", record=killed)
    with pytest.raises(ConcurrencyConflictError, match="floe branches publish trial"):
        main.branches.discard("trial")
    assert main.branches.discard_unused(datetime.now(timezone.utc) + timedelta(days=99)) == []
    main.branches.publish("trial")
    assert list(main.branches.list()) == []


def test_a_process_that_ended_while_it_began_a_table_does_not_stop_the_branch(
    main: Lake, at: Callable[[str], Lake]
) -> None:
    trial = at("trial")
    trial.tables.write_data(STORES, pa.table({"id": [2]}), mode="append")
    records, identifier = main.tables.branch_records, TableIdentifier.from_string(ORDERS)
    branch = records.find("trial")
    assert branch is not None
    entry = replace(branch.tables[TableIdentifier.from_string(STORES)], identifier=identifier, opened=False)
    records.add_table("trial", replace(entry, table_uuid=main.tables.load_table(ORDERS).metadata.table_uuid))
    assert [one.table for one in main.branches.show("trial").tables] == [STORES]
    main.branches.publish("trial")
    assert main.tables.scan(STORES).count() == 2


def test_a_table_without_commits_of_the_branch_is_left_as_it_is(main: Lake, at: Callable[[str], Lake]) -> None:
    trial = at("trial")
    trial.tables.write_data(STORES, pa.table({"id": [2]}), mode="append")
    assert trial.tables.at_branch is not None
    new = NewTable(main.tables.load_table(ORDERS).schema())
    trial.tables.begin_branch(
        trial.tables.at_branch, TableIdentifier.from_string(ORDERS), main.tables.load_table(ORDERS), new
    )
    assert state_of(main, "trial") is TableState.UNCHANGED
    main.branches.publish("trial")
    assert main.tables.load_table(ORDERS).metadata.refs.keys() == {"main"}


def test_two_publications_at_once_publish_once(main: Lake, at: Callable[[str], Lake]) -> None:
    at("trial").tables.write_data(STORES, pa.table({"id": [2]}), mode="append")

    def meanwhile(_publication: object) -> None:
        Lake(main.artifacts).branches.publish("trial")

    main.branches.publish("trial", record=meanwhile)
    assert main.tables.scan(STORES).count() == 2
    assert list(main.branches.list()) == []


def test_an_empty_branch_has_nothing_to_publish(main: Lake) -> None:
    main.branches.create("trial")
    with pytest.raises(ConfigurationError, match="no commit to publish"):
        main.branches.publish("trial")


def test_an_incompatible_write_changes_nothing(main: Lake, at: Callable[[str], Lake]) -> None:
    trial = at("trial")
    with pytest.raises((SchemaEvolutionError, ConfigurationError)):
        trial.tables.write_data(STORES, pa.table({"id": ["a"]}), mode="append")
    assert trial.tables.scan(STORES).count() == 1
    assert StagingBranch.of_lake("trial").mark == "branch:trial"


def test_a_table_is_inspected_as_the_branch_shows_it(main: Lake, at: Callable[[str], Lake]) -> None:
    trial = at("trial")
    written = trial.tables.write_data(ORDERS, rows(5, note="v2"), mode="append", write_id="w1")
    main.tables.write_data(STORES, pa.table({"id": [2]}), mode="append")
    trial.tables.write_data(TOTALS, pa.table({"n": [1]}), mode="append")
    tables = trial.tables
    assert tables.current_snapshot(ORDERS) == written
    assert {name: tables.summarize(name).rows for name in (ORDERS, STORES, TOTALS)} == {ORDERS: 4, STORES: 1, TOTALS: 1}
    assert {name: main.tables.summarize(name).rows for name in (ORDERS, STORES)} == {ORDERS: 3, STORES: 2}
    assert len(tables.list_partitions(ORDERS)) == 4
    assert len(tables.list_files(ORDERS).files) == 4
    assert len(tables.inspect(ORDERS).files()) == 4
    assert tables.find_write(ORDERS, "w1") == written
    assert main.tables.find_write(ORDERS, "w1") is None
    assert sum(change.rows_added for change in tables.compare_snapshots(ORDERS, "main").partitions) == 1
    assert len(tables.list_files(ORDERS, snapshot="main").files) == tables.scan(ORDERS, ref="main").count() == 3
    tables.create_tag(ORDERS, "july")
    assert main.tables.find_snapshot(ORDERS, "july") == written


def begun(lake: Lake, main: Lake, table: str = ORDERS) -> None:
    """Let the branch begin in a table, as a write does before it stages rows."""
    loaded = main.tables.load_table(table)
    assert lake.tables.at_branch is not None
    lake.tables.begin_branch(
        lake.tables.at_branch, TableIdentifier.from_string(table), loaded, NewTable(loaded.schema())
    )


def committed(lake: Lake, number: int) -> None:
    """Commit a write that has begun in the table before."""
    summary, identifier = write_summary(f"w{number}"), TableIdentifier.from_string(ORDERS)
    request = WriteRequest(identifier, WriteMode.APPEND, f"w{number}", summary, branch="trial")
    lake.tables.write(request, rows(number), Target(lake.tables.load_table(ORDERS)))


def test_rows_that_are_committed_while_the_branch_is_published_are_not_lost(
    main: Lake, at: Callable[[str], Lake], monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = at("trial")
    trial.tables.write_data(STORES, pa.table({"id": [2]}), mode="append")
    begun(trial, main)
    begin = BranchRecords.begin_publication

    def too_late(*arguments: object, **options: object) -> object:
        with pytest.raises(FloeError, match="Nothing was written"):
            committed(trial, 8)
        return publish(*arguments, **options)  # type: ignore[arg-type]

    def in_time(self: BranchRecords, *arguments: object) -> None:
        if len(trial.tables.scan(ORDERS).to_arrow()) == 3:
            committed(trial, 7)
            begun(trial, main, "bronze.visits")
        begin(self, *arguments)  # type: ignore[arg-type]

    main.tables.write_data("bronze.visits", pa.table({"id": [1]}), mode="append")
    main.branches.update("trial")
    trial = at("trial")
    begun(trial, main)
    monkeypatch.setattr(BranchRecords, "begin_publication", in_time)
    main.branches.publish("trial")
    assert len(seen(main)) == 4
    other = trial = at("trial")
    other.tables.write_data(STORES, pa.table({"id": [3]}), mode="append")
    begun(other, main)
    monkeypatch.setattr(BranchRecords, "begin_publication", begin)
    monkeypatch.setattr("floe_iceberg.branches.publication.publish", too_late)
    main.branches.publish("trial")
    assert main.tables.scan(STORES).count() == 3
    assert len(seen(main)) == 4
    for table in (ORDERS, STORES, "bronze.visits"):
        assert main.tables.load_table(table).metadata.refs.keys() == {"main"}


def test_a_table_that_is_begun_after_the_publication_looked_for_it_is_refused(
    main: Lake, at: Callable[[str], Lake], monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = at("trial")
    trial.tables.write_data(STORES, pa.table({"id": [2]}), mode="append")
    open_branch = trial.tables.open_branch

    def published_first(*arguments: object, **options: object) -> object:
        records, branch = main.tables.branch_records, main.tables.branch_records.find("trial")
        assert branch is not None
        records.begin_publication("trial", [{}])
        return open_branch(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(trial.tables, "open_branch", published_first)
    with pytest.raises(ConcurrencyConflictError, match=r"is being published.*nothing was written"):
        trial.tables.write_data(ORDERS, rows(7), mode="append")
    assert main.tables.load_table(ORDERS).metadata.refs.keys() == {"main"}
    main.tables.branch_records.end_publication("trial")
    monkeypatch.undo()
    trial.tables.write_data(ORDERS, rows(7), mode="append")
    main.branches.publish("trial")
    assert len(seen(main)) == 4


def test_an_update_lets_a_table_without_commits_read_main_as_it_is(main: Lake, at: Callable[[str], Lake]) -> None:
    trial = at("trial")
    begun(trial, main)
    main.tables.write_data(ORDERS, rows(1, note="v2"), mode="overwrite", slice=day(1))
    main.branches.update("trial")
    trial = at("trial")
    assert seen(trial) == seen(main)
    trial.tables.write_data(ORDERS, rows(1, note="v3"), mode="overwrite", slice=day(1))
    assert state_of(main, "trial") is TableState.READY


def test_maintenance_discards_branches_by_the_policy_in_floe_yaml(main: Lake, at: Callable[[str], Lake]) -> None:
    at("old").tables.write_data(STORES, pa.table({"id": [2]}), mode="append")
    at("new")
    days = timedelta(days=3)
    used = int((datetime.now(timezone.utc) - days).timestamp() * 1000)
    main.tables.branch_records.touch("old", used)
    assert Maintenance(main).discard_branches() == []
    (main.artifacts.root / "floe.yaml").write_text("name: shop\nmaintenance: {branches: 2d}\n", encoding="utf-8")
    with Lake(compile_project(main.artifacts.root).artifacts) as lake:
        assert Maintenance(lake).discard_branches() == ["old"]
    assert [one.name for one in main.branches.list()] == ["new"]
