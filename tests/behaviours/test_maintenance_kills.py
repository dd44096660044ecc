"""Maintenance that is killed in every step: nothing is lost, nobody is blocked for ever, and it is gone on with."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from pyiceberg.table import Table
from tests.catalogs import side_lake
from tests.engines import BY_DAY, days, events, rows_of
from tests.lakes import ORPHAN, began_earlier

from floe_core.compiler import compile_project
from floe_core.config.artifacts import CompiledArtifacts
from floe_core.identifiers import TableIdentifier
from floe_core.maintenance.records import read_records, records_path
from floe_core.maintenance.reports import Step
from floe_iceberg import IcebergTableManager, Lake
from floe_iceberg.files.containment import canonical, canonical_set
from floe_iceberg.files.listing import list_files
from floe_iceberg.files.reachable import present_files
from floe_iceberg.maintenance.leases import holder_of
from floe_iceberg.maintenance.run import Maintenance, Outcome

ROOT = Path(__file__).parents[2]
POLICY = """\
maintenance:
  retry_window: 1s
  floor: {enterprise: 1s}
  expire: {older_than: 1s, keep_last: 1}
  compact: {min_files: 2}
  statistics: true
"""
# A step and how long after its beginning it is struck.
MOMENTS = [
    (Step.COMPACT, 0.3),
    (Step.STATISTICS, 0.2),
    (Step.EXPIRE, 0.3),
    (Step.ORPHANS, 0.3),
]


def untidy(tables: IcebergTableManager, table: TableIdentifier) -> Path:
    """A table in which every step has something to do, a tag and a branch that must live; the path of its orphan."""
    for number in range(10):
        tables.write_data(table, events(0, 1, rows=20, note=f"v{number}"), mode="append", partition_by=BY_DAY)
        if number == 3:
            tables.create_tag(table, "audit")
            tables.create_branch(table, "trial")
    tables.write_data(table, events(0, note="last"), mode="overwrite", slice=days(0))
    orphan = Path(canonical(tables.load_table(table).location())) / "data" / ORPHAN
    orphan.write_bytes(b"x")
    old = time.time() - timedelta(days=4).total_seconds()
    os.utime(orphan, (old, old))
    began_earlier(tables.load_table(table).location())
    return orphan


def whole(tables: IcebergTableManager, table: TableIdentifier) -> dict[str, list[tuple[object, ...]]]:
    """The rows of everything that must stay readable."""
    refs = ("main", "audit", "trial")
    return {ref: rows_of(tables.scan(table, ref=ref).to_arrow()) for ref in refs}


def missing(table: Table, identifier: TableIdentifier) -> set[str]:
    return canonical_set(present_files(table)) - list_files(table, identifier).keys()


@pytest.mark.full
def test_maintenance_killed_in_every_step_is_gone_on_with(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "floe.yaml").write_text(f"name: killed\n{POLICY}", encoding="utf-8")
    artifacts = compile_project(tmp_path).artifacts
    artifacts.write()
    tables = IcebergTableManager.open(artifacts)
    rows: dict[TableIdentifier, dict[str, list[tuple[object, ...]]]] = {}
    orphans: list[Path] = []
    for number, (step, delay) in enumerate(MOMENTS):
        table = TableIdentifier(namespace=("killed",), name=f"t{number}")
        orphans.append(untidy(tables, table))
        rows[table] = whole(tables, table)
        time.sleep(1.1)
        command = [
            sys.executable,
            "-m",
            "tests.faults.maintenance_job",
            str(tmp_path),
            str(table),
            step.value,
            str(delay),
        ]
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False, start_new_session=True, timeout=180
        )
        assert done.returncode == -signal.SIGKILL, done.stderr[-2000:]
        assert whole(tables, table) == rows[table]
        assert missing(tables.load_table(table), table) == set()
    killed = [record for record in read_records(records_path(artifacts)) if record.status == "began"]
    assert killed, "no step was under way when it was struck"

    # The dead hold their leases, which end by themselves: twenty minutes later all is done.
    held = [table for table in rows if holder_of(tables.load_table(table)) is not None]
    assert held
    later = _opened(lake, tmp_path, artifacts)
    early = list(Maintenance(later).run(held))
    assert {outcome.outcome for outcome in early} == {Outcome.LATER}
    then = Maintenance(later, now=lambda: datetime.now(timezone.utc) + timedelta(minutes=20))
    outcomes = list(then.run(list(rows), [Step.COMPACT, Step.MANIFESTS, Step.STATISTICS, Step.ORPHANS]))
    assert {outcome.outcome for outcome in outcomes} == {Outcome.DONE}, outcomes
    assert {outcome.outcome for outcome in Maintenance(later).run(list(rows))} <= {Outcome.DONE, Outcome.NOTHING}
    for table, expected in rows.items():
        assert whole(tables, table) == expected
        loaded = tables.load_table(table)
        assert missing(loaded, table) == set()
        assert holder_of(loaded) is None
        # Its tag's and its branch's snapshot, the head, and nothing older.
        assert len(loaded.snapshots()) == 2
    assert [path for path in orphans if path.exists()] == []


def _opened(lake: Lake, folder: Path, artifacts: CompiledArtifacts) -> Lake:
    """The same tables, with the Spark of the tests."""
    return side_lake(lake, folder, POLICY) if artifacts.root == folder.resolve() else lake
