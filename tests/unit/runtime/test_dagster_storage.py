"""The history of runs over hundreds of partitions: stored in few transactions, and the same as Dagster stores it."""

import os
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from dagster import AssetKey, AssetMaterialization, DagsterEventType, DagsterInstance
from dagster._core.events import ASSET_EVENTS
from dagster._core.storage.event_log.sqlite import sqlite_event_log
from sqlalchemy import event
from sqlalchemy.engine import Engine
from sqlalchemy.exc import OperationalError

from floe_core.compiler import compile_project
from floe_dagster._dagster import storage
from floe_runtime import dagster_storage
from floe_runtime.dev.server import _prepared
from floe_runtime.runs.pipeline import Pipeline, open_pipeline
from floe_runtime.runs.planning import Batch
from floe_runtime.runs.runner import run_batches

pytestmark = pytest.mark.filterwarnings("ignore:.*is currently in (beta|preview)")

DEFINITIONS = """
from dagster import (
    AssetCheckResult, BackfillPolicy, DailyPartitionsDefinition, DataVersion, Definitions, MaterializeResult, asset,
    asset_check,
)

days = DailyPartitionsDefinition("2025-01-01", end_date="2025-04-11", timezone="America/New_York")
settings = {"partitions_def": days, "backfill_policy": BackfillPolicy.single_run()}


@asset(**settings)
def flights(context):
    return MaterializeResult(metadata={"days": len(context.partition_keys)}, data_version=DataVersion("7"))


@asset(deps=[flights], **settings)
def delays(context):
    return MaterializeResult(data_version=DataVersion("8"))


@asset_check(asset=flights)
def is_complete():
    return AssetCheckResult(passed=True)


defs = Definitions(assets=[flights, delays], asset_checks=[is_complete])
"""
OLD_SETTINGS = """\
telemetry:
  enabled: false
compute_logs:
  module: dagster._core.storage.noop_compute_log_manager
  class: NoOpComputeLogManager
concurrency:
  runs:
    max_concurrent_runs: 2
"""
DAYS = 100
BATCH_SIZE = "DAGSTER_EVENT_BATCH_SIZE"


@contextmanager
def project(root: Path) -> Iterator[Pipeline]:
    root.mkdir(exist_ok=True)
    (root / "floe.yaml").write_text("name: year\n")
    (root / "definitions.py").write_text(DEFINITIONS)
    before = Path.cwd()
    try:
        with open_pipeline(compile_project(root).artifacts) as opened:
            yield opened
    finally:
        os.chdir(before)


def run_days(pipeline: Pipeline, days: int = DAYS) -> str:
    assets = tuple(pipeline.assets())
    partitions = pipeline.graph.get(assets[0]).partitions_def
    assert partitions is not None
    keys = tuple(partitions.get_partition_keys())[:days]
    return run_batches(pipeline, [Batch(assets, keys)], lambda _: None).run_ids[0]


@contextmanager
def counting_commits() -> Iterator[Counter[str]]:
    """Those of the run: the thread that follows it asks as often as the run is long."""
    counts: Counter[str] = Counter()

    def count(_: Any) -> None:
        counts["commits"] += threading.current_thread() is threading.main_thread()

    event.listen(Engine, "commit", count)
    try:
        yield counts
    finally:
        event.remove(Engine, "commit", count)


def events_of(instance: DagsterInstance, run_id: str) -> list[tuple[Any, ...]]:
    """What happened in a run, in its order."""
    found = []
    for record in instance.get_records_for_run(run_id).records:
        happened = record.event_log_entry.dagster_event
        if happened is not None:
            found.append((happened.event_type, happened.step_key, happened.asset_key, happened.partition))
    return found


def state_of(instance: DagsterInstance) -> dict[str, Any]:
    """What Dagster's UI and `floe run --missing` ask about assets."""
    storage, told = instance.event_log_storage, {}
    for name in ("flights", "delays"):
        key = AssetKey(name)
        latest = instance.get_latest_materialization_event(key)
        assert latest is not None
        assert latest.asset_materialization is not None
        told[name] = {
            "materialized": instance.get_materialized_partitions(key),
            "by partition": storage.get_latest_storage_id_by_partition(
                key, DagsterEventType.ASSET_MATERIALIZATION
            ).keys(),
            "planned": storage.get_latest_storage_id_by_partition(
                key, DagsterEventType.ASSET_MATERIALIZATION_PLANNED
            ).keys(),
            "last": latest.asset_materialization.partition,
            "metadata": latest.asset_materialization.metadata,
            "data versions": storage.get_event_tags_for_asset(key),
            "records": len(instance.fetch_materializations(key, limit=1000).records),
        }
    return told


