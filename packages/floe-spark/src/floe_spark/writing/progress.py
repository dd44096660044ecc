"""How far Spark is with a write: the tasks of its running jobs, and the rows and bytes that they have written."""

from __future__ import annotations

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from floe_core.observability import WriteProgress
from floe_spark._pyspark import running_stages
from floe_spark.jvm.connect import is_remote

__all__ = ["spark_progress"]


def spark_progress(spark: SparkSession, asset: str) -> WriteProgress:
    """The progress of the jobs that run now; nothing is known of a Spark Connect server, or between two jobs."""
    if is_remote(spark):
        return WriteProgress(asset)
    try:
        stages = running_stages(spark)
        rows = sum(stage.outputRecords() for stage in stages)
        written = sum(stage.outputBytes() for stage in stages)
        tasks, done = sum(stage.numTasks() for stage in stages), sum(stage.numCompleteTasks() for stage in stages)
    except (Py4JError, OSError):  # a stage is gone already, or the process ended: the write reports that
        return WriteProgress(asset)
    return WriteProgress(asset, rows or None, written or None, done / tasks if tasks else None)
