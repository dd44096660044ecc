"""The ten promises of a write, each stated once and run for both engines on every catalog."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from tests.engines import (
    BY_DAY,
    Engine,
    day,
    days,
    events,
    live_files,
    meanwhile,
    rows_of,
    transform,
)

from floe_core.errors import (
    ConcurrencyConflictError,
    ConfigurationError,
    FloeError,
    FloeStorageError,
    PartitionMismatchError,
    SchemaEvolutionError,
)
from floe_core.identifiers import TableIdentifier, TableSlice
from floe_iceberg import backoff

# 1. Atomic, one snapshot -----------------------------------------------------------------------------------------

WRITES: dict[str, dict[str, Any]] = {
    "append": {"mode": "append"},
    "overwrite the table": {"mode": "overwrite"},
    "overwrite a slice": {"mode": "overwrite", "slice": days(1)},
    "overwrite by a filter": {"mode": "overwrite", "overwrite_filter": "id >= 10000 AND id < 20000"},
    "overwrite the partitions of the data": {"mode": "overwrite", "dynamic_partitions": True},
    "upsert": {"mode": "upsert", "keys": ["id"]},
}


@pytest.mark.every_catalog("append", "overwrite a slice", "upsert")
@pytest.mark.parametrize("how", WRITES)
def test_a_write_is_one_snapshot(engine: Engine, table: TableIdentifier, how: str) -> None:
    first = engine.write(table, events(0, 1, 2), mode="append", partition_by=BY_DAY)
    second = engine.write(table, events(1, rows=4, note="v2"), **WRITES[how])
    snapshots = engine.lake.tables.list_snapshots(table)
    assert [one.snapshot_id for one in snapshots] == [first.snapshot_id, second.snapshot_id]
    assert second.parent_snapshot_id == first.snapshot_id
    assert engine.lake.tables.current_snapshot(table) == second
    rows = {"append": 34, "overwrite the table": 4, "upsert": 30}.get(how, 24)
    assert len(engine.read(table)) == rows
    assert len(engine.read(table, snapshot_id=first.snapshot_id)) == 30


@pytest.mark.every_catalog
def test_the_first_write_creates_table_partitions_and_rows_in_one_commit(
    engine: Engine, table: TableIdentifier
) -> None:
    engine.write(table, events(0, 1), mode="append", partition_by=BY_DAY, properties={"owner-team": "sales"})
    loaded = engine.lake.tables.load_table(table)
    assert len(loaded.snapshots()) == 1
    assert [field.name for field in loaded.spec().fields] == ["at_day"]
    assert loaded.properties["owner-team"] == "sales"
    assert loaded.properties["commit.retry.num-retries"] == "20"
    assert len(loaded.metadata.metadata_log) == 0


# 2. Exact slice --------------------------------------------------------------------------------------------------


@pytest.mark.every_catalog
def test_of_thirty_days_the_other_twenty_nine_keep_their_files(engine: Engine, table: TableIdentifier) -> None:
    engine.write(table, events(*range(30)), mode="append", partition_by=BY_DAY)
    before = live_files(engine.lake, table)
    engine.write(table, events(7, rows=3, note="v2"), mode="overwrite", slice=days(7))
    after = live_files(engine.lake, table)
    kept = {partition for partition in before if before[partition] == after[partition]}
    assert len(before) == len(after) == 30
    assert len(kept) == 29
    assert len(engine.read(table)) == 293


@pytest.mark.parametrize("later", ["hour", "month", "bucket"])
def test_neighbours_keep_their_files_after_the_partitioning_changed(
    engine: Engine, table: TableIdentifier, later: str
) -> None:
    engine.write(table, events(*range(30)), mode="append", partition_by=BY_DAY)
    new = transform("bucket", "id", num_buckets=4) if later == "bucket" else transform(later)
    engine.lake.tables.evolve_partitions(table, [new])
    before = live_files(engine.lake, table)
    engine.write(table, events(7, rows=3, note="v2"), mode="overwrite", slice=days(7))
    after = live_files(engine.lake, table)
    untouched = {path for paths in before.values() for path in paths} & {
        path for paths in after.values() for path in paths
    }
    assert len(untouched) == 29
    rows = engine.read(table)
    assert len(rows) == 293
    assert rows_of(rows.filter(pa.compute.field("note") == "v2")) == rows_of(events(7, rows=3, note="v2"))
    # The day written under the new partitioning is replaced exactly as well.
    engine.write(table, events(7, rows=2, note="v3"), mode="overwrite", slice=days(7))
    assert len(engine.read(table)) == 292


def test_days_that_do_not_touch_are_replaced_together(engine: Engine, table: TableIdentifier) -> None:
    engine.write(table, events(0, 1, 2, 3), mode="append", partition_by=BY_DAY)
    engine.write(table, events(0, 3, rows=2), mode="overwrite", slice=days(0, 3))
    assert len(engine.read(table)) == 24
    assert len(engine.lake.tables.list_snapshots(table)) == 2


def test_a_slice_that_is_not_made_of_partitions_is_exact_in_rows(engine: Engine, table: TableIdentifier) -> None:
    """A day of a zone half an hour off, on a table partitioned by days of UTC."""
    engine.write(table, events(0, 1, 2, rows=48), mode="append", partition_by=BY_DAY)
    window = (day(1) + timedelta(minutes=330), day(2) + timedelta(minutes=330))
    local = TableSlice.of_windows("at", [window])
    data = pa.table(
        {"id": [1, 2], "at": pa.array([window[0], window[1] - timedelta(microseconds=1)]), "note": ["new"] * 2}
    )
    engine.write(table, data.cast(events(0).schema), mode="overwrite", slice=local)
    expected = [row for row in rows_of(events(0, 1, 2, rows=48)) if not window[0] <= row[1] < window[1]]
    assert rows_of(engine.read(table)) == sorted(expected + rows_of(data), key=str)
    assert len(engine.lake.tables.list_snapshots(table)) == 2


def test_no_rows_clear_their_slice_and_nothing_else(engine: Engine, table: TableIdentifier) -> None:
    engine.write(table, events(0, 1), mode="append", partition_by=BY_DAY)
    snapshot = engine.write(table, events(0).slice(0, 0), mode="overwrite", slice=days(0))
    assert rows_of(engine.read(table)) == rows_of(events(1))
    assert snapshot.count("deleted-records") == 10


def test_no_rows_replace_a_table_only_when_told(engine: Engine, table: TableIdentifier) -> None:
    engine.write(table, events(0), mode="append")
    head = engine.lake.tables.current_snapshot(table)
    with pytest.raises(FloeStorageError, match=r"refused to replace all rows of .* by nothing.*allow_empty"):
        engine.write(table, events(0).slice(0, 0), mode="overwrite")
    assert engine.lake.tables.current_snapshot(table) == head
    engine.write(table, events(0).slice(0, 0), mode="overwrite", allow_empty=True)
    assert len(engine.read(table)) == 0


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_rows_outside_the_slice_are_refused_with_a_count_and_examples(
    engine: Engine, table: TableIdentifier, mode: str
) -> None:
    engine.write(table, events(0, 1), mode="append", partition_by=BY_DAY)
    head = engine.lake.tables.current_snapshot(table)
    stray = pa.concat_tables([events(0), events(5, rows=3)])
    with pytest.raises(PartitionMismatchError, match=r"3 rows lie outside .*2026-01-06.*Nothing was written"):
        engine.write(table, stray, mode=mode, slice=days(0))
    assert engine.lake.tables.current_snapshot(table) == head


def test_a_row_without_a_moment_is_outside_every_slice(engine: Engine, table: TableIdentifier) -> None:
    engine.write(table, events(0, 1), mode="append", partition_by=BY_DAY)
    nulls = events(0).set_column(1, "at", pa.nulls(10, pa.timestamp("us", "UTC")))
    with pytest.raises(PartitionMismatchError, match=r"10 rows lie outside.*NULL"):
        engine.write(table, nulls, mode="overwrite", slice=days(0))


@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize("cities", [["Oslo"], ["Oslo", "Rome"]], ids=["one value", "two values"])
def test_a_row_without_a_value_is_outside_every_slice_of_values(
    engine: Engine, table: TableIdentifier, cities: list[str], mode: str
) -> None:
    old = pa.table({"id": [1, 2], "city": ["Oslo", None]})
    engine.write(table, old, mode="append", partition_by=[transform("identity", "city")])
    head = engine.lake.tables.current_snapshot(table)
    data = pa.table({"id": [3, 4, 5], "city": ["Oslo", None, None]})
    with pytest.raises(PartitionMismatchError, match=r"2 rows lie outside .*city = NULL.*Nothing was written"):
        engine.write(table, data, mode=mode, slice=TableSlice.of_values("city", cities))
    assert engine.lake.tables.current_snapshot(table) == head
    assert rows_of(engine.read(table)) == [(1, "Oslo"), (2, None)]


def test_a_filter_replaces_exactly_the_rows_it_is_true_for(engine: Engine, table: TableIdentifier) -> None:
    old = pa.concat_tables([events(0), events(1, note="other")])
    engine.write(table, old, mode="append", partition_by=BY_DAY)
    engine.write(table, events(2, rows=3, note="other"), mode="overwrite", overwrite_filter="note = 'other'")
    assert rows_of(engine.read(table)) == rows_of(pa.concat_tables([events(0), events(2, rows=3, note="other")]))
    with pytest.raises(PartitionMismatchError, match="10 rows lie outside"):
        engine.write(table, events(3), mode="overwrite", overwrite_filter="note = 'other'")


def test_a_filter_that_says_not_leaves_rows_without_a_value(engine: Engine, table: TableIdentifier) -> None:
    data = pa.table({"id": [1, 2, 3, 4], "city": ["Oslo", "Rome", None, None]})
    engine.write(table, data, mode="append", partition_by=[transform("identity", "city")])
    engine.write(table, pa.table({"id": [9], "city": ["Bari"]}), mode="overwrite", overwrite_filter="city != 'Oslo'")
    assert rows_of(engine.read(table)) == [(1, "Oslo"), (3, None), (4, None), (9, "Bari")]


TRANSFORMS = {
    "identity": [transform("identity", "city")],
    "year": [transform("year")],
    "month": [transform("month")],
    "day": [transform("day")],
    "hour": [transform("hour")],
    "bucket": [transform("bucket", "id", num_buckets=5)],
    "truncate": [transform("truncate", "city", width=2)],
    "two": [transform("day"), transform("identity", "city")],
}


def _places(engine: Engine, count: int, note: str = "v1", first: int = 0) -> pa.Table:
    empty = "-" if engine.lake.artifacts.catalog.type == "rest" else ""  # SeaweedFS takes no folder named `city=`
    cities = ["Oslo", "Osaka", "Rome", None, empty, "Łódź"]
    return pa.table(
        {
            "note": [note]
            * count,  # not the id first: for SeaweedFS, a partition by Spark's first column has no source
            "id": pa.array(range(first, first + count), pa.int64()),
            "at": pa.array(
                [
                    None if place % 11 == 5 else day(0) + timedelta(hours=7 * place)
                    for place in range(first, first + count)
                ],
                pa.timestamp("us", "UTC"),
            ),
            "city": [cities[place % len(cities)] for place in range(first, first + count)],
        }
    )


@pytest.mark.parametrize("kind", TRANSFORMS)
def test_the_partitions_of_the_data_are_replaced_whatever_the_transform(
    engine: Engine, table: TableIdentifier, kind: str
) -> None:
    engine.write(table, _places(engine, 60), mode="append", partition_by=TRANSFORMS[kind])
    before = live_files(engine.lake, table)
    engine.write(table, _places(engine, 3, "v2", first=5), mode="overwrite", dynamic_partitions=True)
    after = live_files(engine.lake, table)
    rewritten = {partition for partition, paths in after.items() if not paths & before.get(partition, set())}
    kept = {partition for partition in before if before[partition] == after.get(partition)}
    rows = rows_of(engine.read(table))
    assert kept | rewritten == set(before)
    assert 0 < len(rewritten) <= 3
    assert [row for row in rows if row[0] == "v2"] == rows_of(_places(engine, 3, "v2", first=5))
    kept_rows = sum(
        task.file.record_count
        for task in engine.lake.tables.load_table(table).scan().plan_files()
        if str(task.file.partition) in kept
    )
    assert len(rows) == kept_rows + 3


def test_the_partitions_of_the_data_are_replaced_under_an_older_partitioning_too(
    engine: Engine, table: TableIdentifier
) -> None:
    engine.write(table, events(0, 1, 2), mode="append")
    engine.lake.tables.evolve_partitions(table, BY_DAY)
    engine.write(table, events(1, rows=2, note="v2"), mode="overwrite", dynamic_partitions=True)
    expected = pa.concat_tables([events(0, 2), events(1, rows=2, note="v2")])
    assert rows_of(engine.read(table)) == rows_of(expected)
    assert len(engine.lake.tables.list_snapshots(table)) == 2


# 3. Idempotent ---------------------------------------------------------------------------------------------------


@pytest.mark.every_catalog("append", "overwrite a slice", "upsert")
@pytest.mark.parametrize("how", WRITES)
def test_a_write_with_the_same_id_happens_once(engine: Engine, table: TableIdentifier, how: str) -> None:
    engine.write(table, events(0, 1, 2), mode="append", partition_by=BY_DAY)
    first = engine.write(table, events(1, rows=4, note="v2"), **WRITES[how], write_id="the-write")
    rows = rows_of(engine.read(table))
    engine.write(table, events(9, rows=1), mode="append")
    again = engine.write(table, events(1, rows=4, note="v2"), **WRITES[how], write_id="the-write")
    assert again == first
    assert rows_of(engine.read(table)) == sorted(rows + rows_of(events(9, rows=1)), key=str)


def test_writes_with_other_ids_are_other_writes(engine: Engine, table: TableIdentifier) -> None:
    for name in ("one", "two"):
        engine.write(table, events(0), mode="append", write_id=name)
    assert len(engine.read(table)) == 20


# 4. Conflict-safe ------------------------------------------------------------------------------------------------


@pytest.mark.every_catalog
@pytest.mark.parametrize("how", [one for one in WRITES if one not in ("append",)])
def test_rows_that_arrive_in_what_is_being_replaced_are_never_lost(
    engine: Engine, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    engine.write(table, events(0, 1, 2), mode="append", partition_by=BY_DAY)
    late = events(1, rows=5, note="late")
    with meanwhile(engine.lake, monkeypatch, lambda: engine.lake.tables.load_table(table).append(late)):
        try:
            engine.write(table, events(1, rows=4, note="v2"), **WRITES[how])
        except ConcurrencyConflictError:
            assert len(engine.read(table)) == 35
            return
    # Whoever does not see a conflict must have seen the rows: only an upsert may, and it keeps what it does not match.
    rows = engine.read(table)
    assert how == "upsert"
    assert (
        len(rows.filter(pa.compute.field("note") == "late")) + len(rows.filter(pa.compute.field("note") == "v2")) >= 5
    )


@pytest.mark.every_catalog
def test_an_append_beside_the_slice_is_no_conflict(
    engine: Engine, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.write(table, events(0, 1, 2), mode="append", partition_by=BY_DAY)
    late = events(2, rows=5, note="late")
    with meanwhile(engine.lake, monkeypatch, lambda: engine.lake.tables.load_table(table).append(late)):
        engine.write(table, events(1, rows=4, note="v2"), mode="overwrite", slice=days(1))
    assert len(engine.read(table)) == 29


@pytest.mark.parametrize("how", ["append", "overwrite a slice"])
def test_a_removed_row_in_what_is_being_replaced_is_a_conflict_but_not_for_an_append(
    engine: Engine, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    engine.write(table, events(0, 1, 2), mode="append", partition_by=BY_DAY)
    with meanwhile(
        engine.lake,
        monkeypatch,
        lambda: engine.lake.tables.write_data(table, events(1).slice(0, 0), mode="overwrite", slice=days(1)),
    ):
        if how == "append":
            engine.write(table, events(1, rows=4), mode="append")
            assert len(engine.read(table)) == 24
        else:
            with pytest.raises(ConcurrencyConflictError, match="another writer changed the same rows"):
                engine.write(table, events(1, rows=4), **WRITES[how])
            assert len(engine.read(table)) == 20


@pytest.mark.every_catalog
def test_what_changed_since_the_data_was_read_is_a_conflict(engine: Engine, table: TableIdentifier) -> None:
    read = engine.write(table, events(0, 1), mode="append", partition_by=BY_DAY)
    engine.write(table, events(1, rows=1, note="late"), mode="append")
    with pytest.raises(ConcurrencyConflictError):
        engine.write(table, events(1), mode="overwrite", slice=days(1), validate_from=read.snapshot_id)
    engine.write(table, events(0, rows=2), mode="overwrite", slice=days(0), validate_from=read.snapshot_id)
    assert len(engine.read(table)) == 13


@pytest.mark.every_catalog
def test_a_table_dropped_meanwhile_is_not_brought_back(
    engine: Engine, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.write(table, events(0), mode="append")
    with meanwhile(engine.lake, monkeypatch, lambda: engine.lake.tables.drop_table(table)), pytest.raises(FloeError):
        engine.write(table, events(1), mode="append")
    assert not engine.lake.tables.table_exists(table)


@pytest.mark.every_catalog
def test_a_table_replaced_by_another_meanwhile_is_not_written_to(
    engine: Engine, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.write(table, events(0), mode="append", partition_by=BY_DAY)

    def replace() -> None:
        engine.lake.tables.drop_table(table)
        engine.lake.tables.write_data(table, pa.table({"other": ["x"]}), mode="append")

    waited: list[int] = []

    def waiting(number: int) -> float:
        waited.append(number)
        return 0.0

    monkeypatch.setattr(backoff, "delay", waiting)
    with meanwhile(engine.lake, monkeypatch, replace), pytest.raises(FloeError):
        engine.write(table, events(0), mode="overwrite", slice=days(0))
    assert len(waited) <= 1  # there is nothing to wait for
    assert rows_of(engine.read(table)) == [("x",)]


# 6. Additive evolution -------------------------------------------------------------------------------------------


@pytest.mark.every_catalog
def test_new_columns_and_wider_types_arrive_with_the_data(engine: Engine, table: TableIdentifier) -> None:
    engine.write(table, pa.table({"n": pa.array([1], pa.int32()), "x": pa.array([0.5], pa.float32())}), mode="append")
    wide = pa.table({"n": pa.array([2**40], pa.int64()), "x": pa.array([0.25], pa.float64()), "new": ["hello"]})
    engine.write(table, wide, mode="append")
    assert rows_of(engine.read(table)) == [(1, 0.5, None), (2**40, 0.25, "hello")]
    assert len(engine.lake.tables.list_snapshots(table)) == 2


def test_a_column_missing_from_the_data_is_kept_and_filled_with_null(
    engine: Engine, table: TableIdentifier, caplog: pytest.LogCaptureFixture
) -> None:
    engine.write(table, pa.table({"id": [1], "note": ["a"]}), mode="append")
    engine.write(table, pa.table({"id": [2]}), mode="append")
    assert [record.getMessage() for record in caplog.records if "lacks columns" in record.getMessage()] != []
    caplog.clear()
    engine.write(table, pa.table({"id": [2]}), mode="upsert", keys=["id"])  # changes the columns that it is given
    assert "lacks columns" not in caplog.text
    assert rows_of(engine.read(table)) == [(1, "a"), (2, None)]


def test_columns_are_matched_by_name_in_any_order_and_case(engine: Engine, table: TableIdentifier) -> None:
    engine.write(table, pa.table({"id": [1], "note": ["a"]}), mode="append")
    engine.write(table, pa.table({"NOTE": ["b"], "Id": [2]}), mode="append")
    assert rows_of(engine.read(table)) == [(1, "a"), (2, "b")]
    assert engine.lake.tables.load_table(table).schema().column_names == ["id", "note"]


def test_every_field_that_does_not_fit_is_named_with_both_types(engine: Engine, table: TableIdentifier) -> None:
    engine.write(table, pa.table({"id": [1], "note": ["a"], "x": [0.5]}), mode="append")
    with pytest.raises(SchemaEvolutionError) as refusal:
        engine.write(table, pa.table({"id": ["one"], "note": [1], "x": [0.5]}), mode="append")
    assert "id: the table has long, the data has string" in str(refusal.value)
    assert "note: the table has string, the data has long" in str(refusal.value)
    assert "Nothing was written" in str(refusal.value)
    assert len(engine.lake.tables.list_snapshots(table)) == 1


def test_a_required_column_that_is_missing_is_refused(engine: Engine, table: TableIdentifier) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("note", pa.string())])
    engine.lake.tables.create_table(table, schema)
    with pytest.raises(SchemaEvolutionError, match="id: is required and missing from the data"):
        engine.write(table, pa.table({"note": ["a"]}), mode="append")


def test_evolution_can_be_switched_off(engine: Engine, table: TableIdentifier) -> None:
    engine.write(table, pa.table({"id": [1]}), mode="append")
    with pytest.raises(SchemaEvolutionError, match=r"evolution is off: \+extra long"):
        engine.write(table, pa.table({"id": [1], "extra": [1]}), mode="append", evolve=False)
    assert engine.lake.tables.load_table(table).schema().column_names == ["id"]


# 7. Properties merge ---------------------------------------------------------------------------------------------


@pytest.mark.every_catalog("append", "overwrite a slice")
@pytest.mark.parametrize("how", WRITES)
def test_properties_and_partitions_of_others_survive_a_write(engine: Engine, table: TableIdentifier, how: str) -> None:
    engine.write(table, events(0, 1), mode="append", partition_by=BY_DAY)
    with engine.lake.tables.load_table(table).transaction() as transaction:
        transaction.set_properties({"owner-team": "sales", "write.parquet.compression-codec": "snappy"})
    engine.write(
        table, events(1, rows=4), **WRITES[how], properties={"owner-team": "ignored for a table that is there"}
    )
    loaded = engine.lake.tables.load_table(table)
    assert loaded.properties["owner-team"] == "sales"
    assert loaded.properties["write.parquet.compression-codec"] == "snappy"
    assert [field.name for field in loaded.spec().fields] == ["at_day"]


# 9. Publish after audit ------------------------------------------------------------------------------------------


@pytest.mark.every_catalog("append", "overwrite a slice")
@pytest.mark.parametrize("how", WRITES)
def test_a_write_to_a_branch_is_seen_on_main_only_when_it_is_published(
    engine: Engine, table: TableIdentifier, how: str
) -> None:
    engine.write(table, events(0, 1, 2), mode="append", partition_by=BY_DAY)
    before = rows_of(engine.read(table))
    engine.lake.tables.create_branch(table, "audit")
    staged = engine.write(table, events(1, rows=4, note="v2"), **WRITES[how], branch="audit", write_id="once")
    assert rows_of(engine.read(table)) == before
    assert engine.write(table, events(1, rows=4, note="v2"), **WRITES[how], branch="audit", write_id="once") == staged
    audited = rows_of(engine.read(table, ref="audit"))
    assert audited != before
    engine.lake.tables.fast_forward(table, "audit")
    assert rows_of(engine.read(table)) == audited
    assert engine.lake.tables.current_snapshot(table) == staged


def test_a_branch_that_is_not_there_is_not_begun(engine: Engine, table: TableIdentifier) -> None:
    engine.write(table, events(0), mode="append")
    engine.lake.tables.create_tag(table, "release")
    with pytest.raises(ConfigurationError, match="no branch 'audit'; create it first with create_branch"):
        engine.write(table, events(1), mode="append", branch="audit")
    with pytest.raises(ConfigurationError, match="'release' is a tag"):
        engine.write(table, events(1), mode="append", branch="release")


# 10. Traceable ---------------------------------------------------------------------------------------------------


@pytest.mark.every_catalog("append", "overwrite a slice")
@pytest.mark.parametrize("how", WRITES)
def test_what_the_caller_says_about_a_write_is_in_its_snapshot(
    engine: Engine, table: TableIdentifier, how: str
) -> None:
    engine.write(table, events(0, 1), mode="append", partition_by=BY_DAY)
    said = {"pipeline_run_id": "run-7", "source_system": "crm"}
    made = engine.write(table, events(1, rows=4), **WRITES[how], snapshot_properties=said, write_id="w-1")
    other = engine.write(table, events(2, rows=1), mode="append")
    kept = engine.lake.tables.list_snapshots(table)[1].summary
    assert made.summary == kept
    assert said.items() <= kept.items()
    assert kept["floe.write-id"] == "w-1"
    assert kept["floe.version"]
    assert not said.keys() & other.summary.keys()
    assert other.summary["floe.write-id"] != "w-1"


# Upsert ----------------------------------------------------------------------------------------------------------


@pytest.mark.every_catalog
def test_an_upsert_updates_what_is_there_and_adds_what_is_not(engine: Engine, table: TableIdentifier) -> None:
    old = pa.table({"id": [1, 2, 3], "note": ["a", "b", "c"], "kept": [10, 20, 30]})
    engine.write(table, old, mode="upsert", keys=["id"])
    engine.write(table, pa.table({"id": [2, 9], "note": ["B", "new"]}), mode="upsert", keys=["id"])
    assert rows_of(engine.read(table)) == [(1, "a", 10), (2, "B", 20), (3, "c", 30), (9, "new", None)]


def test_an_upsert_moves_a_row_to_its_new_partition(engine: Engine, table: TableIdentifier) -> None:
    engine.write(table, events(0, 1), mode="append", partition_by=BY_DAY)
    moved = events(0, rows=1).set_column(1, "at", pa.array([day(5)], pa.timestamp("us", "UTC")))
    engine.write(table, moved, mode="upsert", keys=["id"])
    rows = engine.read(table)
    assert len(rows) == 20
    assert [row[1] for row in rows_of(rows) if row[0] == 0] == [day(5)]


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ([1, None, None], "2 rows have no id"),
        ([1, 7, 7, 7, 8, 8], r"2 keys occur more than once \((7, 8|8, 7)\)"),
    ],
)
def test_an_upsert_needs_a_key_of_its_own_for_every_row(
    engine: Engine, table: TableIdentifier, ids: list[int | None], words: str
) -> None:
    engine.write(table, pa.table({"id": [1], "note": ["a"]}), mode="append")
    data = pa.table({"id": pa.array(ids, pa.int64()), "note": ["x"] * len(ids)})
    with pytest.raises(FloeStorageError, match=words):
        engine.write(table, data, mode="upsert", keys=["id"])
    assert rows_of(engine.read(table)) == [(1, "a")]


def test_no_rows_to_upsert_are_a_snapshot_all_the_same(engine: Engine, table: TableIdentifier) -> None:
    engine.write(table, pa.table({"id": [1]}), mode="append")
    made = engine.write(table, pa.table({"id": pa.array([], pa.int64())}), mode="upsert", keys=["id"], write_id="none")
    assert made.summary["floe.write-id"] == "none"
    assert len(engine.read(table)) == 1


# Bad input -------------------------------------------------------------------------------------------------------

MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "slice and filter": (
        {"mode": "overwrite", "slice": days(0), "overwrite_filter": "id = 1"},
        "are mutually exclusive",
    ),
    "a filter for an append": ({"mode": "append", "overwrite_filter": "id = 1"}, "mode is append"),
    "an upsert without keys": ({"mode": "upsert"}, "set keys"),
    "an upsert of a filter": ({"mode": "upsert", "keys": ["id"], "overwrite_filter": "id = 1"}, "mode is upsert"),
    "keys for an append": ({"mode": "append", "keys": ["id"]}, "keys are for upserts"),
    "a key that is not there": ({"mode": "upsert", "keys": ["idd"]}, "no column 'idd'"),
    "a filter on a column that is not there": (
        {"mode": "overwrite", "overwrite_filter": "idd = 1"},
        "did you mean .id.",
    ),
    "a malformed filter": ({"mode": "overwrite", "overwrite_filter": "id = = 1"}, "overwrite_filter .* cannot be read"),
    "a slice by a column that is not there": ({"mode": "overwrite", "slice": days(0, column="no")}, "not in the data"),
    "a slice by a text": ({"mode": "overwrite", "slice": days(0, column="note")}, "must be a timestamp or a date"),
    "partitions of a table that has none": ({"mode": "overwrite", "dynamic_partitions": True}, "not partitioned"),
    "a snapshot that is not there": ({"mode": "overwrite", "slice": days(0), "validate_from": 42}, "no snapshot 42"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_explained_and_nothing_is_written(engine: Engine, table: TableIdentifier, mistake: str) -> None:
    engine.write(table, events(0), mode="append")
    options, words = MISTAKES[mistake]
    with pytest.raises(ConfigurationError, match=words):
        engine.write(table, events(0), **options)
    assert len(engine.lake.tables.list_snapshots(table)) == 1


@pytest.mark.parametrize("how", [one for one in WRITES if one != "overwrite the table"])
def test_no_rows_are_a_write_in_every_mode(engine: Engine, table: TableIdentifier, how: str) -> None:
    engine.write(table, events(0, 2), mode="append", partition_by=BY_DAY)
    made = engine.write(table, events(1).slice(0, 0), **WRITES[how])
    assert made.count("added-records") == 0
    assert rows_of(engine.read(table)) == rows_of(events(0, 2))
    assert len(engine.lake.tables.list_snapshots(table)) == 2
