"""Filters, branches, upserts and slices that cut partitions, over a Spark Connect server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.servers.spark_connect import spark_connect_server

pytestmark = pytest.mark.full

PROGRAM = """
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pyspark.sql import functions as F
from floe_core.errors import ConcurrencyConflictError, FloeError, FloeStorageError, PartitionMismatchError
from floe_core.identifiers import TableIdentifier, TableSlice
from floe_core.models import PartitionTransform
from floe_runtime import connect
from floe_spark import commits
from floe_spark.maintenance import calls

lake = connect()
assert type(lake.spark).__module__ == "pyspark.sql.connect.session", type(lake.spark)
table = TableIdentifier.from_string("bronze.events")
first = datetime(2026, 1, 1, tzinfo=timezone.utc)
day = [PartitionTransform(source_column="at", transform_type="day")]
local = TableSlice.of_windows("at", [(first + timedelta(hours=5), first + timedelta(hours=29))])


def hourly(start, end, note="old"):
    at = F.lit(first) + F.expr("make_dt_interval(0, id, 0, 0)")
    return lake.spark.range(start, end).select("id", at.alias("at"), F.lit(note).alias("note"))


def notes(**options):
    rows = lake.read(table, **options).collect()
    assert len({row.id for row in rows}) == len(rows)
    return {row.id: row.note for row in rows}


def refused(error, action):
    try:
        action()
    except error as exc:
        return str(exc)
    raise AssertionError("it was not refused")


lake.write(hourly(0, 48), table, mode="append", partition_by=day)
lake.write(hourly(5, 29, "new"), table, mode="overwrite", slice=local)
assert notes() == {n: "new" if 5 <= n < 29 else "old" for n in range(48)}
assert "1 row lies outside" in refused(
    PartitionMismatchError, lambda: lake.write(hourly(5, 30), table, mode="overwrite", slice=local)
)
assert sorted(notes(row_filter="note = 'new' and id < 7")) == [5, 6]

lake.write(hourly(0, 3, "filtered"), table, mode="overwrite", overwrite_filter="id < 5")
assert sorted(notes(row_filter="id < 6")) == [0, 1, 2, 5]
lake.write(hourly(24, 26, "day"), table, mode="overwrite", dynamic_partitions=True)
assert sorted(notes(row_filter="id >= 24")) == [24, 25]

lake.tables.create_branch(table, "trial")
lake.write(hourly(0, 2, "trial"), table, mode="overwrite", branch="trial")
assert notes(ref="trial") == {0: "trial", 1: "trial"}
assert len(notes()) > 2

random = hourly(1, 4).withColumn("note", F.expr("uuid()"))
done = lake.write(random, table, mode="upsert", keys=["id"], write_id="u1", snapshot_properties={"by": "crm"})
assert (done.snapshot.summary["floe.write-id"], done.snapshot.summary["by"]) == ("u1", "crm")
assert len(notes()[3]) == 36
assert "2 keys stand" in refused(
    FloeStorageError,
    lambda: lake.write(hourly(0, 2).union(hourly(0, 2)), table, mode="upsert", keys=["id"]),
)
tables = [TableIdentifier.from_string(f"bronze.t{n}") for n in range(3)]
for one in tables:
    lake.write(hourly(0, 5), one, mode="append")
with ThreadPoolExecutor(3) as pool:
    list(pool.map(
        lambda n: lake.write(hourly(3, 8), tables[n], mode="upsert", keys=["id"], write_id=str(n)), range(3)
    ))
for n, one in enumerate(tables):
    assert lake.tables.list_snapshots(one)[-1].summary["floe.write-id"] == str(n)

cached = lake.read(table).withColumn("note", F.lit("back")).cache()
cached.count()
lake.write(hourly(30, 31, "theirs"), table, mode="append")
refused(ConcurrencyConflictError, lambda: lake.write(cached, table, mode="overwrite"))
assert notes()[30] == "theirs"

plain = commits._send
faults = iter([True])


def lossy(act, branch):
    if next(faults, False):
        raise ConnectionResetError("the request was lost")
    plain(act, branch)


commits._send = lossy
lake.write(hourly(90, 95, "late"), table, mode="append", write_id="late")
assert sorted(notes(row_filter="note = 'late'")) == [90, 91, 92, 93, 94]
assert sorted(lake.tables.load_table(table).refs()) == ["main", "trial"]

before = notes()
compacted = lake.tables.compact_table(table, min_files=2)
assert compacted.files_rewritten > compacted.files_added > 0
lake.tables.rewrite_manifests(table)
assert lake.tables.compute_statistics(table, columns=["id"]).path
expired = lake.tables.require_compute().expire_snapshots(
    table, older_than=datetime.now(timezone.utc), keep_last=1
)
assert expired.snapshots and expired.files_removed
assert lake.tables.remove_orphans(table).found == ()
assert notes() == before and len(notes(ref="trial")) == 2
assert "was refused by Iceberg" in refused(
    FloeError, lambda: calls.call(lake, "rewrite_data_files", table, {"strategy": "'tidy'"})
)
lake.spark.stop()
print("all of it works over Connect")
"""


def test_every_mode_keeps_its_promises_over_spark_connect(tmp_path: Path) -> None:
    with spark_connect_server(tmp_path) as remote:
        (tmp_path / "floe.yaml").write_text(f"name: shop\nspark: {{remote: '{remote}'}}\n")
        ran = subprocess.run(
            [sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
        )
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert "all of it works over Connect" in ran.stdout
