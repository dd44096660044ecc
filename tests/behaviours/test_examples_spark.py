"""The examples of public names that need Spark or a catalog server. tests/unit/test_examples.py executes the others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.examples import EXECUTED_IN_UNIT_TESTS, examples, given, run
from tests.servers.seaweedfs import BUCKET, SeaweedFS

from floe_iceberg import Lake

ELSEWHERE = {name: given(test) - EXECUTED_IN_UNIT_TESTS for name, test in examples().items()}
ON_SPARK = [name for name, used in ELSEWHERE.items() if "lake" in used]
ON_A_SERVER = [name for name, used in ELSEWHERE.items() if used and "lake" not in used]


@pytest.fixture
def shared_lake(lake: Lake) -> Iterator[Lake]:
    """The lake of the tests; the tables that an example creates are dropped after it."""
    before = {table for namespace in lake.tables.list_namespaces() for table in lake.tables.list_tables(namespace)}
    assert "bronze.orders" not in {str(table) for table in before}
    yield lake
    for namespace in lake.tables.list_namespaces():
        for table in set(lake.tables.list_tables(namespace)) - before:
            lake.tables.drop_table(table)


@pytest.mark.parametrize("name", ON_SPARK)
def test_an_example_on_spark_does_what_it_says(
    name: str, shared_lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run(examples()[name], pa=pa, lake=shared_lake)


@pytest.mark.parametrize("name", ON_A_SERVER)
def test_an_example_on_a_catalog_server_does_what_it_says(
    name: str, server: SeaweedFS, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CATALOG_SECRET", server.secret)
    run(examples()[name], uri=server.catalog_uri, warehouse=f"s3://{BUCKET}", client_id=server.key)
