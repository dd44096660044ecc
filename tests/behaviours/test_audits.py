"""Assets that are published when their blocking checks have passed."""

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster import AssetExecutionContext, DagsterInstance, DailyPartitionsDefinition, asset
from tests.runs import QUIET, span

from floe_core import TableSlice, WriteMode
from floe_core.compiler import compile_project
from floe_core.errors import ConfigurationError, TableNotFoundError
from floe_dagster import AtomicGroup, checks, create_definitions
from floe_iceberg import IcebergTableManager

pytestmark = pytest.mark.filterwarnings("ignore:.*is currently in (beta|preview)")

DAYS = DailyPartitionsDefinition("2026-01-01", end_date="2026-01-08")
AUDITED = {"partition_expr": "day", "floe/audit": True}


class Project:
    def __init__(self, root: Path, settings: str = "") -> None:
        (root / "floe.yaml").write_text(f"name: shop\n{settings}", encoding="utf-8")
        self.root, artifacts = root, compile_project(root).artifacts
        artifacts.write()
        self.tables = IcebergTableManager.open(artifacts)
        self.instance = DagsterInstance.ephemeral()
        self.amount, self.meanwhile = 1, list[Callable[[], Any]]()

    def orders(self) -> Any:
        def orders(context: AssetExecutionContext) -> pa.Table:
            keys = context.partition_keys
            days = [date.fromisoformat(key) for key in keys]
            return pa.table({"day": days, "amount": [self.amount] * len(keys)})

        return asset(key_prefix="b", partitions_def=DAYS, metadata=AUDITED)(orders)

    def definitions(self, *found: Any, **arguments: Any) -> dg.Definitions:
        made = self.orders()
        given = [one(made) for one in found]
        return create_definitions([made], project=self.root, asset_checks=given, **arguments)

    def run(self, *found: Any, **arguments: Any) -> Any:
        job = self.definitions(*found).resolve_implicit_global_asset_job_def()
        return job.execute_in_process(instance=self.instance, run_config=QUIET, raise_on_error=False, **arguments)

    def blocking(self, *rules: Any) -> Callable[[Any], Any]:
        """Checks that let other writers do something before the publication."""

        def then(rows: pa.Table) -> bool:
            while self.meanwhile:
                self.meanwhile.pop()()
            return True

        return lambda made: checks.of(made, *rules, checks.function(then), blocking=True)

    def rows(self, ref: str | None = None) -> list[tuple[str, int]]:
        found = self.tables.scan("b.orders", ref=ref).to_arrow().to_pylist()
        return sorted((str(row["day"]), row["amount"]) for row in found)

    def write(self, day: str, *amounts: int, mode: WriteMode = WriteMode.APPEND) -> None:
        rows = pa.table({"day": [date.fromisoformat(day)] * len(amounts), "amount": list(amounts)})
        self.tables.write_data("b.orders", rows, mode=mode)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def failure(result: Any) -> str:
    texts = []
    for event in result.all_events:
        if event.event_type is dg.DagsterEventType.STEP_FAILURE:
            error = event.step_failure_data.error
            while error is not None:
                texts.append(error.message)
                error = error.cause
    return " ".join(texts)


def materialized(result: Any) -> list[Any]:
    return [event.partition for event in result.get_asset_materialization_events()]


POSITIVE = checks.value_range("amount", min=0)


def test_rows_are_visible_when_the_checks_have_passed_and_not_before(project: Project) -> None:
    good = project.run(project.blocking(POSITIVE), partition_key="2026-01-01")
    assert good.success
    assert materialized(good) == ["2026-01-01"]
    project.amount = -1
    bad = project.run(project.blocking(POSITIVE), partition_key="2026-01-02")
    assert not bad.success
    assert materialized(bad) == [], "nothing is recorded either"
    assert project.rows() == [("2026-01-01", 1)]
    assert project.rows(f"floe-run-{bad.run_id}") == [("2026-01-01", 1), ("2026-01-02", -1)], "the rows can be queried"
    project.amount = 2
    assert project.run(project.blocking(POSITIVE), partition_key="2026-01-02").success
    assert project.rows() == [("2026-01-01", 1), ("2026-01-02", 2)]


def test_a_range_is_audited_and_published_at_once(project: Project) -> None:
    run = project.run(project.blocking(POSITIVE), tags=span("2026-01-01", "2026-01-03"))
    assert materialized(run) == ["2026-01-01", "2026-01-02", "2026-01-03"]


