"""Damaged files of a table, met by Spark: the same error as without it, and nothing is committed."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.faults.damage import damage, header_only

from floe_core.errors import DamagedFileError
from floe_core.identifiers import TableIdentifier
from floe_iceberg import Lake


@pytest.fixture
def filled(lake: Lake, table: TableIdentifier) -> TableIdentifier:
    for _ in range(2):
        lake.tables.write_data(table, pa.table({"id": [1, 2]}), mode="append")
    return table


def test_spark_neither_reads_nor_extends_a_manifest_list_that_lost_its_entries(
    lake: Lake, filled: TableIdentifier
) -> None:
    path = header_only(lake.tables.load_table(filled), "manifest list")
    frame = lake.spark.createDataFrame([(1,)], "id bigint")
    with pytest.raises(DamagedFileError, match=f"'{filled}'.*{path.name}"):
        lake.read(filled)
    with pytest.raises(DamagedFileError, match=path.name):
        lake.write(frame, filled, mode="append")
    with pytest.raises(DamagedFileError, match=path.name):
        lake.tables.compact_table(filled)
    assert len(lake.tables.list_snapshots(filled)) == 2


@pytest.mark.parametrize(("kind", "how"), [("manifest", "half"), ("data", "garbage")])
def test_a_file_that_spark_cannot_parse_is_named(lake: Lake, filled: TableIdentifier, kind: str, how: str) -> None:
    path = damage(lake.tables.load_table(filled), kind, how)
    frame = lake.spark.createDataFrame([(1,)], "id bigint")
    with pytest.raises(DamagedFileError, match=f"'{filled}'.*{path.name}.*Restore the file"):
        lake.write(frame, filled, mode="upsert", keys=["id"])
    assert len(lake.tables.list_snapshots(filled)) == 2
