"""Several tables are published by one commit: all of them or none, whatever the catalog answers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, ForbiddenError
from pyiceberg.table.update import RemoveSnapshotRefUpdate
from tests.lakes import open_manager

from floe_core.errors import (
    CommitStateUnknownError,
    ConcurrencyConflictError,
    ConfigurationError,
    FloeError,
    FloeStorageError,
    PermissionDeniedError,
    TableNotFoundError,
)
from floe_core.models import PartitionTransform, PartitionTransformType
from floe_iceberg import AddColumn, DropColumn, IcebergTableManager
from floe_iceberg.branches import Branches
from floe_iceberg.catalogs import TableChange
from floe_iceberg.catalogs.storage_catalog import StorageCatalog
from floe_iceberg.snapshots import StagingBranch
from floe_iceberg.transactions import HeadAssertion, HeadMove, NewTable, head_of, publish, recover

NAMES = ("silver.orders", "silver.stores", "gold.revenue")
BRANCH = "july"


@pytest.fixture
def tables(tmp_path: Path) -> IcebergTableManager:
    manager = open_manager(tmp_path)
    for name in NAMES:
        manager.write_data(name, pa.table({"id": [1], "note": ["first"]}), mode="append")
    return manager


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pauses between attempts."""
    monkeypatch.setattr("floe_iceberg.backoff.delay", lambda _: 0.0)
    monkeypatch.setattr("floe_iceberg.transactions.publication.delay", lambda _: 0.0)


def stage(tables: IcebergTableManager, *names: str, id: int = 2) -> None:  # noqa: A002 - the column
    for name in names or NAMES:
        tables.create_branch(name, BRANCH)
        tables.write_data(name, pa.table({"id": [id], "note": ["staged"]}), mode="append", branch=BRANCH)


def moves(tables: IcebergTableManager, *names: str) -> list[HeadMove]:
    made = []
    for name in names or NAMES:
        table = tables.load_table(name)
        ref = table.metadata.refs[BRANCH]
        made.append(
            HeadMove(_id(tables, name), table.metadata.table_uuid, BRANCH, head_of(table.metadata), ref.snapshot_id)
        )
    return made


def _id(tables: IcebergTableManager, name: str) -> Any:
    return next(found for found in tables.find_tables() if str(found) == name)


def ids(tables: IcebergTableManager, name: str, **at: Any) -> list[int]:
    return sorted(tables.scan(name, **at).to_arrow()["id"].to_pylist())


def rows(tables: IcebergTableManager) -> dict[str, list[int]]:
    return {name: ids(tables, name) for name in NAMES}


def everywhere(expected: list[int]) -> dict[str, list[int]]:
    return dict.fromkeys(NAMES, expected)


def catalog_of(tables: IcebergTableManager) -> StorageCatalog:
    catalog = tables.catalog_plugin.connect()
    assert isinstance(catalog, StorageCatalog)
    return catalog


def journal(tables: IcebergTableManager) -> list[Any]:
    return [name for name in catalog_of(tables).list_namespaces() if name[0].startswith("floe_journal_")]


Commit = Callable[[Sequence[TableChange]], None]


@contextmanager
def server(
    tables: IcebergTableManager, monkeypatch: pytest.MonkeyPatch, *script: Callable[[Commit, Any], None]
) -> Iterator[None]:
    """A catalog that does not promise atomicity, and whose first multi-table commits go as the script says."""
    catalog, waiting = catalog_of(tables), list(script)
    commit = catalog.commit_tables

    def commit_tables(changes: Sequence[TableChange]) -> None:
        if waiting:
            waiting.pop(0)(commit, changes)
        else:
            commit(changes)

    with monkeypatch.context() as patch:
        patch.setattr(type(catalog), "is_atomic", False)
        patch.setattr(catalog, "commit_tables", commit_tables)
        yield
    assert not waiting, f"{len(waiting)} faults were not met"


def first(count: int, error: Exception | None = None) -> Callable[[Commit, Any], None]:
    """Only the first tables are committed."""

    def fault(commit: Commit, changes: Any) -> None:
        commit(changes[:count])
        if error is not None:
            raise error

    return fault


def lost(commit: Commit, changes: Any) -> None:
    commit(changes)
    raise CommitStateUnknownException("the response was lost")