def test_a_run_is_put_on_top_of_commits_to_other_slices_and_checked_again(project: Project) -> None:
    assert project.run(project.blocking(POSITIVE), partition_key="2026-01-01").success
    seen: list[int] = []

    def whole(rows: pa.Table) -> bool:
        seen.append(rows.num_rows)
        return True

    def slice_only(rows: pa.Table) -> bool:
        seen.append(-rows.num_rows)
        return True

    project.meanwhile.append(lambda: project.write("2026-01-05", 5, 6))
    again = project.blocking(POSITIVE, checks.function(whole, scope="table"), checks.function(slice_only))
    assert project.run(again, partition_key="2026-01-02").success
    assert project.rows() == [("2026-01-01", 1), ("2026-01-02", 1), ("2026-01-05", 5), ("2026-01-05", 6)]
    assert seen == [2, -1, 4], "only the check of the whole table runs again, on what is published"


def test_a_check_that_fails_on_top_of_others_stops_the_publication(project: Project) -> None:
    assert project.run(project.blocking(POSITIVE), partition_key="2026-01-01").success
    project.meanwhile.append(lambda: project.write("2026-01-05", 1))
    few = project.blocking(checks.row_count(max=2, scope="table"))
    run = project.run(few, partition_key="2026-01-02")
    assert not run.success
    assert "on top of what other writers have committed since, a check fails: row_count of b/orders: 3 rows" in failure(
        run
    )
    assert project.rows() == [("2026-01-01", 1), ("2026-01-05", 1)]


@pytest.mark.parametrize("theirs", ["append", "overwrite"])
def test_rows_that_others_wrote_to_the_same_slice_stop_the_publication(project: Project, theirs: str) -> None:
    assert project.run(project.blocking(POSITIVE), partition_key="2026-01-01").success
    first = TableSlice.of_values("day", ["2026-01-01"])
    rows = pa.table({"day": [date(2026, 1, 1)], "amount": [9]})
    options: dict[str, Any] = {"mode": "append"} if theirs == "append" else {"mode": "overwrite", "slice": first}
    project.meanwhile.append(lambda: project.tables.write_data("b.orders", rows, **options))
    run = project.run(project.blocking(POSITIVE), partition_key="2026-01-01")
    assert not run.success
    assert "another writer changed the same rows" in failure(run)
    assert ("2026-01-01", 9) in project.rows()


def test_an_audit_needs_a_check_that_could_stop_it(project: Project) -> None:
    with pytest.raises(ConfigurationError, match="has floe/audit, and no check of it is blocking"):
        project.definitions(lambda made: checks.of(made, POSITIVE))
    yaml = "checks: {b.orders: [{not_null: amount, blocking: true}]}\n"
    (project.root / "more").mkdir()
    assert Project(project.root / "more", yaml).run(partition_key="2026-01-01").success


def test_audited_assets_of_a_project_that_publishes_whole_runs_are_published_with_the_others(tmp_path: Path) -> None:
    project = Project(tmp_path, "pipeline: {publish: run}\n")
    project.amount = -1
    run = project.run(project.blocking(POSITIVE), partition_key="2026-01-01")
    assert not run.success
    with pytest.raises(TableNotFoundError):
        project.rows()
    assert any("atomic_run" in str(event.step_key) for event in run.all_events)


# What would be published without having been checked ----------------------------------------------------------------


def go(project: Project, assets: list[Any], found: list[Any], **arguments: Any) -> Any:
    definitions = create_definitions(assets, project=project.root, asset_checks=found)
    job = definitions.resolve_implicit_global_asset_job_def()
    return job.execute_in_process(instance=project.instance, run_config=QUIET, raise_on_error=False, **arguments)


def then_of(project: Project) -> Any:
    def then(rows: pa.Table) -> bool:
        while project.meanwhile:
            project.meanwhile.pop()()
        return True

    return checks.function(then)


@pytest.mark.parametrize("atomic", [False, True])
def test_checks_that_the_selection_leaves_out_still_stop_it(project: Project, atomic: bool) -> None:
    project.amount, made = -1, project.orders()
    job = dg.define_asset_job("alone", selection=dg.AssetSelection.assets("b/orders").without_checks())
    found = [project.blocking(POSITIVE)(made)]
    atomic_group = [made] if atomic else []
    definitions = create_definitions([made], project=project.root, asset_checks=found, jobs=[job], atomic=atomic_group)
    run = definitions.resolve_job_def("alone").execute_in_process(
        instance=project.instance, raise_on_error=False, run_config=QUIET, partition_key="2026-01-01"
    )
    assert not run.success
    with pytest.raises(TableNotFoundError):
        project.rows()


def test_a_retry_of_the_publication_does_not_publish_what_was_refused(project: Project) -> None:
    assert project.run(project.blocking(POSITIVE), partition_key="2026-01-01").success
    project.meanwhile.append(lambda: project.write("2026-01-05", 1))
    made = project.orders()
    few = project.blocking(checks.row_count(max=2, scope="table"))(made)
    job = dg.define_asset_job("retried", selection="*", op_retry_policy=dg.RetryPolicy(max_retries=1))
    definitions = create_definitions([made], project=project.root, asset_checks=[few], jobs=[job])
    run = definitions.resolve_job_def("retried").execute_in_process(
        instance=project.instance, raise_on_error=False, run_config=QUIET, partition_key="2026-01-02"
    )
    assert not run.success
    assert project.rows() == [("2026-01-01", 1), ("2026-01-05", 1)]


