"""Clocks that are wrong: whatever a writer's clock says, Spark can read the table; and what is said where it cannot."""

from __future__ import annotations

import time
from datetime import timedelta
from functools import partial

import pyarrow as pa
import pytest
from tests.engines import ArrowEngine, SparkEngine, rows_of
from tests.faults.clocks import clock_off, unguarded

from floe_core.errors import FloeError, FloeStorageError
from floe_core.identifiers import TableIdentifier
from floe_core.maintenance.reports import Step
from floe_iceberg import Lake
from floe_iceberg.maintenance.run import Maintenance, Outcome
from floe_iceberg.snapshots.timestamps import disorder
from floe_runtime import doctor

ROW = pa.table({"id": [1]})
HOURS = timedelta(hours=2)


def test_spark_reads_what_a_clock_that_went_back_wrote(
    catalog: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrow = ArrowEngine(catalog)
    before = arrow.write(table, ROW, mode="append")
    with clock_off(monkeypatch, -HOURS):
        after = arrow.write(table, pa.table({"id": [2]}), mode="append")
        catalog.tables.create_tag(table, "eod")
    assert after.timestamp_ms > before.timestamp_ms
    assert rows_of(SparkEngine(catalog).read(table)) == [(1,), (2,)]
    assert rows_of(SparkEngine(catalog).read(table, as_of=before.timestamp)) == [(1,)]


@pytest.fixture
def broken(lake: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch) -> TableIdentifier:
    """A table that a clock that went back has left unreadable for Spark."""
    break_table(lake, table, monkeypatch)
    return table


def break_table(
    lake: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch, properties: dict[str, str] | None = None
) -> None:
    rows = pa.table({"id": [1], "note": ["a"]})
    lake.tables.write_data(table, rows, mode="append", properties=properties)
    with unguarded(monkeypatch), clock_off(monkeypatch, -HOURS):
        lake.tables.write_data(table, rows, mode="append")


def test_spark_is_told_at_once_that_it_cannot_load_a_table_and_its_next_write_repairs_it(
    lake: Lake, broken: TableIdentifier
) -> None:
    began = time.monotonic()
    with pytest.raises(FloeStorageError, match=f"clock of a writer went back.*floe maintain run --table {broken}"):
        lake.read(broken)
    assert time.monotonic() - began < 30, "Iceberg itself tries for minutes"
    # In another order than the table's: Spark must load it before anything is committed.
    SparkEngine(lake).write(broken, pa.table({"note": ["a"], "id": [1]}), mode="append")
    assert lake.read(broken).count() == 3


def test_the_doctor_names_the_table_and_maintenance_repairs_it(lake: Lake, broken: TableIdentifier) -> None:
    with pytest.raises(FloeError, match=f"Spark cannot load {broken}.*floe maintain run --table {broken}"):
        doctor._timestamps(lake)
    (outcome,) = Maintenance(lake, start=partial(pytest.fail, "nothing needs Spark")).run([broken], [Step.COMPACT])
    assert outcome.outcome is Outcome.DONE, outcome.reason
    assert disorder(lake.tables.load_table(broken).metadata) is None
    assert "in order" in doctor._timestamps(lake)


def test_maintenance_repairs_timestamps_where_the_policy_is_off(
    lake: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_table(lake, table, monkeypatch, {"floe.maintenance.enabled": "false"})
    (outcome,) = Maintenance(lake, start=partial(pytest.fail, "nothing needs Spark")).run([table])
    assert outcome.outcome is Outcome.DONE, outcome.reason
    assert {why for _, why in outcome.skipped} == {"the policy has enabled: false"}
    assert disorder(lake.tables.load_table(table).metadata) is None


def test_spark_waits_for_a_head_a_moment_ahead_of_its_clock(
    lake: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.tables.write_data(table, ROW, mode="append")
    with clock_off(monkeypatch, timedelta(seconds=6)):
        ahead = lake.tables.write_data(table, ROW, mode="append")
    written = SparkEngine(lake).write(table, ROW, mode="append")
    assert written.timestamp_ms > ahead.timestamp_ms
    assert lake.read(table).count() == 3


def test_spark_refuses_a_head_that_is_further_ahead_and_arrow_writes_after_it(
    lake: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.tables.write_data(table, ROW, mode="append")
    with clock_off(monkeypatch, HOURS):
        ahead = lake.tables.write_data(table, ROW, mode="append")
    with pytest.raises(FloeStorageError, match=r"in the future of this clock.*write Arrow data"):
        SparkEngine(lake).write(table, ROW, mode="append")
    assert lake.tables.write_data(table, ROW, mode="append").timestamp_ms > ahead.timestamp_ms
    assert lake.read(table).count() == 3
    with pytest.raises(FloeError, match=f"Spark cannot write to {table}"):
        doctor._timestamps(lake)


def test_a_server_whose_clock_is_behind_the_table_is_named(
    rest_lake: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    rest_lake.tables.write_data(table, ROW, mode="append")
    with clock_off(monkeypatch, HOURS):
        rest_lake.tables.write_data(table, ROW, mode="append")
    with pytest.raises(FloeStorageError, match="ahead of the catalog server's clock"):
        rest_lake.tables.create_tag(table, "eod")
    rest_lake.tables.write_data(table, ROW, mode="append")
    assert rest_lake.tables.scan(table).to_arrow().num_rows == 3


def test_polaris_refuses_a_snapshot_from_the_future_and_the_clock_is_named(
    polaris: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    polaris.tables.write_data(table, ROW, mode="append")
    with (
        clock_off(monkeypatch, HOURS),
        pytest.raises(FloeStorageError, match="ahead of the catalog server's clock; the catalog refuses snapshots"),
    ):
        polaris.tables.write_data(table, ROW, mode="append")
    assert polaris.tables.scan(table).to_arrow().num_rows == 1