def unanswered(commit: Commit, changes: Any) -> None:
    raise CommitStateUnknownException("the server did not answer")


def test_the_branches_of_three_tables_are_published_together(tables: IcebergTableManager) -> None:
    stage(tables)
    published = tables.publish(dict.fromkeys(NAMES, BRANCH))
    assert rows(tables) == everywhere([1, 2])
    assert {str(name): head.snapshot_id for name, head in published.items()} == {
        name: tables.load_table(name).metadata.current_snapshot_id for name in NAMES
    }
    assert all(BRANCH not in tables.load_table(name).metadata.refs for name in NAMES)


def test_one_table_that_moved_keeps_all_from_being_published_and_is_named(tables: IcebergTableManager) -> None:
    stage(tables)
    tables.write_data("silver.stores", pa.table({"id": [9]}), mode="append")
    with pytest.raises(
        ConcurrencyConflictError, match=r"nothing was published: 'silver.stores': another writer moved main"
    ):
        tables.publish(dict.fromkeys(NAMES, BRANCH))
    assert rows(tables) == {**everywhere([1]), "silver.stores": [1, 9]}
    assert [ids(tables, name, ref=BRANCH) for name in NAMES] == [[1, 2]] * 3


def test_a_branch_that_began_at_a_snapshot_main_was_rolled_back_from_is_refused(tables: IcebergTableManager) -> None:
    """Publishing it would bring back the rows that somebody rolled back."""
    tables.write_data("silver.orders", pa.table({"id": [5]}), mode="append")
    stage(tables, "silver.orders")
    tables.rollback_to_snapshot("silver.orders", tables.load_table("silver.orders").snapshots()[0].snapshot_id)
    with pytest.raises(ConcurrencyConflictError, match="another writer moved main"):
        tables.publish({"silver.orders": BRANCH})
    assert ids(tables, "silver.orders") == [1]


def test_a_branch_without_commits_of_its_own_changes_nothing(tables: IcebergTableManager) -> None:
    tables.create_branch("silver.orders", BRANCH)
    tables.write_data("silver.orders", pa.table({"id": [5]}), mode="append")
    tables.publish({"silver.orders": BRANCH})
    assert ids(tables, "silver.orders") == [1, 5]


def test_all_tables_that_cannot_be_published_are_named(tables: IcebergTableManager) -> None:
    stage(tables)
    staged = moves(tables)
    tables.write_data("silver.stores", pa.table({"id": [9]}), mode="append")
    tables.drop_table("gold.revenue")
    with pytest.raises(ConcurrencyConflictError, match=r"'silver.stores': .* 'gold.revenue': the table was dropped"):
        publish(catalog_of(tables), staged)
    assert ids(tables, "silver.orders") == [1]


def _drop(tables: IcebergTableManager, name: str) -> None:
    tables.drop_table(name)


def _rename(tables: IcebergTableManager, name: str) -> None:
    tables.rename_table(name, f"{name}_old")


def _recreate(tables: IcebergTableManager, name: str) -> None:
    tables.drop_table(name)
    tables.write_data(name, pa.table({"id": [7], "note": ["new"]}), mode="append")
    stage(tables, name)


def _remove_branch(tables: IcebergTableManager, name: str) -> None:
    tables.remove_branch(name, BRANCH)


def _move_branch(tables: IcebergTableManager, name: str) -> None:
    tables.write_data(name, pa.table({"id": [8]}), mode="append", branch=BRANCH)


def _replace_column(tables: IcebergTableManager, name: str) -> None:
    tables.evolve_schema(name, DropColumn("note"), allow_incompatible_changes=True)
    tables.evolve_schema(name, AddColumn("note", pa.string()))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_drop, "the table was dropped or renamed"),
        (_rename, "the table was dropped or renamed"),
        (_recreate, "the table was dropped and created again"),
        (_remove_branch, "branch 'july' was removed"),
        (_move_branch, "branch 'july' moved from snapshot"),
        (_replace_column, "another writer changed the columns"),
    ],
)
def test_a_table_that_changed_between_staging_and_publication_is_refused(
    tables: IcebergTableManager, change: Callable[[IcebergTableManager, str], None], message: str
) -> None:
    stage(tables)
    staged = moves(tables)
    change(tables, "silver.stores")
    with pytest.raises(ConcurrencyConflictError, match=f"nothing was published: 'silver.stores': {message}"):
        publish(catalog_of(tables), staged)
    assert ids(tables, "silver.orders") == ids(tables, "gold.revenue") == [1]


