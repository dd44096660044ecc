"""Reading tables through PyIceberg: projections, filters and the past."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.lakes import open_manager

from floe_core.errors import ConfigurationError, TableNotFoundError
from floe_core.identifiers import TableIdentifier
from floe_core.models import PartitionTransform, PartitionTransformType
from floe_iceberg import IcebergTableManager

T = TableIdentifier.from_string("bronze.orders")
DAY = datetime(2026, 1, 1, tzinfo=timezone.utc)
SCHEMA = pa.schema([("n", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("note", pa.string())])


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory) -> IcebergTableManager:
    """A table by day with three snapshots of ten rows, a day each; the first is tagged `v1`."""
    root: Path = tmp_path_factory.mktemp("scans")
    opened = open_manager(root)
    by_day = PartitionTransform(source_column="at", transform_type=PartitionTransformType.DAY)
    opened.create_table(T, SCHEMA, partition_by=[by_day])
    for day in range(3):
        at = [DAY + timedelta(days=day, hours=hour) for hour in range(10)]
        rows = {"n": list(range(10 * day, 10 * day + 10)), "at": at, "note": [f"day {day}"] * 10}
        opened.load_table(T).append(pa.table(rows, SCHEMA))
        if day == 0:
            opened.create_tag(T, "v1")
    return opened


def numbers(manager: IcebergTableManager, **options: Any) -> list[int]:
    return sorted(manager.scan(T, **options).to_arrow()["n"].to_pylist())


def test_everything_is_read_without_options(manager: IcebergTableManager) -> None:
    assert numbers(manager) == list(range(30))


def test_only_the_columns_asked_for_are_read(manager: IcebergTableManager) -> None:
    assert manager.scan(T, columns=["note", "n"]).to_arrow().column_names == ["n", "note"]


def test_a_filter_reads_only_matching_rows_and_opens_only_their_files(manager: IcebergTableManager) -> None:
    assert numbers(manager, row_filter="n >= 10 AND n < 13") == [10, 11, 12]
    second_day = manager.scan(T, row_filter="at >= '2026-01-02T00:00:00+00:00' AND at < '2026-01-03T00:00:00+00:00'")
    assert len(list(second_day.plan_files())) == 1
    assert second_day.to_arrow().num_rows == 10


def test_the_past_is_read_by_snapshot_moment_and_name(manager: IcebergTableManager) -> None:
    first, second, _ = manager.list_snapshots(T)
    assert numbers(manager, snapshot_id=second.snapshot_id) == list(range(20))
    assert numbers(manager, as_of=second.timestamp) == list(range(20))
    assert numbers(manager, ref="v1") == list(range(10))
    assert numbers(manager, ref="main") == list(range(30))
    with pytest.raises(ConfigurationError, match="had no snapshot at"):
        numbers(manager, as_of=first.timestamp - timedelta(seconds=1))


def test_a_limit_is_kept(manager: IcebergTableManager) -> None:
    assert len(numbers(manager, limit=7)) == 7
    assert numbers(manager, limit=0) == []


def test_a_reader_pandas_and_polars_give_the_same_rows(manager: IcebergTableManager) -> None:
    reader = manager.scan(T, columns=["n"]).to_arrow_batch_reader()
    assert sorted(n for batch in reader for n in batch["n"].to_pylist()) == list(range(30))
    assert sorted(manager.scan(T, columns=["n"]).to_pandas()["n"]) == list(range(30))
    assert sorted(manager.scan(T, columns=["n"]).to_polars()["n"]) == list(range(30))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"columns": ["n", "nothing"]}, r"no column 'nothing' \(there: n, at, note\)"),
        ({"columns": ["n", "nots", "att"]}, r"no column 'nots', 'att'; did you mean 'note', 'at'\?"),
        ({"row_filter": "zzz = 1"}, r"does not fit table 'bronze\.orders': no column 'zzz' \(there: n, at, note\)"),
        ({"row_filter": "nots = 'x' AND Note = 'y'"}, r"'nots'; did you mean 'note'\? .*'Note'; did you mean 'note'\?"),
        ({"row_filter": "n ="}, "cannot be read at character 1; write it like n > 10"),
        ({"row_filter": ""}, "cannot be read at character"),
        ({"row_filter": "(n = 1"}, "cannot be read at character 7"),
        (
            {"row_filter": "note like 'a_%'"},
            "the _ of a LIKE would stand for itself here, and for any character in SQL",
        ),
        ({"row_filter": "note LIKE '%x'"}, "at the end of a string; for any other condition use floe sql or lake.sql"),
        ({"row_filter": "lower(note) = 'x'"}, r"write it like n > 10 AND note = 'x'; .* use floe sql or lake\.sql"),
        ({"row_filter": 5}, "is a int; write a text"),
        ({"row_filter": "n = 'words'"}, "does not fit"),
        ({"row_filter": "n = 1.5"}, "n is long and is never a fraction"),
        ({"row_filter": "n IN (1.0, 2.5)"}, "n is long and is never a fraction"),
        ({"row_filter": "at > 'yesterday'"}, r"write a moment like '2026-01-31T00:00:00\+00:00'"),
        ({"snapshot_id": 42}, r"no snapshot 42; it may have expired \(there: \d+, \d+, \d+\)"),
        ({"as_of": DAY - timedelta(days=9999)}, r"had no snapshot at 1998.* \(oldest remaining: 2\d{3}-"),
        ({"ref": "v2"}, r"no tag or branch 'v2' \(there: .*v1"),
        ({"as_of": datetime(2026, 1, 1)}, "has no time zone"),
        ({"snapshot_id": 1, "ref": "v1"}, "are mutually exclusive"),
        ({"limit": -1}, "cannot be negative"),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_sentence(
    manager: IcebergTableManager, options: Any, reason: str
) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        manager.scan(T, **options)


def test_a_table_that_is_not_there_is_named(manager: IcebergTableManager) -> None:
    with pytest.raises(TableNotFoundError, match=r"'bronze\.nothing' not found"):
        manager.scan(TableIdentifier.from_string("bronze.nothing"))


def test_files_partitions_and_history_are_arrow_tables(manager: IcebergTableManager) -> None:
    inspected = manager.inspect(T)
    assert inspected.files()["record_count"].to_pylist() == [10, 10, 10]
    assert inspected.partitions().num_rows == 3
    assert inspected.manifests().num_rows == 3
    assert set(inspected.refs()["name"].to_pylist()) == {"main", "v1"}
    assert inspected.history().num_rows == 3


@pytest.mark.parametrize(
    ("row_filter", "expected"),
    [
        ("f > 1e300", [1e301]),
        ("f < -1.5E+10", [-1e11]),
        ("f > 0 AND f < 2.5e-3", [0.001]),
        ("f IN (1e-3, 1e301)", [0.001, 1e301]),
        ("f > 1e-999999999", [0.001, 7.0, 1e301]),
        ("n = 1e3", [7.0]),
        ("note = '1e3' AND \"e1\" = 2", [7.0]),
    ],
)
def test_a_filter_takes_numbers_with_an_exponent(tmp_path: Path, row_filter: str, expected: list[float]) -> None:
    opened = open_manager(tmp_path)
    floats = [-1e11, 0.001, 7.0, 1e301]
    data = pa.table({"f": floats, "n": [1, 2, 1000, 3], "note": ["a", "b", "1e3", "c"], "e1": [1, 2, 2, 3]})
    opened.write_data(T, data, mode="append")
    assert sorted(opened.scan(T, row_filter=row_filter).to_arrow()["f"].to_pylist()) == expected


def test_an_exponent_beyond_every_double_is_refused(manager: IcebergTableManager) -> None:
    with pytest.raises(ConfigurationError, match="1e400 is larger than any double"):
        manager.scan(T, row_filter="n > 1e400")
