"""The same project on a Spark Connect server, by floe.yaml alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.servers.spark_connect import spark_connect_server

pytestmark = pytest.mark.full

PROGRAM = """
from datetime import datetime, timezone
from pyspark.sql import functions as F
from floe_core.errors import ConcurrencyConflictError, ConfigurationError, PartitionMismatchError
from floe_core.identifiers import TableIdentifier, TableSlice
from floe_core.models import PartitionTransform, WriteMode
from floe_runtime import connect

lake = connect()
assert type(lake.spark).__module__ == "pyspark.sql.connect.session", type(lake.spark)
table = TableIdentifier.from_string("bronze.raw.events")
utc = timezone.utc
day = lambda n: TableSlice.of_windows("at", [(datetime(2026, 1, n, tzinfo=utc), datetime(2026, 1, n + 1, tzinfo=utc))])
both = TableSlice.of_windows("at", [(datetime(2026, 1, 1, tzinfo=utc), datetime(2026, 1, 3, tzinfo=utc))])
at = F.lit(datetime(2026, 1, 1)) + F.expr("make_interval(0, 0, 0, id % 2)")
frame = lake.spark.range(200).select("id", at.alias("at"))
by_day = [PartitionTransform(source_column="at", transform_type="day")]

first = lake.write(frame, table, mode=WriteMode.OVERWRITE, slice=both, partition_by=by_day, write_id="w1")
assert first.created and first.snapshot.count("added-records") == 200
again = lake.write(frame, table, mode=WriteMode.OVERWRITE, slice=both, write_id="w1")
assert again.deduplicated
one = frame.where("id % 2 = 1").withColumn("channel", F.lit("web"))
second = lake.write(one.limit(7), table, mode=WriteMode.OVERWRITE, slice=day(2))
assert str(second.schema_change) == "+channel string"
assert lake.read(table).count() == 107
assert lake.read(table, snapshot_id=first.snapshot.snapshot_id).count() == 200
assert lake.tables.load_table(table).scan().to_arrow().num_rows == 107
try:
    lake.write(frame, table, mode=WriteMode.OVERWRITE, slice=day(2))
except PartitionMismatchError as exc:
    assert "100 rows lie outside" in str(exc), exc
else:
    raise AssertionError("rows of another day were written")
assert connect().spark is lake.spark or connect().spark.session_id == lake.spark.session_id
lake.spark.stop()
print("all of it works over Connect")
"""


def test_writes_and_reads_keep_their_promises_over_spark_connect(tmp_path: Path) -> None:
    with spark_connect_server(tmp_path) as remote:
        (tmp_path / "floe.yaml").write_text(f"name: shop\nspark: {{remote: '{remote}'}}\n")
        ran = subprocess.run(
            [sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
        )
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert "all of it works over Connect" in ran.stdout
