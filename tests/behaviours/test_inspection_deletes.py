"""What inspection says of tables with delete files and deletion vectors, as Spark writes them."""

from __future__ import annotations

import pytest

from floe_core.identifiers import TableIdentifier
from floe_iceberg import Lake
from floe_spark.names import table_name


@pytest.mark.parametrize("version", ["3", "2"])  # deletion vectors in a shared file, and position delete files
def test_deletes_are_counted_beside_the_rows_that_they_take(lake: Lake, namespace: str, version: str) -> None:
    name = f"{namespace}.orders"
    table = table_name("lake", TableIdentifier.from_string(name))
    lake.tables.ensure_namespace(namespace)
    lake.spark.sql(
        f"CREATE TABLE {table} USING iceberg PARTITIONED BY (half) TBLPROPERTIES ('format-version'='{version}', "
        f"'write.delete.mode'='merge-on-read') AS SELECT id, id % 2 AS half FROM range(0, 100, 1, 1)"
    )
    lake.spark.sql(f"ALTER TABLE {table} CREATE TAG whole")
    lake.spark.sql(f"DELETE FROM {table} WHERE id < 10")
    described = lake.tables.describe(name)
    assert (described.summary.rows, described.summary.row_deletes) == (100, 10)
    assert described.current is not None
    assert described.current.row_deletes == 10
    files = lake.tables.list_files(name).files
    assert [(file.content, file.rows) for file in files] == [("data", 50)] * 2 + [("position deletes", 5)] * 2
    assert len({file.path for file in files}) == 2 + {"2": 2, "3": 1}[version]
    partitions = lake.tables.list_partitions(name)
    assert [(one.partition, one.rows, one.files, one.delete_files) for one in partitions] == [
        ({"half": "0"}, 50, 1, 1),
        ({"half": "1"}, 50, 1, 1),
    ]
    changes = lake.tables.compare_snapshots(name, "whole").partitions
    assert [(one.partition, one.rows_removed, one.delete_files_added) for one in changes] == [
        ({"half": "0"}, 0, 1),
        ({"half": "1"}, 0, 1),
    ]
    before = lake.tables.describe(name).summary.snapshot_id
    lake.spark.sql(f"DELETE FROM {table} WHERE id < 20 AND half = 0")
    again = lake.tables.compare_snapshots(name, str(before))
    assert [one.partition for one in again.partitions] == [{"half": "0"}]
