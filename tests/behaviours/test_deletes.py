"""Tables in which Spark deletes by delete files: Arrow reads them right, and never brings a deleted row back."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from tests.engines import BY_DAY, ArrowEngine, SparkEngine, day, days, events, meanwhile, rows_of

from floe_core.errors import ConcurrencyConflictError
from floe_core.identifiers import TableIdentifier, TableSlice
from floe_iceberg import Lake
from floe_spark.names import table_name

ON_READ = {f"write.{verb}.mode": "merge-on-read" for verb in ("delete", "update", "merge")}


@pytest.fixture
def arrow(catalog: Lake, table: TableIdentifier) -> ArrowEngine:
    """Three days of ten rows, of which every row with an even number was deleted by Spark."""
    made = ArrowEngine(catalog)
    made.write(table, events(0, 1, 2), mode="append", partition_by=BY_DAY, properties=ON_READ)
    catalog.spark.sql(f"DELETE FROM {table_name('lake', table)} WHERE id % 2 = 0")
    head = catalog.tables.current_snapshot(table)
    assert head is not None
    assert head.count("added-position-deletes") == 15, "Spark rewrote the files instead of adding deletes"
    return made


def odd(data: pa.Table) -> list[tuple[Any, ...]]:
    return [row for row in rows_of(data) if row[0] % 2]


def check(arrow: ArrowEngine, table: TableIdentifier, expected: list[tuple[Any, ...]]) -> None:
    assert rows_of(arrow.read(table)) == sorted(expected, key=str)
    assert rows_of(SparkEngine(arrow.lake).read(table)) == sorted(expected, key=str)


def test_deleted_rows_are_not_read(arrow: ArrowEngine, table: TableIdentifier) -> None:
    check(arrow, table, odd(events(0, 1, 2)))


@pytest.mark.every_catalog
def test_a_day_with_deletes_is_replaced(arrow: ArrowEngine, table: TableIdentifier) -> None:
    arrow.write(table, events(1, rows=4), mode="overwrite", slice=days(1))
    check(arrow, table, odd(events(0, 2)) + rows_of(events(1, rows=4)))


def test_rows_kept_of_a_rewritten_file_are_those_that_were_not_deleted(
    arrow: ArrowEngine, table: TableIdentifier
) -> None:
    half = TableSlice.of_windows("at", [(day(1), day(1) + timedelta(hours=12))])
    arrow.write(table, events(1).slice(0, 0), mode="overwrite", slice=half)
    kept = [row for row in odd(events(1)) if row[1] >= day(1) + timedelta(hours=12)]
    assert len(kept) == 3
    check(arrow, table, odd(events(0, 2)) + kept)


def test_a_deleted_key_is_new_again(arrow: ArrowEngine, table: TableIdentifier) -> None:
    arrow.write(table, events(0, rows=2, note="again"), mode="upsert", keys=["id"])
    expected = [row for row in odd(events(0, 1, 2)) if row[0] != 1]
    check(arrow, table, expected + rows_of(events(0, rows=2, note="again")))


def test_a_delete_while_a_day_is_being_replaced_is_a_conflict(
    arrow: ArrowEngine, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    def delete() -> None:
        arrow.lake.spark.sql(f"DELETE FROM {table_name('lake', table)} WHERE id = 10001")

    with meanwhile(arrow.lake, monkeypatch, delete), pytest.raises(ConcurrencyConflictError):
        arrow.write(table, events(1, rows=4), mode="overwrite", slice=days(1))
    check(arrow, table, [row for row in odd(events(0, 1, 2)) if row[0] != 10001])
