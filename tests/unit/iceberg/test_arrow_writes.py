"""Arrow writes where only Arrow is concerned: what data may be held in, streams, retries of what was staged."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyiceberg.table.update
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.expressions.visitors import _ManifestEvalVisitor, visit
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from tests.lakes import open_manager

from floe_core.errors import ConcurrencyConflictError, ConfigurationError, FloeStorageError, SchemaEvolutionError
from floe_core.identifiers import TableIdentifier, TableSlice
from floe_core.models import CommitStrategy, PartitionTransform, PartitionTransformType
from floe_iceberg import IcebergTableManager, IcebergTableManagerConfig
from floe_iceberg.schema.changes import AddColumn, DropColumn, MakeRequired
from floe_iceberg.writing import staging, upserts

T = TableIdentifier.from_string("bronze.events")
FIRST = datetime(2026, 1, 1, tzinfo=timezone.utc)
BY_DAY = [PartitionTransform(source_column="at", transform_type=PartitionTransformType.DAY)]


@pytest.fixture
def manager(tmp_path: Path) -> IcebergTableManager:
    return open_manager(tmp_path)


def events(*days: int, rows: int = 5, **more: Any) -> pa.Table:
    at = [FIRST + timedelta(days=day, minutes=place) for day in days for place in range(rows)]
    columns = {"id": list(range(len(at))), "at": pa.array(at, pa.timestamp("us", "UTC"))}
    return pa.table({**columns, **{name: [value] * len(at) for name, value in more.items()}})


def one_day(number: int) -> TableSlice:
    return TableSlice.of_windows("at", [(FIRST + timedelta(days=number), FIRST + timedelta(days=number + 1))])


def files_below(root: Path) -> set[str]:
    return {str(path) for path in root.rglob("*") if path.is_file()}


HOLDERS: dict[str, Callable[[pa.Table], Any]] = {
    "a table": lambda data: data,
    "a batch": lambda data: data.combine_chunks().to_batches()[0],
    "a reader": lambda data: data.to_reader(max_chunksize=3),
    "pandas": lambda data: data.to_pandas(),
    "pandas with Arrow inside": lambda data: data.to_pandas(types_mapper=pd.ArrowDtype),
    "polars": lambda data: pl.from_arrow(data),
    "a lazy polars frame": lambda data: pl.from_arrow(data).lazy().filter(pl.col("id") >= 0),  # type: ignore[union-attr]
}


@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("partition_by", [[], BY_DAY], ids=["flat", "by day"])
def test_data_may_be_held_in(manager: IcebergTableManager, holder: str, partition_by: list[PartitionTransform]) -> None:
    data = events(0, 1, 2, note="x")
    for _ in range(2):
        made = manager.write_data(T, HOLDERS[holder](data), mode="append", partition_by=partition_by)
    assert made.count("added-records") == 15
    rows = manager.scan(T).to_arrow().sort_by([("id", "ascending")])
    assert rows.to_pylist() == [row for row in data.to_pylist() for _ in range(2)]
    assert [str(one.field_type) for one in manager.load_table(T).schema().fields] == ["long", "timestamptz", "string"]


def test_what_is_not_data_is_refused(manager: IcebergTableManager) -> None:
    with pytest.raises(ConfigurationError, match=r"data is a builtins\.list; it must be a pyarrow Table"):
        manager.write_data(T, [{"id": 1}], mode="append")
    assert not manager.table_exists(T)


def test_a_named_index_of_pandas_is_not_lost(manager: IcebergTableManager) -> None:
    frame = pd.DataFrame({"id": [1]}, index=pd.Index(["a"], name="customer"))
    with pytest.raises(ConfigurationError, match=r"index customer would be lost.*reset_index"):
        manager.write_data(T, frame, mode="append")
    manager.write_data(T, frame.reset_index(), mode="append")
    assert manager.scan(T).to_arrow().to_pylist() == [{"customer": "a", "id": 1}]


def test_pandas_that_mixes_types_in_a_column_is_refused(manager: IcebergTableManager) -> None:
    with pytest.raises(SchemaEvolutionError, match="pandas data that Arrow cannot hold"):
        manager.write_data(T, pd.DataFrame({"v": [1, "x"]}, dtype=object), mode="append")


def test_a_column_of_nothing_takes_the_type_the_table_has(manager: IcebergTableManager) -> None:
    manager.write_data(T, pa.table({"id": [1], "note": ["x"]}), mode="append")
    manager.write_data(T, pa.table({"id": [2], "note": pa.nulls(1)}), mode="append")
    assert manager.scan(T).to_arrow()["note"].to_pylist() == [None, "x"]
    with pytest.raises(SchemaEvolutionError, match="'new' holds only NULL and has no type"):
        manager.write_data(T, pa.table({"id": [2], "new": pa.nulls(1)}), mode="append")


def test_full_columns_do_not_take_a_demand_for_values_away(manager: IcebergTableManager) -> None:
    manager.create_table(T, pa.schema([pa.field("id", pa.int64(), nullable=False)]))
    manager.write_data(T, pd.DataFrame({"id": [1]}), mode="append")
    assert manager.load_table(T).schema().find_field("id").required
    manager.write_data(T, pa.table({"id": pa.array([None], pa.int64())}), mode="append")
    assert not manager.load_table(T).schema().find_field("id").required


def test_a_stream_is_one_snapshot_and_its_files_reach_their_size(
    manager: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "_WAITING_BYTES", 40_000)
    monkeypatch.setattr(staging, "_OPEN_FILES", 2)
    data = events(0, 1, 2, 3, rows=5_000, note="some words that take room")
    properties = {"write.target-file-size-bytes": "100000", "write.parquet.row-group-size-bytes": "20000"}
    reader = data.to_reader(max_chunksize=700)
    made = manager.write_data(T, reader, mode="append", partition_by=BY_DAY, properties=properties)
    assert len(manager.list_snapshots(T)) == 1
    assert made.count("added-records") == 20_000
    tasks = list(manager.load_table(T).scan().plan_files())
    assert len(tasks) == made.count("added-data-files") > 4
    assert manager.scan(T).to_arrow().sort_by("id").to_pylist() == data.to_pylist()


def test_a_stream_that_breaks_leaves_nothing_behind(manager: IcebergTableManager, tmp_path: Path) -> None:
    manager.write_data(T, events(0), mode="append", partition_by=BY_DAY)
    before = files_below(tmp_path)

    def broken() -> Iterator[pa.RecordBatch]:
        yield from events(1, rows=1000).to_batches()
        raise OSError("the source went away")

    reader = pa.RecordBatchReader.from_batches(events(0).schema, broken())
    with pytest.raises(OSError, match="the source went away"):
        manager.write_data(T, reader, mode="append")
    assert files_below(tmp_path) == before
    assert len(manager.scan(T).to_arrow()) == 5


def test_a_refusal_leaves_nothing_behind(manager: IcebergTableManager, tmp_path: Path) -> None:
    manager.write_data(T, events(0), mode="append", partition_by=BY_DAY)
    before = files_below(tmp_path)
    with pytest.raises(FloeStorageError, match="5 rows lie outside"):
        manager.write_data(T, events(0, 1).to_reader(max_chunksize=2), mode="overwrite", slice=one_day(0))
    assert files_below(tmp_path) == before


class _Meanwhile:
    """Somebody who acts just before the first commit of a write reaches the catalog."""

    def __init__(
        self, manager: IcebergTableManager, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]
    ) -> None:
        catalog: Any = manager.catalog_plugin.connect()
        commit = catalog.commit_table
        self.commits = 0

        def commit_after(table: Table, *rest: Any) -> Any:
            self.commits += 1
            if self.commits == 1:
                monkeypatch.setattr(catalog, "commit_table", commit)
                act()
                monkeypatch.setattr(catalog, "commit_table", commit_after)
            return commit(table, *rest)

        monkeypatch.setattr(catalog, "commit_table", commit_after)


def test_a_stream_that_met_a_conflict_is_committed_again_not_read_again(
    manager: IcebergTableManager, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    manager.write_data(T, events(0), mode="append", partition_by=BY_DAY)
    seen = _Meanwhile(manager, monkeypatch, lambda: manager.load_table(T).append(events(1)))
    made = manager.write_data(T, events(2, rows=7).to_reader(max_chunksize=2), mode="append")
    assert seen.commits == 2
    assert made.count("added-records") == 7
    assert len(manager.scan(T).to_arrow()) == 17
    # The manifests of the refused attempt are gone: what lies there is what the table needs.
    needed = {one["path"] for one in manager.inspect(T).all_manifests().to_pylist()}
    needed |= {snapshot.manifest_list for snapshot in manager.load_table(T).snapshots()}
    lying = {f"file://{path}" for path in files_below(tmp_path) if path.endswith(".avro")}
    assert lying == {one if one.startswith("file://") else f"file://{one}" for one in needed}


def test_two_who_add_other_columns_at_once_both_land(
    manager: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager.write_data(T, events(0), mode="append", partition_by=BY_DAY)
    _Meanwhile(manager, monkeypatch, lambda: manager.write_data(T, events(1, theirs=7, also="x"), mode="append"))
    manager.write_data(T, events(2, ours="mine").to_reader(max_chunksize=2), mode="append")
    rows = manager.scan(T).to_arrow()
    assert sorted(rows.column_names) == ["also", "at", "id", "ours", "theirs"]
    assert sorted(rows["ours"].to_pylist(), key=str) == [None] * 10 + ["mine"] * 5
    assert sorted(rows["theirs"].to_pylist(), key=str) == [7] * 5 + [None] * 10


def test_a_partitioning_that_changed_meanwhile_is_written_for(
    manager: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager.write_data(T, events(0), mode="append", partition_by=BY_DAY)

    def act() -> None:
        manager.evolve_partitions(T, [PartitionTransform(source_column="id", transform_type="bucket", num_buckets=2)])
        manager.load_table(T).append(events(1))

    _Meanwhile(manager, monkeypatch, act)
    manager.write_data(T, events(2, 3).to_reader(), mode="append")
    table = manager.load_table(T)
    assert len(manager.scan(T).to_arrow()) == 20
    assert {task.file.spec_id for task in table.scan().plan_files()} == {0, 1}
    assert len(manager.scan(T, row_filter="id = 3").to_arrow()) == 3


def test_an_overwrite_whose_table_changed_its_layout_meanwhile_is_a_conflict(
    manager: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager.write_data(T, events(0), mode="append", partition_by=BY_DAY)

    def act() -> None:
        manager.evolve_schema(T, AddColumn("ours", pa.int64()))
        manager.load_table(T).append(events(1).append_column("ours", pa.array([1] * 5)))

    _Meanwhile(manager, monkeypatch, act)
    with pytest.raises(SchemaEvolutionError, match="ours: the table has long, the data has string"):
        manager.write_data(T, events(0, ours="mine"), mode="overwrite", slice=one_day(0))
    assert len(manager.scan(T).to_arrow()) == 10


def replace_column(manager: IcebergTableManager) -> None:
    """Drop a column and add another one with its name: a change of the schema without a snapshot."""
    manager.evolve_schema(T, DropColumn("note"), allow_incompatible_changes=True)
    manager.evolve_schema(T, AddColumn("note", pa.string()))


def test_values_are_kept_when_their_column_is_replaced_and_no_snapshot_shows_it(
    manager: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager.write_data(T, pa.table({"id": [1], "note": ["a"]}), mode="append")
    _Meanwhile(manager, monkeypatch, lambda: replace_column(manager))
    manager.write_data(T, pa.table({"id": [2], "note": ["b"]}).to_reader(), mode="append")
    found = manager.scan(T).to_arrow().sort_by("id").to_pylist()
    assert found == [{"id": 1, "note": None}, {"id": 2, "note": "b"}]


def test_rows_are_not_replaced_when_a_column_is_replaced_and_no_snapshot_shows_it(
    manager: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager.write_data(T, pa.table({"id": [1], "note": ["a"]}), mode="append")
    _Meanwhile(manager, monkeypatch, lambda: replace_column(manager))
    with pytest.raises(ConcurrencyConflictError, match="changed the layout"):
        manager.write_data(T, pa.table({"id": [1], "note": ["b"]}), mode="upsert", keys=["id"])
    assert len(manager.list_snapshots(T)) == 1


def test_a_column_that_became_required_takes_no_null(
    manager: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager.write_data(T, pa.table({"id": [1], "note": ["a"]}), mode="append")
    _Meanwhile(
        manager, monkeypatch, lambda: manager.evolve_schema(T, MakeRequired("note"), allow_incompatible_changes=True)
    )
    rows = pa.table({"id": [2], "note": pa.array([None], pa.string())})
    with pytest.raises(FloeStorageError, match="note"):
        manager.write_data(T, rows, mode="append", evolve=False)
    assert manager.scan(T).to_arrow().num_rows == 1


@pytest.mark.parametrize("retries", ["9" * 5000, "²", "many"], ids=["too large", "a digit of another kind", "a word"])
def test_a_number_of_retries_that_is_none_is_not_used(
    manager: IcebergTableManager, monkeypatch: pytest.MonkeyPatch, retries: str
) -> None:
    manager.write_data(T, events(0), mode="append", properties={"commit.retry.num-retries": retries})
    _Meanwhile(manager, monkeypatch, lambda: manager.write_data(T, events(1), mode="append"))
    manager.write_data(T, events(2), mode="append")
    assert len(manager.scan(T).to_arrow()) == 15


def test_who_loses_the_race_to_create_a_table_adds_to_it(
    manager: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    _Meanwhile(manager, monkeypatch, lambda: manager.write_data(T, events(0, theirs=1), mode="append"))
    manager.write_data(T, events(1, ours="x").to_reader(), mode="append", partition_by=BY_DAY)
    assert len(manager.scan(T).to_arrow()) == 10
    assert len(manager.list_snapshots(T)) == 2
    _Meanwhile(manager, monkeypatch, lambda: None)


def test_who_loses_the_race_to_create_a_table_replaces_nothing(
    manager: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    _Meanwhile(manager, monkeypatch, lambda: manager.write_data(T, events(0), mode="append"))
    with pytest.raises(ConcurrencyConflictError, match="was created by another writer"):
        manager.write_data(T, events(1), mode="overwrite")
    assert len(manager.scan(T).to_arrow()) == 5


@pytest.mark.parametrize(("said", "attempts"), [(None, 20), ("2", 3), ("0", 1)])
def test_the_budget_for_conflicts_is_the_tables_or_twenty(
    manager: IcebergTableManager, monkeypatch: pytest.MonkeyPatch, said: str | None, attempts: int
) -> None:
    manager.write_data(T, events(0), mode="append")
    with manager.load_table(T).transaction() as transaction:
        transaction.remove_properties("commit.retry.num-retries")
        if said is not None:
            transaction.set_properties({"commit.retry.num-retries": said})
    catalog: Any = manager.catalog_plugin.connect()
    sent = []

    def refuse(*_: Any) -> None:
        sent.append(1)
        raise CommitFailedException("somebody else was quicker")

    monkeypatch.setattr(catalog, "commit_table", refuse)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    with pytest.raises(
        ConcurrencyConflictError, match=r"other writers changed .* faster than this write could commit"
    ) as caught:
        manager.write_data(T, events(1), mode="append")
    assert len(sent) == attempts
    assert caught.value.detail is not None
    assert (caught.value.detail.table, caught.value.detail.retry_count) == (str(T), attempts - 1)
    monkeypatch.undo()
    assert len(manager.scan(T).to_arrow()) == 5


def test_the_history_of_a_table_is_copied_a_few_times_per_commit(
    manager: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each copy takes as long as there are snapshots, and whoever commits slowly loses to whoever is quick."""
    manager.write_data(T, events(0), mode="append")
    copies = []
    computed = pyiceberg.table.update.update_table_metadata

    def counted(*args: Any, **options: Any) -> Any:
        copies.append(1)
        return computed(*args, **options)

    monkeypatch.setattr(pyiceberg.table, "update_table_metadata", counted)
    manager.write_data(T, events(1), mode="append")
    assert len(copies) <= 3
    assert len(manager.scan(T).to_arrow()) == 10


