"""Tags, branches, rollback and fast-forward, without Spark."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from tests.faults.catalog import faulty, not_applied
from tests.lakes import open_manager

from floe_core.errors import ConcurrencyConflictError, ConfigurationError
from floe_core.identifiers import TableIdentifier
from floe_iceberg import IcebergTableManager
from floe_iceberg.schema.changes import AddColumn

T = TableIdentifier.from_string("bronze.orders")


@pytest.fixture
def manager(tmp_path: Path) -> IcebergTableManager:
    """A table with three snapshots that hold one, two and three rows."""
    opened = open_manager(tmp_path)
    opened.create_table(T, pa.schema([("n", pa.int64())]))
    for number in range(3):
        append(opened, number)
    return opened


def append(manager: IcebergTableManager, number: int, branch: str = "main") -> None:
    manager.load_table(T).append(pa.table({"n": [number]}), branch=branch)


def rows(manager: IcebergTableManager, ref: str = "main") -> list[int]:
    table = manager.load_table(T)
    snapshot = table.snapshot_by_name(ref)
    assert snapshot is not None
    return sorted(table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()["n"].to_pylist())


def test_snapshots_are_listed_oldest_first_and_the_last_is_current(manager: IcebergTableManager) -> None:
    listed = manager.list_snapshots(T)
    assert [one.count("total-records") for one in listed] == [1, 2, 3]
    assert listed[1].parent_snapshot_id == listed[0].snapshot_id
    assert manager.current_snapshot(T) == listed[-1]


def test_a_table_without_a_write_has_no_current_snapshot_and_nothing_to_name(manager: IcebergTableManager) -> None:
    empty = TableIdentifier.from_string("bronze.empty")
    manager.create_table(empty, pa.schema([("n", pa.int64())]))
    assert manager.current_snapshot(empty) is None
    with pytest.raises(ConfigurationError, match="no snapshot yet"):
        manager.create_tag(empty, "v1")


def test_a_tag_stays_where_it_is_put(manager: IcebergTableManager) -> None:
    second = manager.list_snapshots(T)[1]
    manager.create_tag(T, "v1", snapshot_id=second.snapshot_id, max_ref_age=timedelta(days=365))
    manager.create_tag(T, "now")
    append(manager, 3)
    assert (rows(manager, "v1"), rows(manager, "now")) == ([0, 1], [0, 1, 2])
    assert manager.load_table(T).refs()["v1"].max_ref_age_ms == 365 * 24 * 3600 * 1000
    manager.remove_tag(T, "v1")
    assert set(manager.load_table(T).refs()) == {"main", "now"}


def test_a_branch_moves_alone_until_it_is_published(manager: IcebergTableManager) -> None:
    manager.create_branch(T, "audit")
    append(manager, 9, branch="audit")
    assert (rows(manager), rows(manager, "audit")) == ([0, 1, 2], [0, 1, 2, 9])
    manager.fast_forward(T, "audit", remove=True)
    assert rows(manager) == [0, 1, 2, 9]
    assert set(manager.load_table(T).refs()) == {"main"}


def test_a_branch_that_main_left_behind_is_not_published(manager: IcebergTableManager) -> None:
    manager.create_branch(T, "audit")
    append(manager, 9, branch="audit")
    append(manager, 3)
    with pytest.raises(ConcurrencyConflictError, match="would lose what main gained"):
        manager.fast_forward(T, "audit")
    assert rows(manager) == [0, 1, 2, 3]


def test_a_rollback_makes_the_past_current_and_keeps_the_rest_readable(manager: IcebergTableManager) -> None:
    first, second, third = manager.list_snapshots(T)
    manager.rollback_to_snapshot(T, second.snapshot_id)
    assert rows(manager) == [0, 1]
    assert [one.snapshot_id for one in manager.list_snapshots(T)] == [one.snapshot_id for one in (first, second, third)]
    with pytest.raises(ConfigurationError, match="not in the history"):
        manager.rollback_to_snapshot(T, third.snapshot_id)
    manager.rollback_to_timestamp(T, first.timestamp + timedelta(milliseconds=0))
    assert rows(manager) == [0]


@pytest.mark.parametrize("name", ["a/b", "..", "", "x`y", "main"])
def test_a_name_that_is_none_or_taken_is_refused(manager: IcebergTableManager, name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"is not a valid name|already"):
        manager.create_tag(T, name)


def test_what_is_not_there_is_named_with_what_is(manager: IcebergTableManager) -> None:
    manager.create_tag(T, "v1")
    with pytest.raises(ConfigurationError, match=r"no tag 'v2' to remove \(there: v1\)"):
        manager.remove_tag(T, "v2")
    with pytest.raises(ConfigurationError, match=r"no branch 'v1' \(there: main\)"):
        manager.fast_forward(T, "v1")
    with pytest.raises(ConfigurationError, match="no snapshot 42"):
        manager.create_tag(T, "v3", snapshot_id=42)
    with pytest.raises(ConfigurationError, match="no snapshot 42"):
        manager.rollback_to_snapshot(T, 42)
    with pytest.raises(ConfigurationError, match="had no snapshot at"):
        manager.rollback_to_timestamp(T, datetime(2020, 1, 1, tzinfo=timezone.utc))
    with pytest.raises(ConfigurationError, match="has no time zone"):
        manager.rollback_to_timestamp(T, datetime(2020, 1, 1))
    with pytest.raises(ConfigurationError, match="at least one millisecond"):
        manager.create_tag(T, "v4", max_ref_age=timedelta(0))


def test_a_handle_that_is_behind_moves_nothing(manager: IcebergTableManager) -> None:
    from floe_iceberg.snapshots import refs

    stale = manager.load_table(T)
    append(manager, 3)
    with pytest.raises(Exception, match="main"):
        refs.move_main(stale, T, manager.list_snapshots(T)[0].snapshot_id)
    assert rows(manager) == [0, 1, 2, 3]


def test_a_tag_a_branch_and_a_new_column_survive_commits_of_others(
    manager: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("floe_iceberg.backoff.delay", lambda _number: 0.0)
    conflicts = [not_applied(CommitFailedException("others were faster"))] * 3
    changes: dict[str, Callable[[], object]] = {
        "create_tag": lambda: manager.create_tag(T, "v1"),
        "create_branch": lambda: manager.create_branch(T, "audit"),
        "evolve_schema": lambda: manager.evolve_schema(T, AddColumn("phone", pa.string())),
        "remove_tag": lambda: manager.remove_tag(T, "v1"),
    }
    for change in changes.values():
        with faulty(manager.catalog_plugin.connect(), monkeypatch, *conflicts):
            change()
    assert set(manager.load_table(T).refs()) == {"main", "audit"}
    assert manager.load_table(T).schema().column_names == ["n", "phone"]


@pytest.mark.parametrize("name", ["4711", "20260131", "2026-01-31"])
def test_a_name_that_reads_as_a_snapshot_or_a_time_is_refused(manager: IcebergTableManager, name: str) -> None:
    for create in (manager.create_tag, manager.create_branch):
        with pytest.raises(ConfigurationError, match="reads like"):
            create(T, name)
    assert set(manager.load_table(T).refs()) == {"main"}


def test_a_tag_of_another_tool_that_is_named_like_a_snapshot_does_not_hide_it(manager: IcebergTableManager) -> None:
    _first, second, third = (one.snapshot_id for one in manager.list_snapshots(T))
    manager.load_table(T).manage_snapshots().create_tag(third, str(second)).create_tag(third, "4711").commit()
    with pytest.raises(ConfigurationError, match=rf"{second} is the id of a snapshot .* and the name of a tag") as no:
        manager.find_snapshot(T, str(second))
    assert f"floe snapshots untag {T} {second}" in str(no.value)
    with pytest.raises(ConfigurationError, match="is the id of a snapshot"):
        manager.plan_rollback(T, str(second))
    assert manager.find_snapshot(T, second).snapshot_id == second
    assert manager.find_snapshot(T, "4711").snapshot_id == third
    manager.remove_tag(T, str(second))
    assert manager.find_snapshot(T, str(second)).snapshot_id == second


def test_a_tag_at_the_snapshot_that_it_is_named_after_is_not_ambiguous(manager: IcebergTableManager) -> None:
    first = manager.list_snapshots(T)[0].snapshot_id
    manager.load_table(T).manage_snapshots().create_tag(first, str(first)).commit()
    assert manager.find_snapshot(T, str(first)).snapshot_id == first


def test_an_age_that_iceberg_cannot_store_is_refused(manager: IcebergTableManager) -> None:
    for create in (manager.create_tag, manager.create_branch):
        with pytest.raises(ConfigurationError, match="at least one millisecond"):
            create(T, "short", max_ref_age=timedelta(microseconds=1))
    manager.create_tag(T, "short", max_ref_age=timedelta(milliseconds=1))
    assert manager.load_table(T).refs()["short"].max_ref_age_ms == 1


def test_a_ref_of_the_other_kind_is_called_what_it_is(manager: IcebergTableManager) -> None:
    manager.create_tag(T, "v1")
    with pytest.raises(ConfigurationError, match=r"'main' is a branch of 'bronze.orders', not a tag"):
        manager.remove_tag(T, "main")
    with pytest.raises(ConfigurationError, match=r"'v1' is a tag of 'bronze.orders', not a branch"):
        manager.remove_branch(T, "v1")
    with pytest.raises(ConfigurationError, match=r"'main' of 'bronze.orders' cannot be removed"):
        manager.remove_branch(T, "main")
