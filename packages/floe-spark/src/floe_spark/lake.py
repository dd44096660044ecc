"""A project's lake, open: its tables and its Spark session."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from floe_core.artifacts import CompiledArtifacts
from floe_core.identifiers import TableIdentifier
from floe_iceberg import IcebergTableManager
from floe_spark.read import read
from floe_spark.session import spark_session
from floe_spark.write import WriteResult, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Lake"]


class Lake:
    """Both engines on one catalog. Nothing connects before it is used."""

    def __init__(self, artifacts: CompiledArtifacts) -> None:
        self.artifacts = artifacts

    @cached_property
    def tables(self) -> IcebergTableManager:
        """The control plane: no JVM."""
        return IcebergTableManager.open(self.artifacts)

    @property
    def spark(self) -> SparkSession:
        """The data plane: the session of this project, started when first asked for."""
        return spark_session(self.artifacts, self.tables.catalog_plugin, self.tables.storage_plugin)

    def read(self, identifier: TableIdentifier | str, **options: Any) -> DataFrame:
        """A table as a lazy DataFrame; the options are those of `floe_spark.read`."""
        return read(self.spark, self.tables, _identifier(identifier), **options)

    def write(self, frame: DataFrame, identifier: TableIdentifier | str, **options: Any) -> WriteResult:
        """Write a DataFrame; the options are those of `floe_spark.write`."""
        return write(frame, self.tables, _identifier(identifier), **options)


def _identifier(identifier: TableIdentifier | str) -> TableIdentifier:
    return TableIdentifier.from_string(identifier) if isinstance(identifier, str) else identifier
