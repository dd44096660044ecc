"""Maintenance of many tables by policy: planned, done in the safe order, recorded, resumed; and lies are found out."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.engines import BY_DAY, days, events, rows_of
from tests.faults.clocks import clock_off
from tests.lakes import ORPHAN, began_earlier, open_manager

from floe_core.config.policy import MaintenanceConfig
from floe_core.errors import FloeStorageError
from floe_core.identifiers import TableIdentifier
from floe_core.maintenance.records import Recorder, read_records, records_path
from floe_core.maintenance.reports import ExpireReport, Step
from floe_iceberg import Lake
from floe_iceberg.files.containment import canonical
from floe_iceberg.files.listing import list_files
from floe_iceberg.maintenance.health import Light, findings, look
from floe_iceberg.maintenance.leases import leased
from floe_iceberg.maintenance.plan import TablePlan
from floe_iceberg.maintenance.run import Maintenance, Outcome, TableOutcome
from floe_spark.maintenance import compact as compact_module
from floe_spark.maintenance import expire as expire_module
from floe_spark.maintenance import orphans as orphans_module
from floe_spark.maintenance import statistics as statistics_module
from floe_spark.maintenance.calls import call

# History is kept for a second, so that there is something to expire.
AT_ONCE = {
    "retry_window": "1s",
    "floor": {"enterprise": "1s"},
    "expire": {"older_than": "1s", "keep_last": 1},
    "compact": {"min_files": 2},
}


def with_policy(lake: Lake, folder: Path, policy: dict[str, Any]) -> Lake:
    """The same lake by another floe.yaml, with a record of its own."""
    config = MaintenanceConfig.model_validate(policy).resolved()
    other = Lake(lake.artifacts.model_copy(update={"maintenance": config}).at(folder))
    other.__dict__["tables"] = lake.tables
    return other


@pytest.fixture
def at_once(lake: Lake, tmp_path: Path) -> Lake:
    return with_policy(lake, tmp_path, AT_ONCE)


def untidy(lake: Lake, table: TableIdentifier, *, orphan: bool = True) -> str:
    """A table with small files, a history and an orphan: the path of that one."""
    with pytest.MonkeyPatch.context() as patch, clock_off(patch, timedelta(seconds=-2)):  # older than the policy's 1 s
        for number in range(4):
            lake.tables.write_data(table, events(0, 1, note=f"v{number}"), mode="append", partition_by=BY_DAY)
        lake.tables.write_data(table, events(0, note="last"), mode="overwrite", slice=days(0))
    path = Path(canonical(lake.tables.load_table(table).location())) / "data" / ORPHAN
    if orphan:
        began_earlier(lake.tables.load_table(table).location())
        path.write_bytes(b"x" * 100)
        old = time.time() - timedelta(days=4).total_seconds()
        os.utime(path, (old, old))
    return str(path)


def store(lake: Lake, table: TableIdentifier) -> set[str]:
    return set(list_files(lake.tables.load_table(table), table))


def one(outcomes: Sequence[TableOutcome]) -> TableOutcome:
    (only,) = outcomes
    return only


def test_what_is_planned_is_done_in_order_and_recorded(at_once: Lake, table: TableIdentifier) -> None:
    orphan = untidy(at_once, table)
    before, metadata = store(at_once, table), at_once.tables.load_table(table).metadata_location
    rows = rows_of(at_once.tables.scan(table).to_arrow())
    maintenance = Maintenance(at_once)

    (plan,) = maintenance.plan([table])
    assert isinstance(plan, TablePlan)
    planned = {step.step: step for step in plan.steps}
    assert list(planned) == [Step.COMPACT, Step.EXPIRE, Step.ORPHANS]
    assert planned[Step.COMPACT].files == 4
    assert "4 of 5 snapshots" in planned[Step.EXPIRE].reason
    assert (planned[Step.ORPHANS].files, planned[Step.ORPHANS].bytes) == (1, 100)
    assert store(at_once, table) == before
    assert at_once.tables.load_table(table).metadata_location == metadata

    outcome = one(list(maintenance.run([table])))

    assert outcome.outcome is Outcome.DONE, outcome
    assert [report.step for report in outcome.reports] == [Step.COMPACT, Step.EXPIRE, Step.ORPHANS]
    gone = before - store(at_once, table)
    assert {path for report in outcome.reports for path in report.files_removed} == gone
    assert orphan in gone
    assert outcome.bytes_freed > 100
    assert rows_of(at_once.tables.scan(table).to_arrow()) == rows
    assert "floe.last-maintenance" in at_once.tables.load_table(table).properties
    records = list(read_records(records_path(at_once.artifacts)))
    assert [(record.step, record.status) for record in records] == [
        (Step.COMPACT, "done"),
        (Step.EXPIRE, "done"),
        (Step.ORPHANS, "done"),
    ]
    assert {path for record in records for path in record.removed} == gone
    assert records[1].policy["expire"] == {"older_than": "1s", "keep_last": 1}
    assert "5 of 6 snapshots" in records[1].reason
    for line in records_path(at_once.artifacts).read_text().splitlines():
        json.loads(line)


@pytest.mark.full
def test_what_is_done_needs_nothing_any_more(at_once: Lake, table: TableIdentifier) -> None:
    untidy(at_once, table)
    assert one(list(Maintenance(at_once).run([table]))).outcome is Outcome.DONE
    time.sleep(1.1)
    metadata = at_once.tables.load_table(table).metadata_location
    second = one(list(Maintenance(at_once).run([table])))
    assert (second.outcome, second.reports) == (Outcome.NOTHING, ())
    assert metadata == at_once.tables.load_table(table).metadata_location


def test_one_that_fails_does_not_stop_the_others(at_once: Lake, namespace: str) -> None:
    tables = [TableIdentifier(namespace=(namespace,), name=name) for name in ("a", "b", "c", "d")]
    for table in tables:
        untidy(at_once, table, orphan=False)
    with at_once.tables.load_table(tables[1]).transaction() as changes:
        changes.set_properties({"floe.maintenance.expire.older-than": "soon"})
    maintenance = Maintenance(at_once)
    at_once.tables.drop_table(tables[2])
    outcomes = list(maintenance.run(tables, [Step.EXPIRE]))
    assert [outcome.outcome for outcome in outcomes] == [Outcome.DONE, Outcome.FAILED, Outcome.GONE, Outcome.DONE]
    assert "floe.maintenance.expire.older-than" in outcomes[1].reason
    assert len(at_once.tables.list_snapshots(tables[1])) == 5
    planned = list(maintenance.plan(tables, [Step.EXPIRE]))
    assert [isinstance(plan, TablePlan) for plan in planned] == [True, False, False, True]


def test_a_table_is_left_for_later_while_somebody_maintains_or_writes_it(at_once: Lake, table: TableIdentifier) -> None:
    untidy(at_once, table, orphan=False)
    with leased(at_once.tables, table):
        outcome = one(list(Maintenance(at_once).run([table])))
    assert outcome.outcome is Outcome.LATER
    assert "is being maintained by" in outcome.reason
    busy = Maintenance(at_once, busy=lambda identifier, _table: f"{identifier.name} is being written")
    outcome = one(list(busy.run([table])))
    assert (outcome.outcome, outcome.reason) == (Outcome.LATER, "events is being written")
    assert one(list(Maintenance(at_once).run([table]))).outcome is Outcome.DONE


def test_a_step_that_fails_halfway_is_told_and_gone_on_with(
    at_once: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    untidy(at_once, table, orphan=False)
    compute = at_once.tables.require_compute()
    with monkeypatch.context() as patch:

        def fail(*_args: Any, **_named: Any) -> ExpireReport:
            raise FloeStorageError("the object store did not answer")

        patch.setattr(compute, "expire_snapshots", fail)
        outcome = one(list(Maintenance(at_once).run([table])))
    assert outcome.outcome is Outcome.FAILED
    assert "did not answer" in outcome.reason
    assert [report.step for report in outcome.reports] == [Step.COMPACT]
    assert [record.status for record in read_records(records_path(at_once.artifacts))] == ["done", "failed"]
    outcome = one(list(Maintenance(at_once).run([table])))
    assert (outcome.outcome, [report.step for report in outcome.reports]) == (Outcome.DONE, [Step.EXPIRE])


def test_what_a_consumer_has_not_read_is_kept(at_once: Lake, table: TableIdentifier) -> None:
    made = [at_once.tables.write_data(table, events(number), mode="append") for number in range(5)]
    at_once.tables.create_tag(table, "floe-cursor-silver-12345678", snapshot_id=made[2].snapshot_id)
    time.sleep(1.1)
    loaded = at_once.tables.load_table(table)
    policy = at_once.artifacts.maintenance
    facts = look(loaded, policy, now=datetime.now(timezone.utc))
    assert any("floe-cursor-silver-12345678" in finding.reason for finding in findings("x", facts, policy))
    one(list(Maintenance(at_once).run([table], [Step.EXPIRE])))
    kept = [snapshot.snapshot_id for snapshot in at_once.tables.list_snapshots(table)]
    assert kept == [snapshot.snapshot_id for snapshot in made[2:]]
    read = at_once.tables.scan_changes(table, since=made[2].snapshot_id).to_arrow()
    assert rows_of(read) == rows_of(events(3, 4))


def test_the_floor_of_governance_is_kept(lake: Lake, table: TableIdentifier, tmp_path: Path) -> None:
    refusing = with_policy(lake, tmp_path, {**AT_ONCE, "floor": {"enterprise": "1s", "products": {str(table): "30d"}}})
    untidy(refusing, table)
    before = store(refusing, table)
    outcome = one(list(Maintenance(refusing).run([table])))
    assert outcome.outcome is Outcome.FAILED
    assert f"maintenance.floor.products.{table}" in outcome.reason
    assert store(refusing, table) == before

    class Patient:
        def get_snapshot_retention(self, *_table: Any, **_policies: Any) -> timedelta:
            return timedelta(days=3)

    outcome = one(list(Maintenance(refusing, enforcer=Patient()).run([table], [Step.EXPIRE])))
    assert outcome.outcome is Outcome.NOTHING
    assert len(refusing.tables.list_snapshots(table)) == 5


@pytest.mark.full
def test_a_table_that_shares_files_or_is_left_alone_says_why(at_once: Lake, namespace: str) -> None:
    shared, alone = (TableIdentifier(namespace=(namespace,), name=name) for name in ("shared", "alone"))
    for table, said in ((shared, {"gc.enabled": "false"}), (alone, {"floe.maintenance.enabled": "false"})):
        untidy(at_once, table)
        with at_once.tables.load_table(table).transaction() as changes:
            changes.set_properties(said)
    first, second = Maintenance(at_once).run([shared, alone])
    assert [report.step for report in first.reports] == [Step.COMPACT]
    assert {step: "gc.enabled=false" in why for step, why in first.skipped} == {Step.EXPIRE: True, Step.ORPHANS: True}
    assert second.outcome is Outcome.NOTHING
    assert "enabled: false" in second.skipped[0][1]


def test_all_tables_of_a_namespace_and_below(at_once: Lake, namespace: str) -> None:
    names = [f"{namespace}.a", f"{namespace}.raw.b", f"{namespace}.raw.deep.c"]
    for name in names:
        at_once.tables.write_data(TableIdentifier.from_string(name), events(0), mode="append")
    maintenance = Maintenance(at_once)
    from floe_core.identifiers import Namespace

    def listed(*named: str) -> set[str]:
        return {str(found) for found in maintenance.tables(namespaces=[Namespace.from_string(one) for one in named])}

    assert listed(namespace) == set(names)
    assert listed(f"{namespace}.raw") == set(names[1:])
    assert set(names) <= {str(found) for found in maintenance.tables()}


def test_health_tells_what_is_wrong_and_what_mends_it(at_once: Lake, table: TableIdentifier) -> None:
    untidy(at_once, table)
    policy = at_once.artifacts.maintenance

    def told() -> dict[str, Light]:
        facts = look(at_once.tables.load_table(table), policy, now=datetime.now(timezone.utc))
        return {finding.mend: finding.light for finding in findings(str(table), facts, policy)}

    assert told() == {
        f"floe maintain run --table {table} --only compact": Light.YELLOW,
        f"floe maintain run --table {table} --only expire": Light.YELLOW,
    }
    facts = look(at_once.tables.load_table(table), policy, now=datetime.now(timezone.utc))
    assert (facts.files, facts.small_files, facts.snapshots, facts.partitions, facts.rows) == (5, 5, 5, 2, 50)
    assert facts.last_maintenance is None
    list(Maintenance(at_once).run([table]))
    time.sleep(1.1)
    assert told() == {}
    after = look(at_once.tables.load_table(table), policy, now=datetime.now(timezone.utc))
    assert after.last_maintenance is not None
    assert after.last_write is None  # all that is left of the history is a rewrite


# Lies -----------------------------------------------------------------------------------------------------------


Call = Callable[..., list[dict[str, Any]]]


def expire_now(lake: Lake, table: TableIdentifier) -> ExpireReport:
    moment = datetime.now(timezone.utc)
    return lake.tables.require_compute().expire_snapshots(table, older_than=moment, keep_last=1)


COUNTED = {
    f"deleted_{name}_count": 1
    for name in (
        "data_files",
        "position_delete_files",
        "equality_delete_files",
        "manifest_files",
        "manifest_lists",
        "statistics_files",
    )
}


def test_an_expiry_that_did_nothing_is_an_error(
    at_once: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    untidy(at_once, table, orphan=False)
    monkeypatch.setattr(expire_module, "call", lambda *_args, **_named: [COUNTED])
    with pytest.raises(FloeStorageError, match="only 0 are gone"):
        expire_now(at_once, table)
    nothing = dict.fromkeys(COUNTED, 0)
    monkeypatch.setattr(expire_module, "call", lambda *_args, **_named: [nothing])
    with pytest.raises(FloeStorageError, match="are still there; run it again"):
        expire_now(at_once, table)


def test_an_expiry_that_forgot_the_files_is_an_error(
    at_once: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As PyIceberg's own: the snapshots are forgotten, their files stay."""
    untidy(at_once, table, orphan=False)

    def forget(*_args: Any, **_named: Any) -> list[dict[str, Any]]:
        old = [snapshot.snapshot_id for snapshot in at_once.tables.list_snapshots(table)][:-1]
        at_once.tables.load_table(table).maintenance.expire_snapshots().by_ids(old).commit()
        return [COUNTED]

    monkeypatch.setattr(expire_module, "call", forget)
    with pytest.raises(FloeStorageError, match=r"files of expired snapshots .* are still there"):
        expire_now(at_once, table)