def test_a_table_whose_partitioning_or_columns_grew_is_published_with_its_rows(tables: IcebergTableManager) -> None:
    stage(tables)
    staged = moves(tables)
    tables.evolve_partitions(
        "silver.stores", [PartitionTransform(source_column="id", transform_type=PartitionTransformType.IDENTITY)]
    )
    tables.evolve_schema("gold.revenue", AddColumn("amount", pa.float64()))
    publish(catalog_of(tables), staged)
    assert rows(tables) == everywhere([1, 2])


def test_a_table_that_was_read_must_not_have_moved(tables: IcebergTableManager) -> None:
    stage(tables, "gold.revenue")
    read = tables.load_table("silver.orders").metadata.current_snapshot_id
    tables.write_data("silver.orders", pa.table({"id": [5]}), mode="append")
    branches = {"gold.revenue": BRANCH}
    with pytest.raises(ConcurrencyConflictError, match=rf"'silver.orders': it was read at snapshot {read}"):
        tables.publish(branches, reads={"silver.orders": read})
    assert ids(tables, "gold.revenue") == [1]
    tables.publish(branches, reads={"silver.orders": read}, isolation="snapshot")
    assert ids(tables, "gold.revenue") == [1, 2]


def test_a_table_that_is_moved_after_the_check_is_a_conflict_of_the_commit(
    tables: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a moved table nor one that was only read can slip in between the check and the commit."""
    stage(tables, "gold.revenue")
    read = HeadAssertion(_id(tables, "silver.orders"), tables.load_table("silver.orders").metadata.current_snapshot_id)
    catalog = catalog_of(tables)
    commit, before = catalog.commit_tables, [True]

    def late(changes: Sequence[TableChange]) -> None:
        if before.pop() if before else False:
            tables.write_data("silver.orders", pa.table({"id": [6]}), mode="append")
        commit(changes)

    monkeypatch.setattr(catalog, "commit_tables", late)
    with pytest.raises(ConcurrencyConflictError, match="it was read at snapshot"):
        publish(catalog, moves(tables, "gold.revenue"), [read])
    assert ids(tables, "gold.revenue") == [1]


def test_two_publications_over_overlapping_tables_are_not_mixed(tables: IcebergTableManager) -> None:
    stage(tables)
    staged = moves(tables)
    other = "other"
    for name in NAMES[1:]:
        tables.create_branch(name, other)
        tables.write_data(name, pa.table({"id": [3]}), mode="append", branch=other)
    tables.publish(dict.fromkeys(NAMES[1:], other))
    with pytest.raises(ConcurrencyConflictError, match=r"'silver.stores'.*'gold.revenue'"):
        publish(catalog_of(tables), staged)
    assert rows(tables) == {"silver.orders": [1], "silver.stores": [1, 3], "gold.revenue": [1, 3]}


def test_a_publication_is_repeated_without_effect(tables: IcebergTableManager) -> None:
    stage(tables)
    staged = moves(tables)
    publish(catalog_of(tables), staged)
    publish(catalog_of(tables), staged)
    assert rows(tables) == everywhere([1, 2])
    assert len(tables.list_snapshots("silver.orders")) == 2


def test_a_lost_response_is_resolved_by_the_tables(
    tables: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage(tables)
    with server(tables, monkeypatch, lost):
        tables.publish(dict.fromkeys(NAMES, BRANCH))
    assert rows(tables) == everywhere([1, 2])
    assert journal(tables) == []


def test_a_request_that_never_arrived_is_sent_again(
    tables: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage(tables)
    with server(tables, monkeypatch, unanswered, unanswered):
        tables.publish(dict.fromkeys(NAMES, BRANCH))
    assert rows(tables) == everywhere([1, 2])


def test_a_late_request_changes_nothing_after_its_repetition(
    tables: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage(tables)
    held: list[Callable[[], None]] = []

    def hold(commit: Commit, changes: Any) -> None:
        held.append(lambda: commit(changes))
        raise CommitStateUnknownException("timeout")

    with server(tables, monkeypatch, hold):
        tables.publish(dict.fromkeys(NAMES, BRANCH))
    with pytest.raises(CommitFailedException):
        held[0]()
    assert rows(tables) == everywhere([1, 2])


@pytest.mark.parametrize("error", [None, CommitFailedException("conflict"), CommitStateUnknownException("lost")])
def test_a_server_that_applies_a_part_is_detected_and_the_rest_is_completed(
    tables: IcebergTableManager, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    stage(tables)
    with server(tables, monkeypatch, first(1, error)):
        tables.publish(dict.fromkeys(NAMES, BRANCH))
    assert rows(tables) == everywhere([1, 2])
    assert journal(tables) == []


def test_a_part_that_cannot_be_completed_is_taken_back_by_name(
    tables: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage(tables)

    def partly(commit: Commit, changes: Any) -> None:
        commit(changes[:2])
        tables.write_data("gold.revenue", pa.table({"id": [9]}), mode="append")
        raise CommitStateUnknownException("lost")

    with (
        server(tables, monkeypatch, partly),
        pytest.raises(
            ConcurrencyConflictError,
            match=r"nothing is published: 'gold.revenue': .*'silver.orders', 'silver.stores' were visible",
        ),
    ):
        tables.publish(dict.fromkeys(NAMES, BRANCH))
    assert rows(tables) == {**everywhere([1]), "gold.revenue": [1, 9]}
    assert [ids(tables, name, ref=BRANCH) for name in NAMES] == [[1, 2]] * 3
    assert journal(tables) == []


def test_a_late_request_does_not_publish_what_was_taken_back(
    tables: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage(tables)
    held: list[Callable[[], None]] = []

    def partly(commit: Commit, changes: Any) -> None:
        held.append(lambda: commit(changes[:2]))  # the rest of the request, which arrives in the end
        commit(changes[:1])
        tables.write_data("gold.revenue", pa.table({"id": [9]}), mode="append")
        raise CommitStateUnknownException("timeout")

    with server(tables, monkeypatch, partly), pytest.raises(ConcurrencyConflictError, match="nothing is published"):
        tables.publish(dict.fromkeys(NAMES, BRANCH))
    with pytest.raises(CommitFailedException):
        held[0]()
    assert rows(tables) == {**everywhere([1]), "gold.revenue": [1, 9]}
    tables.remove_branch("gold.revenue", BRANCH)
    stage(tables, "gold.revenue", id=4)
    tables.publish(dict.fromkeys(NAMES, BRANCH))  # the next publication is not kept out
    assert rows(tables) == {**everywhere([1, 2]), "gold.revenue": [1, 4, 9]}


def test_what_others_wrote_on_top_of_a_part_is_not_taken_back(
    tables: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage(tables)

    def partly(commit: Commit, changes: Any) -> None:
        commit(changes[:1])
        for name in ("silver.orders", "gold.revenue"):
            tables.write_data(name, pa.table({"id": [9]}), mode="append")
        raise CommitStateUnknownException("lost")

    with (
        server(tables, monkeypatch, partly),
        pytest.raises(FloeStorageError, match=r"the publication is incomplete: 'silver.orders' are published"),
    ):
        tables.publish(dict.fromkeys(NAMES, BRANCH))
    assert rows(tables) == {"silver.orders": [1, 2, 9], "silver.stores": [1], "gold.revenue": [1, 9]}


def test_a_server_that_acknowledges_and_applies_nothing_is_no_success(
    tables: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage(tables)
    nothing = [_nothing] * 5
    with (
        server(tables, monkeypatch, *nothing),
        pytest.raises(FloeStorageError, match=r"acknowledged the publication of .* 5 times and applied none of it"),
    ):
        tables.publish(dict.fromkeys(NAMES, BRANCH))
    assert rows(tables) == everywhere([1])
    assert journal(tables) == []


def test_a_refusal_is_not_repeated_and_the_journal_is_empty(
    tables: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage(tables)

    def forbidden(commit: Commit, changes: Any) -> None:
        raise ForbiddenError("not yours")

    with server(tables, monkeypatch, forbidden), pytest.raises(PermissionDeniedError):
        tables.publish(dict.fromkeys(NAMES, BRANCH))
    assert rows(tables) == everywhere([1])
    assert journal(tables) == []


def test_a_server_that_stays_silent_leaves_a_doubt_and_an_entry_that_the_next_publication_finishes(
    tables: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage(tables)
    with server(tables, monkeypatch, *[unanswered] * 5), pytest.raises(CommitStateUnknownError, match="may still be"):
        tables.publish(dict.fromkeys(NAMES, BRANCH))
    assert len(journal(tables)) == 1
    with server(tables, monkeypatch):
        assert recover(catalog_of(tables)) == []  # a request may still arrive
        later = time.time() + 3600
        assert len(recover(catalog_of(tables), clock=lambda: later)) == 1
        tables.publish(dict.fromkeys(NAMES, BRANCH))
    assert rows(tables) == everywhere([1, 2])
    assert journal(tables) == []


def _dead(tables: IcebergTableManager) -> None:
    """The owner of each entry is a process of this machine that has ended: no process has so high an id."""
    for name in journal(tables):
        owner = catalog_of(tables).load_namespace_properties(name)["floe.owner"]
        host = owner.rpartition("/")[0]
        catalog_of(tables).update_namespace_properties(name, updates={"floe.owner": f"{host}/4194305"})


def _nothing(*_: Any) -> None:
    """What a process that has ended does."""


@pytest.mark.parametrize("done", [1, 2])
def test_a_part_whose_process_died_is_completed_by_the_next_publication(
    tables: IcebergTableManager, monkeypatch: pytest.MonkeyPatch, done: int
) -> None:
    stage(tables)

    def killed(commit: Commit, changes: Any) -> None:
        commit(changes[:done])
        raise KeyboardInterrupt  # as if the process ended here: nothing below runs

    monkeypatch.setattr("floe_iceberg.transactions.publication._Publication._end_entry", _nothing)
    with server(tables, monkeypatch, killed), pytest.raises(KeyboardInterrupt):
        tables.publish(dict.fromkeys(NAMES, BRANCH))
    monkeypatch.undo()
    assert len(journal(tables)) == 1
    _dead(tables)
    with server(tables, monkeypatch):
        assert tables.finish_publications() == 1
    assert rows(tables) == everywhere([1, 2])
    assert journal(tables) == []


@pytest.mark.parametrize("done", [1, 2])
def test_a_branch_of_the_lake_whose_publication_was_cut_off_is_completed_by_the_next_one(
    tables: IcebergTableManager, monkeypatch: pytest.MonkeyPatch, done: int
) -> None:
    branches = Branches(tables, timedelta(days=14))
    tables.at_branch = branches.open("trial")
    for name in NAMES:
        tables.write_data(name, pa.table({"id": [2]}), mode="append")
    tables.at_branch = None

    def killed(commit: Commit, changes: Any) -> None:
        commit(changes[:done])
        raise KeyboardInterrupt

    monkeypatch.setattr("floe_iceberg.transactions.publication._Publication._end_entry", _nothing)
    with server(tables, monkeypatch, killed), pytest.raises(KeyboardInterrupt):
        branches.publish("trial")
    monkeypatch.undo()
    _dead(tables)
    with server(tables, monkeypatch):
        assert {one.table for one in branches.publish("trial").tables} == set(NAMES)
    assert rows(tables) == everywhere([1, 2])
    assert journal(tables) == []


@pytest.mark.parametrize("stored", [{"floe.until-ms": "soon"}, {"floe.move.0": "{"}, {"floe.move.0": "[]"}, {}])
def test_an_entry_that_is_damaged_is_reported_and_keeps_no_publication_from_running(
    tables: IcebergTableManager,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    stored: dict[str, str],
) -> None:
    catalog_of(tables).create_namespace(("floe_journal_" + "0" * 32,), stored)
    stage(tables)
    with server(tables, monkeypatch):
        tables.publish(dict.fromkeys(NAMES, BRANCH))
    assert rows(tables) == everywhere([1, 2])
    assert len(journal(tables)) == 1
    assert "a journal entry of a publication cannot be read" in caplog.text


def test_a_table_that_was_rolled_back_after_its_publication_does_not_take_the_others_back(
    tables: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage(tables)
    monkeypatch.setattr("floe_iceberg.transactions.journal.Journal.end", _nothing)
    before = tables.list_snapshots("silver.orders")[-1].snapshot_id
    with server(tables, monkeypatch):
        tables.publish(dict.fromkeys(NAMES, BRANCH))
    monkeypatch.undo()
    tables.rollback_to_snapshot("silver.orders", tables.load_table("silver.orders").snapshots()[0].snapshot_id)
    _dead(tables)
    with server(tables, monkeypatch):
        assert tables.finish_publications() == 1
    assert rows(tables) == {**everywhere([1, 2]), "silver.orders": [1]}, before
    assert journal(tables) == []


def test_a_catalog_without_multi_table_commits_is_refused_or_publishes_one_by_one(
    tables: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage(tables)
    catalog = catalog_of(tables)
    monkeypatch.setattr(type(catalog), "is_atomic", False)
    monkeypatch.setattr(type(catalog), "refuses_many_tables", "this server has no such endpoint")
    with pytest.raises(ConfigurationError, match="this server has no such endpoint, so nothing was published"):
        tables.publish(dict.fromkeys(NAMES, BRANCH))
    assert rows(tables) == everywhere([1])
    tables.publish(dict.fromkeys(NAMES, BRANCH), one_by_one=True)
    assert rows(tables) == everywhere([1, 2])
    assert journal(tables) == []


def test_one_by_one_takes_back_what_a_refusal_of_the_next_table_leaves_incomplete(
    tables: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage(tables)
    catalog = catalog_of(tables)
    commit = catalog.commit_table

    def commit_table(table: Any, requirements: Any, updates: Any) -> Any:
        publishes = any(isinstance(update, RemoveSnapshotRefUpdate) for update in updates)
        if publishes and table.name() == ("gold", "revenue"):
            raise ForbiddenError("not yours")
        return commit(table, requirements, updates)

    monkeypatch.setattr(type(catalog), "is_atomic", False)
    monkeypatch.setattr(type(catalog), "refuses_many_tables", "no such endpoint")
    monkeypatch.setattr(catalog, "commit_table", commit_table)
    with pytest.raises(ConcurrencyConflictError, match=r"nothing is published: not yours"):
        tables.publish(dict.fromkeys(NAMES, BRANCH), one_by_one=True)
    assert rows(tables) == everywhere([1])
    assert journal(tables) == []


def test_the_journal_is_not_listed_and_records_each_table(
    tables: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage(tables)
    seen: list[Any] = []

    def look(commit: Commit, changes: Any) -> None:
        (name,) = journal(tables)
        seen.extend(
            json.loads(value)
            for key, value in catalog_of(tables).load_namespace_properties(name).items()
            if key.startswith("floe.move.")
        )
        assert [str(found) for found in tables.list_namespaces()] == ["gold", "silver"]
        commit(changes)

    with server(tables, monkeypatch, look):
        tables.publish(dict.fromkeys(NAMES, BRANCH))
    assert sorted(move["table"] for move in seen) == sorted(NAMES)


def test_fifty_tables_are_published_in_one_transaction_or_not_at_all(tmp_path: Path) -> None:
    tables = open_manager(tmp_path)
    names = [f"many.t{number}" for number in range(50)]
    for name in names:
        tables.write_data(name, pa.table({"id": [1], "note": ["first"]}), mode="append")
        stage(tables, name)
    tables.write_data("many.t31", pa.table({"id": [9]}), mode="append")
    with pytest.raises(ConcurrencyConflictError, match=r"nothing was published: 'many.t31'"):
        tables.publish(dict.fromkeys(names, BRANCH))
    assert {tuple(ids(tables, name)) for name in names if name != "many.t31"} == {(1,)}
    tables.publish(dict.fromkeys((name for name in names if name != "many.t31"), BRANCH))
    assert {tuple(ids(tables, name)) for name in names if name != "many.t31"} == {(1, 2)}


def test_a_branch_that_does_not_exist_is_named_with_those_that_do(tables: IcebergTableManager) -> None:
    stage(tables)
    with pytest.raises(ConfigurationError, match=r"'silver.orders' has no branch 'june' to publish \(there: july\)"):
        tables.publish({"silver.orders": "june", "silver.stores": BRANCH})
    with pytest.raises(TableNotFoundError, match=r"'silver.none' not found"):
        tables.publish({"silver.none": BRANCH})
    with pytest.raises(FloeError, match="isolation is 'none'"):
        tables.publish({"silver.orders": BRANCH}, isolation="none")  # type: ignore[arg-type]


def test_a_table_without_rows_is_published_with_the_others(tables: IcebergTableManager) -> None:
    tables.create_table("silver.new", pa.schema([("id", pa.int64()), ("note", pa.string())]))
    tables.write_data("silver.new", pa.table({"id": [1], "note": [""]}), mode="append")
    first_write = tables.load_table("silver.new").metadata.current_snapshot_id
    stage(tables, "silver.new", "silver.orders")
    tables.publish({"silver.new": BRANCH, "silver.orders": BRANCH})
    assert ids(tables, "silver.new") == [1, 2]
    assert first_write is not None


def test_the_metadata_files_of_a_refused_publication_are_removed(tables: IcebergTableManager, tmp_path: Path) -> None:
    stage(tables)
    staged = moves(tables)
    catalog = catalog_of(tables)
    before = set(tmp_path.rglob("*.metadata.json"))
    changes = [move.change(tables.load_table(str(move.identifier))) for move in staged]
    tables.write_data("gold.revenue", pa.table({"id": [9]}), mode="append")
    other = set(tmp_path.rglob("*.metadata.json"))
    with pytest.raises(CommitFailedException):
        catalog.commit_tables(changes)
    assert set(tmp_path.rglob("*.metadata.json")) == other
    assert len(other - before) == 1


def test_a_late_completion_does_not_publish_one_table_after_the_rest_was_taken_back(
    tables: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage(tables)
    catalog = catalog_of(tables)
    commit_table, held = catalog.commit_table, []

    def slow(table: Any, requirements: Any, updates: Any) -> Any:
        publishes = any(isinstance(update, RemoveSnapshotRefUpdate) for update in updates)
        if publishes and table.name() == ("silver", "stores"):
            held.append((table, requirements, updates))
            raise CommitStateUnknownException("timeout")
        return commit_table(table, requirements, updates)

    monkeypatch.setattr(catalog, "commit_table", slow)
    with server(tables, monkeypatch, first(1)), pytest.raises(ConcurrencyConflictError, match="nothing is published"):
        tables.publish(dict.fromkeys(NAMES, BRANCH))
    with pytest.raises(CommitFailedException):
        commit_table(*held[0])
    assert rows(tables) == everywhere([1])


def test_a_part_that_cannot_be_taken_back_now_stays_in_the_journal_until_it_can(
    tables: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage(tables)
    catalog = catalog_of(tables)
    commit_table = catalog.commit_table

    def silent(*_: Any) -> Any:
        raise CommitStateUnknownException("no answer")

    monkeypatch.setattr(catalog, "commit_table", silent)
    with server(tables, monkeypatch, first(1)), pytest.raises(CommitStateUnknownError, match="is incomplete"):
        tables.publish(dict.fromkeys(NAMES, BRANCH))
    assert len(journal(tables)) == 1
    monkeypatch.setattr(catalog, "commit_table", commit_table)
    with server(tables, monkeypatch):
        recover(catalog, clock=lambda: time.time() + 3600)
    assert rows(tables) == everywhere([1, 2])
    assert journal(tables) == []


def test_the_branch_of_a_run_lives_as_long_as_asked_from_its_beginning_on(
    tables: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Iceberg counts the age of a branch from its snapshot, which may be older than that already."""
    monkeypatch.setattr("floe_iceberg.transactions.run_branches.now_ms", lambda: int(time.time() * 1000) + 86_400_000)
    new = NewTable(tables.load_table("silver.orders").schema())
    table = tables.open_branch("silver.orders", StagingBranch.of_run("one"), new, max_age=timedelta(hours=1))
    age = table.metadata.refs["floe-run-one"].max_ref_age_ms
    assert age is not None
    assert age >= 25 * 3_600_000
