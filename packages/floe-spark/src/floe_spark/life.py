"""Whether the JVM of this process still lives, and what is left to do when it does not."""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from floe_spark.connect import forget_sessions

__all__ = ["forget_the_dead", "is_dead"]


def is_dead() -> bool:
    """Was there a JVM, and is it gone? Killed for want of memory, for example."""
    gateway: Any = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    return process is not None and process.poll() is not None


def forget_the_dead() -> None:
    """Let PySpark start a new JVM: by itself it would go on talking to the one that is gone."""
    if not is_dead():
        return
    session = SparkSession._instantiatedSession
    with suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if SparkContext._active_spark_context is not None:
            SparkContext._active_spark_context.stop()
    with suppress(Exception):
        SparkContext._gateway.shutdown()  # type: ignore[union-attr]  # there was one, or nothing died
    if session is not None:
        forget_sessions(session)
    SparkContext._active_spark_context = None
    SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None
