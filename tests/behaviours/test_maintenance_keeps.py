"""What somebody else still needs is kept, however it came to lie there; and what was deleted is counted."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef
from pyiceberg.table.update import SetSnapshotRefUpdate
from tests.behaviours.test_maintenance_run import AT_ONCE, expire_now, one, set_back, store, untidy, with_policy
from tests.engines import events, rows_of
from tests.lakes import ORPHAN, began_earlier

from floe_core.errors import ConfigurationError, FloeStorageError
from floe_core.identifiers import TableIdentifier
from floe_core.maintenance.records import read_records, records_path
from floe_core.maintenance.reports import MismatchError, Step
from floe_iceberg import Lake
from floe_iceberg.files.containment import canonical
from floe_iceberg.maintenance.health import findings, look
from floe_iceberg.maintenance.run import Maintenance, Outcome
from floe_spark.maintenance import expire as expire_module
from floe_spark.maintenance.calls import call


@pytest.fixture
def at_once(lake: Lake, tmp_path: Path) -> Lake:
    return with_policy(lake, tmp_path, AT_ONCE)


def folder_of(lake: Lake, table: TableIdentifier) -> Path:
    return Path(canonical(lake.tables.load_table(table).location()))


def plant(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * 100)
    set_back(path)
    return path


def age_all(folder: Path) -> None:
    for path in folder.rglob("*"):
        set_back(path)


# History --------------------------------------------------------------------------------------------------------


def test_a_branch_that_keeps_less_than_the_policy_is_not_expired(
    lake: Lake, table: TableIdentifier, tmp_path: Path
) -> None:
    patient = with_policy(lake, tmp_path, {"expire": {"older_than": "7d"}})
    made = [lake.tables.write_data(table, events(number), mode="append") for number in range(4)]
    loaded = lake.tables.load_table(table)
    shorter = SetSnapshotRefUpdate(
        ref_name=MAIN_BRANCH,
        type="branch",
        snapshot_id=made[-1].snapshot_id,
        max_ref_age_ms=None,
        max_snapshot_age_ms=1,
        min_snapshots_to_keep=1,
    )
    loaded.catalog.commit_table(loaded, (), (shorter,))
    assert isinstance(lake.tables.load_table(table).metadata.refs[MAIN_BRANCH], SnapshotRef)
    time.sleep(0.01)
    outcome = one(list(Maintenance(patient).run([table], [Step.EXPIRE])))
    assert outcome.outcome is Outcome.REFUSED
    assert f"3 snapshots of '{table}' that the policy keeps would expire" in outcome.skipped[0][1]
    with pytest.raises(
        ConfigurationError, match=r"a branch has a shorter retention of its own \(main\).*nothing was expired"
    ):
        lake.tables.expire_snapshots(table, older_than_days=7, keep_last=10)
    assert len(lake.tables.list_snapshots(table)) == 4


def test_history_is_expired_although_files_could_not_be_rewritten(
    lake: Lake, table: TableIdentifier, tmp_path: Path
) -> None:
    unsorted = with_policy(lake, tmp_path, {**AT_ONCE, "compact": {"strategy": "sort", "min_files": 2}})
    untidy(unsorted, table)
    outcome = one(list(Maintenance(unsorted).run([table])))
    assert (outcome.outcome, [report.step for report in outcome.reports]) == (
        Outcome.FAILED,
        [Step.EXPIRE, Step.ORPHANS],
    )
    assert "has no sort order" in outcome.reason
    told = [(record.step, record.status) for record in read_records(records_path(unsorted.artifacts))]
    assert told == [(Step.COMPACT, "failed"), (Step.EXPIRE, "done"), (Step.ORPHANS, "done")]
    assert len(lake.tables.list_snapshots(table)) == 1


def test_what_was_deleted_is_recorded_when_the_numbers_do_not_agree(
    at_once: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    untidy(at_once, table, orphan=False)
    before = store(at_once, table)

    def boast(*args: Any, **named: Any) -> list[dict[str, Any]]:
        (row,) = call(*args, **named)
        return [{**row, "deleted_data_files_count": row["deleted_data_files_count"] + 100}]

    monkeypatch.setattr(expire_module, "call", boast)
    outcome = one(list(Maintenance(at_once).run([table], [Step.EXPIRE])))
    assert outcome.outcome is Outcome.FAILED
    (record,) = read_records(records_path(at_once.artifacts))
    gone = before - store(at_once, table)
    assert gone
    assert (record.status, set(record.removed) & gone, record.files) == ("failed", set(record.removed), len(gone))


def test_a_difference_carries_what_is_gone(
    at_once: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    untidy(at_once, table, orphan=False)

    def boast(*args: Any, **named: Any) -> list[dict[str, Any]]:
        (row,) = call(*args, **named)
        return [{**row, "deleted_manifest_files_count": 1000}]

    monkeypatch.setattr(expire_module, "call", boast)
    with pytest.raises(MismatchError) as told:
        expire_now(at_once, table)
    assert told.value.report is not None
    assert all(not Path(path).exists() for path in told.value.report.files_removed)


# Other tables ---------------------------------------------------------------------------------------------------


def test_a_table_restored_from_a_copy_of_the_metadata_is_a_twin(
    at_once: Lake, table: TableIdentifier, tmp_path: Path
) -> None:
    untidy(at_once, table, orphan=False)
    copy = tmp_path / "backup" / "v1.metadata.json"
    copy.parent.mkdir()
    shutil.copy(canonical(at_once.tables.load_table(table).metadata_location), copy)
    restored = TableIdentifier(namespace=table.namespace, name="restored")
    at_once.tables.register_table(restored, copy.as_uri())
    rows = rows_of(at_once.tables.scan(restored).to_arrow())
    at_once.tables.write_data(table, events(5), mode="overwrite")
    time.sleep(1.1)
    outcome = one(list(Maintenance(at_once).run([table], [Step.EXPIRE])))
    assert f"'{restored}' is the same table as '{table}'" in outcome.skipped[0][1]
    with pytest.raises(FloeStorageError, match="is the same table"):
        expire_now(at_once, table)
    assert rows_of(at_once.tables.scan(restored).to_arrow()) == rows


def test_a_table_that_appears_while_maintenance_runs_is_seen(at_once: Lake, namespace: str) -> None:
    first, second, late = (TableIdentifier(namespace=(namespace,), name=name) for name in ("first", "second", "late"))
    for table in (first, second):
        untidy(at_once, table)
    maintenance = Maintenance(at_once)
    assert one(list(maintenance.run([first], [Step.ORPHANS]))).files_removed == 1
    place = folder_of(at_once, second) / "data" / "late"
    at_once.spark.sql(f"CREATE TABLE lake.{late} (id BIGINT) USING iceberg LOCATION '{place.as_uri()}'")
    at_once.tables.write_data(late, pa.table({"id": [1]}), mode="append")
    age_all(place)
    outcome = one(list(maintenance.run([second], [Step.ORPHANS])))
    assert f"files of '{late}' lie in or below the location of '{second}'" in outcome.skipped[0][1]
    assert rows_of(at_once.tables.scan(late).to_arrow()) == [(1,)]


def test_a_location_written_in_another_way_is_the_same_place(at_once: Lake, table: TableIdentifier) -> None:
    untidy(at_once, table)
    place = str(folder_of(at_once, table) / "data" / "child").replace("/warehouse/", "//warehouse//")
    child = TableIdentifier(namespace=table.namespace, name="child")
    catalog: Any = at_once.tables.catalog_plugin.connect()
    made = catalog.create_table(str(child), pa.schema([("n", pa.int64())]), location=f"file://{place}")
    assert "//warehouse//" in made.location()
    at_once.tables.write_data(child, pa.table({"n": [1]}), mode="append")
    age_all(folder_of(at_once, table) / "data")
    outcome = one(list(Maintenance(at_once).run([table], [Step.ORPHANS])))
    assert (outcome.outcome, "child' lie in or below" in outcome.skipped[0][1]) == (Outcome.REFUSED, True)
    with pytest.raises(FloeStorageError, match="lie in or below"):
        at_once.tables.remove_orphans(table, dry_run=False)
    assert rows_of(at_once.tables.scan(child).to_arrow()) == [(1,)]


def test_what_a_link_leads_to_is_no_orphan(at_once: Lake, table: TableIdentifier, tmp_path: Path) -> None:
    untidy(at_once, table)
    mine = plant(tmp_path / "archive" / ORPHAN)
    link = folder_of(at_once, table) / "data" / "old"
    link.symlink_to(mine.parent)
    outcome = one(list(Maintenance(at_once).run([table], [Step.ORPHANS])))
    assert (outcome.outcome, outcome.files_removed) == (Outcome.DONE, 1)
    assert [(one.path, one.reason) for one in outcome.not_removed] == [
        (str(link / ORPHAN), "it is reached through a link")
    ]
    assert mine.exists()


# Files ----------------------------------------------------------------------------------------------------------


def test_files_of_odd_names_are_counted_as_they_are_removed(at_once: Lake, table: TableIdentifier) -> None:
    untidy(at_once, table, orphan=False)
    began_earlier(folder_of(at_once, table))
    data = folder_of(at_once, table) / "data"
    odd = [plant(data / name / ORPHAN) for name in ("left#1", "que?", "a b%20é", "plain")]
    outcome = one(list(Maintenance(at_once).run([table], [Step.ORPHANS])))
    assert [path for path in odd if path.exists()] == []
    assert set(outcome.reports[0].files_removed) == {str(path) for path in odd}
    assert outcome.bytes_freed == 400


def test_live_files_below_a_path_written_in_another_way_are_no_orphans(at_once: Lake, table: TableIdentifier) -> None:
    place = at_once.tables.create_table(table, pa.schema([("id", pa.int64())])).location()
    with at_once.tables.load_table(table).transaction() as changes:
        changes.set_properties({"write.data.path": f"{place}//x/..//data"})
    at_once.tables.write_data(table, pa.table({"id": [1]}), mode="append")
    nobodys = plant(folder_of(at_once, table) / "data" / ORPHAN)
    age_all(folder_of(at_once, table))
    began_earlier(folder_of(at_once, table))
    plan = next(iter(Maintenance(at_once).plan([table], [Step.ORPHANS])))
    assert [step.files for step in plan.steps] == [1]  # type: ignore[union-attr]
    outcome = one(list(Maintenance(at_once).run([table], [Step.ORPHANS])))
    assert nobodys.exists() is (outcome.outcome is Outcome.FAILED)  # removed, or Iceberg was told no
    assert rows_of(at_once.tables.scan(table).to_arrow()) == [(1,)]


def test_an_idle_table_is_left_alone_although_leases_leave_versions_of_metadata_behind(
    at_once: Lake, table: TableIdentifier
) -> None:
    few = {"write.metadata.previous-versions-max": "2", "write.metadata.delete-after-commit.enabled": "false"}
    for number in range(6):
        at_once.tables.write_data(table, events(number), mode="append", properties=few if not number else None)
    age_all(folder_of(at_once, table))
    began_earlier(folder_of(at_once, table))
    assert one(list(Maintenance(at_once).run([table], [Step.ORPHANS]))).outcome is Outcome.NOTHING
    # Together with others they go.
    plant(folder_of(at_once, table) / "data" / ORPHAN)
    assert one(list(Maintenance(at_once).run([table], [Step.ORPHANS]))).files_removed > 1


# Words ----------------------------------------------------------------------------------------------------------


def test_a_table_that_spark_cannot_read_says_so_once_something_is_due(at_once: Lake, table: TableIdentifier) -> None:
    at = pa.array([datetime(2026, 1, 1, 12).time()], pa.time64("us"))
    data = pa.table({"inner": pa.StructArray.from_arrays([at], ["at"])})
    at_once.tables.write_data(table, data, mode="append")
    assert one(list(Maintenance(at_once).run([table]))).outcome is Outcome.NOTHING
    for _ in range(2):
        at_once.tables.write_data(table, data, mode="append")
    outcome = one(list(Maintenance(at_once).run([table])))
    assert outcome.outcome is Outcome.REFUSED
    assert Step.COMPACT in {step for step, _ in outcome.skipped}
    assert "columns of type time" in outcome.skipped[0][1]


@pytest.mark.parametrize("said", ["false", "no", "0"])
def test_files_are_shared_unless_gc_is_enabled_as_iceberg_reads_it(
    at_once: Lake, table: TableIdentifier, said: str
) -> None:
    untidy(at_once, table)
    with at_once.tables.load_table(table).transaction() as changes:
        changes.set_properties({"gc.enabled": said})
    before = store(at_once, table)
    outcome = one(list(Maintenance(at_once).run([table], [Step.EXPIRE, Step.ORPHANS])))
    assert [(step, f"gc.enabled={said}" in why) for step, why in outcome.skipped] == [
        (Step.EXPIRE, True),
        (Step.ORPHANS, True),
    ]
    with pytest.raises(FloeStorageError, match=f"gc.enabled={said}"):
        at_once.tables.drop_table(table, purge=True)
    assert before <= store(at_once, table)


def test_properties_that_every_table_of_the_project_has_do_not_outvote_a_namespace(
    lake: Lake, table: TableIdentifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {"history.expire.max-snapshot-age-ms": "172800000"}
    config = lake.tables.config
    both = config.model_copy(update={"table_properties": {**config.table_properties, **said}})
    monkeypatch.setattr(lake.tables, "config", both)
    lake.tables.write_data(table, events(0), mode="append")
    policy = {"namespaces": {table.namespace[0]: {"expire": {"older_than": "30d"}}}}
    plan = next(iter(Maintenance(with_policy(lake, tmp_path, policy)).plan([table])))
    assert plan.policy.expire.older_than == timedelta(days=30)  # type: ignore[union-attr]


def test_a_time_without_a_zone_does_not_hide_the_health_of_a_table(at_once: Lake, table: TableIdentifier) -> None:
    properties = {"floe.last-maintenance": "2026-01-01"}
    at_once.tables.write_data(table, events(0), mode="append", properties=properties)
    facts = look(at_once.tables.load_table(table), at_once.artifacts.maintenance, now=datetime.now(timezone.utc))
    assert facts.last_maintenance == datetime(2026, 1, 1, tzinfo=timezone.utc)
    assert findings("x", facts, at_once.artifacts.maintenance) == []


def test_an_age_of_refs_that_is_no_number_is_named(at_once: Lake, table: TableIdentifier) -> None:
    properties = {"history.expire.max-ref-age-ms": "banana"}
    at_once.tables.write_data(table, events(0), mode="append", properties=properties)
    at_once.tables.create_tag(table, "kept")
    outcome = one(list(Maintenance(at_once).run([table])))
    assert outcome.outcome is Outcome.FAILED
    assert "history.expire.max-ref-age-ms is 'banana'; it must be a number of milliseconds" in outcome.reason


BAD: list[tuple[Callable[[Lake, TableIdentifier], object], str]] = [
    (lambda lake, table: lake.tables.remove_orphans(table, "3"), "older_than_days is '3'"),  # type: ignore[arg-type]
    (lambda lake, table: lake.tables.remove_orphans(table, 1e9), "further than any calendar"),
    (lambda lake, _: lake.tables.remove_orphans(7), "TableIdentifier"),  # type: ignore[arg-type]
    (lambda lake, table: lake.tables.compact_table(table, target_file_size="128MB"), "target_file_size is '128MB'"),  # type: ignore[arg-type]
    (lambda lake, table: lake.tables.compact_table(table, min_files="5"), "min_files is '5'"),  # type: ignore[arg-type]
    (lambda lake, table: lake.tables.compact_table(table, slice="x"), "slice is 'x'; it must be a TableSlice"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("act", "words"), BAD, ids=[words for _, words in BAD])
def test_bad_arguments_are_told(
    lake: Lake, table: TableIdentifier, act: Callable[[Lake, TableIdentifier], object], words: str
) -> None:
    lake.tables.write_data(table, events(0), mode="append")
    with pytest.raises(ConfigurationError, match=words):
        act(lake, table)
    assert len(lake.tables.list_snapshots(table)) == 1