@pytest.mark.parametrize(("strategy", "manifests"), [(CommitStrategy.FAST_APPEND, 4), (CommitStrategy.MERGE, 1)])
def test_merging_commits_leave_fewer_manifests(
    manager: IcebergTableManager, strategy: CommitStrategy, manifests: int
) -> None:
    few = {"commit.manifest.min-count-to-merge": "2"}
    for _ in range(4):
        manager.write_data(T, events(0), mode="append", commit_strategy=strategy, properties=few)
    assert len(manager.inspect(T).manifests()) == manifests
    assert len(manager.scan(T).to_arrow()) == 20


def test_an_overwrite_keeps_files_whose_statistics_allow_rows_that_they_do_not_hold(
    manager: IcebergTableManager,
) -> None:
    manager.write_data(T, pa.table({"id": [1, 9], "note": ["old"] * 2}), mode="append")
    (beside,) = (task.file.file_path for task in manager.scan(T).plan_files())
    manager.write_data(T, pa.table({"id": [4, 5, 6], "note": ["old"] * 3}), mode="append")
    both = {task.file.file_path for task in manager.scan(T, row_filter="id = 5").plan_files()}
    assert len(both) == 2
    manager.write_data(T, pa.table({"id": [5], "note": ["new"]}), mode="overwrite", overwrite_filter="id = 5")
    assert both & {task.file.file_path for task in manager.scan(T).plan_files()} == {beside}
    rows = manager.scan(T).to_arrow().sort_by("id").to_pylist()
    assert [(row["id"], row["note"]) for row in rows] == [(1, "old"), (4, "old"), (5, "new"), (6, "old"), (9, "old")]


