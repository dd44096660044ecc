"""Spark on Iceberg tables: the session, and reads and writes of DataFrames."""

from floe_spark.lake import Lake
from floe_spark.read import read
from floe_spark.session import spark_session
from floe_spark.write import WriteResult, write

__all__ = ["Lake", "WriteResult", "read", "spark_session", "write"]
