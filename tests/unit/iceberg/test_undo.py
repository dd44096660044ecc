"""Undoing a run: every table as it was, in one commit; what depends on the run is named; and back again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.lakes import open_manager

from floe_core.errors import ConcurrencyConflictError, ConfigurationError, TableNotFoundError
from floe_core.identifiers import TableIdentifier, TableSlice
from floe_core.models import PartitionTransform, PartitionTransformType
from floe_iceberg import AddColumn, IcebergTableManager
from floe_iceberg.snapshots import BranchHistory, Loss, RecordedWrite, StagingBranch, find_writes
from floe_iceberg.transactions import NewTable, publication

ORDERS, STORES, TOTALS = "silver.orders", "silver.stores", "gold.totals"
DAY = [PartitionTransform(source_column="day", transform_type=PartitionTransformType.IDENTITY)]


@pytest.fixture
def tables(tmp_path: Path) -> IcebergTableManager:
    return open_manager(tmp_path)


def rows_of(number: int, *ids: int) -> pa.Table:
    return pa.table({"day": [f"d{number}"] * len(ids), "id": list(ids)})


def slice_of(number: int) -> TableSlice:
    return TableSlice.of_values("day", [f"d{number}"])


class Lake:
    """Writes as assets make them: with the run, the asset and what was read in the summary."""

    def __init__(self, tables: IcebergTableManager) -> None:
        self.tables = tables

    def write(
        self, run: str, name: str, data: pa.Table, *reads: str, asset: str = "", label: str = "", **options: Any
    ) -> int:
        inputs = ",".join(f"{read}@{self.head(read)}" for read in reads)
        known = {"floe.run-id": run, "floe.asset": asset or name.replace(".", "/"), "floe.input-snapshots": inputs}
        known["floe.partition"] = label
        options.setdefault("mode", "overwrite")
        properties = {key: value for key, value in known.items() if value}
        return self.tables.write_data(name, data, snapshot_properties=properties, **options).snapshot_id

    def write_day(self, run: str, name: str, number: int, *ids: int, reads: tuple[str, ...] = ()) -> int:
        data, label = rows_of(number, *ids), f"d{number}"
        return self.write(run, name, data, *reads, label=label, slice=slice_of(number), partition_by=DAY)

    def head(self, name: str) -> int:
        found = self.tables.current_snapshot(name)
        assert found is not None
        return found.snapshot_id

    def ids(self, name: str) -> list[int]:
        return sorted(self.tables.scan(name).to_arrow()["id"].to_pylist())


@pytest.fixture
def lake(tables: IcebergTableManager) -> Lake:
    return Lake(tables)


def one(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids)})


def test_the_tables_of_a_run_go_back_together_and_come_back_together(lake: Lake) -> None:
    for name in (ORDERS, STORES):
        lake.write("first", name, one(1))
    heads = {name: lake.head(name) for name in (ORDERS, STORES)}
    for name in (ORDERS, STORES):
        lake.write("second", name, one(1, 2))
    undone = {name: lake.head(name) for name in (ORDERS, STORES)}
    plan = lake.tables.undo("second")
    assert [(table.table, table.how, table.to) for table in plan.tables] == [
        (ORDERS, "moved back", heads[ORDERS]),
        (STORES, "moved back", heads[STORES]),
    ]
    assert {name: lake.head(name) for name in (ORDERS, STORES)} == heads
    refs = lake.tables.load_table(ORDERS).metadata.refs
    assert refs["floe-undone-second"].snapshot_id == undone[ORDERS]
    assert set(refs) == {"main", "floe-undone-second"}
    with pytest.raises(ConfigurationError, match="was undone already; to restore"):
        lake.tables.undo("second")
    lake.tables.restore_undone("second")
    assert {name: lake.head(name) for name in (ORDERS, STORES)} == undone
    assert set(lake.tables.load_table(ORDERS).metadata.refs) == {"main"}
    with pytest.raises(ConfigurationError, match="was not undone"):
        lake.tables.restore_undone("second")


def test_later_writes_to_other_slices_stay_and_the_gap_is_seen(lake: Lake) -> None:
    lake.write_day("first", ORDERS, 1, 1)
    second = lake.write_day("second", ORDERS, 1, 7, 8)
    lake.write_day("third", ORDERS, 2, 2)
    plan = lake.tables.undo("second")
    assert [(table.how, table.rows_removed, table.rows_restored) for table in plan.tables] == [("rewritten", 2, 1)]
    assert lake.ids(ORDERS) == [1, 2]
    history = BranchHistory(lake.tables.load_table(ORDERS))
    assert history.loss_of(RecordedWrite(snapshot_id=second)) is Loss.ROLLED_BACK
    assert str(second) not in history.snapshot_ids
    lake.tables.restore_undone("second")
    assert lake.ids(ORDERS) == [2, 7, 8]


def test_a_write_that_was_undone_is_written_again_by_its_retry(lake: Lake) -> None:
    lake.write_day("first", ORDERS, 1, 1)
    lake.write_day("second", ORDERS, 2, 2)
    write_id = lake.tables.list_snapshots(ORDERS)[-1].summary["floe.write-id"]
    lake.write_day("third", ORDERS, 3, 3)
    lake.tables.undo("second")
    assert lake.ids(ORDERS) == [1, 3]
    assert find_writes(lake.tables.load_table(ORDERS), write_id) == []
    lake.write("second", ORDERS, rows_of(2, 2), slice=slice_of(2), write_id=write_id)
    assert lake.ids(ORDERS) == [1, 2, 3]


def test_a_later_write_to_the_same_slice_stops_it_and_can_be_taken_back_too(lake: Lake) -> None:
    lake.write_day("first", ORDERS, 1, 1)
    lake.write_day("second", ORDERS, 1, 2)
    lake.write_day("third", ORDERS, 2, 5)
    fourth = lake.write_day("fourth", ORDERS, 1, 3)
    plan = lake.tables.plan_undo("second")
    assert [(write.run_id, write.snapshot_id, write.reason) for write in plan.later] == [
        ("fourth", fourth, "it replaced these rows")
    ]
    with pytest.raises(ConcurrencyConflictError, match=rf"later writes depend on run second: .*{fourth}"):
        lake.tables.undo("second")
    assert lake.ids(ORDERS) == [3, 5]
    lake.tables.undo("second", with_later=True)
    assert lake.ids(ORDERS) == [1, 5]


def test_appends_of_a_run_are_taken_out_from_between_those_of_others(lake: Lake) -> None:
    for number, run in enumerate(("first", "second", "third"), start=1):
        lake.write(run, ORDERS, one(number), mode="append")
    lake.tables.undo("second")
    assert lake.ids(ORDERS) == [1, 3]


def test_a_table_that_was_computed_from_the_run_stops_it(lake: Lake) -> None:
    lake.write("first", ORDERS, one(1))
    lake.write("first", TOTALS, one(1), ORDERS)
    lake.write("second", ORDERS, one(1, 2))
    total = lake.write("third", TOTALS, one(2), ORDERS)
    (later,) = lake.tables.plan_undo("second").later
    assert (later.table, later.snapshot_id, later.run_id, later.asset) == (TOTALS, total, "third", "gold/totals")
    assert "it was computed from snapshot" in later.reason
    plan = lake.tables.undo("second", with_later=True)
    assert [table.table for table in plan.tables] == [TOTALS, ORDERS]
    assert (lake.ids(ORDERS), lake.ids(TOTALS)) == ([1], [1])
    lake.tables.restore_undone("second")
    assert (lake.ids(ORDERS), lake.ids(TOTALS)) == ([1, 2], [2])


def test_a_table_computed_from_a_later_state_has_the_rows_too_unless_it_read_a_partition(lake: Lake) -> None:
    lake.write_day("first", ORDERS, 1, 1)
    lake.write_day("second", ORDERS, 2, 2)
    lake.write("second", TOTALS, one(2), ORDERS)
    lake.write_day("second", STORES, 2, 2, reads=(ORDERS,))
    later = lake.tables.plan_undo("first").later
    assert [(write.table, write.reason.partition(",")[0]) for write in later] == [
        (TOTALS, f"it was computed from {ORDERS} at a later snapshot")
    ]


def test_a_computed_table_that_was_replaced_since_does_not_stop_it(lake: Lake) -> None:
    lake.write("first", ORDERS, one(1))
    lake.write("second", ORDERS, one(2))
    lake.write("second", TOTALS, one(2), ORDERS)
    lake.write("third", TOTALS, one(9))
    assert [write.table for write in lake.tables.plan_undo("second").later] == [TOTALS]
    lake.tables.undo("second", with_later=True)
    assert lake.ids(ORDERS) == [1]


def test_a_table_that_the_run_created_counts_as_absent_and_comes_back(lake: Lake) -> None:
    lake.write("first", ORDERS, one(1))
    lake.write("second", ORDERS, one(1, 2))
    lake.write("second", TOTALS, one(2), ORDERS)
    plan = lake.tables.undo("second")
    assert [(table.table, table.how) for table in plan.tables] == [(TOTALS, "emptied"), (ORDERS, "moved back")]
    with pytest.raises(TableNotFoundError, match="counts as absent: run second, which created it, was undone"):
        lake.tables.scan(TOTALS)
    lake.tables.restore_undone("second")
    assert lake.ids(TOTALS) == [2]


def test_columns_that_were_added_stay_and_are_named(lake: Lake) -> None:
    lake.write("first", ORDERS, one(1))
    lake.write("second", ORDERS, pa.table({"id": [2], "note": ["new"]}))
    plan = lake.tables.undo("second")
    assert plan.tables[0].columns_left == ("note",)
    assert lake.tables.scan(ORDERS).to_arrow().to_pylist() == [{"id": 1, "note": None}]
    assert lake.tables.load_table(ORDERS).schema().column_names == ["id", "note"]


def test_what_cannot_be_undone_is_refused_by_name(lake: Lake) -> None:
    lake.write("first", ORDERS, one(1))
    with pytest.raises(ConfigurationError, match="no table has a snapshot of run other"):
        lake.tables.undo("other")
    lake.write("second", ORDERS, one(2))
    lake.tables.undo("second")
    lake.write("third", ORDERS, one(3))
    with pytest.raises(ConcurrencyConflictError, match=f"'{ORDERS}' has commits since run second was undone"):
        lake.tables.restore_undone("second")
    assert lake.ids(ORDERS) == [3]


def test_a_head_that_moves_before_the_commit_is_a_conflict_and_leaves_nothing(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (ORDERS, STORES):
        lake.write("first", name, one(1))
        lake.write("second", name, one(2))
    catalog: Any = lake.tables.catalog_plugin.connect()
    commit = catalog.commit_tables

    def late(changes: Any) -> None:
        monkeypatch.setattr(catalog, "commit_tables", commit)
        lake.write("third", STORES, one(3))
        commit(changes)

    monkeypatch.setattr(catalog, "commit_tables", late)
    with pytest.raises(ConcurrencyConflictError, match=f"'{STORES}': another writer moved main"):
        lake.tables.undo("second")
    assert (lake.ids(ORDERS), lake.ids(STORES)) == ([2], [3])
    assert set(lake.tables.load_table(ORDERS).metadata.refs) == {"main"}


def test_the_tables_equal_a_model_after_every_third_run_was_undone(lake: Lake) -> None:
    model: dict[tuple[str, int], int] = {}
    for number in range(1, 16):
        run, days = f"run-{number}", (1 + number % 5, 1 + (number * 2) % 5)
        before = dict(model)
        for name, where in zip((ORDERS, STORES), days, strict=True):
            lake.write_day(run, name, where, number)
            model[name, where] = number
        if number % 3 == 0 and number > 3:
            lake.tables.undo(run)
            model = before
        for name in (ORDERS, STORES):
            expected = sorted(value for (table, _), value in model.items() if table == name)
            assert lake.ids(name) == expected, number


def test_a_column_that_was_added_by_hand_does_not_stop_it(lake: Lake) -> None:
    lake.write("first", ORDERS, one(1))
    lake.write("second", ORDERS, one(2))
    lake.tables.evolve_schema(ORDERS, AddColumn("note", pa.string()))
    lake.tables.undo("second")
    assert lake.ids(ORDERS) == [1]


# What reviews found ---------------------------------------------------------------------------------------------------


def test_discarding_a_run_keeps_what_an_undoing_put_below_a_tag(lake: Lake) -> None:
    lake.write("first", ORDERS, one(1))
    lake.write("second", TOTALS, one(2))
    lake.tables.undo("second")
    lake.tables.open_branch(TOTALS, StagingBranch.of_run("third"), NewTable(lake.tables.load_table(TOTALS).schema()))
    assert not lake.tables.abandon_branch(TOTALS, StagingBranch.of_run("second"))
    assert lake.tables.abandon_branch(TOTALS, StagingBranch.of_run("third"))
    lake.tables.restore_undone("second")
    assert lake.ids(TOTALS) == [2]


def test_a_table_that_was_there_before_the_run_is_not_called_absent(lake: Lake) -> None:
    lake.tables.create_table(ORDERS, pa.schema([("id", pa.int64())]))
    lake.write("first", ORDERS, one(1), mode="append")
    lake.tables.undo("first")
    assert lake.ids(ORDERS) == []


def test_taking_back_what_was_written_over_an_undoing_does_not_bring_the_undone_rows_back(lake: Lake) -> None:
    def keyed(*ids: int) -> pa.Table:
        return pa.table({"day": ["d1"] * len(ids), "id": list(ids), "v": [len(ids)] * len(ids)})

    lake.write("first", ORDERS, keyed(1, 2), mode="append", partition_by=DAY)
    lake.write("bad", ORDERS, keyed(666), mode="append")
    lake.write("fix", ORDERS, keyed(1), mode="upsert", keys=["id"])
    lake.tables.undo("bad")
    assert lake.ids(ORDERS) == [1, 2]
    with pytest.raises(ConfigurationError, match="restore the other one first with floe undo bad --restore"):
        lake.tables.undo("fix", with_later=True)
    assert lake.ids(ORDERS) == [1, 2]


def test_runs_are_undone_one_after_the_other(lake: Lake) -> None:
    lake.write_day("zero", ORDERS, 1, 1)
    lake.write_day("a", ORDERS, 1, 2)
    lake.write_day("b", ORDERS, 1, 3)
    lake.write_day("c", ORDERS, 2, 9)
    lake.tables.undo("b")
    assert lake.ids(ORDERS) == [2, 9]
    lake.tables.undo("a")
    assert lake.ids(ORDERS) == [1, 9]


def test_rows_that_a_later_write_carried_along_are_still_computed_from_the_run(lake: Lake) -> None:
    def pairs(*rows: tuple[int, int]) -> pa.Table:
        return pa.table({"id": [row[0] for row in rows], "v": [row[1] for row in rows]})

    lake.write("r0", ORDERS, one(1))
    lake.write("r1", TOTALS, pairs((2, 20)), mode="append")
    lake.write("r2", ORDERS, one(1, 666))
    lake.write("r3", TOTALS, pairs((1, 666), (3, 30)), ORDERS, mode="append")
    lake.write("r4", TOTALS, pairs((3, 31)), overwrite_filter="id = 3")
    assert [write.run_id for write in lake.tables.plan_undo("r2").later] == ["r3"]


def test_what_was_computed_by_way_of_a_table_that_was_replaced_since_is_named(lake: Lake) -> None:
    lake.write("r1", ORDERS, one(1))
    lake.write("r2", ORDERS, one(666))
    lake.write("r3", TOTALS, one(666), ORDERS)
    lake.write("r4", STORES, one(666), TOTALS)
    lake.write("r5", TOTALS, one(5))
    assert [write.run_id for write in lake.tables.plan_undo("r2").later] == ["r4"]


def test_the_same_partition_of_a_consumer_depends_and_another_one_does_not(lake: Lake) -> None:
    lake.write_day("r1", ORDERS, 1, 1)
    lake.write_day("r2", ORDERS, 2, 2)
    lake.write_day("r3", TOTALS, 1, 1, reads=(ORDERS,))
    lake.write_day("r4", TOTALS, 2, 2, reads=(ORDERS,))
    assert [write.run_id for write in lake.tables.plan_undo("r1").later] == ["r3"]


def test_a_renamed_source_is_known_by_its_snapshots(lake: Lake) -> None:
    lake.write("r1", ORDERS, one(1))
    lake.write("r2", ORDERS, one(2))
    lake.write("r3", TOTALS, one(2), ORDERS)
    lake.tables.rename_table(ORDERS, "silver.renamed")
    assert [write.run_id for write in lake.tables.plan_undo("r2").later] == ["r3"]


def test_a_consumer_that_went_on_reading_is_not_undone_in_the_middle(lake: Lake) -> None:
    for number, run in enumerate(("c1", "c2", "c3"), start=1):
        lake.write(f"s{number}", ORDERS, one(number), mode="append")
        followed = {"floe.input-since": ORDERS, "floe.run-id": run, "floe.asset": "gold/totals"}
        lake.tables.write_data(TOTALS, one(number), mode="append", snapshot_properties=followed)
    (later,) = lake.tables.plan_undo("c2").later
    assert (later.run_id, later.reason) == ("c3", "it consumed what came after that, and would not consume it again")


def test_only_the_run_that_was_undone_last_is_restored(lake: Lake) -> None:
    for name in (ORDERS, STORES):
        lake.write("first", name, one(1))
        lake.write("w", name, one(1, 2))
    lake.write("x", ORDERS, one(1, 2, 3))
    lake.tables.undo("x")
    lake.tables.undo("w")
    with pytest.raises(ConcurrencyConflictError, match="has commits since run x was undone"):
        lake.tables.restore_undone("x")
    lake.tables.restore_undone("w")
    lake.tables.restore_undone("x")
    assert (lake.ids(ORDERS), lake.ids(STORES)) == ([1, 2, 3], [1, 2])


def test_a_run_is_not_restored_in_a_part_of_its_tables(lake: Lake) -> None:
    for name in (ORDERS, STORES):
        lake.write("first", name, one(1))
        lake.write("x", name, one(2))
    lake.tables.undo("x")
    lake.tables.remove_tag(STORES, "floe-undone-x")
    with pytest.raises(ConfigurationError, match=f"'{STORES}' has no tag"):
        lake.tables.restore_undone("x")
    assert (lake.ids(ORDERS), lake.ids(STORES)) == ([1], [1])


def test_a_restore_whose_branches_were_removed_is_no_success(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (ORDERS, STORES):
        lake.write("first", name, one(1))
        lake.write("x", name, one(2))
    lake.tables.undo("x")
    publish = publication.publish

    def late(catalog: Any, moves: Any, **options: Any) -> Any:
        for move in moves:
            lake.tables.remove_branch(str(move.identifier), move.branch)
        return publish(catalog, moves, **options)

    monkeypatch.setattr("floe_iceberg.transactions.undo.publish", late)
    with pytest.raises(ConcurrencyConflictError, match="was removed"):
        lake.tables.restore_undone("x")
    assert (lake.ids(ORDERS), lake.ids(STORES)) == ([1], [1])


def test_a_run_whose_snapshot_has_expired_somewhere_is_not_undone_in_the_rest(lake: Lake) -> None:
    lake.write("r0", ORDERS, one(1))
    lake.write("r0", STORES, one(1))
    bad = lake.write("bad", STORES, one(1, 666))
    written = {TableIdentifier.from_string(ORDERS): 5, TableIdentifier.from_string(STORES): bad}
    with pytest.raises(ConfigurationError, match=f"run bad also wrote '{ORDERS}', and its snapshots"):
        lake.tables.undo("bad", written=written)
    assert lake.ids(STORES) == [1, 666]


def test_rows_that_an_upsert_found_meanwhile_are_not_doubled(lake: Lake) -> None:
    lake.write_day("r1", ORDERS, 2, 1, 3)
    lake.write_day("r2", ORDERS, 2, 1)
    lake.write("r3", ORDERS, rows_of(1, 3), mode="upsert", keys=["id"])
    assert [write.run_id for write in lake.tables.plan_undo("r2").later] == ["r3"]
