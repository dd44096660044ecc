"""Atomic runs that are killed between any two calls of the catalog, whose responses are lost, or that meet a conflict.

Whoever reads five tables at one moment sees a run in all of them or in none; and every third run is undone.
"""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from tests.catalogs import SideLake, polaris_settings, rest_settings
from tests.faults.atomic_job import TABLES
from tests.faults.proxy import advertising, fault_proxy
from tests.servers.postgres import PASSWORD, postgres_server

from floe_core.compiler import compile_project
from floe_core.errors import ConcurrencyConflictError, TableNotFoundError
from floe_iceberg import Lake
from floe_iceberg.snapshots import StagingBranch

pytestmark = [pytest.mark.full, pytest.mark.every_catalog]

LOG = logging.getLogger(__name__)
ROOT = Path(__file__).parents[2]
# FLOE_TEST_RUNS=30 is the number before a release.
RUNS = int(os.environ.get("FLOE_TEST_RUNS", "12"))
KINDS = ("well", "kill", "lost", "kill", "conflict", "kill")


@dataclass
class Runner:
    """The process that forks the runs."""

    process: subprocess.Popen[str]

    def run(self, number: int, run_id: str, **how: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"number": number, "run_id": run_id, **how}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read() if self.process.stderr else ""
        told: dict[str, Any] = json.loads(line)
        return told


@contextmanager
def runner(folder: Path, namespace: str) -> Iterator[Runner]:
    command = [sys.executable, "-m", "tests.faults.atomic_job", str(folder), namespace]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        yield Runner(process)
        assert process.stdin is not None
        process.stdin.close()
        process.wait(60)


@dataclass
class Readers:
    """Read the five tables all the while: by `at_once`, and as programs would that know only PyIceberg or Spark."""

    lake: Lake
    spark: SparkSession
    names: list[str]
    looks: dict[str, int] = field(default_factory=lambda: {"at_once": 0, "bare": 0, "spark": 0})
    wrong: list[Any] = field(default_factory=list)
    _ended: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self) -> Iterator[None]:
        looks = (self._at_once, self._bare, self._by_spark)
        threads = [threading.Thread(target=self._each, args=(look,)) for look in looks]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._ended.set()
            for thread in threads:
                thread.join()

    def _each(self, look: Callable[[], tuple[str, list[Any]] | None]) -> None:
        while not self._ended.is_set():
            try:
                seen = look()
            except (ConcurrencyConflictError, TableNotFoundError):
                continue
            except Exception as exc:  # noqa: BLE001 - the test fails with it
                self.wrong.append(exc)
                return
            if seen is not None:
                self.looks[seen[0]] += 1
                if len(set(seen[1])) > 1:
                    self.wrong.append(seen)

    def _at_once(self) -> tuple[str, list[Any]]:
        heads = self.lake.at_once(self.names)
        return "at_once", [value_of(lambda head=head: head.scan().to_arrow()) for head in heads.values()]  # type: ignore[misc]

    def _bare(self) -> tuple[str, list[Any]] | None:
        catalog: Any = self.lake.tables.catalog_plugin.connect()
        first = self._loaded(catalog)
        second = self._loaded(catalog)
        if [one.metadata_location for one in first] != [one.metadata_location for one in second]:
            return None
        return "bare", [value_of(lambda table=table: table.scan().to_arrow()) for table in second]  # type: ignore[misc]

    def _by_spark(self) -> tuple[str, list[Any]] | None:
        tables = [f"{self.lake.tables.catalog_name}.{name}" for name in self.names]
        heads = [f"SELECT '{table}', snapshot_id FROM {table}.refs WHERE name = 'main'" for table in tables]
        try:
            first, second = (dict(self._union(heads)) for _ in range(2))
            if first != second:
                return None
            values = self._union(f"SELECT max(v) FROM {table} VERSION AS OF {head}" for table, head in second.items())
        except AnalysisException as exc:
            if exc.getCondition() == "TABLE_OR_VIEW_NOT_FOUND":
                raise TableNotFoundError("not all of them exist yet") from exc
            raise
        return "spark", [value for (value,) in values]

    def _union(self, queries: Iterable[str]) -> list[Any]:
        return self.spark.sql(" UNION ALL ".join(queries)).collect()

    def _loaded(self, catalog: Any) -> list[Any]:
        try:
            return [catalog.load_table(name) for name in self.names]
        except Exception as exc:
            raise TableNotFoundError("not all of them exist yet") from exc


