"""The rows and files that an overwrite replaces, by metadata alone, and when the number is only a limit."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from tests.lakes import open_manager

from floe_core.identifiers import TableSlice
from floe_core.models import PartitionTransform, PartitionTransformType
from floe_iceberg import IcebergTableManager
from floe_iceberg.inspection import ReplacedRows, replaced_rows

START = datetime(2026, 1, 1, tzinfo=timezone.utc)


@pytest.fixture
def tables(tmp_path: Path) -> IcebergTableManager:
    return open_manager(tmp_path)


def hours(count: int) -> pa.Table:
    return pa.table(
        {"at": pa.array([START + timedelta(hours=hour) for hour in range(count)], pa.timestamp("us", "UTC"))}
    )


def days(*numbers: float, length: float = 1) -> TableSlice:
    windows = [(START + timedelta(days=day), START + timedelta(days=day + length)) for day in numbers]
    return TableSlice.of_windows("at", windows)


def counted(found: ReplacedRows) -> tuple[int, int, bool]:
    return found.rows, found.files, found.exact


def test_whole_partitions_are_exact_and_others_are_a_limit(tables: IcebergTableManager) -> None:
    by_day = [PartitionTransform(source_column="at", transform_type=PartitionTransformType.DAY)]
    tables.create_table("s.t", hours(1).schema, partition_by=by_day)
    assert counted(replaced_rows(tables.load_table("s.t"), days(0))) == (0, 0, True)
    tables.write_data("s.t", hours(72), mode="append")
    table = tables.load_table("s.t")
    assert counted(replaced_rows(table)) == (72, 3, True)
    assert counted(replaced_rows(table, days(0, 2))) == (48, 2, True)
    assert counted(replaced_rows(table, days(7))) == (0, 0, True)
    assert counted(replaced_rows(table, days(0.5))) == (48, 2, False), "half of two days"
    scattered = days(*(number / 4 for number in range(0, 400, 2)), length=0.25)
    assert counted(replaced_rows(table, scattered)) == (72, 3, False), "of many windows, all from the first to the last"


def test_without_partitions_every_file_that_may_hold_such_rows_counts(tables: IcebergTableManager) -> None:
    tables.write_data("s.t", hours(24), mode="append")
    assert counted(replaced_rows(tables.load_table("s.t"), days(0.5))) == (24, 1, False)
    assert counted(replaced_rows(tables.load_table("s.t"), days(3))) == (0, 0, True), "the statistics exclude the file"
