"""Maintenance: what goes is gone from the store, what somebody needs stays, and the report is the truth."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.table import Table
from tests.catalogs import CATALOGS, rest_settings, side_lake
from tests.engines import BY_DAY, ArrowEngine, Engine, day, days, events, live_files, rows_of
from tests.faults.proxy import Answer, FaultProxy, Forward, answered, dropped, fault_proxy, never_arrived
from tests.lakes import ORPHAN, began_earlier, open_manager
from tests.servers.seaweedfs import SeaweedFS

from floe_core.config.policy import CompactionStrategy
from floe_core.errors import (
    CommitStateUnknownError,
    ConfigurationError,
    FloeStorageError,
    PluginError,
    TableNotFoundError,
)
from floe_core.identifiers import Namespace, TableIdentifier
from floe_iceberg import IcebergTableManager, Lake
from floe_iceberg.files.containment import canonical
from floe_iceberg.files.listing import list_files
from floe_iceberg.maintenance import leases
from floe_iceberg.maintenance.leases import LEASE, LeaseHeldError, _Lease, holder_of, leased
from floe_iceberg.maintenance.retention import of_ms
from floe_iceberg.snapshots.refs import commit_refs
from floe_iceberg.writing.commits import Commit
from floe_spark.names import table_name


def now() -> datetime:
    return datetime.now(timezone.utc)


def store(lake: Lake, table: TableIdentifier) -> set[str]:
    """Every file below the table's location, as the store has them."""
    return set(list_files(lake.tables.load_table(table), table))


def needed(lake: Lake, table: TableIdentifier) -> set[str]:
    """Every file that a snapshot of the table leads to, from the metadata, without Floe's own words for it."""
    loaded = lake.tables.load_table(table)
    found = {loaded.metadata_location, *(one.metadata_file for one in loaded.metadata.metadata_log)}
    found |= {one.statistics_path for one in loaded.metadata.statistics}
    for snapshot in loaded.snapshots():
        found.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(loaded.io):
            found.add(manifest.manifest_path)
            entries = manifest.fetch_manifest_entry(loaded.io, discard_deleted=True)
            found |= {entry.data_file.file_path for entry in entries}
    return {canonical(path) for path in found}


def history(engine: Engine, table: TableIdentifier, writes: int = 6) -> list[Any]:
    """A table whose day is overwritten again and again: each snapshot has files that no later one needs."""
    made = [engine.write(table, events(0, 1, note="v0"), mode="append", partition_by=BY_DAY)]
    made += [
        engine.write(table, events(0, note=f"v{number}"), mode="overwrite", slice=days(0))
        for number in range(1, writes)
    ]
    return made


@pytest.mark.every_catalog
def test_expiry_removes_exactly_what_nothing_leads_to(engine: Engine, table: TableIdentifier) -> None:
    lake = engine.lake
    made = history(engine, table)
    lake.tables.create_tag(table, "audit", snapshot_id=made[1].snapshot_id)
    lake.tables.create_branch(table, "trial", snapshot_id=made[2].snapshot_id)
    tagged = {ref: rows_of(engine.read(table, ref=ref)) for ref in ("audit", "trial")}
    kept = {one.snapshot_id: rows_of(engine.read(table, snapshot_id=one.snapshot_id)) for one in made[4:]}
    before = store(lake, table)

    cutoff = of_ms(made[4].timestamp_ms)
    report = lake.tables.require_compute().expire_snapshots(table, older_than=cutoff, keep_last=1)

    left = {one.snapshot_id for one in lake.tables.list_snapshots(table)}
    assert left == {made[1].snapshot_id, made[2].snapshot_id, made[4].snapshot_id, made[5].snapshot_id}
    assert set(report.snapshots) == {made[0].snapshot_id, made[3].snapshot_id}
    after = store(lake, table)
    expected = {path for path in before if "/metadata/" not in path or not path.endswith(".metadata.json")}
    assert before - after == expected - needed(lake, table)
    assert before - after, "nothing was removed"
    assert set(report.files_removed) == before - after
    assert report.bytes_freed > 0
    for ref, rows in tagged.items():
        assert rows_of(engine.read(table, ref=ref)) == rows
    for snapshot_id, rows in kept.items():
        assert rows_of(engine.read(table, snapshot_id=snapshot_id)) == rows


