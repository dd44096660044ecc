"""Spark on Iceberg tables: the session, and reads and writes of DataFrames."""

import floe_spark._pyspark  # noqa: F401 - refuses an unsupported PySpark before anything else is imported
from floe_spark.compute import SparkCompute
from floe_spark.jvm.session import spark_session
from floe_spark.reading.read import read
from floe_spark.writing.write import write

__all__ = ["SparkCompute", "read", "spark_session", "write"]
