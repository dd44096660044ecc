"""Compute plugin `spark`: the DataFrames and the physical maintenance of a lake."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession

from floe_core import __version__
from floe_core.config import CompactionStrategy, SparkConfig
from floe_core.errors import PluginError
from floe_core.identifiers import TableIdentifier, TableSlice
from floe_core.maintenance import CompactReport, ExpireReport, ManifestsReport, OrphansReport, StatisticsReport
from floe_core.plugins import FLOE_API_VERSION, ComputePlugin, DividedFrame, PluginMetadata
from floe_iceberg import Lake
from floe_iceberg.errors import translated
from floe_iceberg.files import Neighbours
from floe_iceberg.lake import Reading
from floe_iceberg.query import QueryResult
from floe_iceberg.writing import Target, WriteRequest, WriteResult
from floe_spark.jvm.session import is_running, spark_session
from floe_spark.jvm.token_retry import with_valid_token
from floe_spark.maintenance.compact import compact
from floe_spark.maintenance.expire import expire_snapshots
from floe_spark.maintenance.manifests import rewrite_manifests
from floe_spark.maintenance.orphans import remove_orphans
from floe_spark.maintenance.statistics import compute_statistics
from floe_spark.reading.query import query
from floe_spark.reading.read import reading
from floe_spark.writing.division import divided
from floe_spark.writing.frames import data_schema
from floe_spark.writing.write import write, write_request

__all__ = ["SparkCompute"]


class SparkCompute(ComputePlugin):
    """The compute plugin `spark`: DataFrames, and maintenance by Iceberg's procedures, in the Spark session of a lake.

    `Lake` and `IcebergTableManager` call it; the session starts on first use. `of` creates it for a lake.

    Args:
        config: The section `spark` of floe.yaml.
        root: The folder that holds floe.yaml.

    Example:
        >>> from floe_core import TableIdentifier
        >>> from floe_spark import SparkCompute
        >>> orders = TableIdentifier.from_string("bronze.orders")
        >>> compute = SparkCompute.of(lake)
        >>> for order in range(5):
        ...     _ = compute.write(compute.session().range(order, order + 1), orders, mode="append")
        >>> report = compute.compact(orders, min_files=2)
        >>> report.files_rewritten, report.files_added
        (5, 1)
    """

    metadata: ClassVar[PluginMetadata] = PluginMetadata(
        name="spark", version=__version__, floe_api_version=FLOE_API_VERSION, description="Iceberg's Spark procedures"
    )

    def __init__(self, config: BaseModel, *, root: Path) -> None:
        del config, root  # the lake has them
        self._opened: Lake | None = None

    @classmethod
    def get_config_schema(cls) -> type[SparkConfig]:
        return SparkConfig

    @classmethod
    def of(cls, lake: Lake) -> SparkCompute:
        """Create the compute plugin of a lake."""
        compute = cls(SparkConfig(), root=Path())
        compute.use_lake(lake)
        return compute

    def use_lake(self, lake: Lake) -> None:
        self._opened = lake

    @property
    def _lake(self) -> Lake:
        if self._opened is None:
            raise PluginError("the compute plugin has no lake yet: call use_lake first")
        return self._opened

    def session(self) -> SparkSession:
        lake = self._lake
        return spark_session(lake.artifacts, lake.tables.catalog_plugin, lake.tables.storage_plugin)

    @property
    def has_session(self) -> bool:
        lake = self._lake
        return is_running(lake.tables.catalog_plugin, lake.tables.storage_plugin)

    def reading(self, identifier: TableIdentifier, **options: Any) -> Reading:
        lake = self._lake
        return with_valid_token(lake, lambda: reading(lake.spark, lake.tables, identifier, **options))

    def query(self, text: str, tables: Sequence[tuple[TableIdentifier, Table, int | None]]) -> QueryResult:
        return with_valid_token(self._lake, lambda: query(self._lake.spark, text, tables))

    def write(self, frame: DataFrame, identifier: TableIdentifier, **options: Any) -> WriteResult:
        return with_valid_token(self._lake, lambda: write(frame, self._lake.tables, identifier, **options))

    def write_request(self, frame: DataFrame, request: WriteRequest, target: Target | None = None) -> WriteResult:
        targets = iter([target])
        return with_valid_token(
            self._lake, lambda: write_request(frame, self._lake.tables, request, next(targets, None))
        )

    def divided(
        self,
        frame: DataFrame,
        conditions: Mapping[str, str],
        identifier: TableIdentifier,
        *,
        columns: Schema,
        marks: Mapping[str, Any],
    ) -> DividedFrame:
        names = [field.name for field in columns.fields]
        return with_valid_token(self._lake, lambda: divided(frame, conditions, identifier, columns=names, marks=marks))

    def schema_of(self, frame: DataFrame) -> Schema:
        return data_schema(frame)

    def expire_snapshots(
        self,
        identifier: TableIdentifier,
        *,
        older_than: datetime,
        keep_last: int,
        neighbours: Neighbours | None = None,
    ) -> ExpireReport:
        with translated("expire_snapshots", identifier):
            return expire_snapshots(
                self._lake, identifier, older_than=older_than, keep_last=keep_last, neighbours=neighbours
            )

    def compact(
        self,
        identifier: TableIdentifier,
        *,
        strategy: CompactionStrategy = CompactionStrategy.BIN_PACK,
        columns: Sequence[str] = (),
        slice: TableSlice | None = None,  # noqa: A002 - Iceberg's noun; the builtin is not needed here
        target_file_size: int | None = None,
        min_files: int = 5,
    ) -> CompactReport:
        with translated("compact", identifier):
            return compact(
                self._lake,
                identifier,
                strategy=strategy,
                columns=columns,
                slice=slice,
                target_file_size=target_file_size,
                min_files=min_files,
            )

    def rewrite_manifests(self, identifier: TableIdentifier) -> ManifestsReport:
        with translated("rewrite_manifests", identifier):
            return rewrite_manifests(self._lake, identifier)

    def remove_orphans(
        self,
        identifier: TableIdentifier,
        *,
        older_than: datetime,
        dry_run: bool = True,
        neighbours: Neighbours | None = None,
    ) -> OrphansReport:
        with translated("remove_orphans", identifier):
            return remove_orphans(self._lake, identifier, older_than=older_than, dry_run=dry_run, neighbours=neighbours)

    def compute_statistics(self, identifier: TableIdentifier, *, columns: Sequence[str] = ()) -> StatisticsReport:
        with translated("compute_statistics", identifier):
            return compute_statistics(self._lake, identifier, columns=columns)
