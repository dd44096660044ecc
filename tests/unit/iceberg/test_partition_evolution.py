"""Another layout for what is written from now on; what is there stays readable."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from tests.lakes import open_manager

from floe_core.errors import (
    ConcurrencyConflictError,
    ConfigurationError,
    FloeStorageError,
    SchemaEvolutionError,
    TableNotFoundError,
)
from floe_core.identifiers import TableIdentifier
from floe_core.models import PartitionTransform
from floe_iceberg import IcebergTableManager
from floe_iceberg.arguments import TableName
from floe_iceberg.schema.changes import AddColumn, DropColumn

T = TableIdentifier.from_string("bronze.orders")
SCHEMA = pa.schema(
    [("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("note", pa.string()), ("price", pa.float64())]
)

DAY = datetime(2026, 1, 1, tzinfo=timezone.utc)


def by(column: str, transform: str, **arguments: Any) -> PartitionTransform:
    return PartitionTransform.model_validate({"source_column": column, "transform_type": transform, **arguments})


BY_DAY, BY_HOUR, BY_NOTE = by("at", "day"), by("at", "hour"), by("note", "identity")
BUCKETS_4, BUCKETS_8 = by("id", "bucket", num_buckets=4), by("id", "bucket", num_buckets=8)


class Overtaken(IcebergTableManager):
    """After each of the first looks at the table, somebody else changes it."""

    meanwhile: Sequence[Callable[[], object]] = ()

    def load_table(self, identifier: TableName) -> Table:
        table = super().load_table(identifier)
        if self.meanwhile:
            change, *self.meanwhile = self.meanwhile
            change()
        return table


@pytest.fixture
def manager(tmp_path: Path) -> IcebergTableManager:
    """A table by day, with ten rows on each of two days."""
    opened = open_manager(tmp_path)
    opened.create_table(T, SCHEMA, partition_by=[BY_DAY])
    append(opened, 0)
    append(opened, 10)
    return opened


def append(manager: IcebergTableManager, first: int) -> None:
    """Ten rows of one day, an hour each."""
    at = [DAY + timedelta(days=first // 10, hours=hour) for hour in range(10)]
    rows = {"id": list(range(first, first + 10)), "at": at, "note": [f"note {first}"] * 10, "price": [1.5] * 10}
    manager.load_table(T).append(pa.table(rows, SCHEMA))


def fields(manager: IcebergTableManager) -> list[str]:
    return [f"{field.name}: {field.transform}" for field in manager.load_table(T).spec().fields]


def ids(manager: IcebergTableManager, **options: Any) -> list[int]:
    return sorted(manager.scan(T, **options).to_arrow()["id"].to_pylist())


def commits(manager: IcebergTableManager) -> int:
    return len(manager.load_table(T).metadata.metadata_log)


def test_new_files_follow_the_new_layout_and_old_ones_stay_readable(manager: IcebergTableManager) -> None:
    before = commits(manager)
    spec = manager.evolve_partitions(T, [BY_HOUR, BY_NOTE])
    assert commits(manager) == before + 1
    assert [field.name for field in spec.fields] == ["at_hour", "note"]
    assert spec == manager.load_table(T).spec()
    append(manager, 20)
    assert ids(manager) == list(range(30))
    assert sorted(set(manager.inspect(T).files()["spec_id"].to_pylist())) == [0, 1]
    # The filter skips files of both layouts: one of day 2 in the old one, one of hour 3 on day 3 in the new one.
    for day, expected in ((1, list(range(10, 20))), (2, list(range(20, 30)))):
        window = f"at >= '{(DAY + timedelta(days=day)).isoformat()}'"
        window += f" AND at < '{(DAY + timedelta(days=day + 1)).isoformat()}'"
        assert ids(manager, row_filter=window) == expected
    third_hour = (DAY + timedelta(days=2, hours=3)).isoformat()
    assert len(list(manager.scan(T, row_filter=f"at = '{third_hour}'").plan_files())) == 1
    second_day = (DAY + timedelta(days=1)).isoformat()
    assert len(list(manager.scan(T, row_filter=f"at = '{second_day}'").plan_files())) == 1


def test_what_stays_keeps_its_field_and_the_rest_goes(manager: IcebergTableManager) -> None:
    manager.evolve_partitions(T, [BY_DAY, BUCKETS_4])
    kept = manager.load_table(T).spec().fields[0]
    manager.evolve_partitions(T, [BY_NOTE, BY_DAY])
    assert fields(manager) == ["at_day: day", "note: identity"]
    assert manager.load_table(T).spec().fields[0] == kept


def test_no_transform_means_no_partitions_and_the_way_back_is_open(manager: IcebergTableManager) -> None:
    assert manager.evolve_partitions(T, []).is_unpartitioned()
    append(manager, 20)
    assert manager.evolve_partitions(T, [BY_DAY]).spec_id == 0
    append(manager, 30)
    assert ids(manager) == list(range(40))


@pytest.mark.parametrize("same", [[BY_DAY, BUCKETS_4], [BUCKETS_4, BY_DAY]])
def test_the_layout_the_table_has_makes_no_commit(manager: IcebergTableManager, same: list[PartitionTransform]) -> None:
    manager.evolve_partitions(T, [BY_DAY, BUCKETS_4])
    before = manager.load_table(T).metadata_location
    manager.evolve_partitions(T, same)
    assert manager.load_table(T).metadata_location == before


def test_a_field_is_renamed_when_a_name_is_given_and_only_then(manager: IcebergTableManager) -> None:
    manager.evolve_partitions(T, [by("at", "day", name="the_day")])
    assert [str(field) for field in manager.load_table(T).spec().fields] == ["1000: the_day: day(2)"]
    before = manager.load_table(T).metadata_location
    manager.evolve_partitions(T, [BY_DAY])
    assert manager.load_table(T).metadata_location == before
    append(manager, 20)
    assert ids(manager) == list(range(30))


def test_a_name_that_another_field_had_is_given_as_spark_would_give_it(manager: IcebergTableManager) -> None:
    manager.evolve_partitions(T, [BUCKETS_4])
    append(manager, 20)
    manager.evolve_partitions(T, [BUCKETS_8])
    append(manager, 30)
    assert fields(manager) == ["id_bucket_8: bucket[8]"]
    manager.evolve_partitions(T, [BUCKETS_4])
    assert fields(manager) == ["id_bucket: bucket[4]"]
    append(manager, 40)
    assert ids(manager) == list(range(50))
    with pytest.raises(
        ConfigurationError, match=r"'id_bucket' is the name of bucket\[4\] of column 'id'; choose anoth"
    ):
        manager.evolve_partitions(T, [by("id", "bucket", num_buckets=16, name="id_bucket")])


@pytest.mark.parametrize(
    ("partition_by", "reason"),
    [
        ([by("nothing", "day")], "there is no column 'nothing'"),
        ([by("nots", "identity")], "there is no column 'nots'; did you mean 'note'"),
        ([by("price", "day")], "column 'price' is double, which day cannot take"),
        ([BY_NOTE, BY_NOTE], "note are given twice"),
        ([BUCKETS_4, by("id", "bucket", num_buckets=4, name="again")], r"bucket\[4\] of 'id' is given twice"),
        ([BY_DAY, BY_HOUR], "day and hour of 'at'"),
        ([by("at", "day", name="note")], "'note' is a column"),
        ([by("id", "identity", name="note")], "'note' is a column"),
    ],
)
def test_a_layout_that_cannot_be_is_refused_and_nothing_changes(
    manager: IcebergTableManager, partition_by: list[PartitionTransform], reason: str
) -> None:
    before = manager.load_table(T).metadata_location
    with pytest.raises(ConfigurationError, match=reason):
        manager.evolve_partitions(T, partition_by)
    assert manager.load_table(T).metadata_location == before
    with pytest.raises(ConfigurationError, match=reason):
        manager.create_table(TableIdentifier.from_string("bronze.new"), SCHEMA, partition_by=partition_by)


def test_a_change_that_meets_another_is_planned_anew(manager: IcebergTableManager, tmp_path: Path) -> None:
    overtaken = open_manager(tmp_path, kind=Overtaken)
    assert isinstance(overtaken, Overtaken)
    overtaken.meanwhile = [
        lambda: manager.evolve_partitions(T, [BY_DAY, BY_NOTE]),
        lambda: manager.evolve_partitions(T, [BUCKETS_4]),
    ]
    overtaken.evolve_partitions(T, [BY_DAY, BUCKETS_4])
    assert sorted(fields(manager)) == ["at_day: day", "id_bucket: bucket[4]"]


def test_a_table_that_never_rests_ends_in_a_conflict(
    manager: IcebergTableManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda _: None)
    overtaken = open_manager(tmp_path, kind=Overtaken)
    assert isinstance(overtaken, Overtaken)
    others = [[BY_NOTE], [BY_DAY]] * 10
    overtaken.meanwhile = [lambda other=other: manager.evolve_partitions(T, other) for other in others]  # type: ignore[misc]
    with pytest.raises(ConcurrencyConflictError, match=r"changed 'bronze\.orders' during this write"):
        overtaken.evolve_partitions(T, [BUCKETS_4])


def test_a_table_that_was_replaced_or_dropped_meanwhile_is_looked_at_again(
    manager: IcebergTableManager, tmp_path: Path
) -> None:
    def replace() -> None:
        manager.drop_table(T)
        manager.create_table(T, pa.schema([("other", pa.int64())]))

    overtaken = open_manager(tmp_path, kind=Overtaken)
    assert isinstance(overtaken, Overtaken)
    overtaken.meanwhile = [replace]
    with pytest.raises(ConfigurationError, match="there is no column 'at'"):
        overtaken.evolve_partitions(T, [BY_HOUR])
    overtaken.meanwhile = [lambda: manager.drop_table(T)]
    with pytest.raises(TableNotFoundError):
        overtaken.evolve_partitions(T, [by("other", "identity")])


def test_a_column_that_was_dropped_meanwhile_is_named(manager: IcebergTableManager, tmp_path: Path) -> None:
    overtaken = open_manager(tmp_path, kind=Overtaken)
    assert isinstance(overtaken, Overtaken)
    overtaken.meanwhile = [
        lambda: manager.evolve_schema(T, DropColumn("note"), allow_incompatible_changes=True),
    ]
    with pytest.raises(ConfigurationError, match="there is no column 'note'"):
        overtaken.evolve_partitions(T, [BY_NOTE])
    overtaken.meanwhile = [lambda: manager.evolve_partitions(T, [BUCKETS_4])]
    with pytest.raises(SchemaEvolutionError, match="Cannot find source column for partition field"):
        overtaken.evolve_schema(T, DropColumn("id"), allow_incompatible_changes=True)


def test_of_many_that_change_the_layout_at_once_all_are_served(manager: IcebergTableManager, tmp_path: Path) -> None:
    wanted = [[BY_HOUR], [BY_NOTE], [BUCKETS_4], [BUCKETS_8]]
    together = threading.Barrier(len(wanted))
    problems: list[FloeStorageError] = []

    def evolve(partition_by: list[PartitionTransform]) -> None:
        opened = open_manager(tmp_path)
        together.wait()
        try:
            opened.evolve_partitions(T, partition_by)
        except FloeStorageError as exc:
            problems.append(exc)

    threads = [threading.Thread(target=evolve, args=(one,)) for one in wanted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert len(manager.load_table(T).specs()) == 5
    append(manager, 20)
    assert ids(manager) == list(range(30))


def test_a_column_that_old_files_are_laid_out_by_is_not_dropped(manager: IcebergTableManager) -> None:
    manager.evolve_schema(T, AddColumn("region", pa.string()))
    manager.evolve_partitions(T, [by("region", "identity")])
    manager.evolve_partitions(T, [])
    with pytest.raises(SchemaEvolutionError, match="is or was partitioned"):
        manager.evolve_schema(T, DropColumn("region"), allow_incompatible_changes=True)
