"""A project's lake: its tables, and its Spark where one is needed. Nothing here imports PySpark."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from floe_core.config import CompiledArtifacts
from floe_core.plugins import ComputePlugin
from floe_iceberg.arguments import TableName, identifier_of
from floe_iceberg.manager import IcebergTableManager
from floe_iceberg.writing.request import Target, WriteRequest, WriteResult

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from typing_extensions import Self

__all__ = ["Lake", "Reading"]


@dataclass(frozen=True)
class Reading:
    """A table as a lazy DataFrame, and the snapshot that it reads."""

    frame: DataFrame
    snapshot_id: int | None


class Lake:
    """The tables of one project and environment, with both engines on one catalog.

    `tables` is the control plane, without a JVM; `read` and `write` take and return Spark DataFrames. The lake connects
    to the catalog when `tables` is first used, and starts Spark when a DataFrame is first needed. Use it as a context
    manager, or call `close`.

    Args:
        artifacts: The compiled project.

    Example:
        >>> from pathlib import Path
        >>> from floe_core import compile_project
        >>> from floe_iceberg import Lake
        >>> _ = Path("floe.yaml").write_text("name: shop")
        >>> with Lake(compile_project(Path()).artifacts) as lake:
        ...     snapshot = lake.tables.write_data("bronze.orders", pa.table({"id": [1, 2]}), mode="append")
        >>> snapshot.count("added-records")
        2
    """

    def __init__(self, artifacts: CompiledArtifacts) -> None:
        self.artifacts = artifacts

    @classmethod
    def of_tables(cls, artifacts: CompiledArtifacts, tables: IcebergTableManager) -> Lake:
        """Create a lake on an open manager, instead of a second connection to the catalog.

        Args:
            artifacts: The compiled project.
            tables: The open manager of its tables.
        """
        lake = cls(artifacts)
        lake.__dict__["tables"] = tables
        return lake

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Shut down the plugins of catalog and storage. The Spark session, which others may share, keeps running."""
        opened = self.__dict__.get("tables")
        if isinstance(opened, IcebergTableManager):
            opened.close()

    @property
    def default_namespace(self) -> str:
        """The namespace of the tables of assets whose key has no prefix."""
        return self.artifacts.tables.default_namespace

    @property
    def ignore_key_prefix(self) -> bool:
        """Whether all assets are stored in the default namespace, regardless of the prefix of their key."""
        return self.artifacts.tables.ignore_key_prefix

    @cached_property
    def tables(self) -> IcebergTableManager:
        """The control plane: the manager of the tables, without a JVM. It is opened on first use."""
        tables = IcebergTableManager.open(self.artifacts)
        tables.lake = self
        return tables

    @property
    def compute(self) -> ComputePlugin:
        """The data plane: the compute plugin, by default that of floe-spark."""
        tables = self.tables
        if tables.lake is None:  # the tables were opened without a lake
            tables.lake = self
        return tables.require_compute()

    @property
    def spark(self) -> SparkSession:
        """The Spark session of this project. It is started on first use."""
        session: SparkSession = self.compute.session()
        return session

    def read(self, identifier: TableName, **options: Any) -> DataFrame:
        """Read a table as a lazy DataFrame.

        Args:
            identifier: The table.
            options: The options of `floe_spark.read`, such as `columns`, `row_filter` and `slice`.

        Example:
            >>> _ = lake.write(lake.spark.range(3), "bronze.numbers", mode="append")
            >>> lake.read("bronze.numbers", row_filter="id > 0").count()
            2
        """
        return self.reading(identifier, **options).frame

    def reading(self, identifier: TableName, **options: Any) -> Reading:
        """Read a table as a lazy DataFrame, and return the id of the snapshot with it.

        Args:
            identifier: The table.
            options: The options of `floe_spark.read`.

        Example:
            >>> written = lake.write(lake.spark.range(3), "bronze.numbers", mode="append")
            >>> lake.reading("bronze.numbers").snapshot_id == written.snapshot.snapshot_id
            True
        """
        reading: Reading = self.compute.reading(identifier_of(identifier), **options)
        return reading

    def write(self, frame: DataFrame, identifier: TableName, **options: Any) -> WriteResult:
        """Write a DataFrame in one commit; a table that does not exist is created by it.

        Args:
            frame: The DataFrame.
            identifier: The table.
            options: The options of `floe_spark.write`, such as `mode`, `slice` and `keys`.

        Example:
            >>> result = lake.write(lake.spark.range(3), "bronze.numbers", mode="append")
            >>> result.created, result.snapshot.count("added-records")
            (True, 3)
        """
        options.setdefault("write_id", uuid.uuid4().hex)
        result: WriteResult = self.compute.write(frame, identifier_of(identifier), **options)
        return result

    def write_request(self, frame: DataFrame, request: WriteRequest, target: Target | None = None) -> WriteResult:
        """Write a DataFrame as a request describes it.

        Args:
            frame: The DataFrame.
            request: The write.
            target: The table as the caller has just loaded it. Only a second attempt loads it again.
        """
        result: WriteResult = self.compute.write_request(frame, request, target)
        return result
