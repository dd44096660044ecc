"""What a Spark write promises: one snapshot, exactly its slice, once, and nothing lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table, Transaction
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from floe_core.errors import (
    CommitStateUnknownError,
    ConcurrencyConflictError,
    ConfigurationError,
    FloeError,
    FloeStorageError,
    PartitionMismatchError,
    SchemaEvolutionError,
    TableNotFoundError,
)
from floe_core.identifiers import TableIdentifier, TableSlice
from floe_core.models import PartitionTransform, PartitionTransformType, WriteMode
from floe_iceberg import IcebergTableManager, Lake
from floe_iceberg.arguments import TableName
from floe_iceberg.snapshots.snapshots import WRITE_ID
from floe_spark import write

BY_DAY = [PartitionTransform(source_column="at", transform_type=PartitionTransformType.DAY)]
BY_HOUR = [PartitionTransform(source_column="at", transform_type=PartitionTransformType.HOUR)]
FIRST = datetime(2026, 1, 1, tzinfo=timezone.utc)


def days(*numbers: int, column: str = "at") -> TableSlice:
    return TableSlice.of_windows(
        column, [(FIRST + timedelta(days=number), FIRST + timedelta(days=number + 1)) for number in numbers]
    )


def events(lake: Lake, *numbers: int, rows: int = 100, kind: str = "timestamp") -> DataFrame:
    """`rows` rows for each of the days, spread over the day."""
    day = F.expr(f"element_at(array({','.join(map(str, numbers))}), cast(id % {len(numbers)} + 1 as int))")
    at = F.timestamp_seconds(F.lit(int(FIRST.timestamp())) + day * 86400 + (F.col("id") * 757) % 86400)
    return lake.spark.range(rows * len(numbers)).select("id", at.cast(kind).alias("at"), F.lit("v1").alias("note"))


def files_by_day(lake: Lake, table: TableIdentifier) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for task in lake.tables.load_table(table).scan().plan_files():
        found.setdefault(str(task.file.partition[0]), set()).add(task.file.file_path)
    return found


def test_the_first_write_creates_table_partitions_and_rows_in_one_snapshot(lake: Lake, table: TableIdentifier) -> None:
    result = lake.write(events(lake, 0, 1), table, mode=WriteMode.OVERWRITE, slice=days(0, 1), partition_by=BY_DAY)

    loaded = lake.tables.load_table(table)
    assert result.created
    assert [snapshot.snapshot_id for snapshot in loaded.snapshots()] == [result.snapshot.snapshot_id]
    assert result.snapshot.count("added-records") == 200
    assert [field.name for field in loaded.spec().fields] == ["at_day"]
    assert loaded.properties["commit.retry.num-retries"] == "20"
    assert loaded.properties["write.target-file-size-bytes"] == str(128 * 2**20)


def test_overwriting_one_day_keeps_the_files_of_the_other_days(lake: Lake, table: TableIdentifier) -> None:
    lake.write(events(lake, 0, 1, 2), table, mode=WriteMode.OVERWRITE, slice=days(0, 1, 2), partition_by=BY_DAY)
    before = files_by_day(lake, table)
    result = lake.write(events(lake, 1, rows=7), table, mode=WriteMode.OVERWRITE, slice=days(1))

    after = files_by_day(lake, table)
    changed = {day for day in before if before[day] != after[day]}
    assert len(changed) == 1
    assert not (before[changed.pop()] & set().union(*after.values()))
    assert result.snapshot.count("deleted-records") == 100
    assert lake.read(table, slice=days(1)).count() == 7
    assert lake.read(table).count() == 207
    assert len(lake.tables.list_snapshots(table)) == 2


def test_days_that_do_not_touch_are_replaced_in_one_snapshot(lake: Lake, table: TableIdentifier) -> None:
    lake.write(events(lake, 0, 1, 2, 3), table, mode=WriteMode.OVERWRITE, slice=days(0, 1, 2, 3), partition_by=BY_DAY)
    lake.write(events(lake, 0, 3, rows=5), table, mode=WriteMode.OVERWRITE, slice=days(0, 3))
    assert lake.read(table).count() == 210
    assert len(lake.tables.list_snapshots(table)) == 2


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz", "date"])
def test_a_day_is_exact_for_every_kind_of_time_column(lake: Lake, table: TableIdentifier, kind: str) -> None:
    frame = events(lake, 0, 1, kind=kind)
    lake.write(frame, table, mode=WriteMode.OVERWRITE, slice=days(0, 1), partition_by=BY_DAY)
    lake.write(events(lake, 0, rows=3, kind=kind), table, mode=WriteMode.OVERWRITE, slice=days(0))
    assert lake.read(table, slice=days(0)).count() == 3
    assert lake.read(table, slice=days(1)).count() == 100


def test_an_empty_frame_clears_its_slice_and_nothing_else(lake: Lake, table: TableIdentifier) -> None:
    lake.write(events(lake, 0, 1), table, mode=WriteMode.OVERWRITE, slice=days(0, 1), partition_by=BY_DAY)
    lake.write(events(lake, 0).limit(0), table, mode=WriteMode.OVERWRITE, slice=days(0))
    assert lake.read(table, slice=days(0)).count() == 0
    assert lake.read(table).count() == 100


def test_rows_outside_the_slice_are_refused_with_a_count_and_examples(lake: Lake, table: TableIdentifier) -> None:
    lake.write(events(lake, 0, 1), table, mode=WriteMode.OVERWRITE, slice=days(0, 1), partition_by=BY_DAY)
    stray = events(lake, 0).unionByName(events(lake, 5, rows=3))
    with pytest.raises(PartitionMismatchError, match=r"3 rows lie outside.*2026-01-06"):
        lake.write(stray, table, mode=WriteMode.OVERWRITE, slice=days(0))
    assert len(lake.tables.list_snapshots(table)) == 1


@pytest.mark.parametrize("mode", [WriteMode.APPEND, WriteMode.OVERWRITE])
def test_a_row_without_a_day_is_outside_every_slice(lake: Lake, table: TableIdentifier, mode: WriteMode) -> None:
    nulls = events(lake, 0, rows=2).withColumn("at", F.lit(None).cast("timestamp"))
    stray = events(lake, 0).unionByName(nulls)
    with pytest.raises(PartitionMismatchError, match="2 rows lie outside"):
        lake.write(stray, table, mode=mode, slice=days(0), partition_by=BY_DAY)
    assert not lake.tables.table_exists(table)


def test_an_append_adds_to_what_is_there(lake: Lake, table: TableIdentifier) -> None:
    lake.write(events(lake, 0), table, mode=WriteMode.APPEND)
    result = lake.write(events(lake, 0), table, mode=WriteMode.APPEND)
    assert result.snapshot.operation == "append"
    assert lake.read(table).count() == 200


def test_overwriting_a_table_replaces_everything_in_one_snapshot(lake: Lake, table: TableIdentifier) -> None:
    lake.write(events(lake, 0, 1), table, mode=WriteMode.APPEND)
    lake.write(events(lake, 2, rows=4), table, mode=WriteMode.OVERWRITE)
    assert lake.read(table).count() == 4
    assert len(lake.tables.list_snapshots(table)) == 2


def test_an_empty_frame_replaces_a_table_only_with_consent(lake: Lake, table: TableIdentifier) -> None:
    lake.write(events(lake, 0), table, mode=WriteMode.APPEND)
    with pytest.raises(FloeStorageError, match="allow_empty"):
        lake.write(events(lake, 0).limit(0), table, mode=WriteMode.OVERWRITE)
    assert lake.read(table).count() == 100
    lake.write(events(lake, 0).limit(0), table, mode=WriteMode.OVERWRITE, allow_empty=True)
    assert lake.read(table).count() == 0


def test_a_write_whose_id_is_in_the_history_is_not_done_again(lake: Lake, table: TableIdentifier) -> None:
    first = lake.write(events(lake, 0), table, mode=WriteMode.APPEND, write_id="w-1")
    lake.write(events(lake, 1), table, mode=WriteMode.APPEND, write_id="w-2")
    again = lake.write(events(lake, 0), table, mode=WriteMode.APPEND, write_id="w-1")
    assert again.deduplicated
    assert again.snapshot.snapshot_id == first.snapshot.snapshot_id
    assert again.snapshot.summary[WRITE_ID] == "w-1"
    assert lake.read(table).count() == 200


def test_a_concurrent_append_to_the_same_day_makes_the_overwrite_fail(lake: Lake, table: TableIdentifier) -> None:
    lake.write(events(lake, 0, 1), table, mode=WriteMode.OVERWRITE, slice=days(0, 1), partition_by=BY_DAY)

    with pytest.raises(ConcurrencyConflictError, match="another writer changed"):
        lake.write(_slow(lake, table, meanwhile=0), table, mode=WriteMode.OVERWRITE, slice=days(0))
    assert lake.read(table).count() == 201


def test_a_concurrent_append_to_another_day_is_kept(lake: Lake, table: TableIdentifier) -> None:
    lake.write(events(lake, 0, 1), table, mode=WriteMode.OVERWRITE, slice=days(0, 1), partition_by=BY_DAY)
    lake.write(_slow(lake, table, meanwhile=1), table, mode=WriteMode.OVERWRITE, slice=days(0))
    assert lake.read(table, slice=days(0)).count() == 100
    assert lake.read(table, slice=days(1)).count() == 101


def _slow(lake: Lake, table: TableIdentifier, *, meanwhile: int) -> DataFrame:
    """A frame during whose computation somebody else appends one row to the day `meanwhile`."""
    marker = str(lake.artifacts.root / f"computing-{table.namespace[0]}")

    def compute(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        Path(marker).touch()
        time.sleep(3)
        yield from batches

    def intrude() -> None:
        while not Path(marker).exists():
            time.sleep(0.05)
        at = FIRST + timedelta(days=meanwhile, hours=5)
        row = pa.table({"id": [999], "at": pa.array([at], pa.timestamp("us", "UTC")), "note": ["intruder"]})
        lake.tables.load_table(table).append(row)

    threading.Thread(target=intrude, daemon=True).start()
    frame = events(lake, 0)
    return frame.coalesce(1).mapInArrow(compute, frame.schema)


def test_new_columns_and_wider_types_are_taken_in(lake: Lake, table: TableIdentifier) -> None:
    narrow = lake.spark.sql("SELECT 1 AS id, CAST(1.5 AS FLOAT) AS price, CAST(1 AS DECIMAL(5,2)) AS tax")
    wide = lake.spark.sql(
        "SELECT 5000000000L AS id, CAST(2.5 AS DOUBLE) AS price, CAST(2 AS DECIMAL(9,2)) AS tax, 'web' AS channel"
    )
    lake.write(narrow, table, mode=WriteMode.APPEND)
    result = lake.write(wide, table, mode=WriteMode.APPEND)
    assert str(result.schema_change) == "+channel string, id -> long, price -> double, tax -> decimal(9, 2)"
    rows = {row.id: row.channel for row in lake.read(table).collect()}
    assert rows == {1: None, 5_000_000_000: "web"}


def test_a_column_missing_from_the_data_becomes_null(lake: Lake, table: TableIdentifier) -> None:
    lake.write(events(lake, 0, rows=1), table, mode=WriteMode.APPEND)
    lake.write(events(lake, 0, rows=1).drop("note"), table, mode=WriteMode.APPEND)
    assert {row.note for row in lake.read(table).collect()} == {"v1", None}


def test_columns_are_matched_by_name_in_any_order_and_case(lake: Lake, table: TableIdentifier) -> None:
    lake.write(lake.spark.sql("SELECT 1 AS id, 'a' AS note"), table, mode=WriteMode.APPEND)
    lake.write(lake.spark.sql("SELECT 'b' AS NOTE, 2 AS Id"), table, mode=WriteMode.APPEND)
    assert {(row.id, row.note) for row in lake.read(table).collect()} == {(1, "a"), (2, "b")}


def test_incompatible_columns_are_all_named_and_nothing_is_written(lake: Lake, table: TableIdentifier) -> None:
    lake.write(lake.spark.sql("SELECT 1 AS id, 'a' AS note, 1.5D AS price"), table, mode=WriteMode.APPEND)
    with pytest.raises(SchemaEvolutionError) as caught:
        lake.write(
            lake.spark.sql("SELECT 'x' AS id, 3 AS note, 2.5D AS price, 1 AS extra"), table, mode=WriteMode.APPEND
        )
    assert str(caught.value).startswith("Schema mismatch: columns 'id', 'note' have incompatible types.")
    assert "the table has int, the data has string" in str(caught.value)
    loaded = lake.tables.load_table(table)
    assert loaded.schema().column_names == ["id", "note", "price"]
    assert len(loaded.snapshots()) == 1


def test_evolution_can_be_switched_off(lake: Lake, table: TableIdentifier) -> None:
    lake.write(lake.spark.range(1), table, mode=WriteMode.APPEND)
    with pytest.raises(SchemaEvolutionError, match=r"evolution is off: \+extra int"):
        lake.write(lake.spark.range(1).withColumn("extra", F.lit(1)), table, mode=WriteMode.APPEND, evolve=False)
    assert lake.tables.load_table(table).schema().column_names == ["id"]


def test_properties_of_floe_yaml_and_of_the_caller_reach_a_new_table(lake: Lake, table: TableIdentifier) -> None:
    lake.write(lake.spark.range(1), table, mode=WriteMode.APPEND, properties={"owner-team": "sales"})
    assert lake.tables.load_table(table).properties["owner-team"] == "sales"


def test_snapshot_properties_reach_the_summary(lake: Lake, table: TableIdentifier) -> None:
    result = lake.write(lake.spark.range(1), table, mode=WriteMode.APPEND, snapshot_properties={"source_system": "crm"})
    assert result.snapshot.summary["source_system"] == "crm"
    assert lake.tables.list_snapshots(table)[0].summary["source_system"] == "crm"


def test_the_past_is_read_by_snapshot(lake: Lake, table: TableIdentifier) -> None:
    first = lake.write(events(lake, 0), table, mode=WriteMode.APPEND)
    lake.write(events(lake, 1, rows=5), table, mode=WriteMode.OVERWRITE)
    assert lake.read(table, snapshot_id=first.snapshot.snapshot_id).count() == 100
    assert lake.read(table, columns=["id"]).columns == ["id"]
    with pytest.raises(ConfigurationError, match="has no snapshot 42"):
        lake.read(table, snapshot_id=42)


def test_reading_a_slice_opens_only_its_files(lake: Lake, table: TableIdentifier) -> None:
    lake.write(events(lake, 0, 1, 2), table, mode=WriteMode.OVERWRITE, slice=days(0, 1, 2), partition_by=BY_DAY)
    opened = {row[0] for row in lake.read(table, slice=days(1)).select(F.input_file_name()).distinct().collect()}
    assert len(opened) == 1
    assert len(lake.read(table).inputFiles() or ["a", "b", "c"]) == 3


def test_reading_a_table_that_is_not_there_says_so(lake: Lake, table: TableIdentifier) -> None:
    with pytest.raises(TableNotFoundError, match=f"Table '{table}' not found in catalog"):
        lake.read(table)


def test_a_local_day_is_exact_on_a_table_partitioned_by_hour(lake: Lake, table: TableIdentifier) -> None:
    lake.write(events(lake, 0, 1, 2), table, mode=WriteMode.APPEND, partition_by=BY_HOUR)
    shift = timedelta(hours=5)
    local = TableSlice.of_windows("at", [(FIRST + shift, FIRST + shift + timedelta(days=1))])
    inside = lake.read(table, slice=local).count()
    lake.write(lake.read(table, slice=local).limit(0), table, mode=WriteMode.OVERWRITE, slice=local)
    assert 0 < inside < 300
    assert lake.read(table).count() == 300 - inside


@pytest.mark.parametrize(
    ("column", "reason"), [("absent", "is not in the data"), ("note", "must be a timestamp or a date")]
)
def test_a_partition_column_must_be_a_time_that_is_there(
    lake: Lake, table: TableIdentifier, column: str, reason: str
) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        lake.write(events(lake, 0), table, mode=WriteMode.OVERWRITE, slice=days(0, column=column))
    assert not lake.tables.table_exists(table)


def test_a_type_iceberg_does_not_have_is_refused_before_anything_happens(lake: Lake, table: TableIdentifier) -> None:
    frame = lake.spark.sql("SELECT 1 AS id, NULL AS nothing, INTERVAL '1' DAY AS span")
    with pytest.raises(SchemaEvolutionError, match=r"nothing.*span"):
        lake.write(frame, table, mode=WriteMode.APPEND)
    assert not lake.tables.table_exists(table)


def test_nested_fields_are_matched_by_name_and_missing_ones_become_null(lake: Lake, table: TableIdentifier) -> None:
    full = """SELECT 1 AS id, named_struct('a', 1, 'b', 'x') AS s, array(named_struct('p', 1, 'q', 2)) AS l,
              map('k', named_struct('u', 1, 'v', 2)) AS m"""
    part = """SELECT 2 AS id, named_struct('b', 'y') AS s, array(named_struct('q', 20, 'r', 30), NULL) AS l,
              map('k', named_struct('v', 20)) AS m"""
    lake.write(lake.spark.sql(full), table, mode=WriteMode.APPEND)
    result = lake.write(lake.spark.sql(part), table, mode=WriteMode.APPEND)
    lake.write(lake.spark.sql("SELECT 3 AS id, CAST(NULL AS STRUCT<b: STRING>) AS s"), table, mode=WriteMode.APPEND)
    assert str(result.schema_change) == "+l.element.r int"
    rows = {row.id: row.asDict(recursive=True) for row in lake.read(table).collect()}
    assert rows[2]["s"] == {"a": None, "b": "y"}
    assert rows[2]["l"] == [{"p": None, "q": 20, "r": 30}, None]
    assert rows[2]["m"] == {"k": {"u": None, "v": 20}}
    assert rows[3]["s"] is None


@pytest.mark.parametrize("names", [["id", "id"], ["id", "ID"]])
def test_a_column_that_is_there_twice_is_refused(lake: Lake, table: TableIdentifier, names: list[str]) -> None:
    with pytest.raises(SchemaEvolutionError, match="more than one column 'id'"):
        lake.write(lake.spark.range(1).select(*(F.lit(1).alias(name) for name in names)), table, mode=WriteMode.APPEND)
    assert not lake.tables.table_exists(table)


def test_the_partition_column_is_found_in_any_case(lake: Lake, table: TableIdentifier) -> None:
    lake.write(events(lake, 0, 1), table, mode=WriteMode.OVERWRITE, slice=days(0, 1), partition_by=BY_DAY)
    shouting = events(lake, 0, rows=3).withColumnRenamed("at", "AT")
    lake.write(shouting, table, mode=WriteMode.OVERWRITE, slice=days(0, column="At"))
    assert lake.read(table).count() == 103


def test_hours_of_a_date_are_refused(lake: Lake, table: TableIdentifier) -> None:
    with pytest.raises(ConfigurationError, match="'at' is date, which hour cannot take"):
        lake.write(events(lake, 0, kind="date"), table, mode=WriteMode.OVERWRITE, slice=days(0), partition_by=BY_HOUR)
    assert not lake.tables.table_exists(table)


def test_a_write_that_fails_after_the_schema_changed_says_so(lake: Lake, table: TableIdentifier) -> None:
    lake.write(lake.spark.range(2), table, mode=WriteMode.APPEND)
    broken = lake.spark.range(2).withColumn("extra", F.raise_error(F.lit("the till is empty")).cast("int"))
    with pytest.raises(
        FloeStorageError, match=r"the till is empty.*the schema of the table was changed before this.*\+extra int"
    ):
        lake.write(broken, table, mode=WriteMode.APPEND)
    assert lake.read(table).count() == 2


def test_replacing_a_table_computes_the_frame_once_and_leaves_no_branch(lake: Lake, table: TableIdentifier) -> None:
    lake.write(lake.spark.range(3), table, mode=WriteMode.APPEND)
    tally = str(lake.artifacts.root / f"computed-{table.namespace[0]}")

    def compute(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with Path(tally).open("a") as file:
            file.write("x")
        yield from batches

    frame = lake.spark.range(5).coalesce(1).mapInArrow(compute, "id long")
    lake.write(frame, table, mode=WriteMode.OVERWRITE)
    assert Path(tally).read_text() == "x"
    assert lake.read(table).count() == 5
    loaded = lake.tables.load_table(table)
    assert list(loaded.refs()) == ["main"]
    assert [snapshot.parent_snapshot_id for snapshot in loaded.snapshots()] == [None, loaded.snapshots()[0].snapshot_id]


def test_a_refused_replacement_leaves_the_table_as_it_was(lake: Lake, table: TableIdentifier) -> None:
    lake.write(lake.spark.range(3), table, mode=WriteMode.APPEND)
    head = lake.tables.load_table(table).current_snapshot()
    with pytest.raises(FloeStorageError, match="by nothing"):
        lake.write(lake.spark.range(0), table, mode=WriteMode.OVERWRITE)
    loaded = lake.tables.load_table(table)
    assert loaded.current_snapshot() == head
    assert list(loaded.refs()) == ["main"]


def test_an_append_while_the_table_is_being_replaced_is_a_conflict(lake: Lake, table: TableIdentifier) -> None:
    lake.write(events(lake, 0, 1), table, mode=WriteMode.APPEND)
    with pytest.raises(ConcurrencyConflictError, match="another writer changed"):
        lake.write(_slow(lake, table, meanwhile=1), table, mode=WriteMode.OVERWRITE)
    assert lake.read(table).count() == 201
    assert list(lake.tables.load_table(table).refs()) == ["main"]


def test_the_mode_may_be_a_word(lake: Lake, table: TableIdentifier) -> None:
    lake.write(lake.spark.range(3), table, mode="append")
    with pytest.raises(ValueError, match="'replace' is not a valid WriteMode"):
        lake.write(lake.spark.range(3), table, mode="replace")


def _write_at_once(*writes: Callable[[], object]) -> list[Exception | None]:
    """Run the writes in threads that begin together; what each one raised."""
    together = threading.Barrier(len(writes))

    def run(write: Callable[[], object]) -> Exception | None:
        together.wait()
        try:
            write()
        except FloeError as exc:
            return exc
        return None

    with ThreadPoolExecutor(len(writes)) as pool:
        return list(pool.map(run, writes))


def test_who_loses_the_race_to_create_a_table_replaces_nothing(lake: Lake, table: TableIdentifier) -> None:
    outcome = _write_at_once(
        lambda: lake.write(lake.spark.range(100), table, mode=WriteMode.APPEND),
        lambda: lake.write(lake.spark.range(1000), table, mode=WriteMode.OVERWRITE),
    )
    assert outcome[0] is None
    if outcome[1] is None:
        assert lake.read(table).count() == 1100
    else:
        assert isinstance(outcome[1], ConcurrencyConflictError)
        assert lake.read(table).count() == 100


def test_two_attempts_of_one_write_at_once_are_not_taken_for_one(lake: Lake, table: TableIdentifier) -> None:
    lake.write(lake.spark.range(1), table, mode=WriteMode.APPEND)

    def attempt() -> object:
        return lake.write(lake.spark.range(10), table, mode=WriteMode.APPEND, write_id="same")

    outcome = _write_at_once(attempt, attempt)
    twice = lake.read(table).count() == 21
    assert any(isinstance(one, CommitStateUnknownError) for one in outcome) is twice


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_publication_that_is_sent_again_keeps_the_files_of_its_snapshot(
    lake: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """Another writer changed the table between its load and the commit, but not the head of the target."""
    lake.write(lake.spark.range(1), table, mode="append")
    sent: list[Transaction] = []

    def refuse_first(transaction: Transaction) -> None:
        sent.append(transaction)
        if len(sent) == 1:
            raise CommitFailedException("another branch was created at the same moment")
        transaction.commit_transaction()

    monkeypatch.setattr("floe_iceberg.writing.commits._send", refuse_first)
    lake.write(lake.spark.range(10), table, mode=mode)
    assert len(sent) == 2
    expected = 11 if mode == "append" else 10
    assert lake.tables.scan(table).to_arrow().num_rows == expected
    assert lake.read(table).count() == expected


class _Overtaken(IcebergTableManager):
    """A manager in whose catalog somebody creates the table just after it was looked for."""

    def find_table(self, identifier: TableName) -> Table | None:
        found = super().find_table(identifier)
        if found is None:
            self.create_table(identifier, pa.schema([("id", pa.int64())])).append(pa.table({"id": [1, 2, 3]}))
        return found


@pytest.mark.parametrize("mode", list(WriteMode))
def test_a_table_that_appears_between_look_and_write_is_added_to_but_not_replaced(
    lake: Lake, table: TableIdentifier, mode: WriteMode
) -> None:
    manager = _Overtaken(lake.tables.catalog_plugin, lake.tables.storage_plugin)
    keys = ["id"] if mode is WriteMode.UPSERT else []
    if mode is WriteMode.APPEND:
        write(lake.spark.range(10), manager, table, mode=mode)
        assert lake.read(table).count() == 13
    else:
        with pytest.raises(ConcurrencyConflictError, match="was created by another writer"):
            write(lake.spark.range(10), manager, table, mode=mode, keys=keys)
        assert lake.read(table).count() == 3
