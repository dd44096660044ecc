"""The lake as a Dagster resource."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from dagster import ConfigurableResource

from floe_core.artifacts import CompiledArtifacts
from floe_spark import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["LakeResource"]


class LakeResource(ConfigurableResource["LakeResource"]):
    """The lake of one project and environment, as compiled. Assets use `lake.spark` to make DataFrames."""

    project: str
    environment: str | None = None

    @property
    def lake(self) -> Lake:
        return _open(self.project, self.environment)

    @property
    def spark(self) -> SparkSession:
        """The session that the IO manager uses too."""
        return self.lake.spark


@lru_cache(maxsize=8)
def _open(project: str, environment: str | None) -> Lake:
    return Lake(CompiledArtifacts.load(Path(project), environment))
