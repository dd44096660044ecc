"""A catalog server that is killed and started again in the middle of a run: nothing is lost, nothing is doubled."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from tests.catalogs import rest_settings, side_lake
from tests.engines import ArrowEngine, Engine, SparkEngine
from tests.servers.seaweedfs import SeaweedFS, seaweedfs_server

from floe_core.errors import (
    CatalogConnectionError,
    CommitStateUnknownError,
    FloeError,
    FloeStorageError,
    TableNotFoundError,
)
from floe_core.identifiers import TableIdentifier
from floe_iceberg import Lake

QUICK = "  retry: {initial_wait_seconds: 0.5, max_wait_seconds: 2, jitter_seconds: 0.2, max_attempts: 6}\n"


class Restarts:
    """Kills the server, and starts it again, whenever so many writes were made."""

    def __init__(self, server: SeaweedFS, moments: list[int]) -> None:
        self._server, self._moments = server, moments
        self._thread: threading.Thread | None = None

    def after(self, writes: int) -> None:
        if self._moments and writes >= self._moments[0]:
            self._moments.pop(0)
            self.wait()
            self._thread = threading.Thread(target=self._restart)
            self._thread.start()

    def _restart(self) -> None:
        time.sleep(0.05)  # in the middle of the next write
        self._server.stop(kill=True)
        self._server.start()

    def wait(self) -> None:
        if self._thread is not None:
            self._thread.join()


@pytest.mark.parametrize(
    ("kind", "writes", "moments"),
    [
        pytest.param(ArrowEngine, 100, [20, 50, 80], id="arrow", marks=pytest.mark.full),
        pytest.param(SparkEngine, 30, [8, 20], id="spark", marks=pytest.mark.full),
    ],
)
def test_a_server_killed_and_started_again_loses_no_row_and_doubles_none(
    lake: Lake, tmp_path: Path, table: TableIdentifier, kind: type[ArrowEngine], writes: int, moments: list[int]
) -> None:
    with seaweedfs_server(tmp_path / "server") as server:
        engine: Engine = kind(side_lake(lake, tmp_path / "lake", rest_settings(server, catalog=QUICK)))
        engine.write(table, pa.table({"id": [-1]}), mode="append")
        restarts, failures = Restarts(server, moments), Counter[type[FloeError]]()
        for number in range(writes):
            restarts.after(number)
            for _ in range(60):
                try:
                    # As a run that is tried again: the same write has the same id.
                    engine.write(table, pa.table({"id": [number]}), mode="append", write_id=f"write-{number}")
                    break
                except FloeStorageError as exc:
                    failures[type(exc)] += 1
                    time.sleep(0.3)
            else:
                pytest.fail(f"write {number} did not succeed: {failures}")
        restarts.wait()
        assert moments == []
        rows = Counter(engine.read(table)["id"].to_pylist())
        assert rows == Counter(range(-1, writes))
        assert len(engine.lake.tables.list_snapshots(table)) >= writes + 1
        # Nothing but the truth was said: it was away, or nobody could know. While SeaweedFS starts, it says 404.
        told = {CatalogConnectionError, CommitStateUnknownError, FloeStorageError, TableNotFoundError}
        assert set(failures) <= told