@pytest.mark.parametrize("partitioned", [False, True])
def test_appends_are_checked_again_as_a_whole(project: Project, partitioned: bool) -> None:
    """Two runs append the same key at the same time: the second one sees it when it is put on top."""
    metadata: dict[str, Any] = {"write_mode": "append", "floe/audit": True}
    arguments: dict[str, Any] = {"partition_key": "2026-01-01"} if partitioned else {}

    def visits() -> pa.Table:
        return pa.table({"day": [date(2026, 1, 1)], "id": [1]})

    if partitioned:
        made = asset(key_prefix="b", partitions_def=DAYS, metadata={**metadata, "partition_expr": "day"})(visits)
    else:
        made = asset(key_prefix="b", metadata=metadata)(visits)
    found = [checks.of(made, checks.unique("id"), then_of(project), blocking=True)]
    inner: list[bool] = []
    project.meanwhile.append(lambda: inner.append(go(project, [made], found, **arguments).success))
    outer = go(project, [made], found, **arguments)
    assert (inner, outer.success) == ([True], False)
    assert project.tables.scan("b.visits").to_arrow()["id"].to_pylist() == [1]


def test_rows_are_consumed_once_by_two_audited_runs(project: Project) -> None:
    project.tables.write_data("b.source", pa.table({"n": [1, 2]}), mode="append")
    source = dg.AssetSpec(dg.AssetKey(["b", "source"]))
    since = dg.AssetIn(key=["b", "source"], metadata={"since": True})

    @asset(key_prefix="b", metadata={"write_mode": "append", "floe/audit": True}, ins={"source": since})
    def taken(source: pa.Table) -> pa.Table:
        return source

    found = [checks.of(taken, checks.not_null("n"), then_of(project), blocking=True)]
    assert go(project, [source, taken], found).success
    project.tables.write_data("b.source", pa.table({"n": [3]}), mode="append")
    inner: list[bool] = []
    project.meanwhile.append(lambda: inner.append(go(project, [source, taken], found).success))
    outer = go(project, [source, taken], found)
    assert (inner, outer.success) == ([True], False)
    assert sorted(project.tables.scan("b.taken").to_arrow()["n"].to_pylist()) == [1, 2, 3]


def test_an_asset_that_reads_its_own_table_is_not_put_on_top_of_others(project: Project) -> None:
    before = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)
    inputs = {"before": dg.AssetIn(key=["b", "running"], partition_mapping=before)}

    @asset(key_prefix="b", partitions_def=DAYS, metadata=AUDITED, ins=inputs)
    def running(context: AssetExecutionContext, before: pa.Table) -> pa.Table:
        base = max(before["n"].to_pylist(), default=0)
        return pa.table({"day": [date.fromisoformat(context.partition_key)], "n": [base + 1]})

    first = TableSlice.of_values("day", ["2026-01-01"])
    project.tables.write_data("b.running", pa.table({"day": [date(2026, 1, 1)], "n": [1]}), mode="append")
    other = pa.table({"day": [date(2026, 1, 1)], "n": [100]})
    project.meanwhile.append(lambda: project.tables.write_data("b.running", other, mode="overwrite", slice=first))
    found = [checks.of(running, checks.not_null("n"), then_of(project), blocking=True)]
    run = go(project, [running], found, partition_key="2026-01-02")
    assert not run.success
    assert project.tables.scan("b.running").to_arrow()["n"].to_pylist() == [100]


def test_what_could_not_be_audited_is_refused_when_it_is_defined(project: Project) -> None:
    def rows() -> pa.Table:
        return pa.table({"amount": [1]})

    warns = checks.value_range("amount", min=0, severity="warn")
    overwrite = {"write_mode": "overwrite", "floe/audit": True}
    audited = asset(key_prefix="b", metadata=overwrite)(rows)
    with pytest.raises(ConfigurationError, match="no check of it is blocking"):
        create_definitions([audited], project=project.root, asset_checks=[checks.of(audited, warns, blocking=True)])
    aside = asset(key_prefix="b", metadata={**overwrite, "floe/branch": "dev"})(rows)
    with pytest.raises(ConfigurationError, match="is written to branch 'dev', so there is nothing to publish on main"):
        create_definitions([aside], project=project.root, asset_checks=[checks.of(aside, POSITIVE, blocking=True)])
    other = asset(name="other", key_prefix="b", metadata={"write_mode": "overwrite"})(rows)
    plain = asset(key_prefix="b", metadata={"write_mode": "overwrite"})(rows)
    with pytest.raises(ConfigurationError, match="an audit publishes one asset, and this has 2"):
        create_definitions(
            [plain, other], project=project.root, atomic=[AtomicGroup("both", [plain, other], audit=True)]
        )
