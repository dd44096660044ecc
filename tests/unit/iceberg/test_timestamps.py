"""Clocks that go back: every commit leaves timestamps in the order of the commits, as Iceberg's Java library asks."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table.metadata import TableMetadata
from tests.engines import BY_DAY, days, events, transform
from tests.faults.clocks import clock_off, unguarded
from tests.lakes import open_manager

from floe_core.config.policy import MaintenancePolicy
from floe_core.identifiers import TableIdentifier
from floe_iceberg import IcebergTableManager
from floe_iceberg.maintenance.health import Light, findings, look
from floe_iceberg.schema.changes import AddColumn
from floe_iceberg.snapshots.timestamps import disorder, now_ms

T = TableIdentifier.from_string("bronze.events")
HOURS = timedelta(hours=2)
YEARS = timedelta(days=5 * 365)


@pytest.fixture
def manager(tmp_path: Path) -> IcebergTableManager:
    opened = open_manager(tmp_path)
    opened.write_data(T, events(0), mode="append", partition_by=BY_DAY)
    opened.write_data(T, events(1), mode="append")
    return opened


def append(manager: IcebergTableManager) -> Any:
    return manager.write_data(T, events(2), mode="append")


def publish(manager: IcebergTableManager) -> None:
    manager.create_branch(T, "audit")
    manager.write_data(T, events(2), mode="append", branch="audit")
    manager.fast_forward(T, "audit", remove=True)


def set_property(manager: IcebergTableManager) -> None:
    with manager.load_table(T).transaction() as changes:
        changes.set_properties({"owner": "sales"})


def roll_back(manager: IcebergTableManager) -> None:
    manager.rollback_to_snapshot(T, manager.list_snapshots(T)[0].snapshot_id)


COMMITS: dict[str, Callable[[IcebergTableManager], Any]] = {
    "append": append,
    "overwrite": lambda manager: manager.write_data(T, events(1), mode="overwrite", slice=days(1)),
    "upsert": lambda manager: manager.write_data(T, events(1, note="v2"), mode="upsert", keys=["id"]),
    "publish": publish,
    "rollback": roll_back,
    "tag": lambda manager: manager.create_tag(T, "eod"),
    "schema": lambda manager: manager.evolve_schema(T, AddColumn("phone", pa.string())),
    "partitions": lambda manager: manager.evolve_partitions(T, [transform("month")]),
    "property": set_property,
    "bare PyIceberg": lambda manager: manager.load_table(T).append(events(2)),
}


def metadata_of(manager: IcebergTableManager) -> TableMetadata:
    return manager.load_table(T).metadata


def out_of_order(metadata: TableMetadata) -> list[int]:
    """The snapshots that are stamped before their parent."""
    stamps = {one.snapshot_id: one.timestamp_ms for one in metadata.snapshots}
    return [
        one.snapshot_id for one in metadata.snapshots if one.timestamp_ms < stamps.get(one.parent_snapshot_id or 0, 0)
    ]


@pytest.mark.parametrize("commit", COMMITS)
def test_a_commit_by_a_clock_that_went_back_is_in_order(
    manager: IcebergTableManager, monkeypatch: pytest.MonkeyPatch, commit: str
) -> None:
    with clock_off(monkeypatch, -HOURS):
        COMMITS[commit](manager)
    assert disorder(metadata_of(manager)) is None
    assert out_of_order(metadata_of(manager)) == []
    append(manager)
    assert disorder(metadata_of(manager)) is None


@pytest.mark.parametrize("commit", COMMITS)
def test_the_next_commit_repairs_a_table_that_spark_cannot_load(
    manager: IcebergTableManager, monkeypatch: pytest.MonkeyPatch, commit: str
) -> None:
    with unguarded(monkeypatch), clock_off(monkeypatch, -HOURS):
        append(manager)
    broken = metadata_of(manager)
    assert disorder(broken) == "its snapshot log is not sorted by time"
    COMMITS[commit](manager)
    repaired = metadata_of(manager)
    assert disorder(repaired) is None
    assert out_of_order(repaired) == []
    kept = [one.snapshot_id for one in repaired.snapshot_log][: len(broken.snapshot_log)]
    assert kept == [one.snapshot_id for one in broken.snapshot_log], "the history itself stays"


def test_a_timestamp_from_the_future_is_lowered_when_a_later_commit_proves_it_wrong(
    manager: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    with unguarded(monkeypatch):
        with clock_off(monkeypatch, YEARS):
            append(manager)
        append(manager)
    assert disorder(metadata_of(manager)) is not None
    snapshot = append(manager)
    repaired = metadata_of(manager)
    assert disorder(repaired) is None
    assert out_of_order(repaired) == []
    assert repaired.last_updated_ms == snapshot.timestamp_ms <= now_ms(), "Spark can write to it again"
    assert max(one.timestamp_ms for one in repaired.snapshots) == snapshot.timestamp_ms


def test_a_change_of_properties_from_the_future_does_not_move_later_snapshots_there(
    manager: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    with clock_off(monkeypatch, YEARS):
        set_property(manager)
    assert append(manager).timestamp_ms <= now_ms()
    assert disorder(metadata_of(manager)) is None


@pytest.mark.parametrize("commit", COMMITS)
def test_a_commit_by_a_clock_that_is_behind_leaves_the_history_as_it_was(
    manager: IcebergTableManager, monkeypatch: pytest.MonkeyPatch, commit: str
) -> None:
    before = metadata_of(manager)
    with clock_off(monkeypatch, -YEARS):
        COMMITS[commit](manager)
    after = metadata_of(manager)
    assert after.snapshot_log[: len(before.snapshot_log)] == before.snapshot_log
    assert after.snapshots[: len(before.snapshots)] == before.snapshots
    assert disorder(after) is None


def test_a_repair_by_a_clock_that_is_behind_raises_the_one_that_went_back(
    manager: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = metadata_of(manager)
    with unguarded(monkeypatch), clock_off(monkeypatch, -HOURS):
        append(manager)
    with clock_off(monkeypatch, -YEARS):
        append(manager)
    after = metadata_of(manager)
    assert after.snapshot_log[:2] == before.snapshot_log
    assert disorder(after) is None


def test_after_a_head_in_the_far_future_snapshots_are_stamped_after_it_and_health_says_so(
    manager: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, now = manager.current_snapshot(T), datetime.now(timezone.utc)
    with clock_off(monkeypatch, YEARS):
        ahead = append(manager)
    later = append(manager)
    assert later.timestamp_ms > ahead.timestamp_ms
    assert disorder(metadata_of(manager)) is None
    assert before is not None
    assert manager.scan(T, as_of=now + HOURS).snapshot().snapshot_id == before.snapshot_id  # type: ignore[union-attr]
    assert manager.scan(T, as_of=later.timestamp).snapshot().snapshot_id == later.snapshot_id  # type: ignore[union-attr]
    policy = MaintenancePolicy()
    (found,) = findings(str(T), look(manager.load_table(T), policy, now=now), policy)
    assert found.light is Light.RED
    assert f"its latest timestamp is {later.timestamp:%Y-%m-%d}" in found.reason
    assert "Spark cannot write to it" in found.reason


def test_health_says_that_spark_cannot_load_a_table_and_what_repairs_it(
    manager: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    with unguarded(monkeypatch), clock_off(monkeypatch, -HOURS):
        append(manager)
    for policy in (MaintenancePolicy(), MaintenancePolicy(enabled=False)):
        facts = look(manager.load_table(T), policy, now=datetime.now(timezone.utc))
        found = findings(str(T), facts, policy)[0]
        assert found.light is Light.RED
        assert "Spark cannot load it: its snapshot log is not sorted by time" in found.reason
        assert found.mend == "floe maintain run --table bronze.events"


# Each of the checks in Java's TableMetadata, on both sides of its minute of grace.
CHECKS: dict[str, Callable[[TableMetadata, int], dict[str, Any]]] = {
    "its snapshot log is not sorted by time": lambda one, by: {
        "snapshot_log": [
            one.snapshot_log[0].model_copy(update={"timestamp_ms": one.last_updated_ms + by}),
            one.snapshot_log[-1].model_copy(update={"timestamp_ms": one.last_updated_ms}),
        ]
    },
    "it was last updated before its last snapshot, by their timestamps": lambda one, by: {
        "last_updated_ms": one.snapshot_log[-1].timestamp_ms - by
    },
    "its metadata log is not sorted by time": lambda one, by: {
        "metadata_log": [
            one.metadata_log[0].model_copy(update={"timestamp_ms": one.last_updated_ms + by}),
            one.metadata_log[0].model_copy(update={"timestamp_ms": one.last_updated_ms}),
        ]
    },
    "it was last updated before its previous version, by their timestamps": lambda one, by: {
        "metadata_log": [one.metadata_log[0].model_copy(update={"timestamp_ms": one.last_updated_ms + by})]
    },
}


@pytest.mark.parametrize("reason", CHECKS)
def test_each_check_of_java_is_known_with_its_minute_of_grace(manager: IcebergTableManager, reason: str) -> None:
    metadata = metadata_of(manager)
    assert disorder(metadata.model_copy(update=CHECKS[reason](metadata, 60_000))) is None
    assert disorder(metadata.model_copy(update=CHECKS[reason](metadata, 60_001))) == reason
