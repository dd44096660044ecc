"""Rows compared in tables with delete files and deletion vectors, and after a compaction, as Spark writes them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from floe_core.errors import FloeStorageError
from floe_core.identifiers import TableIdentifier
from floe_iceberg import Lake
from floe_iceberg.comparison import ValueChange
from floe_spark.names import table_name


@pytest.mark.parametrize("version", ["3", "2"])  # deletion vectors, and position delete files
def test_rows_that_delete_files_remove_are_removed(lake: Lake, namespace: str, version: str) -> None:
    name = f"{namespace}.orders"
    table = table_name("lake", TableIdentifier.from_string(name))
    lake.tables.ensure_namespace(namespace)
    modes = ", ".join(f"'write.{verb}.mode'='merge-on-read'" for verb in ("delete", "update", "merge"))
    lake.spark.sql(
        f"CREATE TABLE {table} USING iceberg PARTITIONED BY (half) "
        f"TBLPROPERTIES ('format-version'='{version}', {modes}) "
        f"AS SELECT id, id % 2 AS half, map('a', id, 'b', 0) AS tags FROM range(0, 100, 1, 1)"
    )
    lake.spark.sql(f"ALTER TABLE {table} CREATE TAG whole")
    lake.spark.sql(f"DELETE FROM {table} WHERE id < 10 AND half = 0")
    deleted = lake.compare(name, before="whole", keys=["id"])
    assert (deleted.rows_added, deleted.rows_removed, deleted.rows_changed) == (0, 5, 0)
    assert (deleted.rows_before, deleted.rows_after, deleted.rows_compared) == (100, None, 95)
    assert [(one.partition, one.rows_removed) for one in deleted.partitions] == [({"half": "0"}, 5)]
    assert [row["id"] for row in deleted.examples.removed] == [0, 2, 4, 6, 8]
    assert (deleted.files.data_files_added, deleted.files.delete_files_added) == (0, 1)
    lake.spark.sql(f"ALTER TABLE {table} CREATE TAG fewer")
    lake.spark.sql(f"UPDATE {table} SET tags = map('b', 0, 'a', -1) WHERE id = 11")
    updated = lake.compare(name, before="fewer", keys=["id"])
    assert (updated.rows_added, updated.rows_removed, updated.rows_changed) == (0, 0, 1)
    was, now = ([{"key": "a", "value": value}, {"key": "b", "value": 0}] for value in (11, -1))
    assert updated.examples.changed[0].values == {"tags": ValueChange(was, now)}
    lake.spark.sql(f"ALTER TABLE {table} CREATE TAG edited")
    options = "map('delete-file-threshold', '1', 'min-input-files', '1', 'rewrite-all', 'true')"
    lake.spark.sql(f"CALL lake.system.rewrite_data_files(table => '{name}', options => {options})")
    compacted = lake.compare(name, before="edited")
    assert (compacted.differs, compacted.rows_compared, compacted.rows_after) == (False, 190, 95)
    everything = lake.compare(name, before=None, after="fewer", examples=1)
    assert (everything.rows_added, everything.rows_after, len(everything.examples.added)) == (95, None, 1)
    again = lake.compare(name, before="whole", keys=["id"])
    assert (again.rows_added, again.rows_removed, again.rows_changed) == (0, 5, 1)


def test_equality_deletes_are_refused_with_another_way(lake: Lake, namespace: str) -> None:
    """Flink writes them; here Iceberg's own library adds the entry of one."""
    name = f"{namespace}.streamed"
    before = lake.tables.write_data(name, pa.table({"id": [1, 2]}), mode="append").snapshot_id
    spark: Any = lake.spark
    iceberg = spark._jvm.org.apache.iceberg
    table = iceberg.spark.Spark3Util.loadIcebergTable(
        spark._jsparkSession, table_name("lake", TableIdentifier.from_string(name))
    )
    ids = spark._sc._gateway.new_array(spark._jvm.int, 1)
    ids[0] = 1
    file = iceberg.FileMetadata.deleteFileBuilder(table.spec()).ofEqualityDeletes(ids)
    path = f"{table.location()}/data/equality.parquet"
    file = file.withPath(path).withFileSizeInBytes(1000).withRecordCount(1).withFormat("parquet").build()
    table.newRowDelta().addDeletes(file).commit()
    with pytest.raises(FloeStorageError, match="has equality deletes, which only Spark reads; compare its files"):
        lake.compare(name, before=before)