def test_an_upsert_that_needs_spark_says_so(manager: IcebergTableManager, monkeypatch: pytest.MonkeyPatch) -> None:
    manager.write_data(T, events(0), mode="append")
    monkeypatch.setattr(upserts, "LARGEST_UPSERT", 3)
    with pytest.raises(ConfigurationError, match=r"more than 3 rows .* needs Spark"):
        manager.write_data(T, events(0).to_reader(max_chunksize=1), mode="upsert", keys=["id"])
    assert len(manager.list_snapshots(T)) == 1


def test_an_upsert_by_many_keys_touches_only_files_that_hold_them(manager: IcebergTableManager) -> None:
    ids = pa.table({"id": list(range(1000)), "note": ["old"] * 1000})
    for half in (ids.slice(0, 500), ids.slice(500)):
        manager.write_data(T, half, mode="append")
    untouched = {task.file.file_path for task in manager.scan(T, row_filter="id < 500").plan_files()}
    fresh = pa.table({"id": list(range(700, 1100)), "note": ["new"] * 400})
    manager.write_data(T, fresh, mode="upsert", keys=["ID"])
    assert untouched < {task.file.file_path for task in manager.load_table(T).scan().plan_files()}
    rows = manager.scan(T).to_arrow().sort_by("id").to_pylist()
    assert rows == [{"id": at, "note": "new" if at >= 700 else "old"} for at in range(1100)]


