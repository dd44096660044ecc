"""Many who create the same table or the same namespaces at once."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pyarrow as pa
import pytest
from tests.lakes import open_manager

from floe_core.errors import TableAlreadyExistsError
from floe_core.identifiers import Namespace, TableIdentifier

T = TableIdentifier.from_string("bronze.raw.deep.orders")
OTHER = TableIdentifier.from_string("silver.clean.orders")
SCHEMA = pa.schema([("n", pa.int64())])


def create(root: Path, together: Barrier | threading.Barrier, if_not_exists: bool, name: TableIdentifier = T) -> str:
    """The uuid of the table that was created or found, or that it was there already."""
    manager = open_manager(root)
    together.wait(60)
    try:
        return str(manager.create_table(name, SCHEMA, if_not_exists=if_not_exists).metadata.table_uuid)
    except TableAlreadyExistsError:
        return "there already"


def create_both_ways(root: Path, together: Barrier, outcomes: Queue[tuple[str, str]]) -> None:
    try:
        outcomes.put((create(root, together, True), create(root, together, False, OTHER)))
    except BaseException as exc:
        outcomes.put((repr(exc), repr(exc)))
        raise


def in_threads(count: int, work: Callable[[int, threading.Barrier], str]) -> list[str]:
    together = threading.Barrier(count)
    outcomes: list[str] = []

    def run(number: int) -> None:
        try:
            outcomes.append(work(number, together))
        except Exception as exc:  # noqa: BLE001 - whatever it was, the test must see it
            outcomes.append(repr(exc))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def assert_one_table(root: Path, outcomes: list[str], *, if_not_exists: bool, name: TableIdentifier = T) -> None:
    uuid = str(open_manager(root).load_table(name).metadata.table_uuid)
    others = [uuid if if_not_exists else "there already"] * (len(outcomes) - 1)
    assert sorted(outcomes) == sorted([uuid, *others])


@pytest.mark.parametrize("if_not_exists", [True, False])
@pytest.mark.parametrize("round_", range(3))
def test_threads_that_create_one_table_get_one_table(tmp_path: Path, if_not_exists: bool, round_: int) -> None:
    del round_  # a race is worth a few looks
    outcomes = in_threads(8, lambda _, together: create(tmp_path, together, if_not_exists))
    assert_one_table(tmp_path, outcomes, if_not_exists=if_not_exists)


@pytest.mark.full
def test_processes_that_create_one_table_get_one_table(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    together, outcomes = context.Barrier(3), context.Queue()
    processes = [context.Process(target=create_both_ways, args=(tmp_path, together, outcomes)) for _ in range(3)]
    for process in processes:
        process.start()
    found = [outcomes.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
    assert_one_table(tmp_path, [one for one, _ in found], if_not_exists=True)
    assert_one_table(tmp_path, [other for _, other in found], if_not_exists=False, name=OTHER)


def test_one_manager_that_many_threads_use_gets_one_table(tmp_path: Path) -> None:
    manager = open_manager(tmp_path)

    def work(_: int, together: threading.Barrier) -> str:
        together.wait(60)
        return str(manager.create_table(T, SCHEMA, if_not_exists=True).metadata.table_uuid)

    assert_one_table(tmp_path, in_threads(8, work), if_not_exists=True)


def test_missing_parents_may_be_created_by_many_at_once(tmp_path: Path) -> None:
    wanted = ["a.b.c.d", "a.b.c", "a.b.x", "a.y", "a.b.c.d", "a.b.x.z", "a", "a.b"]

    def work(number: int, together: threading.Barrier) -> str:
        manager = open_manager(tmp_path)
        together.wait(60)
        manager.ensure_namespace(Namespace.from_string(wanted[number]))
        return "done"

    assert in_threads(len(wanted), work) == ["done"] * len(wanted)
    plugin = open_manager(tmp_path).catalog_plugin
    assert plugin.list_namespaces() == ["a"]
    assert plugin.list_namespaces("a") == ["a.b", "a.y"]
    assert plugin.list_namespaces("a.b") == ["a.b.c", "a.b.x"]
    assert (plugin.list_namespaces("a.b.c"), plugin.list_namespaces("a.b.x")) == (["a.b.c.d"], ["a.b.x.z"])


def test_tables_of_one_new_namespace_may_be_created_at_once(tmp_path: Path) -> None:
    def work(number: int, together: threading.Barrier) -> str:
        manager = open_manager(tmp_path)
        together.wait(60)
        manager.create_table(TableIdentifier.from_string(f"new.deep.t{number}"), SCHEMA)
        return "done"

    assert in_threads(8, work) == ["done"] * 8
    listed = open_manager(tmp_path).list_tables(Namespace.from_string("new.deep"))
    assert [one.name for one in listed] == [f"t{number}" for number in range(8)]
