"""A Spark Connect server from PySpark's own distribution."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from floe_core.jvm import SQLITE_JDBC, iceberg_runtime

__all__ = ["spark_connect_server"]


@contextmanager
def spark_connect_server(folder: Path) -> Iterator[str]:
    """The address of a running server with the Iceberg runtime; its log is in the folder."""
    home = Path(pyspark.__file__).parent
    port = _free_port()
    conf = {
        "spark.master": "local[2]",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.shuffle.partitions": "4",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
    }
    command = [
        str(home / "bin" / "spark-submit"),
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        *("--packages", f"{iceberg_runtime(pyspark.__version__)},{SQLITE_JDBC}"),
        *(part for key, value in conf.items() for part in ("--conf", f"{key}={value}")),
        "spark-internal",
    ]
    with (folder / "connect.log").open("wb") as log:
        server = subprocess.Popen(
            command, cwd=folder, stdout=log, stderr=log, env={**os.environ, "SPARK_HOME": str(home)}
        )
        try:
            _wait(port, server, folder / "connect.log")
            yield f"sc://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(60)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(600):
        if server.poll() is not None:
            raise RuntimeError(f"the Spark Connect server ended:\n{log.read_text()[-3000:]}")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError(f"the Spark Connect server did not listen within a minute:\n{log.read_text()[-3000:]}")