KEYED = pa.schema([("city", pa.string()), ("day", pa.date32()), ("n", pa.float64()), ("note", pa.string())])


@pytest.mark.parametrize("keys", [["city", "day"], ["DAY", "n", "city"]])
def test_an_upsert_by_several_keys_changes_the_rows_that_have_all_of_them(
    manager: IcebergTableManager, keys: list[str]
) -> None:
    chance = random.Random(len(keys))

    def some(note: str, cities: Sequence[str | None], days: Sequence[int | None]) -> pa.Table:
        found = [(city, day, float(n)) for city in cities for day in days for n in ([-1, 0, 2] if "n" in keys else [7])]
        chosen = chance.sample(found, k=len(found) * 2 // 3)
        columns = [list(one) for one in zip(*chosen, strict=True)]
        return pa.table([*columns, [note] * len(chosen)], schema=KEYED)

    # A stored NULL is no key: it is neither found nor changed.
    old, new = some("old", ["a", "b", "c", None], [1, 2, 3, None]), some("new", ["b", "c", "d"], [2, 3, 4])
    manager.write_data(T, old, mode="append")
    manager.write_data(T, new, mode="upsert", keys=keys)
    by_key = {tuple(row.values())[:3]: row["note"] for row in [*old.to_pylist(), *new.to_pylist()]}
    stored = manager.scan(T).to_arrow().to_pylist()
    assert {tuple(row.values())[:3]: row["note"] for row in stored} == by_key
    assert len(stored) == len(by_key)
    assert len({"old", "new"} & set(by_key.values())) == 2


def test_rows_without_keys_of_their_own_are_refused(manager: IcebergTableManager) -> None:
    rows = [("a", 1, 0.0), ("a", 1, -0.0), (None, 2, 1.0), ("b", None, float("nan")), ("a", 1, 1.0)]
    columns = [list(one) for one in zip(*rows, strict=True)]
    data = pa.table([*columns, ["x"] * len(rows)], schema=KEYED)
    told = r"by city, day, n: 1 row has no city; 1 row has no day; 1 row has NaN as n; 1 key occurs more than once"
    with pytest.raises(FloeStorageError, match=told):
        manager.write_data(T, data, mode="upsert", keys=["city", "day", "n"])
    assert not manager.table_exists(T)


def test_properties_for_new_tables_come_from_the_manager_and_the_call(tmp_path: Path) -> None:
    config = IcebergTableManagerConfig(table_properties={"owner-team": "sales", "commit.retry.num-retries": "3"})
    manager = open_manager(tmp_path, config)
    manager.write_data(T, events(0), mode="append", properties={"owner-team": "finance"})
    properties = manager.load_table(T).properties
    assert properties["owner-team"] == "finance"
    assert properties["commit.retry.num-retries"] == "3"
    assert properties["write.parquet.compression-codec"] == "zstd"


def test_files_are_compressed_as_the_table_says(manager: IcebergTableManager) -> None:
    import pyarrow.parquet as pq

    manager.write_data(T, events(0), mode="append", properties={"write.parquet.compression-codec": "snappy"})
    (task,) = manager.load_table(T).scan().plan_files()
    found = pq.ParquetFile(task.file.file_path.removeprefix("file://")).metadata.row_group(0).column(0).compression
    assert found == "SNAPPY"


def test_a_table_of_other_files_is_for_spark(manager: IcebergTableManager) -> None:
    with pytest.raises(ConfigurationError, match="Arrow writes parquet: write it with Spark"):
        manager.write_data(T, events(0), mode="append", properties={"write.format.default": "orc"})


@pytest.mark.parametrize("wrong", [{"rows": 7}, {"at": None}])
def test_snapshot_properties_are_texts(manager: IcebergTableManager, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="snapshot_properties must be texts"):
        manager.write_data(T, events(0), mode="append", snapshot_properties=wrong)


def test_a_table_created_and_dropped_by_others_meanwhile_leaves_ours_whole(
    manager: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog: Any = manager.catalog_plugin.connect()
    commit, sent = catalog.commit_table, []

    def first_refused(*request: Any) -> Any:
        sent.append(1)
        if len(sent) == 1:
            raise CommitFailedException("it exists")
        return commit(*request)

    monkeypatch.setattr(catalog, "commit_table", first_refused)
    manager.write_data(T, events(0), mode="append")
    assert len(manager.scan(T).to_arrow()) == 5


def test_two_creators_with_other_partitions_both_land_in_the_right_ones(
    manager: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = [PartitionTransform(source_column="id", transform_type=PartitionTransformType.IDENTITY)]
    ours = [PartitionTransform(source_column="id", transform_type=PartitionTransformType.BUCKET, num_buckets=2)]
    _Meanwhile(manager, monkeypatch, lambda: manager.write_data(T, events(0), mode="append", partition_by=theirs))
    manager.write_data(T, events(1), mode="append", partition_by=ours)
    for number in range(5):
        assert len(manager.scan(T, row_filter=f"id = {number}").to_arrow()) == 2


def test_a_branch_that_went_meanwhile_is_not_begun_anew(
    manager: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager.write_data(T, events(0), mode="append")
    manager.create_branch(T, "audit")
    _Meanwhile(manager, monkeypatch, lambda: manager.remove_branch(T, "audit"))
    with pytest.raises(ConcurrencyConflictError, match=r"no branch 'audit'.*existed when the write began"):
        manager.write_data(T, events(1), mode="append", branch="audit")
    assert list(manager.load_table(T).refs()) == ["main"]


def test_writes_to_main_and_to_a_branch_at_once_all_land(
    manager: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager.write_data(T, events(0), mode="append")
    manager.create_branch(T, "audit")
    _Meanwhile(manager, monkeypatch, lambda: manager.write_data(T, events(1), mode="append"))
    manager.write_data(T, events(2), mode="append", branch="audit")
    assert len(manager.scan(T).to_arrow()) == 10
    assert len(manager.scan(T, ref="audit").to_arrow()) == 10


def test_main_is_not_published_to_itself(manager: IcebergTableManager) -> None:
    manager.write_data(T, events(0), mode="append")
    with pytest.raises(ConfigurationError, match="is what other branches are published to"):
        manager.fast_forward(T, "main", remove=True)
    assert len(manager.scan(T).to_arrow()) == 5


def test_an_overwrite_finds_its_files_in_many_manifests_whatever_threads_do(
    manager: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(self: _ManifestEvalVisitor, manifest: ManifestFile) -> bool:
        self.partition_fields = manifest.partitions or []
        time.sleep(0.01)  # what another thread needs to ask the same evaluator about its own manifest
        return visit(self.partition_filter, self)

    for day in range(12):
        manager.write_data(T, events(day), mode="append", partition_by=BY_DAY)
    monkeypatch.setattr(_ManifestEvalVisitor, "eval", slow)
    for day in (3, 8):
        manager.write_data(T, events(day, rows=1), mode="overwrite", slice=one_day(day))
    assert manager.scan(T).count() == 10 * 5 + 2
