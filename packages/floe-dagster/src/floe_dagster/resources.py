"""The lake as a Dagster resource."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagster import ConfigurableResource, InitResourceContext

from floe_core.config import BRANCH_VARIABLE, CompiledArtifacts
from floe_core.errors import ConfigurationError, FloeError
from floe_core.plugins import ComputePlugin
from floe_dagster.assets.arguments import KnownArguments, names_of, refuse_unknown
from floe_dagster.runs.tracing import run_trace
from floe_iceberg import IcebergTableManager, Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["LakeResource", "artifacts_of", "lake_of"]


class LakeResource(KnownArguments, ConfigurableResource["LakeResource"]):
    """The lake of one project and environment, as compiled. Assets use `lake.spark` to create DataFrames.

    Args:
        project: The folder that holds floe.yaml.
        environment: The environment that was compiled. By default none.
        branch: The branch of the lake to read and write. By default as floe.yaml and FLOE_BRANCH say.

    Example:
        >>> from pathlib import Path
        >>> from dagster import asset, materialize
        >>> from floe_core import compile_project
        >>> from floe_dagster import LakeResource
        >>> _ = Path("floe.yaml").write_text("name: shop")
        >>> _ = compile_project(Path()).artifacts.write()
        >>> @asset
        ... def namespaces(lake: LakeResource) -> None:
        ...     lake.lake.tables.create_namespace("bronze")
        >>> materialize([namespaces], resources={"lake": LakeResource(project=".")}).success
        True
    """

    project: str
    environment: str | None = None
    branch: str | None = None

    @classmethod
    def configure_at_launch(cls, **given: Any) -> Any:
        refuse_unknown(cls.__name__, given, names_of(cls))
        return super().configure_at_launch(**given)

    @contextmanager
    def yield_for_execution(self, context: InitResourceContext) -> Iterator[LakeResource]:
        with run_trace(context, lambda: self.lake.artifacts), super().yield_for_execution(context) as resource:
            if context.run is not None:
                with suppress(FloeError):  # raised again by what the run reads or writes
                    self.lake.reopen_branch()
            yield resource

    @property
    def lake(self) -> Lake:
        branch = self.branch or os.environ.get(BRANCH_VARIABLE)
        return _open(str(Path(self.project).resolve()), self.environment, branch)

    @property
    def spark(self) -> SparkSession:
        """The session that the IO manager uses too."""
        return self.lake.spark


@lru_cache(maxsize=8)
def _open(project: str, environment: str | None, branch: str | None) -> Lake:
    return Lake(CompiledArtifacts.load(Path(project), environment).on_branch(branch))


class _TablesOnly(Lake):
    """Tables opened by the caller, without a project: Spark is the active session."""

    def __init__(self, tables: IcebergTableManager) -> None:
        self.__dict__["tables"] = tables

    @property
    def default_namespace(self) -> str:
        return "public"

    @property
    def ignore_key_prefix(self) -> bool:
        return False

    @cached_property
    def compute(self) -> ComputePlugin:
        from floe_spark import SparkCompute

        return SparkCompute.of(self)

    @property
    def spark(self) -> SparkSession:
        from pyspark.sql import SparkSession

        running = SparkSession.getActiveSession()
        if running is None:
            raise ConfigurationError(
                "no Spark session runs, and a table_manager alone starts none; give the IO manager lake=LakeResource("
                "project=…), or annotate the input with a type that needs no Spark, such as pyarrow.Table"
            )
        return running


def lake_of(lake: Any, table_manager: Any) -> Lake:
    """The lake of an IO manager, from a LakeResource, an open Lake, or an IcebergTableManager."""
    if (lake is None) == (table_manager is None):
        raise ConfigurationError(
            "IcebergIOManager needs one of lake=LakeResource(project=…) and table_manager=IcebergTableManager(…)"
        )
    if table_manager is not None:
        if not isinstance(table_manager, IcebergTableManager):
            raise ConfigurationError(f"table_manager is a {type(table_manager).__name__}, not an IcebergTableManager")
        return _TablesOnly(table_manager)
    opened = lake.lake if isinstance(lake, LakeResource) else lake
    if not isinstance(opened, Lake):
        raise ConfigurationError(f"lake is a {type(lake).__name__}; give a LakeResource(project=…)")
    return opened


def artifacts_of(lake: Lake) -> CompiledArtifacts | None:
    """The compiled contract of a lake; None for tables opened without a project."""
    return lake.tables.artifacts if isinstance(lake, _TablesOnly) else lake.artifacts
