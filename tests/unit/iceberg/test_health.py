"""What is worth compacting, and what is not: work that changes nothing must not be done every night."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from tests.engines import BY_DAY, days, events
from tests.lakes import open_manager

from floe_core.config.policy import CompactPolicy, MaintenancePolicy
from floe_core.identifiers import TableIdentifier
from floe_iceberg import IcebergTableManager
from floe_iceberg.maintenance.health import _files_of, _Group, look
from floe_iceberg.maintenance.retention import expiring, of_ms, to_ms

TABLE = TableIdentifier.from_string("bronze.events")
TARGET = 1000
POLICY = MaintenancePolicy(compact=CompactPolicy(target_file_size=TARGET))


@pytest.fixture
def manager(tmp_path: Path) -> IcebergTableManager:
    return open_manager(tmp_path)


@pytest.mark.parametrize(
    ("sizes", "worth"),
    [
        ([], 0),
        ([10], 0),
        ([10] * 4, 0),
        ([10] * 5, 5),
        ([10] * 4 + [900], 0),
        ([10] * 5 + [900], 5),
        # More than a file's worth of small ones, which become fewer.
        ([700, 400, 300], 3),
        # They would be two of the same size again, and again the next night.
        ([700, 700], 0),
        ([1100], 0),
        ([1700, 1500], 0),
        ([1900], 1),
        ([1900, 10], 2),
    ],
)
def test_what_is_worth_the_work(sizes: list[int], worth: int) -> None:
    assert len(_Group(sizes).worth(POLICY.compact)) == worth


def test_deletes_make_it_worth_only_while_they_take_something_away() -> None:
    assert _Group([900], oldest=3, newest_delete=5).worth(POLICY.compact) == [900]
    assert _Group([900], oldest=6, newest_delete=5).worth(POLICY.compact) == []
    assert _Group([], newest_delete=5).worth(POLICY.compact) == []


@pytest.mark.parametrize(("size", "files"), [(10, 1), (1000, 1), (1090, 1), (1400, 2), (1800, 2), (2100, 2), (3700, 4)])
def test_as_many_files_as_iceberg_makes(size: int, files: int) -> None:
    assert _files_of(size, TARGET) == files


def test_files_of_an_earlier_partitioning_count_together(manager: IcebergTableManager) -> None:
    manager.write_data(TABLE, events(*range(6)), mode="append", partition_by=BY_DAY)
    now = datetime.now(timezone.utc)
    assert look(manager.load_table(TABLE), MaintenancePolicy(), now=now).compactable_files == 0
    manager.evolve_partitions(TABLE, [])
    assert look(manager.load_table(TABLE), MaintenancePolicy(), now=now).compactable_files == 6


def test_numbers_are_those_of_the_head(manager: IcebergTableManager) -> None:
    manager.write_data(TABLE, events(0, 1, rows=30), mode="append", partition_by=BY_DAY)
    manager.write_data(TABLE, events(0, rows=5), mode="overwrite", slice=days(0))
    manager.create_tag(TABLE, "one")
    facts = look(manager.load_table(TABLE), MaintenancePolicy(), now=datetime.now(timezone.utc))
    assert (facts.rows, facts.files, facts.partitions, facts.snapshots, facts.tags, facts.branches) == (
        35,
        2,
        2,
        2,
        1,
        1,
    )
    assert facts.manifests >= facts.few_manifests == 1
    assert not facts.too_many_manifests


def test_data_files_of_format_version_1_are_not_deletes(manager: IcebergTableManager) -> None:
    data = pa.table({"n": [1, 2]})
    manager.create_table(TABLE, data.schema, properties={"format-version": "1"})
    manager.write_data(TABLE, data, mode="append")
    facts = look(manager.load_table(TABLE), MaintenancePolicy(), now=datetime.now(timezone.utc))
    assert (facts.rows, facts.files, facts.delete_files) == (2, 1, 0)


def test_what_expires_is_told_from_the_metadata(manager: IcebergTableManager) -> None:
    data = pa.table({"n": [1]})
    made = [manager.write_data(TABLE, data, mode="append") for _ in range(6)]
    manager.create_tag(TABLE, "kept", snapshot_id=made[0].snapshot_id)
    manager.create_tag(TABLE, "aged", snapshot_id=made[1].snapshot_id, max_ref_age=timedelta(seconds=1))
    metadata = manager.load_table(TABLE).metadata
    latest = made[-1].timestamp_ms

    def gone(older_than_ms: int, keep_last: int, later_ms: int = 0) -> tuple[set[int], set[str]]:
        found = expiring(metadata, older_than_ms=older_than_ms, keep_last=keep_last, now_ms=latest + later_ms)
        return {place for place, one in enumerate(made) if one.snapshot_id in found.snapshots}, set(found.refs)

    assert gone(latest, 6) == (set(), set())
    assert gone(latest + 1, 1) == ({2, 3, 4}, set())
    assert gone(latest + 1, 3) == ({2}, set())
    assert gone(latest + 1, 1, later_ms=10_000) == ({1, 2, 3, 4}, {"aged"})
    assert gone(made[3].timestamp_ms, 1)[0] <= {2}


def test_milliseconds_are_exact_both_ways() -> None:
    assert [number for number in range(1_794_766_800_000, 1_794_766_805_000) if to_ms(of_ms(number)) != number] == []
