"""Maintenance: what goes is gone from the store, what somebody needs stays, and the report is the truth."""

from __future__ import annotations

import threading
import time
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest

from floe_core.errors import (
    ConfigurationError,
    FloeStorageError,
    TableNotFoundError,
)
from floe_core.identifiers import TableIdentifier
from floe_core.policy import CompactionStrategy
from floe_iceberg.leases import LEASE, LeaseHeldError, holder_of, leased
from floe_iceberg.listing import canonical, list_files
from floe_spark import Lake
from floe_spark.names import table_name
from tests.engines import BY_DAY, Engine, days, events, live_files, rows_of

LONG_AGO = timedelta(days=1)


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


def test_expiry_removes_exactly_what_nothing_leads_to(engine: Engine, table: TableIdentifier) -> None:
    lake = engine.lake
    made = history(engine, table)
    lake.tables.create_tag(table, "audit", snapshot_id=made[1].snapshot_id)
    lake.tables.create_branch(table, "trial", snapshot_id=made[2].snapshot_id)
    tagged = {ref: rows_of(engine.read(table, ref=ref)) for ref in ("audit", "trial")}
    kept = {one.snapshot_id: rows_of(engine.read(table, snapshot_id=one.snapshot_id)) for one in made[4:]}
    before = store(lake, table)

    cutoff = datetime.fromtimestamp(made[4].timestamp_ms / 1000, timezone.utc)
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
