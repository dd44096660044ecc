"""Filters, branches, upserts and slices that cut partitions, over a Spark Connect server."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.servers.spark_connect import spark_connect_server

pytestmark = pytest.mark.full

PROGRAM = """
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pyspark.sql import functions as F
from floe_core import TableCheck
from floe_core.errors import ConcurrencyConflictError, FloeError, FloeStorageError, PartitionMismatchError
from floe_core.identifiers import TableIdentifier, TableSlice
from floe_core.models import PartitionTransform
from floe_runtime import connect
from floe_spark.writing import commits
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
assert "2 keys occur" in refused(
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

thirds = TableCheck(condition="id % 3 <> 0", name="thirds", quarantine=True)
with lake.audit("bronze.visits", quarantine=[thirds]) as draft:
    draft.write(hourly(0, 9).withColumn("note", F.expr("uuid()")), mode="append")
assert sorted(row.id for row in lake.read("bronze.visits").collect()) == [1, 2, 4, 5, 7, 8]
assert sorted(row.id for row in lake.read("bronze.visits_quarantine").collect()) == [0, 3, 6]
assert "was refused by Iceberg" in refused(
    FloeError, lambda: calls.call(lake, "rewrite_data_files", table, {"strategy": "'tidy'"})
)
lake.spark.stop()
print("all of it works over Connect")
"""


FRAMES = """
from floe_core.errors import FloeStorageError, TableNotFoundError
from floe_core.identifiers import TableIdentifier, TableSlice
from floe_core.models import PartitionTransform
from floe_runtime import connect
from floe_spark.writing import commits

lake = connect()
spark = lake.spark
city = [PartitionTransform(source_column="city", transform_type="identity")]
letters = [PartitionTransform(source_column="city", transform_type="truncate", width=2)]
oslo = TableSlice.of_values("city", ["Oslo"])
send = commits._send


def show(*ids, note):
    rows = [(one, "Oslo", note) for one in ids]
    spark.createDataFrame(rows, "id long, city string, note string").createOrReplaceTempView("raw")


def rows(table, **options):
    return sorted(lake.read(table, **options).where("city = 'Oslo'").collect())


# What the frame shows when the write begins is stored, though the view is replaced while Spark writes.
writes = {
    "append": {"mode": "append"},
    "overwrite": {"mode": "overwrite"},
    "slice": {"mode": "overwrite", "slice": oslo},
    "filter": {"mode": "overwrite", "overwrite_filter": "id < 5"},
    "partitions": {"mode": "overwrite", "dynamic_partitions": True},
    "upsert": {"mode": "upsert", "keys": ["id"]},
    "branch": {"mode": "append", "branch": "audit"},
    "first": {"mode": "append", "partition_by": city},
    "first_of_two_commits": {"mode": "append", "partition_by": letters},
}
for name, options in writes.items():
    table = TableIdentifier.from_string(f"frames.{name}")
    if "partition_by" not in options:
        lake.write(spark.sql("SELECT 9L AS id, 'Rome' AS city, 'old' AS note"), table, mode="append", partition_by=city)
        lake.tables.create_branch(table, "audit")
    show(1, 2, note="before")
    frame = spark.sql("SELECT * FROM raw")
    show(1, 2, 3, note="begun")
    shown = sorted(frame.collect())
    assert {row.note for row in shown} == {"begun"}, "a Connect frame shows a view as it is"

    def replacing(act, branch):
        show(4, 5, note="meanwhile")
        send(act, branch)

    commits._send = replacing
    lake.write(frame, table, **options)
    commits._send = send
    assert rows(table, ref=options.get("branch")) == shown, (name, rows(table, ref=options.get("branch")))

# Columns that the client looked up earlier are not those of the data any more.
table = TableIdentifier.from_string("frames.columns")
spark.sql("SELECT 'Oslo' AS city, 1 AS n").createOrReplaceTempView("raw")
frame = spark.sql("SELECT * FROM raw")
lake.write(frame, table, mode="append")
assert frame.columns == ["city", "n"]
spark.sql("SELECT 2.5D AS n, 'x' AS note, 'Oslo' AS city").createOrReplaceTempView("raw")
assert [tuple(row) for row in frame.collect()] == [(2.5, "x", "Oslo")]
try:
    lake.write(frame, table, mode="append")
except FloeStorageError as exc:
    assert "n" in str(exc) and "double" in str(exc), exc
else:
    raise AssertionError("2.5 was stored as a whole number")

# A frame in the text of a query.
table = TableIdentifier.from_string("frames.texts")
show(1, 2, note="inner")
lake.write(spark.sql("SELECT * FROM {f} WHERE id > {least}", f=spark.table("raw"), least=1), table, mode="append")
assert [row.id for row in rows(table)] == [2]

# A view that is gone is named, and the table is not said to be.
frame = spark.sql("SELECT * FROM raw")
done = lake.write(frame, table, mode="overwrite", write_id="w1")
spark.catalog.dropTempView("raw")
assert lake.write(frame, table, mode="overwrite", write_id="w1").deduplicated
for target in (table, TableIdentifier.from_string("frames.never")):
    try:
        lake.write(frame, target, mode="append")
    except FloeStorageError as exc:
        assert not isinstance(exc, TableNotFoundError), exc
        assert "the data is read from `raw`" in str(exc) and f"Nothing was written to '{target}'" in str(exc), exc
    else:
        raise AssertionError("it was not refused")

assert spark.sql("SHOW VIEWS IN spark_catalog.default LIKE 'floe_*'").collect() == []
spark.stop()
print("the frames are what they show")
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A project on a Spark Connect server."""
    folder = tmp_path_factory.mktemp("shop")
    with spark_connect_server(folder) as remote:
        (folder / "floe.yaml").write_text(f"name: shop\nspark: {{remote: '{remote}'}}\n")
        yield folder


def ran(program: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_every_mode_keeps_its_promises_over_spark_connect(shop: Path) -> None:
    assert "all of it works over Connect" in ran(PROGRAM, shop)


def test_a_write_over_spark_connect_stores_what_the_frame_shows_when_it_begins(shop: Path) -> None:
    assert "the frames are what they show" in ran(FRAMES, shop)
