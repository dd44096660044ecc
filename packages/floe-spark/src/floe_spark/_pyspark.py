"""The only place that uses private names of PySpark and Py4J. Importing it refuses an unsupported release."""

from __future__ import annotations

from typing import Any

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

from floe_core.engines import check_version, require_members

__all__ = [
    "analyzed_plan",
    "current_gateway",
    "forget_gateway",
    "gateway_client_of",
    "instantiated_session",
    "java_frame",
    "jvm_of",
    "requested_plan",
    "reset_catalogs",
    "running_stages",
    "stop_active_context",
]

check_version("pyspark")
_ENDINGS = "the end of a Spark process is noticed, and a new one can be started"
require_members("pyspark", SparkContext, "_active_spark_context", "_gateway", "_jvm", promise=_ENDINGS)
require_members("pyspark", SparkSession, "_activeSession", "_instantiatedSession", promise=_ENDINGS)
require_members("pyspark", SparkSession, "_jsparkSession", "_jvm", promise="a rotated secret of the catalog is taken")
require_members("pyspark", ClassicDataFrame, "_jdf", promise="a write conflicts with changes of what it was made from")


def current_gateway() -> Any:
    """The gateway to the JVM that this process started; None if there is none."""
    return SparkContext._gateway


def gateway_client_of(owner: Any) -> Any:
    """The client that connects a gateway, or a Java object, with its JVM."""
    return owner._gateway_client


def java_frame(frame: DataFrame) -> Any:
    """The Java object of a frame of a classic session."""
    return frame._jdf


def jvm_of(spark: SparkSession) -> Any:
    """The JVM of a classic session."""
    return spark._jvm


def reset_catalogs(spark: SparkSession) -> None:
    """Close the catalogs of a classic session; they are opened again on use."""
    spark._jsparkSession.sessionState().catalogManager().reset()


def analyzed_plan(frame: DataFrame) -> Any:
    """The plan of a frame of a classic session, with its names resolved."""
    return java_frame(frame).queryExecution().analyzed()


def requested_plan(frame: Any) -> Any:
    """The request that a frame on a Spark Connect server will send."""
    return frame._plan.to_proto(frame.sparkSession.client)


def running_stages(spark: SparkSession) -> list[Any]:
    """The stages of the jobs that a classic session runs now: their tasks, and what these have written so far."""
    context = spark.sparkContext
    tracker, store = context.statusTracker(), context._jsc.sc().statusStore()
    jobs = [tracker.getJobInfo(job) for job in tracker.getActiveJobsIds()]
    return [store.lastStageAttempt(stage) for job in jobs if job is not None for stage in job.stageIds]


def instantiated_session() -> SparkSession | None:
    """The session that this process created last."""
    return SparkSession._instantiatedSession


def stop_active_context() -> None:
    """Stop the Spark of this process, if there is one."""
    if SparkContext._active_spark_context is not None:
        SparkContext._active_spark_context.stop()


def forget_gateway() -> None:
    """Let PySpark start a new JVM with the next session."""
    SparkContext._active_spark_context = None
    SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None