def test_expiry_keeps_to_the_millisecond_and_to_the_last(engine: Engine, table: TableIdentifier) -> None:
    lake = engine.lake
    made = history(engine, table, writes=4)
    compute = lake.tables.require_compute()
    exactly = of_ms(made[2].timestamp_ms)

    report = compute.expire_snapshots(table, older_than=exactly, keep_last=4)
    assert (report.snapshots, report.files_removed) == ((), ())
    report = compute.expire_snapshots(table, older_than=exactly, keep_last=1)
    assert set(report.snapshots) == {made[0].snapshot_id, made[1].snapshot_id}
    report = compute.expire_snapshots(table, older_than=exactly + timedelta(milliseconds=1), keep_last=1)
    assert set(report.snapshots) == {made[2].snapshot_id}
    assert [one.snapshot_id for one in lake.tables.list_snapshots(table)] == [made[3].snapshot_id]


def small_files(engine: Engine, table: TableIdentifier, *, files: int = 8) -> None:
    for number in range(files):
        data = events(0, 1, rows=3, note=f"v{number}")
        engine.write(table, data, mode="append", **({} if number else {"partition_by": BY_DAY}))


@pytest.mark.every_catalog
def test_compaction_keeps_the_rows_and_the_past(engine: Engine, table: TableIdentifier) -> None:
    lake = engine.lake
    small_files(engine, table)
    head = lake.tables.current_snapshot(table)
    assert head is not None
    rows = rows_of(engine.read(table))

    report = lake.tables.compact_table(table)

    assert {day: len(files) for day, files in live_files(lake, table).items()} == dict.fromkeys(
        live_files(lake, table), 1
    )
    assert (report.files_rewritten, report.files_added, report.rows) == (16, 2, len(rows))
    assert rows_of(engine.read(table)) == rows
    assert rows_of(engine.read(table, snapshot_id=head.snapshot_id)) == rows
    after = lake.tables.current_snapshot(table)
    assert after is not None
    assert (after.operation, after.snapshot_id) == ("replace", report.snapshot_id)
    again = lake.tables.compact_table(table)
    assert (again.files_rewritten, again.snapshot_id) == (0, None)


@pytest.mark.parametrize("strategy", list(CompactionStrategy))
def test_compaction_lays_rows_as_asked(lake: Lake, table: TableIdentifier, strategy: CompactionStrategy) -> None:
    shuffled = [(number * 7919) % 600 for number in range(600)]
    for start in range(0, 600, 100):
        part = shuffled[start : start + 100]
        data = pa.table({"n": pa.array(part, pa.int64()), "m": pa.array([-one for one in part], pa.int64())})
        lake.tables.write_data(table, data, mode="append")
    columns = {"sort": ["n"], "zorder": ["n", "m"]}.get(strategy.value, [])

    report = lake.tables.compact_table(table, strategy, columns=columns)

    assert (report.files_rewritten, report.files_added) == (6, 1)
    found = lake.tables.scan(table).to_arrow()["n"].to_pylist()
    assert sorted(found) == list(range(600))
    if strategy is CompactionStrategy.SORT:
        assert found == list(range(600))
    if strategy is CompactionStrategy.Z_ORDER:
        assert found != shuffled


def test_compaction_of_a_slice_leaves_the_other_files(lake: Lake, table: TableIdentifier) -> None:
    for number in range(6):
        data = events(0, 1, 2, rows=2, note=str(number))
        lake.tables.write_data(table, data, mode="append", partition_by=[] if number else BY_DAY)
    before, rows = live_files(lake, table), rows_of(lake.tables.scan(table).to_arrow())
    report = lake.tables.compact_table(table, slice=days(1))
    after = live_files(lake, table)
    first, second, third = sorted(before)
    assert (report.files_rewritten, report.files_added) == (6, 1)
    assert (after[first], after[third]) == (before[first], before[third])
    assert len(after[second]) == 1
    assert rows_of(lake.tables.scan(table).to_arrow()) == rows


