"""Writers of both engines at once on a catalog server: every acknowledged row is there once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from tests.catalogs import rest_settings, side_lake
from tests.engines import BY_DAY, days, events, rows_of
from tests.faults.processes import Project, Writer
from tests.faults.proxy import Answer, Request, fault_proxy
from tests.servers.seaweedfs import SeaweedFS

from floe_core.compiler import compile_project
from floe_core.errors import ConcurrencyConflictError
from floe_core.identifiers import TableIdentifier
from floe_iceberg import Lake

APPENDS = 12


@pytest.fixture(scope="module")
def served(server: SeaweedFS, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project that other processes open; they do not have this one's environment."""
    root = tmp_path_factory.mktemp("served")
    (root / "secret").write_text(server.secret)
    settings = rest_settings(server).replace("${env:FLOE_TEST_REST_SECRET}", "${file:secret}")
    (root / "floe.yaml").write_text(f"name: tests\n{settings}")
    artifacts = compile_project(root).artifacts
    artifacts.write()
    return Project(artifacts)


@pytest.fixture(scope="module")
def writers(served: Project) -> Iterator[list[Writer]]:
    """Three processes that write with Arrow, and one with Spark."""
    made = [Writer(served, kind) for kind in ("arrow", "arrow", "arrow", "spark")]
    for one in made:
        one.wait_until_ready()
    yield made
    for one in made:
        one.close()


@pytest.fixture
def here(served: Project) -> Lake:
    return served.open()


@pytest.mark.full  # four processes
def test_appends_of_four_processes_all_land_once(writers: list[Writer], here: Lake, table: TableIdentifier) -> None:
    here.tables.write_data(table, pa.table({"id": [-1]}), mode="append")

    def append(place: int) -> None:
        for number in range(APPENDS):
            writers[place].write(table, pa.table({"id": [place * 1000 + number]}), mode="append")

    with ThreadPoolExecutor(len(writers)) as pool:
        list(pool.map(append, range(len(writers))))
    expected = Counter([-1, *(place * 1000 + number for place in range(len(writers)) for number in range(APPENDS))])
    assert Counter(here.tables.scan(table).to_arrow()["id"].to_pylist()) == expected
    assert Counter(writers[3].read(table)["id"].to_pylist()) == expected


@pytest.mark.full  # four processes
def test_a_slice_holds_the_rows_of_one_writer(writers: list[Writer], here: Lake, table: TableIdentifier) -> None:
    here.tables.write_data(table, events(0, 1, 2), mode="append", partition_by=BY_DAY)
    conflicts = 0

    def replace(place: int) -> None:
        nonlocal conflicts
        for number in range(4):
            new = events(1, rows=5, note=f"{place}-{number}")
            try:
                writers[place].write(table, new, mode="overwrite", slice=days(1))
            except ConcurrencyConflictError:
                conflicts += 1

    with ThreadPoolExecutor(len(writers)) as pool:
        list(pool.map(replace, range(len(writers))))
    rows = here.tables.scan(table).to_arrow()
    assert len({row[2] for row in rows_of(rows) if row[2] != "v1"}) == 1
    assert sum(note != "v1" for note in rows["note"].to_pylist()) == 5
    assert rows.num_rows == 25
    assert conflicts < 16


def test_a_creation_that_was_acknowledged_and_not_kept_is_appended(
    lake: Lake,
    server: SeaweedFS,
    here: Lake,
    table: TableIdentifier,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SeaweedFS acknowledges several creations at once and keeps one: Floe looks, and appends to that."""
    with fault_proxy(server.catalog_uri) as proxy:
        # With its own keys: vended ones would be those of the table that is not kept.
        monkeypatch.setenv("FLOE_TEST_S3_KEY", server.key)
        keys = ', access_key_id: "${env:FLOE_TEST_S3_KEY}", secret_access_key: "${env:FLOE_TEST_REST_SECRET}"'
        settings = rest_settings(server, uri=proxy.uri, catalog="  access_delegation: none\n", storage=keys)
        writing = side_lake(lake, tmp_path, settings).tables

        def lost_to_somebody_else(request: Request, forward: Callable[..., Answer]) -> Answer | None:
            if b"assert-create" not in request.body:
                return forward()
            here.tables.write_data(table, pa.table({"id": [1]}), mode="append")
            return forward(path=f"{request.path}_not_kept")

        with proxy.intercepted(lost_to_somebody_else):
            result = writing.write_data(table, pa.table({"id": [2]}), mode="append")
    assert sorted(here.tables.scan(table).to_arrow()["id"].to_pylist()) == [1, 2]
    assert here.tables.current_snapshot(table) == result


def test_a_writer_killed_at_any_moment_is_repeated_without_a_second_write(
    served: Project, here: Lake, table: TableIdentifier, tmp_path: Path
) -> None:
    here.tables.write_data(table, pa.table({"id": [-1]}), mode="append")
    for number, moment in enumerate(("while it stages files", "before the commit", "after the commit")):
        victim = Writer(served, "arrow", dies=moment)
        victim.wait_until_ready()
        victim.ask(table, pa.table({"id": [number]}), mode="append", write_id=f"write-{number}")
        victim.wait_until_dead()
        here.tables.write_data(table, pa.table({"id": [number]}), mode="append", write_id=f"write-{number}")
    assert Counter(here.tables.scan(table).to_arrow()["id"].to_pylist()) == Counter(range(-1, 3))
