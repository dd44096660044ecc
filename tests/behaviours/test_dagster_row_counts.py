"""The number of rows that a materialization reports is that of its data, not of what the commit had to write again."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from dagster import DagsterInstance, StaticPartitionsDefinition, asset
from tests.runs import metadata_of, run

from floe_core.config.artifacts import CompiledArtifacts
from floe_core.identifiers import TableIdentifier
from floe_iceberg import IcebergTableManager

CITIES = StaticPartitionsDefinition(["oslo", "rome"])
NEIGHBOURS = pa.table({"id": range(195), "city": ["oslo" if number < 3 else "bonn" for number in range(195)]})
DATA = pa.table({"id": [0, 1, 900], "city": ["oslo", "oslo", "oslo"]})


@pytest.fixture(params=["arrow", pytest.param("spark", marks=pytest.mark.full)])
def rows(request: pytest.FixtureRequest) -> Any:
    """The three rows of the data, for each engine."""
    if request.param == "arrow":
        return DATA
    return request.getfixturevalue("lake").spark.createDataFrame(DATA.to_pylist(), "id long, city string")


@pytest.fixture
def shared_file(tables: IcebergTableManager, namespace: str) -> TableIdentifier:
    """A table of one file, in which the rows of the asset lie beside 192 others."""
    identifier = TableIdentifier(namespace=(namespace,), name="visits")
    tables.write_data(identifier, NEIGHBOURS, mode="append")
    return identifier


@pytest.mark.parametrize(
    ("metadata", "partitions", "removed", "rewritten"),
    [
        ({"partition_expr": "city", "floe/take_over": True}, CITIES, 3, 192),
        ({"write_mode": "upsert", "upsert_keys": "id", "floe/take_over": True}, None, 2, 193),
    ],
    ids=["slice", "upsert"],
)
def test_rewritten_neighbours_are_not_counted_as_added(
    project: CompiledArtifacts,
    instance: DagsterInstance,
    shared_file: TableIdentifier,
    rows: Any,
    metadata: dict[str, Any],
    partitions: StaticPartitionsDefinition | None,
    removed: int,
    rewritten: int,
) -> None:
    @asset(key_prefix=shared_file.namespace[0], metadata=metadata, partitions_def=partitions)
    def visits() -> Any:
        return rows

    done = run([visits], project, instance, **({"partition_key": "oslo"} if partitions else {}))
    told = metadata_of(done, "visits")
    assert told["floe/rows_added"] == 3
    assert told["floe/rows_rewritten"] == rewritten
    assert told["floe/rows_removed"] == removed
    assert told["dagster/storage_kind"] == "iceberg"
