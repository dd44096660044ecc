"""What `IcebergTableManager` asks Spark for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pydantic import BaseModel

from floe_core import __version__
from floe_core.artifacts import CompiledArtifacts
from floe_core.errors import PluginError
from floe_core.identifiers import TableIdentifier, TableSlice
from floe_core.maintenance import CompactReport, ExpireReport, ManifestsReport, OrphansReport, StatisticsReport
from floe_core.plugins import FLOE_API_VERSION
from floe_core.policy import CompactionStrategy
from floe_core.ports import ComputePlugin, PluginMetadata
from floe_core.spec import SparkConfig
from floe_iceberg import IcebergTableManager
from floe_iceberg.errors import translated
from floe_iceberg.neighbours import Neighbours
from floe_spark.maintenance.compact import compact
from floe_spark.maintenance.expire import expire_snapshots
from floe_spark.maintenance.manifests import rewrite_manifests
from floe_spark.maintenance.orphans import remove_orphans
from floe_spark.maintenance.statistics import compute_statistics

if TYPE_CHECKING:
    from floe_spark.lake import Lake

__all__ = ["SparkCompute"]


class SparkCompute(ComputePlugin):
    """Iceberg's procedures in the Spark of a lake, which starts when the first of them is asked for."""

    metadata: ClassVar[PluginMetadata] = PluginMetadata(
        name="spark", version=__version__, floe_api_version=FLOE_API_VERSION, description="Iceberg's Spark procedures"
    )

    def __init__(self, config: BaseModel, *, root: Path) -> None:
        del config, root  # the lake knows them
        self._opened: Lake | None = None

    @classmethod
    def get_config_schema(cls) -> type[SparkConfig]:
        return SparkConfig

    @classmethod
    def of(cls, lake: Lake) -> SparkCompute:
        compute = cls(lake.artifacts.spark, root=lake.artifacts.root)
        compute._opened = lake
        return compute

    def use_tables(self, artifacts: CompiledArtifacts, tables: IcebergTableManager) -> None:
        from floe_spark.lake import Lake

        self._opened = Lake(artifacts)
        self._opened.__dict__["tables"] = tables  # those at hand, and not a second connection

    @property
    def _lake(self) -> Lake:
        if self._opened is None:
            raise PluginError("the compute plugin has no tables yet: call use_tables first")
        return self._opened

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