def test_the_size_that_is_asked_for_decides_how_many_files_there_are(lake: Lake, table: TableIdentifier) -> None:
    noise = [f"{number:032x}{number * 7919:032x}" for number in range(60_000)]
    for start in range(0, 60_000, 10_000):
        data = pa.table({"note": noise[start : start + 10_000]})
        lake.tables.write_data(table, data, mode="append")
    total = sum(one.file_size_in_bytes for one in (task.file for task in lake.tables.scan(table).plan_files()))
    assert lake.tables.compact_table(table, target_file_size=total // 4).files_added > 1
    assert lake.tables.compact_table(table, target_file_size=total * 4).files_added == 1


def test_delete_files_are_folded_in(lake: Lake, table: TableIdentifier) -> None:
    properties = {"write.delete.mode": "merge-on-read", "format-version": "2"}
    data = lake.spark.range(1000).selectExpr("id", "id % 10 AS k")
    lake.write(data, table, mode="append", properties=properties)
    lake.spark.sql(f"DELETE FROM {table_name('lake', table)} WHERE k = 3")
    deletes = lake.tables.load_table(table).inspect.delete_files().num_rows
    assert deletes > 0

    report = lake.tables.compact_table(table)

    assert report.delete_files_folded == deletes
    assert lake.tables.load_table(table).inspect.delete_files().num_rows == 0
    assert lake.read(table).count() == 900 == report.rows
    assert lake.tables.scan(table).to_arrow().num_rows == 900


@pytest.mark.every_catalog
def test_an_append_during_compaction_is_not_lost(
    engine: Engine, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that arrive after compaction has planned, and before it commits."""
    lake = engine.lake
    small_files(engine, table, files=6)
    before = rows_of(engine.read(table))
    from floe_spark.maintenance import compact as module

    planned = module._arguments

    def append_meanwhile(*args: Any) -> dict[str, str]:
        arguments = planned(*args)
        if adding.ident is None:  # on a conflict it is planned again
            adding.start()
        return arguments

    adding = threading.Thread(
        target=lambda: [engine.write(table, events(0, note=f"new {n}"), mode="append") for n in range(3)]
    )
    monkeypatch.setattr(module, "_arguments", append_meanwhile)
    report = lake.tables.compact_table(table)
    adding.join()

    assert report.files_added
    expected = before + [row for n in range(3) for row in rows_of(events(0, note=f"new {n}"))]
    assert rows_of(engine.read(table)) == sorted(expected, key=str)


def test_manifests_are_fewer_and_lead_to_the_same_files(engine: Engine, table: TableIdentifier) -> None:
    lake = engine.lake
    small_files(engine, table, files=4)
    before = live_files(lake, table)
    report = lake.tables.rewrite_manifests(table)
    head = lake.tables.load_table(table).current_snapshot()
    assert head is not None
    assert len(head.manifests(lake.tables.load_table(table).io)) == report.added < report.rewritten
    assert live_files(lake, table) == before


def test_statistics_are_there_and_say_how_many_values_differ(engine: Engine, table: TableIdentifier) -> None:
    lake = engine.lake
    engine.write(table, events(0, rows=50), mode="append")
    report = lake.tables.compute_statistics(table, columns=["id", "note"])
    loaded = lake.tables.load_table(table)
    (known,) = loaded.metadata.statistics
    assert (known.snapshot_id, known.statistics_path) == (report.snapshot_id, report.path)
    counted = {tuple(one.fields): (one.properties or {})["ndv"] for one in known.blob_metadata}
    assert counted == {(1,): "50", (3,): "1"}
    with pytest.raises(ConfigurationError, match="nope"):
        lake.tables.compute_statistics(table, columns=["nope"])


WRITE = "0d9b3a52-5a0e-4a1f-8c1b-7f2e9f3c4d10"


@pytest.fixture
def planted(catalog: Lake, request: pytest.FixtureRequest) -> Callable[..., str]:
    """Put a file beside those of a table, and let it look old."""

    def plant(table: TableIdentifier, name: str, *, age: timedelta = timedelta(days=5)) -> str:
        loaded = catalog.tables.load_table(table)
        location = f"{loaded.location()}/{name}"
        with loaded.io.new_output(location).create() as out:
            out.write(b"nobody needs this")
        set_back(request, location, age)
        log = loaded.metadata.metadata_log
        set_back(request, log[0].metadata_file if log else loaded.metadata_location, timedelta(days=60))
        return canonical(location)

    return plant


def set_back(request: pytest.FixtureRequest, location: str, age: timedelta) -> None:
    if location.startswith("file:"):
        moment = time.time() - age.total_seconds()
        os.utime(canonical(location), (moment, moment))
    else:
        request.getfixturevalue("server").set_back(canonical(location), seconds=age.total_seconds())


# Not on Polaris: no store of others lets files look older than they are.
@pytest.mark.every_catalog
@pytest.mark.parametrize("catalog", [name for name in CATALOGS if name != "polaris"], indirect=True, scope="session")
def test_orphans_are_told_first_and_then_removed(
    catalog: Lake, table: TableIdentifier, planted: Callable[..., str], request: pytest.FixtureRequest
) -> None:
    other = TableIdentifier(namespace=table.namespace, name="events_too")
    for one in (table, other):
        catalog.tables.write_data(one, events(0, 1), mode="append", partition_by=BY_DAY)
        catalog.tables.write_data(one, events(0, note="v2"), mode="overwrite", slice=days(0))
    orphans = {planted(table, f"data/at_day=2026-01-01/{ORPHAN}"), planted(table, f"metadata/{WRITE}-m0.avro")}
    young = planted(table, f"data/at_day=2026-01-01/00001-0-{WRITE}.parquet", age=timedelta(hours=30))
    theirs = planted(other, f"data/{ORPHAN}")
    # Files of the table itself may be as old as they like.
    for path in live_files(catalog, table).popitem()[1]:
        set_back(request, path, timedelta(days=30))
    before = store(catalog, table)

    told = catalog.tables.remove_orphans(table)
    assert (set(told.found), told.files_removed, told.dry_run) == (orphans, (), True)
    assert store(catalog, table) == before
    report = catalog.tables.remove_orphans(table, dry_run=False)

    assert set(report.files_removed) == orphans == before - store(catalog, table)
    assert report.bytes_freed == 2 * len(b"nobody needs this")
    assert young in store(catalog, table)
    assert theirs in store(catalog, other)
    assert catalog.tables.scan(table).to_arrow().num_rows == 20


def test_the_files_of_a_write_that_failed_are_orphans_a_day_later(lake: Lake, table: TableIdentifier) -> None:
    lake.tables.write_data(table, events(0), mode="append")
    location = Path(canonical(lake.tables.load_table(table).location()))
    (location / "data" / ORPHAN).write_bytes(b"x")
    assert lake.tables.remove_orphans(table, 1, dry_run=False).files_removed == ()
    began_earlier(location)
    moment = time.time() - timedelta(hours=25).total_seconds()
    os.utime(location / "data" / ORPHAN, (moment, moment))
    assert lake.tables.remove_orphans(table, 1, dry_run=False).files_removed == (str(location / "data" / ORPHAN),)


@pytest.mark.parametrize("where", ["the same place", "below", "above"])
def test_orphans_are_not_looked_for_where_another_table_lies(lake: Lake, table: TableIdentifier, where: str) -> None:
    other = TableIdentifier(namespace=table.namespace, name="other")
    lake.tables.write_data(table, events(0), mode="append")
    location = lake.tables.load_table(table).location()
    place = {"the same place": location, "below": f"{location}/data/other", "above": location.rpartition("/")[0]}[where]
    # As another tool does it: Floe takes no location that holds the metadata of another table.
    lake.tables.catalog_plugin.connect().create_table(str(other), events(0).schema, place)  # type: ignore[attr-defined]
    lake.tables.write_data(other, events(0), mode="append")
    inner, outer = (other, table) if where != "above" else (table, other)
    before = store(lake, outer)
    with pytest.raises(FloeStorageError, match=f"files of '{inner}' lie in or below the location of '{outer}'"):
        lake.tables.remove_orphans(outer, dry_run=False)
    assert before <= store(lake, outer)
    if where != "the same place":
        assert lake.tables.remove_orphans(inner, dry_run=False).files_removed == ()
    lake.tables.drop_table(other)


@pytest.mark.every_catalog
def test_one_maintenance_at_a_time(catalog: Lake, table: TableIdentifier) -> None:
    catalog.tables.write_data(table, events(0), mode="append")
    with leased(catalog.tables, table) as check:
        with pytest.raises(LeaseHeldError, match=r"is being maintained by .* at the latest .* floe maintain release"):
            catalog.tables.compact_table(table)
        with pytest.raises(LeaseHeldError), leased(catalog.tables, table):
            pass
        check()
        catalog.tables.write_data(table, events(1), mode="append")  # writers are not in the way
    assert [name for name in catalog.tables.load_table(table).metadata.refs if name.startswith(LEASE)] == []
    assert catalog.tables.compact_table(table, min_files=2).files_rewritten == 2


def test_eight_that_want_the_lease_get_it_one_after_the_other(catalog: Lake, table: TableIdentifier) -> None:
    catalog.tables.write_data(table, events(0), mode="append")
    inside: list[int] = []
    seen: list[int] = []

    def work(number: int) -> bool:
        try:
            with leased(catalog.tables, table):
                inside.append(number)
                seen.append(len(inside))
                time.sleep(0.3)
                inside.remove(number)
        except LeaseHeldError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(work, range(8)))
    assert any(got)
    assert set(seen) == {1}


def test_a_dead_holder_does_not_block_for_ever(catalog: Lake, table: TableIdentifier) -> None:
    catalog.tables.write_data(table, events(0), mode="append")
    clock = [time.time()]
    dead = _Lease(catalog.tables, table, 900, lambda: clock[0])
    dead.take()
    clock[0] += 899
    with pytest.raises(LeaseHeldError), leased(catalog.tables, table, clock=lambda: clock[0]):
        pass
    clock[0] += 2
    with leased(catalog.tables, table, clock=lambda: clock[0]) as check:
        check()
        with pytest.raises(LeaseHeldError, match="was lost"):
            dead.check()
        dead.give_back({})  # what is not its own any more stays
        check()
    assert holder_of(catalog.tables.load_table(table)) is None


def test_a_lease_is_renewed_while_it_is_held(catalog: Lake, table: TableIdentifier) -> None:
    catalog.tables.write_data(table, events(0), mode="append")
    with leased(catalog.tables, table, seconds=1.5) as check:
        first = holder_of(catalog.tables.load_table(table))
        time.sleep(2.5)
        later = holder_of(catalog.tables.load_table(table))
        check()
        assert first is not None
        assert later is not None
        assert later.until_ms > first.until_ms + 1000


@pytest.mark.parametrize("applied", [True, False])
def test_a_lease_whose_answer_was_lost_is_held_all_the_same(
    lake: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch, applied: bool
) -> None:
    lake.tables.write_data(table, events(0), mode="append")
    lose: list[bool] = []

    def losing(*args: Any) -> None:
        if not lose or applied:
            commit_refs(*args)
        if lose and lose.pop():
            raise CommitStateUnknownException("the answer was lost")

    monkeypatch.setattr(leases, "commit_refs", losing)
    lose.append(True)
    with leased(lake.tables, table) as check:
        lake.tables.write_data(table, events(1), mode="append")
        lose.append(True)
        check()
        check()
        lose.append(True)
    assert [name for name in lake.tables.load_table(table).metadata.refs if name.startswith(LEASE)] == []


def test_a_lease_that_is_nearly_over_is_renewed_before_a_step(lake: Lake, table: TableIdentifier) -> None:
    lake.tables.write_data(table, events(0), mode="append")
    clock = [time.time()]
    with leased(lake.tables, table, clock=lambda: clock[0]) as check:
        clock[0] += 4000  # this process stood still, and nobody took the lease over
        check()
        there = holder_of(lake.tables.load_table(table))
        assert there is not None
        assert there.until_ms > clock[0] * 1000


def test_the_names_of_leases_are_floes_own(lake: Lake, table: TableIdentifier) -> None:
    lake.tables.write_data(table, events(0), mode="append")
    with pytest.raises(ConfigurationError, match="choose another"):
        lake.tables.create_tag(table, "floe-lease")
    lake.spark.sql(f"ALTER TABLE {table_name('lake', table)} CREATE BRANCH `floe-lease`")
    with pytest.raises(ConfigurationError, match="rename it"):
        lake.tables.compact_table(table)
    assert "floe-lease" in lake.tables.load_table(table).metadata.refs


def test_a_table_of_a_format_that_cannot_be_leased_says_so(lake: Lake, table: TableIdentifier) -> None:
    lake.tables.ensure_namespace(Namespace(levels=table.namespace))
    lake.spark.sql(
        f"CREATE TABLE {table_name('lake', table)} USING iceberg TBLPROPERTIES ('format-version'='3') AS SELECT 1 AS n"
    )
    with pytest.raises(FloeStorageError, match="format version"):
        lake.tables.compact_table(table)
    assert lake.read(table).count() == 1


@pytest.mark.parametrize("days_", [0, -1, float("nan"), True, 1e9])
def test_a_retention_of_nothing_is_refused(lake: Lake, table: TableIdentifier, days_: float) -> None:
    lake.tables.write_data(table, events(0), mode="append")
    with pytest.raises(ConfigurationError, match="older_than_days"):
        lake.tables.expire_snapshots(table, older_than_days=days_)


def test_what_cannot_be_is_refused_before_anything_happens(lake: Lake, table: TableIdentifier) -> None:
    lake.tables.write_data(table, events(0), mode="append")
    compute = lake.tables.require_compute()
    for refused in (
        lambda: lake.tables.expire_snapshots(table, keep_last=0),
        lambda: compute.expire_snapshots(table, older_than=now(), keep_last=0),
        lambda: compute.expire_snapshots(table, older_than=now() + timedelta(days=1), keep_last=1),
        lambda: compute.expire_snapshots(table, older_than=datetime(2026, 1, 1), keep_last=1),
        lambda: lake.tables.remove_orphans(table, 0.5, dry_run=False),
        lambda: compute.remove_orphans(table, older_than=now() - timedelta(hours=23), dry_run=False),
        lambda: lake.tables.compact_table(table, "tidy"),
        lambda: lake.tables.compact_table(table, "sort"),
        lambda: lake.tables.compact_table(table, "zorder"),
        lambda: lake.tables.compact_table(table, "sort", columns=["nope"]),
        lambda: lake.tables.compact_table(table, columns=["id"]),
        lambda: lake.tables.compact_table(table, target_file_size=0),
        lambda: lake.tables.compact_table(table, min_files=1),
    ):
        before = lake.tables.load_table(table).metadata.refs.keys(), store(lake, table)
        with pytest.raises(ConfigurationError):
            refused()
        kept = {path for path in store(lake, table) if not path.endswith(".metadata.json")}
        assert kept == {path for path in before[1] if not path.endswith(".metadata.json")}
        assert lake.tables.load_table(table).metadata.refs.keys() == before[0]


def test_a_table_without_a_snapshot_has_nothing_to_maintain(catalog: Lake, table: TableIdentifier) -> None:
    catalog.tables.create_table(table, events(0).schema)
    tables = catalog.tables
    assert tables.expire_snapshots(table).snapshots == ()
    assert tables.compact_table(table).snapshot_id is None
    assert tables.rewrite_manifests(table).snapshot_id is None
    assert tables.compute_statistics(table).path is None
    assert tables.remove_orphans(table, dry_run=False).files_removed == ()


def test_a_table_that_shares_its_files_keeps_them(lake: Lake, table: TableIdentifier) -> None:
    for number in range(6):
        lake.tables.write_data(table, events(0, note=str(number)), mode="append", properties={"gc.enabled": "false"})
    before = store(lake, table)
    for refused in (
        lambda: lake.tables.require_compute().expire_snapshots(table, older_than=now(), keep_last=1),
        lambda: lake.tables.remove_orphans(table, dry_run=False),
    ):
        with pytest.raises(FloeStorageError, match=r"gc\.enabled=false"):
            refused()
    assert lake.tables.compact_table(table).files_rewritten == 6  # which deletes nothing
    assert before <= store(lake, table)


def test_a_tag_cannot_be_put_on_what_expired(lake: Lake, table: TableIdentifier) -> None:
    made = [lake.tables.write_data(table, events(number), mode="append") for number in range(3)]
    lake.tables.require_compute().expire_snapshots(table, older_than=now(), keep_last=1)
    with pytest.raises(ConfigurationError, match="it may have expired"):
        lake.tables.create_tag(table, "late", snapshot_id=made[0].snapshot_id)
    with pytest.raises(ConfigurationError, match="it may have expired"):
        lake.tables.scan(table, snapshot_id=made[0].snapshot_id)


def test_a_table_that_is_not_there_is_told(lake: Lake, table: TableIdentifier) -> None:
    for asked in (lake.tables.expire_snapshots, lake.tables.compact_table, lake.tables.remove_orphans):
        with pytest.raises(TableNotFoundError):
            asked(table)


def test_a_table_dropped_in_the_middle_is_told(
    lake: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        lake.tables.write_data(table, events(0, note=str(number)), mode="append")
    from floe_spark.maintenance import compact as module

    planned = module._arguments

    def drop_meanwhile(*args: Any) -> dict[str, str]:
        lake.tables.drop_table(table)
        return planned(*args)

    monkeypatch.setattr(module, "_arguments", drop_meanwhile)
    with pytest.raises(TableNotFoundError, match="dropped during rewrite_data_files"):
        lake.tables.compact_table(table)


def test_a_write_under_way_on_an_old_table_survives_expiry(
    lake: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Iceberg counts the age of the branch that a write is made on from the snapshot it began at."""
    lake.tables.write_data(table, events(0), mode="append")
    staged: list[Any] = []
    publish = Commit.commit

    def look(self: Commit, loaded: Table) -> Any:
        assert self.branch is not None
        ref = loaded.metadata.refs[self.branch.name]
        staged.append((ref.max_ref_age_ms, self.branch.base.timestamp_ms))
        lake.tables.require_compute().expire_snapshots(table, older_than=now(), keep_last=1)
        return publish(self, lake.tables.load_table(table))

    monkeypatch.setattr(Commit, "commit", look)
    lake.write(lake.spark.createDataFrame(events(1).to_pandas()), table, mode="append")
    (age_ms, head_ms), *_ = staged
    assert age_ms is not None
    assert head_ms + age_ms >= (time.time() + timedelta(hours=23).total_seconds()) * 1000
    assert lake.tables.scan(table).to_arrow().num_rows == 20


def test_maintenance_without_spark_names_the_package(tmp_path: Path) -> None:
    manager = open_manager(tmp_path)
    manager.write_data(TableIdentifier.from_string("a.b"), events(0), mode="append")
    with pytest.raises(PluginError, match="pip install floe-spark"):
        manager.expire_snapshots(TableIdentifier.from_string("a.b"))


def test_tables_opened_without_a_lake_find_spark_by_themselves(lake: Lake, table: TableIdentifier) -> None:
    tables = IcebergTableManager.open(lake.artifacts)
    for number in range(5):
        tables.write_data(table, events(0, note=str(number)), mode="append")
    assert tables.compact_table(table).files_rewritten == 5


@pytest.fixture
def by_proxy(lake: Lake, server: SeaweedFS, tmp_path: Path) -> Iterator[tuple[Lake, FaultProxy]]:
    with fault_proxy(server.catalog_uri) as proxy:
        yield side_lake(lake, tmp_path / "proxied", rest_settings(server, uri=proxy.uri)), proxy


@pytest.mark.full
def test_an_append_just_before_the_commit_of_a_compaction_is_kept(
    rest_lake: Lake, by_proxy: tuple[Lake, FaultProxy], table: TableIdentifier
) -> None:
    through, proxy = by_proxy
    small_files(ArrowEngine(rest_lake), table, files=6)
    before = rows_of(rest_lake.tables.scan(table).to_arrow())

    def append_first(forward: Forward) -> Answer | None:
        rest_lake.tables.write_data(table, events(0, note="new"), mode="append")
        return forward()

    with proxy.faults(append_first):
        report = through.tables.compact_table(table)

    assert (report.files_rewritten, report.files_added) == (12, 2)
    assert rows_of(rest_lake.tables.scan(table).to_arrow()) == sorted(
        [*before, *rows_of(events(0, note="new"))], key=str
    )
    assert [one.operation for one in rest_lake.tables.list_snapshots(table)][-2:] == ["append", "replace"]


@pytest.mark.full
def test_an_overwrite_just_before_the_commit_of_a_compaction_makes_it_plan_anew(
    rest_lake: Lake, by_proxy: tuple[Lake, FaultProxy], table: TableIdentifier
) -> None:
    through, proxy = by_proxy
    small_files(ArrowEngine(rest_lake), table, files=6)

    def overwrite_first(forward: Forward) -> Answer | None:
        rest_lake.tables.write_data(table, events(0, note="new"), mode="overwrite", slice=days(0))
        return forward()

    with proxy.faults(overwrite_first):
        report = through.tables.compact_table(table)

    assert (report.files_rewritten, report.files_added) == (6, 1)  # those of the other day
    found = [row for row in rest_lake.tables.scan(table).to_arrow().to_pylist() if row["at"] < day(1)]
    assert {row["note"] for row in found} == {"new"}
    assert len(found) == 10


@pytest.mark.full
def test_an_expiry_whose_answer_was_lost_loses_nothing_and_is_cleaned_up_later(
    rest_lake: Lake, by_proxy: tuple[Lake, FaultProxy], table: TableIdentifier, server: SeaweedFS
) -> None:
    """It is not known then whether the snapshots are forgotten, so no file of theirs is deleted: they are orphans."""
    through, proxy = by_proxy
    made = history(ArrowEngine(rest_lake), table, writes=4)
    rows = rows_of(rest_lake.tables.scan(table).to_arrow())
    before = store(rest_lake, table)
    with proxy.faults(dropped, any_commit=True), pytest.raises(CommitStateUnknownError):
        through.tables.require_compute().expire_snapshots(table, older_than=now(), keep_last=1)
    assert before <= store(rest_lake, table)
    assert [one.snapshot_id for one in rest_lake.tables.list_snapshots(table)] == [made[-1].snapshot_id]
    assert rows_of(rest_lake.tables.scan(table).to_arrow()) == rows

    for path in store(rest_lake, table):
        # The metadata first: a file that is older than its table is not its orphan.
        age = timedelta(days=60 if path.endswith(".metadata.json") else 4)
        server.set_back(path, seconds=age.total_seconds())
    report = rest_lake.tables.remove_orphans(table, dry_run=False)
    assert len(report.files_removed) > 0
    assert store(rest_lake, table) - needed(rest_lake, table) == set()
    assert rows_of(rest_lake.tables.scan(table).to_arrow()) == rows


FAULTS = {"dropped": dropped, "never arrived": never_arrived, "503": answered(503), "504": answered(504)}


@pytest.mark.full
@pytest.mark.parametrize(
    ("step", "fault"),
    [*(("compact", name) for name in FAULTS), ("rewrite_manifests", "dropped"), ("compute_statistics", "dropped")],
)
def test_a_step_whose_answer_was_lost_loses_nothing(
    rest_lake: Lake, by_proxy: tuple[Lake, FaultProxy], table: TableIdentifier, step: str, fault: str
) -> None:
    through, proxy = by_proxy
    small_files(ArrowEngine(rest_lake), table, files=6)
    rows = rows_of(rest_lake.tables.scan(table).to_arrow())
    act = getattr(through.tables.require_compute(), step)
    with proxy.faults(FAULTS[fault], any_commit=True), suppress(CommitStateUnknownError):
        act(table)
    assert rows_of(rest_lake.tables.scan(table).to_arrow()) == rows
    assert needed(rest_lake, table) - store(rest_lake, table) == set()
    act(table)
    assert rows_of(rest_lake.tables.scan(table).to_arrow()) == rows
    assert needed(rest_lake, table) - store(rest_lake, table) == set()
    if step == "compact":
        assert {len(files) for files in live_files(rest_lake, table).values()} == {1}
