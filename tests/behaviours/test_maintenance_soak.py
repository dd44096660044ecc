"""Everybody at once: both engines append, overwrite and merge, readers read, and the table is maintained meanwhile."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from tests.engines import BY_DAY, ArrowEngine, Engine, SparkEngine, day, days, events, rows_of

from floe_core.errors import ConcurrencyConflictError
from floe_core.identifiers import TableIdentifier
from floe_iceberg import Lake
from floe_iceberg.maintenance.leases import LeaseHeldError
from floe_spark.names import table_name

SECONDS = 30.0
# Longer than a read takes, and short enough for files to go while others work.
RETENTION = timedelta(seconds=12)
# What lets others through, as the work between two writes does.
PAUSE = 0.5
ARROW_DAY, SPARK_DAY, MERGED_DAY = 20, 21, 22


@pytest.mark.full
@pytest.mark.parametrize("catalog", ["embedded", "rest"], indirect=True)
def test_nothing_is_lost_doubled_or_unreadable_while_everybody_works(catalog: Lake, table: TableIdentifier) -> None:
    arrow, spark = ArrowEngine(catalog), SparkEngine(catalog)
    start = [events(ARROW_DAY, note="v0"), events(SPARK_DAY, note="v0"), merged(0)]
    arrow.write(table, pa.concat_tables(start), mode="append", partition_by=BY_DAY)
    assert spark.read(table).num_rows == 30  # a second session connects to its catalog here, not in many threads
    ends = time.monotonic() + SECONDS
    done: Counter[str] = Counter()
    appended: list[int] = []
    last = {ARROW_DAY: 0, SPARK_DAY: 0, MERGED_DAY: 0}
    ids = iter(range(1_000_000, 2_000_000))
    lock = threading.Lock()

    def until_the_end(name: str, act: Callable[[], Any]) -> None:
        # Whoever never got through while all worked, on a machine with more to do, gets a turn when the others rest.
        counted = "files removed" if name == "maintenance" else name
        while time.monotonic() < ends or (not done[counted] and time.monotonic() < ends + SECONDS):
            try:
                act()
                done[name] += 1
            except LeaseHeldError:
                raise  # nobody else maintains this table
            except ConcurrencyConflictError:
                done[f"{name}, met others"] += 1
            time.sleep(PAUSE)

    def append(engine: Engine) -> None:
        with lock:
            mine = [next(ids) for _ in range(5)]
        data = pa.table(
            {
                "id": pa.array(mine, pa.int64()),
                "at": pa.array([day(number % 3) for number in mine], pa.timestamp("us", "UTC")),
                "note": ["appended"] * 5,
            }
        )
        # Told apart from others by its id: a conflict is tried again until it is in, once.
        while True:
            try:
                engine.write(table, data, mode="append", write_id=f"append-{mine[0]}")
                break
            except ConcurrencyConflictError:
                done["append, met others"] += 1
        with lock:
            appended.extend(mine)

    def overwrite(engine: Engine, number: int) -> None:
        engine.write(table, events(number, note=f"v{last[number] + 1}"), mode="overwrite", slice=days(number))
        last[number] += 1

    def merge() -> None:
        spark.write(table, merged(last[MERGED_DAY] + 1), mode="upsert", keys=["id"])
        last[MERGED_DAY] += 1

    def read(engine: Engine) -> None:
        found = engine.read(table).to_pylist()
        for number in (ARROW_DAY, SPARK_DAY, MERGED_DAY):
            ours = [row for row in found if row["at"] >= day(number) and row["at"] < day(number + 1)]
            assert len(ours) == 10, f"{len(ours)} rows of day {number}"
            assert len({row["note"] for row in ours}) == 1, "half of an overwrite was seen"
        counted = Counter(row["id"] for row in found)
        assert max(counted.values()) == 1, "a row is there twice"

    def maintain() -> None:
        tables = catalog.tables
        tables.compact_table(table, min_files=2)
        tables.rewrite_manifests(table)
        moment = datetime.now(timezone.utc) - RETENTION
        report = tables.require_compute().expire_snapshots(table, older_than=moment, keep_last=2)
        done["snapshots expired"] += len(report.snapshots)
        done["files removed"] += len(report.files_removed)
        assert tables.remove_orphans(table).found == ()

    jobs: list[tuple[str, Callable[[], Any]]] = [
        ("append by arrow", lambda: append(arrow)),
        ("append by spark", lambda: append(spark)),
        ("overwrite by arrow", lambda: overwrite(arrow, ARROW_DAY)),
        ("overwrite by spark", lambda: overwrite(spark, SPARK_DAY)),
        ("merge", merge),
        ("read by arrow", lambda: read(arrow)),
        ("read by spark", lambda: read(spark)),
        ("maintenance", maintain),
    ]
    with ThreadPoolExecutor(len(jobs)) as pool:
        for running in [pool.submit(until_the_end, *job) for job in jobs]:
            running.result()
    moment = datetime.now(timezone.utc)
    catalog.tables.require_compute().expire_snapshots(table, older_than=moment, keep_last=1)

    for name in (name for name, _ in jobs):
        assert done[name] > 0, f"{name} never got through: {done}"
    assert done["files removed"] > 0, done
    for engine in (arrow, spark):
        found = engine.read(table).to_pylist()
        assert sorted(row["id"] for row in found if row["note"] == "appended") == sorted(appended)
        for number in (ARROW_DAY, SPARK_DAY, MERGED_DAY):
            ours = [row for row in found if row["at"] >= day(number) and row["at"] < day(number + 1)]
            assert {row["note"] for row in ours} == {f"v{last[number]}"}
            assert len(ours) == 10


def merged(version: int) -> pa.Table:
    return events(MERGED_DAY, note=f"v{version}")


@pytest.mark.full  # half a minute
def test_a_table_maintained_by_bare_spark_goes_on_working(engine: Engine, table: TableIdentifier) -> None:
    """Somebody else compacts, rewrites, deletes and expires with Spark alone, in between."""
    lake = engine.lake
    for number in range(6):
        data = events(0, 1, rows=3, note=f"v{number}")
        engine.write(table, data, mode="append", **({} if number else {"partition_by": BY_DAY}))
    first, *_, head = lake.tables.list_snapshots(table)
    rows = rows_of(engine.read(table))
    bare = lake.spark
    name = f"{table.namespace[0]}.{table.name}"
    bare.sql(
        f"CALL lake.system.rewrite_data_files(table => '{name}', options => map('min-input-files', '2'))"
    ).collect()
    bare.sql(f"CALL lake.system.rewrite_manifests('{name}')").collect()

    assert rows_of(engine.read(table)) == rows
    assert rows_of(engine.read(table, snapshot_id=head.snapshot_id)) == rows
    engine.write(table, events(1, note="overwritten"), mode="overwrite", slice=days(1))
    engine.write(table, events(2, note="appended"), mode="append")
    bare.sql(f"INSERT INTO {table_name('lake', table)} VALUES (99, TIMESTAMP '2026-01-03 12:00:00Z', 'bare')").collect()
    bare.sql(f"DELETE FROM {table_name('lake', table)} WHERE id < 2").collect()
    rows = rows_of(engine.read(table))
    moment = datetime.now(timezone.utc).isoformat(sep=" ", timespec="milliseconds")
    bare.sql(
        f"CALL lake.system.expire_snapshots(table => '{name}', older_than => TIMESTAMP '{moment}', retain_last => 2)"
    ).collect()

    assert rows_of(engine.read(table)) == rows
    assert first.snapshot_id not in {one.snapshot_id for one in lake.tables.list_snapshots(table)}
    engine.write(table, events(3), mode="append")
    assert rows_of(engine.read(table)) == sorted([*rows, *rows_of(events(3))], key=str)
    report = lake.tables.require_compute().expire_snapshots(table, older_than=datetime.now(timezone.utc), keep_last=1)
    assert report.snapshots
    assert rows_of(engine.read(table)) == sorted([*rows, *rows_of(events(3))], key=str)
