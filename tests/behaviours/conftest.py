"""What tests of Dagster assets share: the tables of the project, without a JVM, and a Dagster that forgets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from dagster import DagsterInstance

from floe_core.config.artifacts import CompiledArtifacts
from floe_iceberg import IcebergTableManager


@pytest.fixture(scope="session")
def tables(project: CompiledArtifacts) -> IcebergTableManager:
    return IcebergTableManager.open(project)


@pytest.fixture
def instance() -> Iterator[DagsterInstance]:
    with DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral
