"""Runs that end in the middle: killed, cancelled, failed, without their Spark; rows are there once or not at all."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from dagster import (
    AssetExecutionContext,
    AssetKey,
    AssetOut,
    DagsterInstance,
    DagsterRunStatus,
    DailyPartitionsDefinition,
    DynamicOut,
    DynamicOutput,
    Out,
    OutputContext,
    ReexecutionOptions,
    RetryPolicy,
    RetryRequested,
    asset,
    execute_job,
    graph_asset,
    multi_asset,
    op,
    reconstructable,
)
from dagster._core.execution.plan.outputs import StepOutputHandle
from tests.faults import dagster_job
from tests.runs import files_of, metadata_of, rows_of, run

from floe_core.compiler import compile_project
from floe_core.config.artifacts import CompiledArtifacts
from floe_core.errors import ConcurrencyConflictError, FloeStorageError
from floe_core.identifiers import Namespace, TableIdentifier
from floe_dagster import LakeResource, io_manager
from floe_dagster.runs.steps import write_id
from floe_iceberg import IcebergTableManager

pytestmark = pytest.mark.filterwarnings("ignore:.*is currently in (beta|preview)")

DAYS = DailyPartitionsDefinition("2026-01-01", end_date="2026-01-08")


class Runs:
    """Runs of one project in processes of their own."""

    def __init__(self, root: Path, environment: Callable[[str, str], None]) -> None:
        (root / "floe.yaml").write_text("name: ending\n")
        compile_project(root).artifacts.write()
        (root / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
        self.root, self._environment = root, environment
        for name, value in ((dagster_job.NAMESPACE, "bronze"), ("FLOE_TEST_PROJECT", root), ("DAGSTER_HOME", root)):
            environment(name, str(value))
        self.tables = IcebergTableManager.open(CompiledArtifacts.load(root))

    def start(self, job: str, ends: str = "") -> subprocess.Popen[bytes]:
        command = [sys.executable, "-W", "ignore", "-m", "tests.faults.dagster_job", job]
        return subprocess.Popen(command, env={**os.environ, dagster_job.ENDS: ends}, stderr=subprocess.DEVNULL)

    def resume(self, job: str) -> Any:
        """What somebody does after a crash: the run is marked as failed, and resumed from there."""
        with DagsterInstance.from_config(str(self.root)) as instance:
            (dead,) = instance.get_runs()
            if not dead.is_finished:
                instance.report_run_failed(dead)
            options = ReexecutionOptions.from_failure(dead.run_id, instance)
            made = execute_job(reconstructable(dagster_job.JOBS[job]), instance, reexecution_options=options)
            (event,) = [one for one in made.all_events if one.is_step_materialization]
            return made, {
                key: value.value for key, value in event.step_materialization_data.materialization.metadata.items()
            }

    def ids(self, table: str) -> list[int]:
        return [row["id"] for row in rows_of(self.tables, f"bronze.{table}")]


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    return Runs(tmp_path, monkeypatch.setenv)


def test_a_run_killed_between_commit_and_acknowledgement_is_resumed_without_a_second_write(runs: Runs) -> None:
    assert runs.start("arrow", ends="after the commit").wait(120) == -signal.SIGKILL
    assert runs.ids("arrow") == [1, 2, 3]
    made, metadata = runs.resume("arrow")
    assert made.success
    assert runs.ids("arrow") == [1, 2, 3]
    assert metadata["floe/deduplicated"] is True
    assert metadata["floe/snapshot_id"] == str(
        runs.tables.list_snapshots(TableIdentifier.from_string("bronze.arrow"))[0].snapshot_id
    )
    assert metadata["dagster/row_count"] == 3


@pytest.mark.full
def test_a_run_whose_spark_session_dies_says_so_and_the_next_one_has_a_new_session(runs: Runs) -> None:
    assert runs.start("spark", ends="with the session").wait(300) == 0
    with DagsterInstance.from_config(str(runs.root)) as instance:
        second, first = instance.get_runs()
        assert (first.status, second.status) == (DagsterRunStatus.FAILURE, DagsterRunStatus.SUCCESS)
        assert any("the Spark process ended while it worked" in str(one) for one in instance.all_logs(first.run_id))
    assert runs.ids("spark") == [0, 1, 2]


def test_a_run_that_is_cancelled_leaves_no_rows(runs: Runs) -> None:
    running = runs.start("slow")
    deadline = time.monotonic() + 120
    while not (runs.root / "under-way").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    running.send_signal(signal.SIGINT)
    assert running.wait(60) != 0
    assert runs.tables.list_tables(Namespace.from_string("bronze")) == []
    with DagsterInstance.from_config(str(runs.root)) as instance:
        (run,) = instance.get_runs()
        assert run.status in (DagsterRunStatus.CANCELED, DagsterRunStatus.FAILURE)
    left = list((runs.root / ".floe" / "warehouse").rglob("*.parquet"))
    assert left == []


def test_an_asset_that_fails_after_half_its_work_leaves_no_rows(
    project: CompiledArtifacts, tables: IcebergTableManager, instance: DagsterInstance, namespace: str
) -> None:
    @asset(key_prefix=namespace, metadata={"write_mode": "append"})
    def half() -> pa.RecordBatchReader:
        def batches() -> Any:
            yield pa.record_batch({"id": [1]})
            raise RuntimeError("halfway")

        return pa.RecordBatchReader.from_batches(pa.schema([("id", pa.int64())]), batches())

    with pytest.raises(Exception, match="halfway"):
        run([half], project, instance)
    assert not tables.table_exists(TableIdentifier(namespace=(namespace,), name="half"))


@pytest.mark.parametrize("when", ["before the commit", "after the commit"])
def test_a_step_that_is_retried_writes_once(
    project: CompiledArtifacts,
    tables: IcebergTableManager,
    instance: DagsterInstance,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
    when: str,
) -> None:
    attempts: list[int] = []

    @asset(key_prefix=namespace, metadata={"write_mode": "append"}, retry_policy=RetryPolicy(max_retries=2))
    def flaky(context: AssetExecutionContext) -> pa.Table:
        attempts.append(context.retry_number)
        if when == "before the commit" and len(attempts) == 1:
            raise RetryRequested(max_retries=2)
        return pa.table({"id": [1]})

    if when == "after the commit":
        report = io_manager.IcebergIOManager._report

        def fails_once(*arguments: Any, **named: Any) -> Any:
            if len(attempts) == 1:
                raise OSError("the answer was lost")
            return report(*arguments, **named)

        monkeypatch.setattr(io_manager.IcebergIOManager, "_report", fails_once)
    done = run([flaky], project, instance)
    assert done.success
    assert attempts == [0, 1]
    assert rows_of(tables, f"{namespace}.flaky") == [{"id": 1}]
    assert metadata_of(done, "flaky")["floe/deduplicated"] is (when == "after the commit")


def test_outputs_of_one_step_and_of_mapped_steps_do_not_swallow_each_other(
    project: CompiledArtifacts, tables: IcebergTableManager, instance: DagsterInstance, namespace: str
) -> None:
    outs = {name: AssetOut(key_prefix=namespace, metadata={"write_mode": "append"}) for name in ("one", "two")}

    @multi_asset(outs=outs)
    def several() -> tuple[pa.Table, pa.Table]:
        return pa.table({"id": [1]}), pa.table({"id": [2]})

    run([several], project, instance)
    assert rows_of(tables, f"{namespace}.one") == [{"id": 1}]
    assert rows_of(tables, f"{namespace}.two") == [{"id": 2}]

    @op(out=DynamicOut(io_manager_key="mem_io_manager"))
    def numbers() -> Any:
        for number in range(3):
            yield DynamicOutput(number, mapping_key=f"n{number}")

    @op(out=Out(io_manager_key="mem_io_manager"))
    def row(number: int) -> int:
        return number * 10

    @op
    def gathered(rows: list[int]) -> pa.Table:
        return pa.table({"id": rows})

    @graph_asset(key_prefix=namespace, metadata={"write_mode": "append"})
    def mapped() -> Any:
        return gathered(numbers().map(row).collect())

    run([mapped], project, instance)
    assert rows_of(tables, f"{namespace}.mapped") == [{"id": 0}, {"id": 10}, {"id": 20}]


def test_writes_of_one_step_have_ids_of_their_own_and_its_retry_has_the_same(
    project: CompiledArtifacts, instance: DagsterInstance, namespace: str
) -> None:
    made: list[tuple[str | None, ...]] = []

    @asset(key_prefix=namespace, metadata={"write_mode": "append"}, retry_policy=RetryPolicy(max_retries=1))
    def several(context: AssetExecutionContext) -> None:
        step = context.get_step_execution_context()
        output = step.get_output_context(StepOutputHandle(step.step.key, "result"))
        made.append((write_id(output), write_id(output)))
        if len(made) == 1:
            raise RetryRequested(max_retries=1)

    run([several], project, instance)
    assert made[0] == made[1]
    assert len(set(made[0])) == 2


def test_two_runs_on_one_partition_at_once_leave_the_rows_of_one(
    project: CompiledArtifacts, tables: IcebergTableManager, namespace: str
) -> None:
    moment = pa.array([datetime(2026, 1, 3, 5, tzinfo=timezone.utc)] * 50, pa.timestamp("us", tz="UTC"))

    def write(number: int) -> str:
        @asset(key_prefix=namespace, partitions_def=DAYS, metadata={"partition_expr": "at"})
        def shared() -> pa.Table:
            return pa.table({"who": [number] * 50, "at": moment})

        with DagsterInstance.ephemeral() as instance:
            try:
                return "written" if run([shared], project, instance, partition_key="2026-01-03").success else "failed"
            except ConcurrencyConflictError:
                return "refused"

    write(-1)
    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(write, range(8)))
    rows = rows_of(tables, f"{namespace}.shared")
    assert set(outcomes) <= {"written", "refused"}
    assert "written" in outcomes
    assert len(rows) == 50
    assert len({row["who"] for row in rows}) == 1


def test_what_was_written_is_written_though_it_cannot_be_described(
    project: CompiledArtifacts,
    tables: IcebergTableManager,
    instance: DagsterInstance,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @asset(key_prefix=namespace, metadata={"write_mode": "append"})
    def odd() -> pa.Table:
        return pa.table({"id": [1], "days": pa.array([[3_000_000_000 // 1000]], pa.list_(pa.date32()))})

    done = run([odd], project, instance)
    assert done.success
    assert metadata_of(done, "odd")["dagster/table_name"] == f"{namespace}.odd"
    assert tables.scan(TableIdentifier(namespace=(namespace,), name="odd")).count() == 1


@pytest.mark.parametrize("mode", ["append", "overwrite", "upsert"])
def test_an_empty_frame_in_each_mode(
    project: CompiledArtifacts, tables: IcebergTableManager, instance: DagsterInstance, namespace: str, mode: str
) -> None:
    ids: list[int] = []
    said = {"write_mode": mode} | ({"upsert_keys": ["id"]} if mode == "upsert" else {})

    @asset(key_prefix=namespace, metadata=said)
    def maybe() -> pa.Table:
        return pa.table({"id": pa.array(ids, pa.int64())})

    run([maybe], project, instance)  # the table is there, with its columns
    assert rows_of(tables, f"{namespace}.maybe") == []
    ids.append(1)
    run([maybe], project, instance)
    ids.clear()
    if mode == "overwrite":
        with pytest.raises(FloeStorageError, match=r"refused to replace all rows .* by nothing"):
            run([maybe], project, instance)
    else:
        run([maybe], project, instance)
    assert rows_of(tables, f"{namespace}.maybe") == [{"id": 1}]


@pytest.mark.parametrize("kind", ["arrow", "spark"])
def test_any_set_of_keys_is_one_commit(
    request: pytest.FixtureRequest,
    project: CompiledArtifacts,
    tables: IcebergTableManager,
    namespace: str,
    kind: str,
) -> None:
    """As Dagster hands them over; its own runs name ranges only, so the context is made by hand."""
    manager = io_manager.IcebergIOManager(lake=LakeResource(project=str(project.root)))

    def write(keys: list[str], note: str) -> None:
        moments = [datetime.fromisoformat(f"{key}T05:00:00+00:00") for key in keys]
        table = pa.table({"note": [note] * len(keys), "at": pa.array(moments, pa.timestamp("us", tz="UTC"))})
        context = OutputContext(
            name="result",
            asset_key=AssetKey([namespace, "events"]),
            asset_partitions_subset=DAYS.subset_with_partition_keys(keys),
            asset_partitions_def=DAYS,
            definition_metadata={"partition_expr": "at"},
        )
        value: Any = table
        if kind == "spark":
            value = request.getfixturevalue("lake").spark.createDataFrame(table.to_pandas())
        manager.handle_output(context, value)

    everything = DAYS.get_partition_keys()
    write(list(everything), "v1")
    identifier = TableIdentifier(namespace=(namespace,), name="events")
    before = files_of(tables.load_table(identifier))
    write(["2026-01-01", "2026-01-03", "2026-01-07"], "v2")
    after = files_of(tables.load_table(identifier))
    assert len(tables.list_snapshots(identifier)) == 2
    assert (len(before), len(before & after)) == (7, 4)
    notes = {row["at"].day: row["note"] for row in rows_of(tables, str(identifier))}
    assert notes == {1: "v2", 2: "v1", 3: "v2", 4: "v1", 5: "v1", 6: "v1", 7: "v2"}


def test_an_empty_frame_clears_its_partition(
    project: CompiledArtifacts, tables: IcebergTableManager, instance: DagsterInstance, namespace: str
) -> None:
    full = True

    @asset(key_prefix=namespace, partitions_def=DAYS, metadata={"partition_expr": "at"})
    def maybe(context: AssetExecutionContext) -> pa.Table:
        moments = [context.partition_time_window.start] if full else []
        return pa.table({"at": pa.array(moments, pa.timestamp("us", tz="UTC"))})

    for day in ("2026-01-02", "2026-01-03"):
        run([maybe], project, instance, partition_key=day)
    full = False
    done = run([maybe], project, instance, partition_key="2026-01-02")
    assert [row["at"].day for row in rows_of(tables, f"{namespace}.maybe")] == [3]
    assert metadata_of(done, "maybe")["dagster/partition_row_count"] == 0
