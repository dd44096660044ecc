"""A project's lake, open: its tables and its Spark session."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from floe_core.artifacts import CompiledArtifacts
from floe_core.errors import FloeError, FloeStorageError
from floe_iceberg import IcebergTableManager
from floe_iceberg.arguments import TableName, identifier_of
from floe_iceberg.write_request import WriteRequest
from floe_spark.connect import is_remote
from floe_spark.errors import is_refused
from floe_spark.life import ending
from floe_spark.maintenance.compute import SparkCompute
from floe_spark.read import Reading, reading
from floe_spark.session import catalog_conf, renew_catalog, spark_session
from floe_spark.write import WriteResult, write, write_request

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from typing_extensions import Self

__all__ = ["Lake"]

Result = TypeVar("Result")


class Lake:
    """Both engines on one catalog. Nothing connects before it is used; `with` closes it."""

    def __init__(self, artifacts: CompiledArtifacts) -> None:
        self.artifacts = artifacts

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Shut down the plugins of catalog and storage; the Spark session, which others may use too, goes on."""
        opened = self.__dict__.get("tables")
        if isinstance(opened, IcebergTableManager):
            opened.close()

    @property
    def default_namespace(self) -> str:
        """Where the table of an asset lies whose key does not say it."""
        return self.artifacts.tables.default_namespace

    @property
    def ignore_key_prefix(self) -> bool:
        """Are all assets stored in the default namespace, whatever the prefix of their key?"""
        return self.artifacts.tables.ignore_key_prefix

    @cached_property
    def tables(self) -> IcebergTableManager:
        """The control plane: no JVM."""
        tables = IcebergTableManager.open(self.artifacts)
        tables.compute = SparkCompute.of(self)
        return tables

    @property
    def spark(self) -> SparkSession:
        """The data plane: the session of this project, started when first asked for."""
        return spark_session(self.artifacts, self.tables.catalog_plugin, self.tables.storage_plugin)

    def read(self, identifier: TableName, **options: Any) -> DataFrame:
        """A table as a lazy DataFrame; the options are those of `floe_spark.read`."""
        return self.reading(identifier, **options).frame

    def reading(self, identifier: TableName, **options: Any) -> Reading:
        """`read` for whoever wants to know which snapshot it was."""
        return self.patiently(lambda: reading(self.spark, self.tables, identifier_of(identifier), **options))

    def write(self, frame: DataFrame, identifier: TableName, **options: Any) -> WriteResult:
        """Write a DataFrame; the options are those of `floe_spark.write`."""
        options.setdefault("write_id", uuid.uuid4().hex)
        return self.patiently(lambda: write(frame, self.tables, identifier_of(identifier), **options))

    def write_request(self, frame: DataFrame, request: WriteRequest) -> WriteResult:
        """Write a DataFrame as a request says."""
        return self.patiently(lambda: write_request(frame, request))

    def patiently(self, act: Callable[[], Result]) -> Result:
        """Once more with a new token if the catalog refused Spark's: it was revoked, or is fetched by somebody else."""
        try:
            return act()
        except Exception as exc:
            ended = None if isinstance(exc, FloeError) else ending(exc)
            if ended is not None:
                raise FloeStorageError(f"{ended} Run it again: a new Spark process starts") from exc
            if not is_refused(exc) or is_remote(self.spark):
                raise
            renew_catalog(self.spark, catalog_conf(self.tables.catalog_plugin, self.tables.storage_plugin))
        return act()
