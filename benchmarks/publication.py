"""Publishing twenty tables in one commit beside twenty commits, and an atomic run of the demo beside a plain one."""

from __future__ import annotations

import os
import tempfile
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from io import StringIO
from pathlib import Path

import pyarrow as pa
from rich.console import Console
from tests.catalogs import polaris_is_given, polaris_settings, rest_settings
from tests.faults.proxy import advertising, fault_proxy
from tests.servers.seaweedfs import seaweedfs_server

from benchmarks.measurement import Row, alternately, compared, seconds_of
from floe_core.compiler import compile_project
from floe_iceberg import IcebergTableManager, Lake
from floe_runtime.demo.story import prepare
from floe_runtime.project import Project

__all__ = ["measure"]

TABLES = 20
DEMO_ROWS = 1_000_000
_ROW = pa.table({"n": [1]})
_BRANCH = "staged"


def measure() -> Iterator[Row]:
    warnings.simplefilter("ignore")
    for name, settings in _catalogs():
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            text = settings(Path(folder), stack)
            root = Path(folder) / "lake"
            root.mkdir()
            (root / "floe.yaml").write_text(f"name: bench\n{text}", encoding="utf-8")
            yield _publications(name, Lake(compile_project(root).artifacts).tables)
    yield _demo_runs()


def _catalogs() -> Iterator[tuple[str, Callable[[Path, ExitStack], str]]]:
    yield "SQLite", lambda _folder, _stack: ""
    yield "SeaweedFS", _seaweedfs
    if polaris_is_given():
        yield "Polaris", lambda _folder, _stack: polaris_settings()


def _seaweedfs(folder: Path, stack: ExitStack) -> str:
    """The server, by way of a proxy that advertises its commits of several tables."""
    server = stack.enter_context(seaweedfs_server(folder / "server"))
    proxy = stack.enter_context(fault_proxy(server.catalog_uri))
    proxy.intercept = advertising
    return rest_settings(server, uri=proxy.uri)


def _publications(catalog: str, tables: IcebergTableManager) -> Row:
    """Each time, a commit is staged on a branch of every table before the clock starts."""
    namespace = f"bench_{uuid.uuid4().hex[:8]}"
    names = [f"{namespace}.t{number}" for number in range(TABLES)]
    for name in names:
        tables.write_data(name, _ROW, mode="append")

    def staged(publish: Callable[[], object]) -> float:
        for name in names:
            tables.create_branch(name, _BRANCH)
            tables.write_data(name, _ROW, mode="append", branch=_BRANCH)
        return seconds_of(publish)

    def one_by_one() -> None:
        for name in names:
            tables.publish({name: _BRANCH})

    runs = {
        "together": lambda: staged(lambda: tables.publish(dict.fromkeys(names, _BRANCH))),
        "each": lambda: staged(one_by_one),
    }
    measured = alternately(runs, times=5)
    for name in names:
        tables.drop_table(name, purge=True)
    tables.catalog_plugin.delete_namespace(namespace)
    target = "at most 0.5 on REST" if catalog != "SQLite" else ""
    return compared(
        f"publish {TABLES} tables in one commit, {catalog}",
        measured["together"],
        f"{TABLES} publications of one table",
        measured["each"],
        target=target,
    )


def _demo_runs() -> Row:
    """All days of the demo in one run of a process that is warm; both replace what the one before has written."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")
        project = Project(prepare(Path(folder) / "demo", rows=DEMO_ROWS, console=Console(file=StringIO())))
        days = "2026-01-01...2026-01-14"
        runs = {
            "atomic": lambda: seconds_of(
                lambda: project.run(partition_range=days, with_unpartitioned=True, atomic=True)
            ),
            "plain": lambda: seconds_of(lambda: project.run(partition_range=days, with_unpartitioned=True)),
        }
        measured = alternately(runs, times=7)
    return compared(
        f"an atomic run of the demo, {DEMO_ROWS:,} rows",
        measured["atomic"],
        "a plain run",
        measured["plain"],
        target="at most 1.10",
    )
