"""Assets whose bad rows are moved to a quarantine table: in the write, and published with it by one commit."""

# No postponed annotations here: Dagster inspects those of assets.
import json
import os
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster import AssetExecutionContext, DagsterInstance, DailyPartitionsDefinition, asset
from tests.runs import QUIET, span

from floe_core import WriteMode
from floe_core.compiler import compile_project
from floe_core.errors import ConfigurationError, TableNotFoundError
from floe_dagster import AtomicGroup, checks, create_definitions
from floe_iceberg import IcebergTableManager, Lake
from floe_iceberg._pyiceberg.tables import table_of
from floe_iceberg.snapshots import RUN_ID, summary_of
from floe_iceberg.writing import commits

pytestmark = pytest.mark.filterwarnings("ignore:.*is currently in (beta|preview)")

DAYS = DailyPartitionsDefinition("2026-01-01", end_date="2026-01-08")
PARTITIONED = {"partition_expr": "day", "floe/sensitive_columns": ["card"]}
Q = "b.orders_quarantine"
NO_ID = checks.not_null("id", quarantine=True)
POSITIVE = checks.value_range("amount", min=0, quarantine=True)

Rows = list[tuple[int | None, float]]


class Project:
    def __init__(self, root: Path, settings: str = "") -> None:
        (root / "floe.yaml").write_text(f"name: shop\n{settings}", encoding="utf-8")
        self.root, artifacts = root, compile_project(root).artifacts
        artifacts.write()
        self.lake = Lake(artifacts)
        self.tables = self.lake.tables
        self.instance = DagsterInstance.ephemeral()
        self.delivery: Rows = [(1, 1.0), (None, 2.0), (3, -3.0), (None, -4.0)]
        self.computed, self.meanwhile = 0, list[Callable[[], Any]]()

    def orders(self, **options: Any) -> Any:
        def orders(context: AssetExecutionContext) -> pa.Table:
            self.computed += 1
            keys = (
                context.partition_keys
                if context.has_partition_key or context.has_partition_key_range
                else ["2026-01-01"]
            )
            found = [(date.fromisoformat(key), *row) for key in keys for row in self.delivery]
            return pa.table(
                {
                    "day": pa.array([day for day, _, _ in found], pa.date32()),
                    "id": pa.array([one for _, one, _ in found], pa.int64()),
                    "amount": pa.array([amount for _, _, amount in found], pa.float64()),
                    "card": ["4000"] * len(found),
                }
            )

        given: dict[str, Any] = {"partitions_def": DAYS, "metadata": PARTITIONED, **options}
        return asset(key_prefix="b", **given)(orders)

    def go(self, assets: list[Any], *found: Any, retries: int = 0, atomic: Any = (), **arguments: Any) -> Any:
        policy = dg.RetryPolicy(max_retries=retries) if retries else None
        job = dg.define_asset_job("all", selection="*", op_retry_policy=policy)
        definitions = create_definitions(
            assets, project=self.root, asset_checks=list(found), jobs=[job], atomic=list(atomic)
        )
        return definitions.resolve_job_def("all").execute_in_process(
            instance=self.instance, run_config=QUIET, raise_on_error=False, **arguments
        )

    def run(self, *rules: Any, day: str = "2026-01-01", **arguments: Any) -> Any:
        made = self.orders()
        arguments = arguments if "tags" in arguments else {"partition_key": day, **arguments}
        return self.go([made], checks.of(made, *(rules or (NO_ID, POSITIVE))), **arguments)

    def then(self) -> Any:
        """A check that lets other writers do something before the publication."""

        def then(rows: pa.Table) -> bool:
            while self.meanwhile:
                self.meanwhile.pop()()
            return True

        return checks.function(then)

    def rows(self, table: str = "b.orders", ref: str | None = None) -> list[tuple[Any, ...]]:
        found = self.tables.scan(table, ref=ref).to_arrow().to_pylist()
        return sorted(((str(row["day"])[-2:], row["id"], row["amount"]) for row in found), key=str)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


