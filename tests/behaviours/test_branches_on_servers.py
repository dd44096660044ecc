"""Branches of the lake on catalog servers: their records, several tables in one commit, and two at once."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pytest
from tests.catalogs import new_namespace, polaris_settings, rest_settings
from tests.commands import FLOE
from tests.servers.polaris import management
from tests.servers.postgres import PASSWORD, postgres_server

from floe_core import compile_project
from floe_core.config import CompiledArtifacts
from floe_core.errors import ConcurrencyConflictError, ConfigurationError, PermissionDeniedError, TableNotFoundError
from floe_core.identifiers import TableIdentifier
from floe_iceberg.branches import TableState
from floe_iceberg.catalogs import BRANCHES
from floe_iceberg.snapshots import BranchedTable, LakeBranch, Pin
from floe_runtime.project import Project

pytestmark = [pytest.mark.full, pytest.mark.every_catalog]


class Served:
    """A namespace of a catalog server, and a branch with a name of its own."""

    def __init__(self, artifacts: CompiledArtifacts) -> None:
        self.artifacts, self.namespace = artifacts, new_namespace()
        self.name = f"trial-{uuid.uuid4().hex[:8]}"
        self.orders, self.stores, self.totals = (f"{self.namespace}.{one}" for one in ("orders", "stores", "totals"))
        self.opened: list[Project] = []
        self.main = self.at("main")

    def at(self, branch: str) -> Project:
        self.opened.append(Project(self.artifacts.on_branch(branch)))
        _ = self.opened[-1].tables
        return self.opened[-1]

    def begin(self) -> None:
        for name in (self.orders, self.stores):
            self.main.tables.write_data(name, rows(1), mode="append")

    @property
    def trial(self) -> Project:
        return self.at(self.name)

    @property
    def one_by_one(self) -> bool:
        """Does the server commit one table at a time only?"""
        return self.main.tables.refuses_many_tables is not None

    def ids(self, table: str, branch: str = "main") -> list[int]:
        return sorted(self.at(branch).tables.scan(table).to_arrow()["id"].to_pylist())

    def namespaces(self) -> list[str]:
        """All of the catalog, also those that Floe does not list."""
        return [levels[0] for levels in self.main.tables.catalog_plugin.connect().list_namespaces()]


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


@pytest.fixture(scope="module", params=["postgres", "rest", "polaris"])
def artifacts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CompiledArtifacts]:
    root = tmp_path_factory.mktemp("branches")

    def compiled(settings: str) -> CompiledArtifacts:
        (root / "floe.yaml").write_text(f"name: tests\n{settings}", encoding="utf-8")
        return compile_project(root).artifacts

    if request.param == "polaris":
        yield compiled(polaris_settings())
    elif request.param == "rest":
        yield compiled(rest_settings(request.getfixturevalue("server")))
    else:
        with postgres_server() as running:
            (root / "password").write_text(quote(PASSWORD, safe=""), encoding="utf-8")
            yield compiled(f'catalog: {{type: sql, uri: "{running.uri(password="${file:password}")}"}}\n')


@pytest.fixture
def served(artifacts: CompiledArtifacts) -> Iterator[Served]:
    made = Served(artifacts)
    yield made
    for name in [one.name for one in made.main.branches.list()]:
        if name == made.name:
            made.main.branches.discard(name)
    for table in made.main.tables.find_tables(made.namespace) if made.namespace in made.namespaces() else ():
        made.main.tables.drop_table(table, purge=True)
    for lake in made.opened:
        lake.close()


def test_tables_are_written_reviewed_and_published_in_one_commit(served: Served) -> None:
    served.begin()
    trial = served.trial
    trial.tables.write_data(served.orders, rows(2), mode="append")
    trial.tables.write_data(served.stores, rows(3), mode="overwrite")
    trial.tables.write_data(served.totals, rows(4), mode="append")
    assert [served.ids(one, served.name) for one in (served.orders, served.stores, served.totals)] == [[1, 2], [3], [4]]
    assert (served.ids(served.orders), served.ids(served.stores)) == ([1], [1])
    with pytest.raises(TableNotFoundError, match=f"--branch {served.name}"):
        served.ids(served.totals)
    found = {one.table: (one.rows_added, one.rows_removed) for one in served.main.branches.diff(served.name)}
    assert found == {served.orders: (1, 0), served.stores: (1, 1), served.totals: (1, 0)}
    if served.one_by_one:
        with pytest.raises(ConfigurationError, match="does not offer commits of several tables"):
            served.main.branches.publish(served.name)
        assert served.ids(served.orders) == [1]
        served.trial.tables.write_data(served.orders, rows(), mode="append")  # it can be written to as before
    published = served.main.branches.publish(served.name, one_by_one=served.one_by_one)
    assert {one.table: one.created for one in published.tables} == {
        served.orders: False,
        served.stores: False,
        served.totals: True,
    }
    assert [served.ids(one) for one in (served.orders, served.stores, served.totals)] == [[1, 2], [3], [4]]
    for name in (served.orders, served.stores, served.totals):
        assert served.main.tables.load_table(name).metadata.refs.keys() == {"main"}
    assert served.name not in [one.name for one in served.main.branches.list()]


def test_main_that_moved_is_put_below_or_named(served: Served) -> None:
    served.begin()
    served.trial.tables.write_data(served.orders, rows(2), mode="append")
    served.trial.tables.write_data(served.stores, rows(2), mode="overwrite")
    served.main.tables.write_data(served.orders, rows(9), mode="append")
    served.main.tables.write_data(served.stores, rows(9), mode="append")
    states = {one.table: one.state for one in served.main.branches.show(served.name).tables}
    assert states == {served.orders: TableState.BEHIND, served.stores: TableState.CONFLICT}
    with pytest.raises(ConcurrencyConflictError, match=served.stores):
        served.main.branches.publish(served.name, one_by_one=served.one_by_one)
    assert served.ids(served.orders) == [1, 9]
    served.main.branches.update(served.name, restart=True)
    assert (served.ids(served.orders, served.name), served.ids(served.stores, served.name)) == ([1, 2, 9], [1, 9])
    served.main.branches.publish(served.name, one_by_one=served.one_by_one)
    assert (served.ids(served.orders), served.ids(served.stores)) == ([1, 2, 9], [1, 9])


def test_what_is_discarded_leaves_nothing(served: Served) -> None:
    served.begin()
    served.trial.tables.write_data(served.orders, rows(2), mode="append")
    served.trial.tables.write_data(served.totals, rows(4), mode="append")
    table = served.trial.tables.scan(served.orders)
    added = {task.file.file_path for task in table.plan_files()}
    added -= {task.file.file_path for task in served.main.tables.scan(served.orders).plan_files()}
    io = served.main.tables.load_table(served.orders).io
    assert [io.new_input(path).exists() for path in added] == [True]
    served.main.branches.discard(served.name)
    assert [io.new_input(path).exists() for path in added] == [False]
    assert served.ids(served.orders) == [1]
    assert not served.main.tables.table_exists(served.totals)
    assert served.main.tables.load_table(served.orders).metadata.refs.keys() == {"main"}


def test_records_of_branches_are_in_namespaces_that_are_not_listed(served: Served) -> None:
    served.begin()
    served.main.branches.create(served.name)
    assert [one for one in served.namespaces() if one.startswith(BRANCHES)]
    assert not [one for one in served.main.tables.list_namespaces() if str(one).startswith(BRANCHES)]
    before = set(served.namespaces())
    served.main.branches.discard(served.name)
    assert len(before - set(served.namespaces())) == 1


def test_a_record_keeps_thousands_of_tables_and_what_replaces_them(served: Served) -> None:
    records = served.main.tables.branch_records
    names = [
        TableIdentifier.from_string(f"a_rather_long_namespace.table_with_a_long_name_{one}") for one in range(2000)
    ]
    pins = {name: Pin(uuid.uuid4(), 2**62 + place) for place, name in enumerate(names)}
    branch = LakeBranch(served.name, 1, 2, 3, pins)
    assert records.create(branch)
    try:
        assert not records.create(branch)
        assert records.find(served.name) == branch
        fewer = {names[0]: Pin(uuid.uuid4(), None)}
        records.pin(served.name, fewer, 7)
        written = BranchedTable(names[1], uuid.uuid4(), opened=True)
        records.add_table(served.name, replace(written, opened=False))
        records.add_table(served.name, written)
        records.touch(served.name, 9)
        expected = LakeBranch(served.name, 1, 7, 9, fewer, {written.identifier: written})
        assert records.find(served.name) == expected
        records.begin_publication(served.name, [{"table": "a"}, {"table": "b"}])
        assert records.publication(served.name) == [{"table": "a"}, {"table": "b"}]
        records.end_publication(served.name)
        assert records.publication(served.name) == []
        records.remove_tables(served.name, [written.identifier])
        assert records.find(served.name) == replace(expected, tables={})
    finally:
        records.remove(served.name)
    assert records.find(served.name) is None
    with pytest.raises(ConfigurationError, match="was discarded or published by another process"):
        records.touch(served.name, 1)


def test_two_processes_that_publish_at_once_publish_once(served: Served) -> None:
    served.begin()
    served.trial.tables.write_data(served.orders, rows(2), mode="append")
    served.trial.tables.write_data(served.stores, rows(2), mode="append")
    served.main.tables.write_data(served.orders, rows(9), mode="append")  # so that both put it on top
    command = [FLOE, "branches", "publish", served.name, "--one-by-one", "--json"]
    started = [
        subprocess.Popen(command, cwd=served.artifacts.root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [process.communicate(timeout=120) for process in started]
    codes = [process.returncode for process in started]
    assert 0 in codes, said
    assert all(code == 0 or served.name in out for code, (out, _err) in zip(codes, said, strict=True)), said
    assert (served.ids(served.orders), served.ids(served.stores)) == ([1, 2, 9], [1, 2])
    assert served.name not in [one.name for one in served.main.branches.list()]


def test_two_processes_that_create_a_branch_at_once_share_it(served: Served) -> None:
    served.begin()
    program = (
        "import sys; from floe_runtime import connect\n"
        "with connect(branch=sys.argv[1]) as lake: print(lake.tables.scan(sys.argv[2]).count())"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", program, served.name, served.orders],
            cwd=served.artifacts.root,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    said = [process.communicate(timeout=120) for process in started]
    assert [out.strip() for out, _err in said] == ["1", "1"], said
    assert [one.name for one in served.main.branches.list()].count(served.name) == 1


@pytest.mark.usefixtures("polaris")
def test_a_principal_that_may_not_create_namespaces_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = ("NAMESPACE_LIST", "NAMESPACE_READ_PROPERTIES", "TABLE_LIST", "TABLE_READ_DATA", "TABLE_READ_PROPERTIES")
    with management() as admin:
        client_id, _, secret = admin.principal(*own).partition(":")
        monkeypatch.setenv("FLOE_TEST_OTHER_SECRET", secret)
        text = polaris_settings().replace("${env:FLOE_TEST_POLARIS_ID}", client_id)
        text = text.replace("${env:FLOE_TEST_POLARIS_SECRET}", "${env:FLOE_TEST_OTHER_SECRET}")
        (tmp_path / "floe.yaml").write_text(f"name: tests\n{text}", encoding="utf-8")
        with Project(compile_project(tmp_path).artifacts) as lake:
            with pytest.raises(PermissionDeniedError, match="recorded in the catalog, as a namespace"):
                lake.branches.create("trial")
            assert list(lake.branches.list()) == []
