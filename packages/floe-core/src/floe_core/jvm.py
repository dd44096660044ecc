"""Every JVM artifact Floe asks for, pinned: the only place where their versions stand."""

from __future__ import annotations

import re

from floe_core.errors import ConfigurationError

__all__ = ["ICEBERG_RUNTIMES", "SQLITE_JDBC", "iceberg_runtime"]

SQLITE_JDBC = "org.xerial:sqlite-jdbc:3.53.2.0"

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