def value_of(read: Callable[[], Any]) -> int | None:
    """The number of the run that a table shows; None if it is not published, or empty."""
    try:
        values = read()["v"].to_pylist()
    except TableNotFoundError:
        return None
    return values[0] if values else None


@pytest.fixture(params=["embedded", "postgres", "rest", "polaris"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A project on each catalog."""
    with ExitStack() as stack:
        if request.param == "embedded":
            settings = "name: killed\n"
        elif request.param == "postgres":
            server = stack.enter_context(postgres_server())
            server.run("CREATE DATABASE killed")
            (tmp_path / "password").write_text(quote(PASSWORD, safe=""), encoding="utf-8")
            uri = server.uri("killed", password="${file:password}")
            settings = f'name: killed\ncatalog: {{type: sql, uri: "{uri}"}}\n'
        elif request.param == "rest":
            weed = request.getfixturevalue("server")
            proxy = stack.enter_context(fault_proxy(weed.catalog_uri))
            proxy.intercept = advertising
            settings = f"name: killed\n{rest_settings(weed, uri=proxy.uri)}"
        else:
            settings = f"name: killed\n{polaris_settings()}"
        (tmp_path / "floe.yaml").write_text(settings, encoding="utf-8")
        compile_project(tmp_path).artifacts.write()
        yield tmp_path


def test_readers_see_a_run_in_all_tables_or_in_none(
    lake: Lake, folder: Path, namespace: str, request: pytest.FixtureRequest
) -> None:
    own = SideLake(compile_project(folder).artifacts, lake)
    spark, lake = own.spark, own
    names = [f"{namespace}.{name}" for name in TABLES]
    readers, chance = Readers(lake, spark, names), random.Random(20261119)
    outcomes: dict[str, int] = {}
    shown: int | None = None
    calls = 20
    with runner(folder, namespace) as runs, readers.running():
        for number in range(1, RUNS + 1):
            run_id = str(uuid.uuid4())
            kind = KINDS[(number - 1) % len(KINDS)]
            how = {"kill_at": chance.randint(1, calls)} if kind == "kill" else {"fault": kind}
            told = runs.run(number, run_id, **how)
            calls = max(calls, told.get("calls", 0))
            assert told["code"] in (0, -signal.SIGKILL)
            lake.tables.finish_publications()
            values = {value_of(lambda name=name: lake.tables.scan(name).to_arrow()) for name in names}  # type: ignore[misc]
            assert values in ({number}, {shown}), (number, kind, told, values)
            published = values == {number}
            assert published or kind in ("kill", "conflict"), (number, kind, told)
            outcomes[kind] = outcomes.get(kind, 0) + 1
            if published and number % 3 == 0:
                lake.tables.undo(run_id)
                values = {value_of(lambda name=name: lake.tables.scan(name).to_arrow()) for name in names}  # type: ignore[misc]
                assert values == {shown}, number
                outcomes["undone"] = outcomes.get("undone", 0) + 1
            elif published:
                shown = number
            for name in names:
                lake.tables.abandon_branch(name, StagingBranch.of_run(run_id))
    assert readers.wrong == []
    own.step_aside()
    assert min(readers.looks.values()) >= RUNS / 3, readers.looks
    assert outcomes.keys() >= {"well", "kill", "lost", "conflict", "undone"}, outcomes
    catalog: Any = lake.tables.catalog_plugin.connect()
    assert [one for one in catalog.list_namespaces() if one[0].startswith("floe_journal_")] == []
    LOG.info("%s: %s runs %s, looks %s", request.node.name, RUNS, outcomes, readers.looks)
