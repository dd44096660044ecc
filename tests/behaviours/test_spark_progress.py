"""How far Spark is with a write, while it writes."""

from __future__ import annotations

import threading
import time

from floe_core.identifiers import TableIdentifier
from floe_core.observability import WriteProgress, writes_in_progress
from floe_iceberg import Lake
from floe_iceberg.snapshots import ASSET


def test_a_spark_write_says_how_far_it_is(lake: Lake, table: TableIdentifier) -> None:
    slow = lake.spark.range(0, 40, 1, 8).selectExpr("id", "reflect('java.lang.Thread', 'sleep', 40L) AS waited")
    options = {"mode": "append", "snapshot_properties": {ASSET: "bronze/slow"}}
    writing = threading.Thread(target=lake.write, args=(slow, table), kwargs=options)
    writing.start()
    seen: list[WriteProgress] = []
    while writing.is_alive():
        seen += writes_in_progress()
        time.sleep(0.05)
    assert {write.asset for write in seen} == {"bronze/slow"}
    shares = [write.share for write in seen if write.share is not None]
    assert shares == sorted(shares)
    assert any(0 < share < 1 for share in shares)
    assert any(0 < (write.rows or 0) < 40 and (write.bytes or 0) > 0 for write in seen)
    assert writes_in_progress() == []
