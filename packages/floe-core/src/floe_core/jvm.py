"""Every JVM artifact Floe asks for, pinned: the only place where their versions stand."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version

from floe_core.errors import ConfigurationError

__all__ = ["ICEBERG_RUNTIMES", "POSTGRESQL_JDBC", "SQLITE_JDBC", "iceberg_aws_bundle", "iceberg_runtime"]

SQLITE_JDBC = "org.xerial:sqlite-jdbc:3.53.2.0"
POSTGRESQL_JDBC = "org.postgresql:postgresql:42.7.14"

# Iceberg publishes a runtime for each minor version of Spark; 1.12 has none for Spark 4.0.
ICEBERG_RUNTIMES = {
    "3.5": "org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.12.0",
    "4.0": "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0",
    "4.1": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
}


def iceberg_runtime(spark_version: str) -> str:
    """The coordinate of the Iceberg runtime that fits this version of Spark."""
    minor = re.match(r"\d+\.\d+", spark_version)
    runtime = ICEBERG_RUNTIMES.get(minor[0]) if minor else None
    if runtime is None:
        raise ConfigurationError(
            f"there is no Iceberg runtime for Spark {spark_version}; Floe runs on Spark "
            f"{', '.join(ICEBERG_RUNTIMES)}: pip install 'pyspark~=4.1.0'"
        )
    return runtime


def iceberg_aws_bundle() -> str:
    """The coordinate of Iceberg's S3 files, of the version of the runtime for the Spark that is installed."""
    try:
        runtime = iceberg_runtime(version("pyspark"))
    except PackageNotFoundError:  # asked without Spark: nothing will be fetched
        runtime = ICEBERG_RUNTIMES["4.1"]
    return f"org.apache.iceberg:iceberg-aws-bundle:{runtime.rpartition(':')[2]}"