def test_an_expiry_that_deletes_too_much_is_told_loudly(
    at_once: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    untidy(at_once, table, orphan=False)
    real = call

    def too_much(*args: Any, **named: Any) -> list[dict[str, Any]]:
        rows = real(*args, **named)
        Path(canonical(next(iter(at_once.tables.scan(table).plan_files())).file.file_path)).unlink()
        return rows

    monkeypatch.setattr(expire_module, "call", too_much)
    with pytest.raises(FloeStorageError, match=r"1 files that .* still needs are gone"):
        expire_now(at_once, table)


def test_a_compaction_that_did_nothing_is_an_error(
    at_once: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    untidy(at_once, table, orphan=False)
    told = {
        "rewritten_data_files_count": 4,
        "added_data_files_count": 1,
        "rewritten_bytes_count": 1,
        "failed_data_files_count": 0,
        "removed_delete_files_count": 0,
    }
    monkeypatch.setattr(compact_module, "call", lambda *_args, **_named: [told])
    with pytest.raises(FloeStorageError, match="no snapshot of the table shows it"):
        at_once.tables.compact_table(table)
    monkeypatch.setattr(compact_module, "call", lambda *_args, **_named: [{**told, "failed_data_files_count": 2}])
    with pytest.raises(FloeStorageError, match="left 2 files as they were"):
        at_once.tables.compact_table(table)


def test_orphans_that_are_still_there_or_needed_are_an_error(
    at_once: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    orphan = untidy(at_once, table)
    needed = next(iter(at_once.tables.scan(table).plan_files())).file.file_path
    lies = ((orphan, "are still there"), (needed, "that the table needs"), ("/elsewhere/x", "that it was not given"))
    for found, words in lies:
        rows = [{"orphan_file_location": found}]
        monkeypatch.setattr(orphans_module, "call", lambda *_args, rows=rows, **_named: rows)
        with pytest.raises(FloeStorageError, match=words):
            at_once.tables.remove_orphans(table, dry_run=False)
    assert Path(orphan).exists()


def test_statistics_that_are_not_there_are_an_error(
    at_once: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    untidy(at_once, table, orphan=False)
    monkeypatch.setattr(
        statistics_module, "call", lambda *_args, **_named: [{"statistics_file": "file:///nowhere/x.stats"}]
    )
    with pytest.raises(FloeStorageError, match="the table does not list it"):
        at_once.tables.compute_statistics(table)


def test_a_record_survives_half_a_line(tmp_path: Path) -> None:
    path = tmp_path / "maintenance.jsonl"
    whole = {"at": "2026-01-01T00:00:00Z", "run": "a", "table": "x.y", "step": "expire", "status": "began"}
    path.write_text(json.dumps(whole) + '\n{"at"')
    (record,) = read_records(path)
    assert (record.status, record.step) == ("began", Step.EXPIRE)


def test_a_plan_is_made_without_spark(tmp_path: Path) -> None:
    manager = open_manager(tmp_path)
    table = TableIdentifier.from_string("a.b")
    for number in range(6):
        manager.write_data(table, events(0, note=str(number)), mode="append")
    facts = look(manager.load_table(table), MaintenanceConfig(), now=datetime.now(timezone.utc))
    assert (facts.compactable_files, len(facts.expiring.snapshots)) == (6, 0)


# What somebody else still needs ---------------------------------------------------------------------------------


def set_back(path: Path) -> None:
    old = time.time() - timedelta(days=4).total_seconds()
    os.utime(path, (old, old))


def test_a_table_whose_name_floe_does_not_take_keeps_its_files(at_once: Lake, table: TableIdentifier) -> None:
    untidy(at_once, table)
    location = at_once.tables.load_table(table).location()
    name = f"lake.`{table.namespace[0]}`.`child tab`"
    at_once.spark.sql(f"CREATE TABLE {name} (n INT) USING iceberg LOCATION '{location}/data/child'")
    at_once.spark.sql(f"INSERT INTO {name} VALUES (1)")
    for path in Path(canonical(location), "data", "child").rglob("*"):
        set_back(path)
    outcome = one(list(Maintenance(at_once).run([table], [Step.ORPHANS])))
    assert outcome.outcome is Outcome.REFUSED
    assert not outcome.is_complete
    assert "child tab" in outcome.skipped[0][1]
    with pytest.raises(FloeStorageError, match="child tab"):
        at_once.tables.remove_orphans(table, dry_run=False)
    assert at_once.spark.sql(f"SELECT n FROM {name}").count() == 1
    at_once.spark.sql(f"DROP TABLE {name}")


def test_a_table_that_is_registered_twice_is_not_expired(at_once: Lake, table: TableIdentifier) -> None:
    untidy(at_once, table, orphan=False)
    second = TableIdentifier(namespace=table.namespace, name="second")
    at_once.tables.register_table(second, at_once.tables.load_table(table).metadata_location)
    rows = rows_of(at_once.tables.scan(second).to_arrow())
    at_once.tables.write_data(table, events(5), mode="overwrite")
    time.sleep(1.1)
    outcome = one(list(Maintenance(at_once).run([table], [Step.EXPIRE])))
    assert outcome.outcome is Outcome.REFUSED
    assert f"'{second}' is the same table as '{table}'" in outcome.skipped[0][1]
    with pytest.raises(FloeStorageError, match="is the same table"):
        expire_now(at_once, table)
    assert rows_of(at_once.tables.scan(second).to_arrow()) == rows
    at_once.tables.drop_table(second)
    assert expire_now(at_once, table).snapshots


def test_files_that_another_table_wrote_here_once_are_no_orphans(at_once: Lake, table: TableIdentifier) -> None:
    untidy(at_once, table)
    other = TableIdentifier(namespace=table.namespace, name="guest")
    place = f"{at_once.tables.load_table(table).location()}/data/guest"
    at_once.tables.write_data(other, events(0), mode="append", properties={"write.data.path": place})
    with at_once.tables.load_table(other).transaction() as changes:
        changes.remove_properties("write.data.path")
    for path in Path(canonical(place)).rglob("*.parquet"):
        set_back(path)
    report = at_once.tables.remove_orphans(table, dry_run=False)
    assert [Path(one).name for one in report.files_removed] == [ORPHAN]
    assert {one.reason for one in report.not_removed} == {f"'{other}' uses it"}
    assert at_once.tables.scan(other).to_arrow().num_rows == 10
    at_once.tables.drop_table(other)


def test_an_expiry_asked_for_by_hand_keeps_what_a_consumer_has_not_read(at_once: Lake, table: TableIdentifier) -> None:
    made = [at_once.tables.write_data(table, events(number), mode="append") for number in range(4)]
    at_once.tables.move_tag(table, "floe-cursor-silver-12345678", made[1].snapshot_id)
    with at_once.tables.load_table(table).transaction() as changes:
        changes.set_properties({"history.expire.max-ref-age-ms": "1"})
    time.sleep(0.1)
    assert set(expire_now(at_once, table).snapshots) == {made[0].snapshot_id}
    assert "floe-cursor-silver-12345678" in at_once.tables.load_table(table).metadata.refs


@pytest.mark.full
def test_a_table_whose_refs_age_keeps_the_lease(at_once: Lake, table: TableIdentifier) -> None:
    untidy(at_once, table)
    with at_once.tables.load_table(table).transaction() as changes:
        changes.set_properties({"history.expire.max-ref-age-ms": "1"})
    outcome = one(list(Maintenance(at_once).run([table])))
    assert (outcome.outcome, outcome.reason) == (Outcome.DONE, "")
    assert [report.step for report in outcome.reports] == [Step.COMPACT, Step.EXPIRE, Step.ORPHANS]


# Nothing is wrong -----------------------------------------------------------------------------------------------


def test_somebody_who_writes_during_an_expiry_makes_no_error(
    at_once: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Metadata files that go by right, and snapshots that the write has made old enough."""
    untidy(at_once, table, orphan=False)
    said = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "1"}
    with at_once.tables.load_table(table).transaction() as changes:
        changes.set_properties(said)

    def and_write(*args: Any, **named: Any) -> list[dict[str, Any]]:
        rows = call(*args, **named)
        for number in range(3):
            at_once.tables.write_data(table, events(1, note=f"new {number}"), mode="append")
        return rows

    monkeypatch.setattr(expire_module, "call", and_write)
    moment = datetime.now(timezone.utc)
    report = at_once.tables.require_compute().expire_snapshots(table, older_than=moment, keep_last=2)
    assert len(report.snapshots) == 3


@pytest.mark.full
def test_files_that_lay_elsewhere_once_make_no_error(
    at_once: Lake, table: TableIdentifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    owned = at_once.tables.config.model_copy(update={"owned_locations": (str(elsewhere),)})
    monkeypatch.setattr(at_once.tables, "config", owned)
    said = {"write.data.path": f"file://{elsewhere}"}
    at_once.tables.write_data(table, events(0), mode="append", properties=said)
    with at_once.tables.load_table(table).transaction() as changes:
        changes.remove_properties("write.data.path")
    at_once.tables.write_data(table, events(1), mode="overwrite")
    at_once.tables.write_data(table, events(2), mode="append")
    assert list(elsewhere.rglob("*.parquet"))
    expire_now(at_once, table)
    assert list(elsewhere.rglob("*.parquet")) == []


# Not again every night ------------------------------------------------------------------------------------------


def nothing_more(lake: Lake, table: TableIdentifier) -> TableOutcome:
    first = one(list(Maintenance(lake).run([table])))
    assert first.outcome is Outcome.DONE, first
    time.sleep(1.1)
    one(list(Maintenance(lake).run([table], [Step.EXPIRE])))
    second = one(list(Maintenance(lake).run([table])))
    assert (second.outcome, second.reports) == (Outcome.NOTHING, ())
    return first


@pytest.mark.full
def test_manifests_of_an_earlier_partitioning_become_fewer_once(at_once: Lake, table: TableIdentifier) -> None:
    for number in range(22):
        at_once.tables.write_data(table, events(number), mode="append", partition_by=BY_DAY)
    at_once.tables.evolve_partitions(table, [])
    for number in range(2):
        at_once.tables.write_data(table, events(number), mode="append")
    with at_once.tables.load_table(table).transaction() as changes:
        changes.set_properties({"floe.maintenance.compact.min-files": "100"})
    assert Step.MANIFESTS in [report.step for report in nothing_more(at_once, table).reports]


@pytest.mark.full
def test_rows_too_large_for_the_target_are_left_as_they_are(at_once: Lake, table: TableIdentifier) -> None:
    large = [os.urandom(50_000).hex() for _ in range(20)]
    for number in range(2):
        at_once.tables.write_data(table, pa.table({"note": large[number * 10 : number * 10 + 10]}), mode="append")
    with at_once.tables.load_table(table).transaction() as changes:
        changes.set_properties({"floe.maintenance.compact.target-file-size": "500KB"})
    time.sleep(1.1)
    nothing_more(at_once, table)


def test_files_that_iceberg_hides_are_not_planned(at_once: Lake, table: TableIdentifier) -> None:
    untidy(at_once, table, orphan=False)
    root = Path(canonical(at_once.tables.load_table(table).location()))
    (root / "data" / "_x=1").mkdir()
    for name in ("metadata/version-hint.text", "data/_x=1/a.parquet", "data/.hidden"):
        (root / name).write_bytes(b"1")
        set_back(root / name)
    outcome = one(list(Maintenance(at_once).run([table], [Step.ORPHANS])))
    assert (outcome.outcome, outcome.skipped) == (Outcome.NOTHING, ())


def test_a_table_without_countable_columns_has_no_statistics(at_once: Lake, table: TableIdentifier) -> None:
    said = {"floe.maintenance.statistics": "true"}
    at_once.tables.write_data(table, pa.table({"a": [[1, 2]]}), mode="append", properties=said)
    outcome = one(list(Maintenance(at_once).run([table], [Step.STATISTICS])))
    assert outcome.outcome is Outcome.NOTHING
    assert "could be counted" in outcome.skipped[0][1]


@pytest.mark.full
def test_statistics_are_computed_once_for_each_change(at_once: Lake, table: TableIdentifier) -> None:
    said = {"floe.maintenance.statistics": "true"}
    at_once.tables.write_data(table, events(0), mode="append", properties=said)
    steps = [Step.STATISTICS]
    assert one(list(Maintenance(at_once).run([table], steps))).outcome is Outcome.DONE
    assert one(list(Maintenance(at_once).run([table], steps))).outcome is Outcome.NOTHING
    at_once.tables.write_data(table, events(1), mode="append")
    assert one(list(Maintenance(at_once).run([table], steps))).outcome is Outcome.DONE


def test_a_record_survives_what_was_cut_off_before_it(tmp_path: Path) -> None:
    path = tmp_path / "maintenance.jsonl"
    path.write_text('{"at": "20')
    recorder = Recorder(path)
    report = ExpireReport(
        table="x.y", older_than=datetime.now(timezone.utc), keep_last=1, files_removed=("a\u2028b", "c" * 3_000_000)
    )
    recorder.write("x.y", Step.EXPIRE, "done", reason="r", policy={}, report=report)
    (record,) = read_records(path)
    assert record.removed == report.files_removed
