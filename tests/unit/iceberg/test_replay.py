"""Branches that are replayed on top of what others have committed to main."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from tests.lakes import open_manager

from floe_core import PartitionTransform, PartitionTransformType, TableSlice, WriteMode
from floe_core.errors import ConcurrencyConflictError
from floe_iceberg import AddColumn, DropColumn, IcebergTableManager

T, BRANCH = "silver.orders", "draft"
FIRST = datetime(2026, 1, 1, tzinfo=timezone.utc)


def rows(*days: int, note: str = "v1") -> pa.Table:
    moments = pa.array([FIRST + timedelta(days=day, hours=1) for day in days], pa.timestamp("us", "UTC"))
    return pa.table({"at": moments, "note": [note] * len(days)})


def day(number: int) -> TableSlice:
    return TableSlice.of_windows("at", [(FIRST + timedelta(days=number), FIRST + timedelta(days=number + 1))])


@pytest.fixture
def tables(tmp_path: Path) -> IcebergTableManager:
    manager = open_manager(tmp_path)
    by_day = [PartitionTransform(source_column="at", transform_type=PartitionTransformType.DAY)]
    manager.create_table(T, rows(0).schema, partition_by=by_day)
    manager.write_data(T, rows(0, 1, 2), mode="append")
    manager.create_branch(T, BRANCH)
    return manager


def written(tables: IcebergTableManager, *, ref: str | None = None) -> list[tuple[int, str]]:
    found = tables.scan(T, ref=ref).to_arrow().to_pylist()
    return sorted(((row["at"] - FIRST).days, row["note"]) for row in found)


def draft(tables: IcebergTableManager, data: pa.Table, **options: Any) -> Any:
    return tables.write_data(T, data, branch=BRANCH, **{"mode": "overwrite", **options})


def test_an_overwrite_is_published_on_top_of_commits_to_other_slices(tables: IcebergTableManager) -> None:
    draft(tables, rows(1, note="v2"), slice=day(1), write_id="the draft")
    files = {task.file.file_path for task in tables.scan(T, ref=BRANCH).plan_files()}
    tables.write_data(T, rows(2, 2, note="theirs"), mode="overwrite", slice=day(2))
    tables.replay_branch(T, BRANCH, mode=WriteMode.OVERWRITE, within=day(1))
    assert written(tables, ref=BRANCH) == [(0, "v1"), (1, "v2"), (2, "theirs"), (2, "theirs")]
    assert written(tables) == [(0, "v1"), (1, "v1"), (2, "theirs"), (2, "theirs")]
    tables.publish({T: BRANCH})
    assert written(tables) == [(0, "v1"), (1, "v2"), (2, "theirs"), (2, "theirs")]
    published = {task.file.file_path for task in tables.scan(T).plan_files()}
    assert len(published & files) == 2, "the data files are used as they are"
    assert tables.find_write(T, "the draft") is not None
    assert sorted(tables.load_table(T).metadata.refs) == ["main"], "nothing is left behind"


def test_several_commits_of_a_branch_stay_several(tables: IcebergTableManager) -> None:
    for number in (1, 2):
        draft(tables, rows(number, note=f"v{number}"), slice=day(number), write_id=f"w{number}")
    tables.write_data(T, rows(5), mode="append")
    tables.replay_branch(T, BRANCH, mode=WriteMode.OVERWRITE, within=day(1))
    tables.publish({T: BRANCH})
    assert written(tables) == [(0, "v1"), (1, "v1"), (2, "v2"), (5, "v1")]
    assert all(tables.find_write(T, f"w{number}") is not None for number in (1, 2))


@pytest.mark.parametrize(
    "theirs",
    [
        lambda tables: tables.write_data(T, rows(1, note="late"), mode="append"),
        lambda tables: tables.write_data(T, rows(1, note="theirs"), mode="overwrite", slice=day(1)),
        lambda tables: tables.write_data(T, rows(1, note="v1"), mode="upsert", keys=["at"]),
        lambda tables: tables.rollback_to_snapshot(T, tables.list_snapshots(T)[0].snapshot_id),
    ],
    ids=["append to the slice", "overwrite", "upsert", "roll back to before"],
)
def test_rows_that_changed_in_the_same_slice_are_a_conflict(
    tables: IcebergTableManager, theirs: Callable[[IcebergTableManager], Any]
) -> None:
    if "rollback" in theirs.__code__.co_names[0]:
        tables.write_data(T, rows(7), mode="append")
        tables.remove_branch(T, BRANCH)
        tables.create_branch(T, BRANCH)
    draft(tables, rows(1, note="v2"), slice=day(1))
    theirs(tables)
    before = (written(tables), written(tables, ref=BRANCH))
    with pytest.raises(ConcurrencyConflictError, match="nothing was published: run it again"):
        tables.replay_branch(T, BRANCH, mode=WriteMode.OVERWRITE, within=day(1))
    assert (written(tables), written(tables, ref=BRANCH)) == before
    assert sorted(tables.load_table(T).metadata.refs) == [BRANCH, "main"]


def test_appends_meet_no_conflict_and_a_replaced_table_meets_every_one(tables: IcebergTableManager) -> None:
    draft(tables, rows(1, note="more"), mode="append")
    tables.write_data(T, rows(1, note="theirs"), mode="append")
    tables.replay_branch(T, BRANCH, mode=WriteMode.APPEND)
    tables.publish({T: BRANCH})
    assert written(tables) == [(0, "v1"), (1, "more"), (1, "theirs"), (1, "v1"), (2, "v1")]
    tables.create_branch(T, BRANCH)
    draft(tables, rows(9, note="all of it"))
    tables.write_data(T, rows(8), mode="append")
    with pytest.raises(ConcurrencyConflictError, match="another writer changed the same rows"):
        tables.replay_branch(T, BRANCH, mode=WriteMode.OVERWRITE)


def test_a_new_slice_that_another_writer_filled_too_is_a_conflict(tables: IcebergTableManager) -> None:
    draft(tables, rows(9, note="ours"), slice=day(9))
    tables.write_data(T, rows(9, note="theirs"), mode="overwrite", slice=day(9))
    with pytest.raises(ConcurrencyConflictError, match="another writer changed the same rows"):
        tables.replay_branch(T, BRANCH, mode=WriteMode.OVERWRITE, within=day(9))


def test_columns_and_partitions_that_others_changed_are_a_conflict(tables: IcebergTableManager) -> None:
    draft(tables, rows(1, note="v2"), slice=day(1))
    tables.write_data(T, rows(5), mode="append")
    tables.evolve_schema(T, AddColumn("more", pa.string()))
    tables.replay_branch(T, BRANCH, mode=WriteMode.OVERWRITE, within=day(1))
    tables.evolve_schema(T, DropColumn("note"), allow_incompatible_changes=True)
    tables.evolve_schema(T, AddColumn("note", pa.string()))
    tables.write_data(T, rows(6), mode="append")
    with pytest.raises(ConcurrencyConflictError, match="changed the columns"):
        tables.replay_branch(T, BRANCH, mode=WriteMode.OVERWRITE, within=day(1))


def test_partitions_that_others_changed_are_a_conflict(tables: IcebergTableManager) -> None:
    draft(tables, rows(1, note="v2"), slice=day(1))
    hours = [PartitionTransform(source_column="at", transform_type=PartitionTransformType.HOUR)]
    tables.evolve_partitions(T, hours)
    tables.write_data(T, rows(6), mode="append")
    with pytest.raises(ConcurrencyConflictError, match="changed the partitioning"):
        tables.replay_branch(T, BRANCH, mode=WriteMode.OVERWRITE, within=day(1))


def test_conflicts_with_other_branches_are_retried_and_a_failure_leaves_the_branch(
    tables: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft(tables, rows(1, note="v2"), slice=day(1))
    tables.write_data(T, rows(5), mode="append")
    catalog: Any = tables.catalog_plugin.connect()
    commit, failures = catalog.commit_table, iter([CommitFailedException("busy")] * 2)

    def busy(*arguments: Any) -> Any:
        for failure in failures:
            raise failure
        return commit(*arguments)

    monkeypatch.setattr("floe_iceberg.backoff.delay", lambda _number: 0.0)
    monkeypatch.setattr(catalog, "commit_table", busy)
    tables.replay_branch(T, BRANCH, mode=WriteMode.OVERWRITE, within=day(1))
    assert (1, "v2") in written(tables, ref=BRANCH)
    tables.write_data(T, rows(6), mode="append")
    before = written(tables, ref=BRANCH)
    failures = iter([CommitFailedException("busy")] * 25)
    with pytest.raises(ConcurrencyConflictError):
        tables.replay_branch(T, BRANCH, mode=WriteMode.OVERWRITE, within=day(1))
    assert written(tables, ref=BRANCH) == before


def test_a_branch_that_is_at_mains_head_stays_as_it_is(tables: IcebergTableManager) -> None:
    draft(tables, rows(1, note="v2"), slice=day(1))
    before = tables.load_table(T).metadata_location
    tables.replay_branch(T, BRANCH, mode=WriteMode.OVERWRITE, within=day(1))
    assert tables.load_table(T).metadata_location == before