class BrokenError(Exception):
    pass


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Fail before the next commit of a write to each of these tables."""
    tables, send = list[str](), commits._send

    def fail(transaction: Any) -> None:
        name = ".".join(table_of(transaction).name())
        if name in tables:
            tables.remove(name)
            raise BrokenError(name)
        send(transaction)

    monkeypatch.setattr(commits, "_send", fail)
    yield tables
    assert tables == []


def results(run: Any) -> dict[str, Any]:
    return {one.check_name: one for one in run.get_asset_check_evaluations()}


def told(evaluation: Any) -> dict[str, Any]:
    return {name: value.value for name, value in evaluation.metadata.items()}


def failure(run: Any) -> str:
    texts = []
    for event in run.all_events:
        if event.event_type is dg.DagsterEventType.STEP_FAILURE:
            error = event.step_failure_data.error
            while error is not None:
                texts.append(error.message)
                error = error.cause
    return " ".join(texts)


def test_bad_rows_are_moved_and_the_checks_pass_with_counts_and_examples(project: Project) -> None:
    run = project.run()
    assert run.success
    assert project.rows() == [("01", 1, 1.0)]
    assert project.rows(Q) == [("01", 3, -3.0), ("01", None, -4.0), ("01", None, 2.0)]
    moved = project.tables.scan(Q).to_arrow().to_pylist()
    assert {row["amount"]: row["floe_failed_checks"] for row in moved} == {
        2.0: "not_null_id",
        -3.0: "range_amount",
        -4.0: "not_null_id, range_amount",
    }
    assert {(row["floe_run_id"], row["floe_partition"]) for row in moved} == {(run.run_id, "2026-01-01")}
    by_id = results(run)["not_null_id"]
    found = told(by_id)
    assert by_id.passed
    assert by_id.description == f"0 of 1 rows have no id; 2 rows were moved to '{Q}'"
    assert (found["floe/rows_quarantined"], found["floe/quarantine_table"], found["floe/rows_checked"]) == (2, Q, 1)
    assert "-4" in found["floe/examples"]
    assert "4000" not in found["floe/examples"], "sensitive columns are not shown"
    (event,) = run.get_asset_materialization_events()
    recorded = {name: value.value for name, value in event.materialization.metadata.items()}
    assert (recorded["floe/rows_quarantined"], recorded["floe/quarantine_table"]) == (3, Q)
    assert (
        recorded["dagster/partition_row_count" if "dagster/partition_row_count" in recorded else "dagster/row_count"]
        == 1
    )


def test_both_tables_are_published_by_one_commit_or_not_at_all(project: Project) -> None:
    def fails(rows: pa.Table) -> bool:
        return False

    made = project.orders()
    blocked = project.go(
        [made], checks.of(made, NO_ID, checks.function(fails, blocking=True)), partition_key="2026-01-01"
    )
    assert not blocked.success
    for table in ("b.orders", Q):
        with pytest.raises(TableNotFoundError, match="is not published yet"):
            project.rows(table)
    branch = f"floe-run-{blocked.run_id}"
    assert (len(project.rows(ref=branch)), len(project.rows(Q, ref=branch))) == (2, 2)
    assert project.run().success
    for table in ("b.orders", Q):
        head = project.tables.load_table(table).current_snapshot()
        assert head is not None
        assert summary_of(head)[RUN_ID] != blocked.run_id


def test_running_a_slice_again_replaces_what_it_has_moved(project: Project) -> None:
    assert project.run().success
    assert project.run(day="2026-01-02").success
    project.delivery = [(1, 1.0), (2, -2.0)]
    assert project.run().success
    assert project.rows(Q) == [("01", 2, -2.0), ("02", 3, -3.0), ("02", None, -4.0), ("02", None, 2.0)]
    project.delivery = [(1, 1.0)]
    run = project.run(tags=span("2026-01-01", "2026-01-02"))
    assert told(results(run)["not_null_id"])["floe/rows_quarantined"] == 0
    assert (project.rows(), project.rows(Q)) == ([("01", 1, 1.0), ("02", 1, 1.0)], [])


@pytest.mark.parametrize("table", ["b.orders", Q])
def test_a_step_that_is_retried_moves_each_row_once(project: Project, failing: list[str], table: str) -> None:
    failing.append(table)
    run = project.run(retries=1)
    assert run.success
    assert project.computed == 2
    assert (len(project.rows()), len(project.rows(Q))) == (1, 3)
    assert told(results(run)["not_null_id"])["floe/rows_quarantined"] == 2


@pytest.mark.parametrize("table", ["b.orders", Q])
def test_appends_of_a_retried_step_and_of_later_runs_are_there_once(
    project: Project, failing: list[str], table: str
) -> None:
    made = project.orders(partitions_def=None, metadata={"write_mode": "append"})
    found = checks.of(made, NO_ID, POSITIVE)
    failing.append(table)
    assert project.go([made], found, retries=1).success
    assert (project.computed, len(project.rows()), len(project.rows(Q))) == (2, 1, 3)
    assert project.go([made], found).success
    assert (len(project.rows()), len(project.rows(Q))) == (2, 6)


def test_a_publication_that_is_retried_publishes_once(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    publish, failures = IcebergTableManager.publish, [True]

    def fail(self: IcebergTableManager, *given: Any, **options: Any) -> Any:
        if failures:
            failures.clear()
            raise BrokenError("before the publication")
        return publish(self, *given, **options)

    monkeypatch.setattr(IcebergTableManager, "publish", fail)
    assert project.run(retries=1).success
    assert (project.computed, len(project.rows()), len(project.rows(Q))) == (1, 1, 3)


def test_a_run_is_put_on_top_of_commits_to_other_slices_in_both_tables(project: Project) -> None:
    assert project.run().success
    made = project.orders()
    found = checks.of(made, NO_ID, project.then(), blocking=True)
    inner: list[bool] = []
    project.meanwhile.append(lambda: inner.append(project.go([made], found, partition_key="2026-01-03").success))
    assert project.go([made], found, partition_key="2026-01-02").success
    assert inner == [True]
    assert [(day, one) for day, one, _ in project.rows(Q) if one is None] == [
        (day, None) for day in ("01", "01", "02", "02", "03", "03")
    ]


def test_the_same_slice_written_by_two_runs_is_a_conflict(project: Project) -> None:
    assert project.run().success
    made = project.orders()
    found = checks.of(made, NO_ID, project.then(), blocking=True)
    inner: list[bool] = []
    project.meanwhile.append(lambda: inner.append(project.go([made], found, partition_key="2026-01-02").success))
    outer = project.go([made], found, partition_key="2026-01-02")
    assert (inner, outer.success) == ([True], False)
    assert "another writer changed the same rows" in failure(outer)
    assert len([row for row in project.rows(Q) if row[0] == "02"]) == 2


def test_without_the_branch_of_the_moved_rows_nothing_is_published(project: Project) -> None:
    assert project.run().success
    made = project.orders()

    def discard() -> None:
        (branch,) = [name for name in project.tables.load_table(Q).metadata.refs if name != "main"]
        project.tables.remove_branch(Q, branch)

    project.meanwhile.append(discard)
    run = project.go([made], checks.of(made, NO_ID, project.then(), blocking=True), partition_key="2026-01-02")
    assert not run.success
    assert f"of '{Q}' was removed before it was published, so nothing was published" in failure(run)
    assert {row[0] for row in project.rows()} == {"01"}


def test_in_an_atomic_group_and_a_project_of_whole_runs_all_tables_are_published_together(tmp_path: Path) -> None:
    for name, settings in (("group", ""), ("project", "pipeline: {publish: run}\n")):
        (tmp_path / name).mkdir()
        project = Project(tmp_path / name, settings)
        made = project.orders(partitions_def=None, metadata={"write_mode": "overwrite"})

        @asset(key_prefix="g", metadata={"write_mode": "overwrite"})
        def totals(orders: pa.Table) -> pa.Table:
            return pa.table({"n": [orders.num_rows]})

        atomic = [AtomicGroup("both", [made, totals])] if name == "group" else []
        run = project.go([made, totals], checks.of(made, NO_ID), atomic=atomic)
        assert run.success, failure(run)
        assert project.tables.scan("g.totals").to_arrow()["n"].to_pylist() == [2], "downstream reads the good rows"
        assert len(project.rows(Q)) == 2
        project.tables.undo(run.run_id)
        assert project.tables.find_table(Q) is not None
        with pytest.raises(TableNotFoundError):
            project.rows(Q)


def test_floe_yaml_declares_a_quarantine(tmp_path: Path) -> None:
    rule = "{condition: amount >= 0, name: paid, quarantine: ops.bad_orders}"
    project = Project(tmp_path, f"checks: {{b.orders: [{rule}]}}\n")
    run = project.go([project.orders()], partition_key="2026-01-01")
    assert run.success, failure(run)
    assert told(results(run)["paid"])["floe/quarantine_table"] == "ops.bad_orders"
    assert len(project.rows("ops.bad_orders")) == 2


def test_a_check_outside_of_a_run_of_the_asset_moves_nothing(project: Project) -> None:
    assert project.run().success
    rows = pa.table({"day": [date(2026, 1, 1)], "id": pa.array([None], pa.int64()), "amount": [9.0], "card": ["4"]})
    project.tables.write_data("b.orders", rows, mode=WriteMode.APPEND)
    before = project.tables.load_table(Q).metadata_location
    made = project.orders()
    definitions = create_definitions([made], project=project.root, asset_checks=[checks.of(made, NO_ID)])
    keys = set(definitions.resolve_asset_graph().asset_check_keys)
    job = definitions.resolve_implicit_global_asset_job_def()
    only = job.get_subset(asset_selection=frozenset(), asset_check_selection=keys)
    run = only.execute_in_process(instance=project.instance, run_config=QUIET, raise_on_error=False)
    (found,) = run.get_asset_check_evaluations()
    assert (found.passed, told(found)["floe/rows_failing"]) == (False, 1)
    assert "floe/rows_quarantined" not in told(found)
    assert project.tables.load_table(Q).metadata_location == before


def test_a_quarantine_that_cannot_be_is_refused_when_it_is_defined(project: Project) -> None:
    made = project.orders()

    @asset(name="orders_quarantine", key_prefix="b", metadata={"write_mode": "overwrite"})
    def taken() -> pa.Table:
        return pa.table({"n": [1]})

    @asset(name="other", key_prefix="b", metadata={"write_mode": "overwrite"})
    def other() -> pa.Table:
        return pa.table({"id": [1]})

    def define(assets: list[Any], *found: Any) -> None:
        create_definitions(assets, project=project.root, asset_checks=list(found))

    with pytest.raises(ConfigurationError, match=r"which is the table of asset b/orders_quarantine"):
        define([made, taken], checks.of(made, NO_ID))
    same = checks.not_null("id", quarantine="b.bad")
    with pytest.raises(ConfigurationError, match=r"would both move rows to 'b\.bad'"):
        define([made, other], checks.of(made, same), checks.of(other, same))
    with pytest.raises(ConfigurationError, match="moved once, so name one table"):
        define([made], checks.of(made, same, POSITIVE))
    with pytest.raises(ConfigurationError, match=r"would move rows to the table that they are in"):
        define([made], checks.of(made, checks.not_null("id", quarantine="b.orders")))
    external = dg.AssetSpec(["b", "elsewhere"])
    with pytest.raises(ConfigurationError, match="or a check with quarantine, and is not stored in a table"):
        define([external], checks.of("b/elsewhere", NO_ID))
    aside = project.orders(metadata={**PARTITIONED, "floe/branch": "dev"})
    with pytest.raises(ConfigurationError, match="or a check with quarantine, and is written to branch 'dev'"):
        define([aside], checks.of(aside, NO_ID))


@pytest.mark.parametrize("make", [checks.not_null, checks.condition])
def test_the_constructors_take_it(make: Callable[..., Any]) -> None:
    assert make("id", quarantine=True).quarantine is True
    with pytest.raises(ConfigurationError, match="has no namespace"):
        make("id", quarantine="yes")
    with pytest.raises(ConfigurationError, match="quarantine"):
        make("id", quarantine=1)
    with pytest.raises(ConfigurationError, match="unique does not decide this for each row by itself"):
        checks.unique("id", quarantine=True)


def test_what_is_carried_to_the_step_is_the_check(project: Project) -> None:
    """Limits of every kind, by the spec of the check."""
    made = project.orders()
    rule = checks.value_range("day", max=date(2026, 1, 1), quarantine=True)
    spec = next(iter(checks.of(made, rule).check_specs))
    assert spec.blocking
    assert json.loads(spec.metadata["floe/quarantine"])["quarantine"] is True
    run = project.run(rule, tags=span("2026-01-01", "2026-01-02"))
    assert run.success, failure(run)
    assert {row[0] for row in project.rows(Q)} == {"02"}


def test_a_catalog_that_cannot_publish_both_is_refused_before_anything_is_written(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = project.tables.catalog_plugin.connect()
    monkeypatch.setattr(type(catalog), "is_atomic", False)
    monkeypatch.setattr(type(catalog), "refuses_many_tables", "no such endpoint")
    refused = project.run()
    assert not refused.success
    assert "so the 2 tables of this run cannot be published together. Nothing was written" in failure(refused)
    assert project.tables.find_table("b.orders") is None
    with pytest.raises(ConfigurationError, match=r"no such endpoint, so 'b\.orders' and 'b\.orders_quarantine' cannot"):
        project.lake.audit("b.orders", quarantine=[NO_ID]).__enter__()
    made = project.orders()
    accepted = AtomicGroup("slowly", [made], audit=True, one_by_one=True)
    run = project.go([made], checks.of(made, NO_ID, POSITIVE), atomic=[accepted], partition_key="2026-01-01")
    assert run.success, failure(run)
    assert (len(project.rows()), len(project.rows(Q))) == (1, 3)


_COMPUTED: list[bool] = []


def visits_job() -> Any:
    """For `reconstructable`."""

    @asset(key_prefix="b", metadata={"write_mode": "append"})
    def visits() -> pa.Table:
        _COMPUTED.append(True)
        return pa.table({"id": pa.array([1, None, None], pa.int64())})

    job = dg.define_asset_job("visits", selection="*", executor_def=dg.in_process_executor)
    project = Path(os.environ["FLOE_TEST_PROJECT"])
    definitions = create_definitions([visits], project=project, asset_checks=[checks.of(visits, NO_ID)], jobs=[job])
    return definitions.resolve_job_def("visits")


def test_runs_that_resume_a_failed_one_continue_what_it_has_moved(
    project: Project, monkeypatch: pytest.MonkeyPatch, failing: list[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("FLOE_TEST_PROJECT", str(project.root))
    (tmp_path / "history").mkdir()
    with DagsterInstance.local_temp(str(tmp_path / "history")) as instance:

        def run(parent: str | None = None) -> Any:
            options = dg.ReexecutionOptions.from_failure(parent, instance) if parent else None
            job = dg.reconstructable(visits_job)
            arguments: dict[str, Any] = {"raise_on_error": False, "run_config": QUIET}
            return dg.execute_job(job, instance, reexecution_options=options, **arguments)

        failing.append("b.visits")
        first = run()
        assert not first.success
        assert run(first.run_id).success
        assert (project.tables.scan("b.visits").count(), project.tables.scan("b.visits_quarantine").count()) == (1, 2)
        with monkeypatch.context() as patched:
            patched.setattr(IcebergTableManager, "publish", _broken)
            second = run()
        assert not second.success
        _COMPUTED.clear()
        assert run(second.run_id).success
        assert _COMPUTED == []
        assert (project.tables.scan("b.visits").count(), project.tables.scan("b.visits_quarantine").count()) == (2, 4)


def _broken(*_: Any, **__: Any) -> Any:
    raise BrokenError("before the publication")


def test_rows_are_moved_on_a_branch_of_the_lake_and_published_with_it(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOE_BRANCH", "trial")
    assert project.run().success
    project.delivery = [(1, 1.0), (None, 2.0)]
    assert project.run().success
    with Lake(project.lake.artifacts.on_branch("trial")) as trial:
        assert trial.tables.scan("b.orders").to_arrow()["id"].to_pylist() == [1]
        moved = trial.tables.scan(Q).to_arrow().to_pylist()
    assert [(row["amount"], row["floe_failed_checks"]) for row in moved] == [(2.0, "not_null_id")]
    for name in ("b.orders", Q):
        with pytest.raises(TableNotFoundError, match="--branch trial"):
            project.tables.scan(name)
    published = project.lake.branches.publish("trial")
    assert sorted(one.table for one in published.tables) == ["b.orders", Q]
    assert project.rows() == [("01", 1, 1.0)]
    assert project.tables.scan(Q).count() == 1
