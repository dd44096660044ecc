"""The publication of a staged branch, as Spark leaves it, while other writers change the table.

A write of PyIceberg to a branch stands for the write of Spark, so that no JVM is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
import requests
from pyiceberg.exceptions import CommitFailedException, ForbiddenError
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import RemoveSnapshotsUpdate
from tests.faults.catalog import Held, answer_lost, faulty, not_applied
from tests.lakes import open_manager

from floe_core.errors import CommitStateUnknownError, ConcurrencyConflictError
from floe_core.identifiers import TableIdentifier
from floe_core.models import WriteMode
from floe_iceberg import IcebergTableManager, WriteRequest, WriteResult
from floe_iceberg.snapshots import refs, write_summary
from floe_iceberg.writing import (
    NOTHING,
    Replacement,
    Staged,
    StagedBranch,
    commits,
    files_since,
    state_of,
    write_operation,
)

T = TableIdentifier.from_string("bronze.orders")
BRANCH = "floe_1_aaaaaaaaaaaa"
ROW = pa.table({"id": [4]})


@pytest.fixture
def tables(tmp_path: Path) -> IcebergTableManager:
    manager = open_manager(tmp_path)
    manager.write_data(T, pa.table({"id": [1, 2, 3]}), mode="append")
    manager.write_data(T, pa.table({"id": [5]}), mode="append")
    return manager


@dataclass(frozen=True)
class StagedWrite:
    """An append that is staged on a branch."""

    tables: IcebergTableManager
    began: Table
    head: Snapshot
    to: str

    def publish(self) -> WriteResult:
        request = WriteRequest(T, WriteMode.APPEND, "w", write_summary("w"), branch=self.to)
        with write_operation(request, "spark") as op:
            staged = StagedBranch(BRANCH, self.head, self.began.metadata, self._files)
            commit = commits.Commit(self.tables, request, None, request.summary, op, branch=staged)
            try:
                return commit.commit(self.tables.load_table(T))
            finally:
                if not commit.published:
                    refs.discard(self.tables.load_table(T), BRANCH, since=self.head.snapshot_id)

    def _files(self, now: Table) -> tuple[Staged, Replacement]:
        made = files_since(now, self.head, BRANCH)
        assert made is not None
        found = state_of(NOTHING.find(now, self.head.snapshot_id))
        return Staged(now.metadata, made.added, now.io), Replacement(NOTHING.find, found, made.removed)


def staged(tables: IcebergTableManager, to: str = "main") -> StagedWrite:
    began = tables.load_table(T)
    head = began.snapshot_by_name(to)
    assert head is not None
    refs.create_ref(began, T, BRANCH, SnapshotRefType.BRANCH, snapshot_id=head.snapshot_id, max_age=None)
    tables.load_table(T).append(ROW, snapshot_properties=write_summary("w"), branch=BRANCH)
    return StagedWrite(tables, began, head, to)


def ids(tables: IcebergTableManager, **at: str) -> list[int]:
    return sorted(tables.scan(T, **at).to_arrow()["id"].to_pylist())  # type: ignore[arg-type]


@pytest.mark.parametrize("times", [1, 2])
def test_a_publication_that_is_refused_and_sent_again_keeps_its_files(
    tables: IcebergTableManager, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    write = staged(tables)
    refusals = [not_applied(CommitFailedException("another branch was created")) for _ in range(times)]
    with faulty(tables.catalog_plugin.connect(), monkeypatch, *refusals):
        write.publish()
    assert ids(tables) == [1, 2, 3, 4, 5]
    assert list(tables.load_table(T).refs()) == ["main"]


def test_a_publication_whose_answer_was_lost_is_found(
    tables: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = staged(tables)
    with faulty(tables.catalog_plugin.connect(), monkeypatch, answer_lost(requests.ConnectionError("lost"))):
        write.publish()
    assert ids(tables) == [1, 2, 3, 4, 5]


def to_a_tag(tables: IcebergTableManager) -> None:
    tables.remove_branch(T, "dev")
    tables.create_tag(T, "dev")


@pytest.mark.parametrize("change", [lambda tables: tables.remove_branch(T, "dev"), to_a_tag], ids=["removed", "a tag"])
def test_a_target_that_is_no_branch_any_more_is_a_conflict(
    tables: IcebergTableManager, change: Callable[[IcebergTableManager], object]
) -> None:
    tables.create_branch(T, "dev")
    write = staged(tables, to="dev")
    change(tables)
    before = tables.load_table(T).refs()
    with pytest.raises(ConcurrencyConflictError, match="it existed when the write began"):
        write.publish()
    now = tables.load_table(T).refs()
    assert now == {name: ref for name, ref in before.items() if name != BRANCH}


def test_the_head_that_main_was_rolled_back_from_stays_when_a_write_ends(tables: IcebergTableManager) -> None:
    write = staged(tables)
    parent = write.head.parent_snapshot_id
    assert parent is not None
    tables.rollback_to_snapshot(T, parent)
    write.publish()
    assert ids(tables) == [1, 2, 3, 4]
    assert tables.load_table(T).snapshot_by_id(write.head.snapshot_id) is not None


def test_files_that_replace_others_are_not_put_on_top_once_their_base_expired(tables: IcebergTableManager) -> None:
    """Another writer may have deleted rows that the branch has rewritten; nothing shows it any more."""
    began = tables.load_table(T)
    head = began.current_snapshot()
    assert head is not None
    refs.create_ref(began, T, BRANCH, SnapshotRefType.BRANCH, snapshot_id=head.snapshot_id, max_age=None)
    tables.load_table(T).overwrite(ROW, branch=BRANCH)
    assert files_since(tables.load_table(T), head, BRANCH) is not None
    tables.write_data(T, pa.table({"id": [9]}), mode="overwrite")
    refs.commit_refs(tables.load_table(T), {}, [RemoveSnapshotsUpdate(snapshot_ids=[head.snapshot_id])])
    assert files_since(tables.load_table(T), head, BRANCH) is None


def test_writes_keep_the_retention_of_their_branch(tables: IcebergTableManager) -> None:
    tables.create_branch(T, "dev", max_ref_age=timedelta(days=3))
    tables.write_data(T, ROW, mode="append", branch="dev")
    tables.write_data(T, ROW, mode="overwrite", branch="dev")
    assert tables.load_table(T).metadata.refs["dev"].max_ref_age_ms == timedelta(days=3) / timedelta(milliseconds=1)


@pytest.mark.parametrize(
    "answer", [CommitFailedException("another writer set a property"), ForbiddenError("the token expired")]
)
def test_a_request_that_may_still_arrive_is_not_reported_as_nothing_written(
    tables: IcebergTableManager, monkeypatch: pytest.MonkeyPatch, answer: Exception
) -> None:
    with tables.load_table(T).transaction() as changes:
        changes.set_properties({"commit.retry.num-retries": "1"})
    held = Held(requests.ConnectionError("lost"))
    with (
        faulty(tables.catalog_plugin.connect(), monkeypatch, held.hold, not_applied(answer)),
        pytest.raises(CommitStateUnknownError, match="it may still arrive"),
    ):
        tables.write_data(T, ROW, mode="append", write_id="w")
    held.arrive()
    assert ids(tables) == [1, 2, 3, 4, 5]
