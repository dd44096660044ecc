"""What differs between a session in this process and one on a Spark Connect server."""

from __future__ import annotations

from pyspark.sql import SparkSession

__all__ = ["is_remote"]


def is_remote(spark: SparkSession) -> bool:
    """Is the session on a Spark Connect server? There is no JVM to ask then."""
    return type(spark).__module__.startswith("pyspark.sql.connect")
