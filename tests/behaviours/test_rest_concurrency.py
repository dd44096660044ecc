"""Writers of both engines at once on a catalog server: every acknowledged row is there once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from tests.catalogs import rest_settings
from tests.engines import BY_DAY, days, events, rows_of
from tests.faults.processes import Project, Writer
from tests.servers.seaweedfs import SeaweedFS

from floe_core.compiler import compile_project
from floe_core.errors import ConcurrencyConflictError
from floe_core.identifiers import TableIdentifier
from floe_spark import Lake

APPENDS = 12


@pytest.fixture(scope="module")
def project(server: SeaweedFS, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project that other processes open; they do not have this one's environment."""
    root = tmp_path_factory.mktemp("served")
    (root / "secret").write_text(server.secret)
    settings = rest_settings(server).replace("${env:FLOE_TEST_REST_SECRET}", "${file:secret}")
    (root / "floe.yaml").write_text(f"name: tests\n{settings}")
    artifacts = compile_project(root).artifacts
    artifacts.write()
    return Project(artifacts)


@pytest.fixture(scope="module")
def writers(project: Project) -> Iterator[list[Writer]]:
    """Three processes that write with Arrow, and one with Spark."""
    made = [Writer(project, kind) for kind in ("arrow", "arrow", "arrow", "spark")]
    for one in made:
        one.wait_until_ready()
    yield made
    for one in made:
        one.close()


@pytest.fixture
def here(project: Project) -> Lake:
    return project.open()


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


def test_a_table_that_three_create_at_once_is_one_table(
    writers: list[Writer], here: Lake, table: TableIdentifier
) -> None:
    """SeaweedFS acknowledges several creations at once and keeps one: Floe looks, and appends to that."""
    for number in range(5):
        one = TableIdentifier(namespace=table.namespace, name=f"events_{number}")

        def create(place: int, one: TableIdentifier = one) -> None:
            writers[place].write(one, pa.table({"id": [place]}), mode="append")

        with ThreadPoolExecutor(3) as pool:
            list(pool.map(create, range(3)))
        assert sorted(here.tables.scan(one).to_arrow()["id"].to_pylist()) == [0, 1, 2]


def test_a_writer_killed_at_any_moment_is_repeated_without_a_second_write(
    project: Project, here: Lake, table: TableIdentifier, tmp_path: Path
) -> None:
    here.tables.write_data(table, pa.table({"id": [-1]}), mode="append")
    for number, moment in enumerate(("while it stages files", "before the commit", "after the commit")):
        victim = Writer(project, "arrow", dies=moment)
        victim.wait_until_ready()
        victim.ask(table, pa.table({"id": [number]}), mode="append", write_id=f"write-{number}")
        victim.wait_until_dead()
        here.tables.write_data(table, pa.table({"id": [number]}), mode="append", write_id=f"write-{number}")
    assert Counter(here.tables.scan(table).to_arrow()["id"].to_pylist()) == Counter(range(-1, 3))