def test_a_run_over_a_year_of_days_commits_its_history_in_batches(tmp_path: Path) -> None:
    with project(tmp_path / "year") as pipeline:
        with counting_commits() as counts:
            run_days(pipeline)
        assert all(len(one["materialized"]) == DAYS for one in state_of(pipeline.instance).values())
    # Each partition of each asset has two events, and Dagster commits each of them twice: 2,920 transactions.
    assert counts["commits"] < DAYS
    home = tmp_path / "year" / ".floe" / "dagster"
    (home / "dagster.yaml").write_text(OLD_SETTINGS)
    with DagsterInstance.from_config(str(home)) as instance:  # Dagster's own storage reads it as well
        assert len(instance.get_materialized_partitions(AssetKey("delays"))) == DAYS


@pytest.mark.full
def test_the_history_of_a_batch_is_the_same_as_dagsters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with project(tmp_path / "ours") as pipeline:
        run_id = run_days(pipeline, 20)
        ours, our_state = events_of(pipeline.instance, run_id), state_of(pipeline.instance)
    home = tmp_path / "dagsters"
    home.mkdir()
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    with project(tmp_path / "theirs") as pipeline:
        run_id = run_days(pipeline, 20)
        theirs, their_state = events_of(pipeline.instance, run_id), state_of(pipeline.instance)
    assert ours == theirs
    assert len(our_state["flights"]["data versions"]) == 20
    assert our_state == their_state


@pytest.mark.full
@pytest.mark.parametrize("locked", ["run", "index"])
def test_a_batch_that_cannot_be_stored_leaves_nothing_so_its_events_are_stored_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locked: str
) -> None:
    """Dagster stores the events of a batch one at a time if the batch fails."""
    real: Any = dagster_storage._EventLog._store_together
    failed: list[str] = []

    def store_while_locked(log: Any, run_id: str, events: Any) -> None:
        path = log.path_for_shard(run_id if locked == "run" else "index")
        with closing(sqlite3.connect(path, isolation_level=None)) as other, monkeypatch.context() as hasty:
            other.execute("BEGIN IMMEDIATE")
            for module in (storage, sqlite_event_log):
                hasty.setattr(module, "SQLITE_BUSY_TIMEOUT_SECONDS", 0.1)
            try:
                real(log, run_id, events)
            except OperationalError as exc:
                failed.append(str(exc))
                raise

    monkeypatch.setattr(dagster_storage._EventLog, "_store_together", store_while_locked)
    with project(tmp_path / "locked") as pipeline:
        run_id = run_days(pipeline, 5)
        events, state = Counter(events_of(pipeline.instance, run_id)), state_of(pipeline.instance)
    assert failed
    assert all("database is locked" in one for one in failed)
    assert {one["records"] for one in state.values()} == {5}
    assets = [count for (kind, *_), count in events.items() if kind in ASSET_EVENTS]
    assert assets == [1] * 20  # a planned event and a materialization for each day of both assets


def test_a_project_of_before_keeps_its_history_and_its_runs_are_batched(tmp_path: Path) -> None:
    home = tmp_path / "old" / ".floe" / "dagster"
    home.mkdir(parents=True)
    (home / "dagster.yaml").write_text(OLD_SETTINGS)
    with DagsterInstance.from_config(str(home)) as instance:
        instance.report_runless_asset_event(AssetMaterialization("flights", partition="2025-01-01"))
    with project(tmp_path / "old") as pipeline:
        assert pipeline.instance.get_materialized_partitions(AssetKey("flights")) == {"2025-01-01"}
        with counting_commits() as counts:
            run_days(pipeline, 100)
        assert len(pipeline.instance.get_materialized_partitions(AssetKey("delays"))) == 100
    assert counts["commits"] < 100


def test_settings_that_a_user_changed_stay(tmp_path: Path) -> None:
    changed = OLD_SETTINGS.replace("runs: 2", "runs: 5")
    settings = tmp_path / "own" / ".floe" / "dagster" / "dagster.yaml"
    settings.parent.mkdir(parents=True)
    settings.write_text(changed)
    with project(tmp_path / "own"):
        assert settings.read_text() == changed


def test_a_home_of_the_users_own_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    with project(tmp_path / "project"):
        assert BATCH_SIZE not in os.environ
        assert not (tmp_path / "dagster.yaml").exists()


def test_runs_of_the_web_ui_are_batched_too(tmp_path: Path) -> None:
    with project(tmp_path / "ui") as pipeline:
        environment = _prepared(pipeline.artifacts)[0]
    assert int(environment[BATCH_SIZE]) >= DAYS
    assert environment["DAGSTER_HOME"] == str(tmp_path / "ui" / ".floe" / "dagster")
    assert BATCH_SIZE not in os.environ
