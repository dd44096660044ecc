"""All JVM artifacts that Floe uses; their versions are pinned only here."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version

from floe_core.errors import ConfigurationError

__all__ = [
    "ICEBERG_RUNTIMES",
    "JAR_SHA256",
    "POSTGRESQL_JDBC",
    "SQLITE_JDBC",
    "brought_jars",
    "iceberg_aws_bundle",
    "iceberg_runtime",
    "jar_name",
    "module_of",
]

SQLITE_JDBC = "org.xerial:sqlite-jdbc:3.53.2.0"
POSTGRESQL_JDBC = "org.postgresql:postgresql:42.7.14"

# Iceberg publishes a runtime for each minor version of Spark; 1.12 has none for Spark 4.0.
ICEBERG_RUNTIMES = {
    "3.5": "org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.12.0",
    "4.0": "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0",
    "4.1": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
}

# Computed from the files that Maven Central delivers, and equal to the .sha256 file beside each of them there.
JAR_SHA256 = {
    "org.apache.iceberg:iceberg-aws-bundle:1.11.0": "38f01da7e96850cdd05e6616d758b77b43314b712a8808e3f9a824d56976162f",
    "org.apache.iceberg:iceberg-aws-bundle:1.12.0": "dd7e49ffa4ac9b215bed846581991259e3aec9bb2fa08d6cec029c46cd66d957",
    ICEBERG_RUNTIMES["3.5"]: "8dd8c90e54ed1a20f2461309d047a255ee56382eb7c0a46162b27a4936fd86dc",
    ICEBERG_RUNTIMES["4.0"]: "63c3b812549dc232c1920865ff42436df8604a9bbacd693930985c06bd97e6dc",
    ICEBERG_RUNTIMES["4.1"]: "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82",
    "org.checkerframework:checker-qual:3.55.1": "857658c8bdcbff794949a8d9922f88d63ee3751c203c7cd7d21ea97f9e745288",
    POSTGRESQL_JDBC: "73914527305a40cce504b0d3d90b23caf565136912d607ae8ae7c5895512332c",
    SQLITE_JDBC: "dc320e4102884c135ccc30c3c6fc3fb190b750e1586a100e3aba3be783cf33a9",
}
_DEPENDENCIES = {POSTGRESQL_JDBC: ("org.checkerframework:checker-qual:3.55.1",)}


def brought_jars(coordinate: str) -> tuple[str, ...]:
    """The coordinate and those of the jars that it depends on."""
    return (coordinate, *_DEPENDENCIES.get(coordinate, ()))


def module_of(coordinate: str) -> str:
    """`group:artifact` of a coordinate; Spark also accepts a slash between the two."""
    return coordinate.replace("/", ":").rpartition(":")[0]


def jar_name(coordinate: str) -> str:
    """The name under which Spark's Ivy stores the jar of a coordinate."""
    group, artifact, revision = coordinate.split(":")
    return f"{group}_{artifact}-{revision}.jar"


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
    """The coordinate of Iceberg's AWS bundle, in the version of the runtime for the installed Spark."""
    try:
        runtime = iceberg_runtime(version("pyspark"))
    except PackageNotFoundError:  # without Spark nothing is downloaded
        runtime = ICEBERG_RUNTIMES["4.1"]
    return f"org.apache.iceberg:iceberg-aws-bundle:{runtime.rpartition(':')[2]}"
