"""Writers in processes of their own, forked from one that has imported everything."""

from __future__ import annotations

import multiprocessing
import os
import signal
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from typing import Any

import pyarrow as pa
from pyiceberg.io.pyarrow import PyArrowFileIO

from floe_core.config.artifacts import CompiledArtifacts
from floe_core.config.spec import RestCatalogConfig, RetryConfig
from floe_core.errors import FloeError
from floe_core.identifiers import TableIdentifier
from floe_core.models import SnapshotInfo
from floe_core.plugins.discovery import create_storage_plugin
from floe_iceberg import IcebergTableManager, Lake
from floe_polaris.plugin import RestCatalogPlugin
from tests.engines import ArrowEngine, Engine, SparkEngine

__all__ = ["MOMENTS", "Project", "Writer"]

# When a writer may die by itself.
MOMENTS = ("while it stages files", "before the commit", "after the commit")
ENGINES = {kind.name: kind for kind in (ArrowEngine, SparkEngine)}


class Project:
    """What another process needs to open the same lake."""

    def __init__(self, artifacts: CompiledArtifacts, *, rest: str | None = None) -> None:
        self.root = artifacts.root
        self.rest = rest

    def open(self) -> Lake:
        """The lake; on the REST catalog if there is one."""
        lake = Lake(CompiledArtifacts.load(self.root))
        if self.rest is not None:
            quick = RetryConfig(initial_wait_seconds=0.1, jitter_seconds=0, circuit_breaker_threshold=0)
            settings = RestCatalogConfig(
                uri=self.rest, warehouse="tests", auth="none", access_delegation="none", retry=quick
            )
            plugin = RestCatalogPlugin(settings, root=self.root)
            lake.tables = IcebergTableManager(plugin, create_storage_plugin(lake.artifacts))
        return lake

    def engine(self, name: str) -> Engine:
        made: Engine = ENGINES[name](self.open())
        return made


class Writer:
    """A process that writes what it is told, until it is closed or killed. It leads a process group of its own.

    Args:
        dies: The moment of its first write at which it kills itself; Arrow only.
    """

    def __init__(self, project: Project, engine: str, *, dies: str | None = None) -> None:
        self._here, there = multiprocessing.Pipe()
        self._process: BaseProcess = _forks().Process(target=_serve, args=(project, engine, dies, there), daemon=True)
        self._process.start()
        there.close()

    def ask(self, table: TableIdentifier, data: pa.Table, **options: Any) -> None:
        """Begin a write."""
        self._here.send(("write", table, data, options))

    def answer(self, timeout: float = 300) -> Any:
        """What came of it; an error of Floe's is raised."""
        if not self._here.poll(timeout):
            raise TimeoutError("the writer did not answer")
        answer = self._here.recv()
        if isinstance(answer, FloeError):
            raise answer
        return answer

    def write(self, table: TableIdentifier, data: pa.Table, **options: Any) -> SnapshotInfo:
        self.ask(table, data, **options)
        made: SnapshotInfo = self.answer()
        return made

    def read(self, table: TableIdentifier, **options: Any) -> pa.Table:
        self._here.send(("read", table, None, options))
        return self.answer()

    def wait_until_ready(self) -> None:
        assert self.answer() == "ready"

    def kill(self) -> bool:
        """End it at once, with everything it started; False if it had answered before."""
        answered = self._here.poll()
        self.strike()
        self._end()
        return not answered

    def strike(self) -> None:
        """Kill it and everything it started, and do not wait."""
        assert self._process.pid is not None
        os.killpg(self._process.pid, signal.SIGKILL)

    def wait_until_dead(self) -> None:
        self._process.join(60)
        assert self._process.exitcode == -signal.SIGKILL
        self._end()

    def close(self) -> None:
        if self._process.is_alive():
            self._here.send(None)
        self._end()

    def _end(self) -> None:
        self._process.join(60)
        self._process.close()
        self._here.close()


def _forks() -> ForkServerContext:
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload([__name__])
    return forks


def _die(catalog: Any, moment: str) -> None:
    """Let this process be killed, without any of its own clean-up, at that moment of its first write."""
    commit, make = catalog.commit_table, PyArrowFileIO.new_output

    def kill() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def commit_table(*arguments: Any) -> Any:
        if moment == "after the commit":
            commit(*arguments)
        kill()

    def new_output(self: PyArrowFileIO, location: str) -> Any:
        if moment == "while it stages files" and location.endswith(".parquet"):
            make(self, location).create().write(b"PAR1")
            kill()
        return make(self, location)

    catalog.commit_table = commit_table
    PyArrowFileIO.new_output = new_output  # type: ignore[method-assign] # in a process of its own


def _serve(project: Project, engine_name: str, dies: str | None, there: Connection) -> None:
    os.setpgid(0, 0)
    engine = project.engine(engine_name)
    if dies is not None:
        _die(engine.lake.tables.catalog_plugin.connect(), dies)
    if isinstance(engine, SparkEngine):
        engine.lake.spark.range(1).count()
    else:
        engine.lake.tables.catalog_plugin.connect()
    there.send("ready")
    while (asked := there.recv()) is not None:
        what, table, data, options = asked
        try:
            there.send(engine.write(table, data, **options) if what == "write" else engine.read(table, **options))
        except FloeError as exc:
            there.send(type(exc)(str(exc)))
        except Exception as exc:  # noqa: BLE001 - told to whoever asked
            there.send(FloeError(f"{type(exc).__name__}: {exc}"[:500]))
    if isinstance(engine, SparkEngine):
        engine.lake.spark.stop()
