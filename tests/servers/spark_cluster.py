"""A standalone Spark cluster from PySpark's own distribution: one master and two workers, as processes on loopback."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.request import urlopen

import pyspark

__all__ = ["WORKERS", "SparkCluster", "spark_cluster"]

WORKERS = 2


@dataclass(frozen=True)
class SparkCluster:
    """A running cluster, and what its own pages and logs say about the work done on it."""

    master: str
    page: str
    folder: Path

    def state(self) -> dict[str, Any]:
        """The master's page: workers, running and completed applications."""
        with urlopen(f"{self.page}/json/", timeout=10) as answer:
            return cast("dict[str, Any]", json.load(answer))

    def finished_tasks(self, application: str) -> dict[str, int]:
        """How many tasks each executor of an application finished, as its own log tells, by worker and executor."""
        logs = self.folder.glob(f"worker-*/{application}/*/stderr")
        return {f"{log.parts[-4]}/{log.parts[-2]}": log.read_text().count(" Finished task ") for log in logs}


@contextmanager
def spark_cluster(folder: Path) -> Iterator[SparkCluster]:
    """A cluster whose workers, one core and one gigabyte each, are registered; its logs are in the folder."""
    port, page = _free_port(), _free_port()
    cluster = SparkCluster(f"spark://127.0.0.1:{port}", f"http://127.0.0.1:{page}", folder)
    with ExitStack() as running:
        master = ("master.Master", "--port", str(port), "--webui-port", str(page))
        processes = [running.enter_context(_daemon(folder, "master", *master))]
        _wait(cluster, processes, workers=0)
        for number in range(1, WORKERS + 1):
            name = f"worker-{number}"
            size = ("--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir", str(folder / name))
            processes.append(
                running.enter_context(_daemon(folder, name, "worker.Worker", *size, address=cluster.master))
            )
        _wait(cluster, processes, workers=WORKERS)
        yield cluster


@contextmanager
def _daemon(
    folder: Path, name: str, main: str, *options: str, address: str | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    home = Path(pyspark.__file__).parent
    command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{main}", "--host", "127.0.0.1", *options]
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "scratch"),
        "SPARK_DAEMON_MEMORY": "256m",
    }
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, address] if address else command, cwd=folder, stdout=log, stderr=log, env=environment
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait(cluster: SparkCluster, processes: list[subprocess.Popen[bytes]], *, workers: int) -> None:
    for _ in range(600):
        if any(process.poll() is not None for process in processes):
            raise RuntimeError(f"a process of the Spark cluster ended:\n{_words(cluster.folder)}")
        try:
            if cluster.state()["aliveworkers"] == workers:
                return
        except OSError:  # not listening yet
            pass
        time.sleep(0.1)
    raise TimeoutError(f"the Spark cluster had not {workers} workers within a minute:\n{_words(cluster.folder)}")


def _words(folder: Path) -> str:
    return "\n".join(f"{log.name}: {log.read_text()[-1500:]}" for log in sorted(folder.glob("*.log")))
