"""What Dagster's own kinds of assets, checks, jobs and options mean inside of an atomic group."""

import enum
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from dagster import (
    AssetCheckResult,
    AssetCheckSpec,
    AssetExecutionContext,
    AssetIn,
    AssetsDefinition,
    AssetSelection,
    BackfillPolicy,
    Config,
    DagsterEventType,
    DagsterInstance,
    DailyPartitionsDefinition,
    DataVersion,
    Definitions,
    ExecuteInProcessResult,
    MaterializeResult,
    Output,
    RetryPolicy,
    asset,
    asset_check,
    define_asset_job,
    multi_asset_check,
)
from tests.runs import QUIET, span

from floe_core.compiler import compile_project
from floe_core.errors import ConfigurationError, TableNotFoundError
from floe_dagster import AtomicGroup, create_definitions
from floe_dagster.atomic.publication import refuse_unfinished
from floe_iceberg import IcebergTableManager

pytestmark = pytest.mark.filterwarnings("ignore:.*is currently in (beta|preview)", "ignore:asset .* sets no write_mode")

DAYS = DailyPartitionsDefinition("2026-01-01", end_date="2026-01-08")
OVERWRITE, APPEND = {"write_mode": "overwrite"}, {"write_mode": "append"}


def t(**columns: Any) -> pa.Table:
    return pa.table({name: [value] for name, value in columns.items()})


class Project:
    def __init__(self, root: Path) -> None:
        (root / "floe.yaml").write_text("name: shop\n", encoding="utf-8")
        self.root, artifacts = root, compile_project(root).artifacts
        artifacts.write()
        self.tables = IcebergTableManager.open(artifacts)
        self.instance = DagsterInstance.ephemeral()

    def definitions(self, assets: Iterable[Any], *, groups: Any = None, **others: Any) -> Definitions:
        listed = list(assets)
        return create_definitions(
            listed, project=self.root, atomic=groups or [AtomicGroup("nightly", listed)], **others
        )

    def run(self, definitions: Definitions, job: str | None = None, **arguments: Any) -> ExecuteInProcessResult:
        found = definitions.resolve_job_def(job) if job else definitions.resolve_implicit_global_asset_job_def()
        config = {**QUIET, **arguments.pop("config", {})}
        return found.execute_in_process(instance=self.instance, run_config=config, raise_on_error=False, **arguments)

    def rows(self, table: str) -> list[Any]:
        return sorted(self.tables.scan(table).to_arrow().to_pylist(), key=str)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def made(result: ExecuteInProcessResult) -> list[str]:
    return [one.asset_key.to_user_string() for one in result.get_asset_materialization_events() if one.asset_key]


def failure(result: ExecuteInProcessResult) -> str:
    texts = []
    for event in result.all_events:
        if event.event_type is DagsterEventType.STEP_FAILURE:
            error = event.step_failure_data.error
            while error is not None:
                texts.append(error.message)
                error = error.cause
    return " ".join(texts)


def a_of(value: int = 1, **arguments: Any) -> AssetsDefinition:
    def a() -> pa.Table:
        return t(i=value)

    made: AssetsDefinition = asset(key_prefix="b", metadata=OVERWRITE, **arguments)(a)
    return made


def test_a_blocking_check_that_the_selection_leaves_out_still_blocks(project: Project) -> None:
    @asset(key_prefix="b", metadata=OVERWRITE, check_specs=[AssetCheckSpec("ok", asset=["b", "c"], blocking=True)])
    def c():  # type: ignore[no-untyped-def]  # Dagster reads an annotation of two outputs as a tuple
        return MaterializeResult(value=t(i=-1), check_results=[AssetCheckResult(passed=False)])

    jobs = [define_asset_job("without", selection=AssetSelection.assets(c).without_checks())]
    result = project.run(project.definitions([c], jobs=jobs), "without")
    assert "a check that blocks has failed" in failure(result)
    with pytest.raises(TableNotFoundError):
        project.rows("b.c")


def test_the_publish_step_publishes_only_what_has_succeeded_as_a_whole(project: Project) -> None:
    """Whoever re-executes it alone would publish a half of the run."""

    @asset(key_prefix="b", metadata=OVERWRITE, deps=[["b", "a"]])
    def broken() -> pa.Table:
        raise ValueError("a bad day")

    failed = project.run(project.definitions([a_of(), broken]))
    assert (failed.success, made(failed)) == (False, [])
    steps = ["nightly.b__a", "nightly.b__broken"]
    with pytest.raises(ConfigurationError, match=r"nightly\.b__broken did not succeed in this run"):
        refuse_unfinished(project.instance, [failed.run_id], steps)
    refuse_unfinished(project.instance, [failed.run_id], steps[:1])


def test_groups_stand_beside_each_other_and_names_are_not_mixed(project: Project) -> None:
    @asset(key_prefix="b", metadata=OVERWRITE)
    def publish() -> pa.Table:
        return t(i=2)

    groups = [AtomicGroup("first", [["b", "a"]]), AtomicGroup("second", [["b", "publish"]])]
    result = project.run(project.definitions([a_of(), publish], groups=groups))
    assert result.success, failure(result)
    assert sorted(made(result)) == ["b/a", "b/publish"]
    with pytest.raises(ConfigurationError, match="give the group another name"):
        project.definitions([a_of()], groups=[AtomicGroup("b__a", [["b", "a"]])])


def test_a_retry_of_the_job_writes_and_reads_as_if_it_was_the_first_attempt(project: Project) -> None:
    attempts: list[int] = []

    @asset(key_prefix="b", metadata=APPEND)
    def flaky() -> Any:
        attempts.append(1)
        yield Output(t(i=7))
        if len(attempts) == 1:
            raise ValueError("after the write")

    jobs = [define_asset_job("retried", selection="*", op_retry_policy=RetryPolicy(max_retries=2))]
    result = project.run(project.definitions([flaky], jobs=jobs), "retried")
    assert result.success, failure(result)
    assert (len(attempts), project.rows("b.flaky")) == (2, [{"i": 7}])


def test_an_asset_that_is_not_in_the_group_must_not_lie_between_its_assets(project: Project) -> None:
    @asset(key_prefix="b", deps=[["b", "a"]])
    def notify() -> None:
        return None

    @asset(key_prefix="b", metadata=OVERWRITE, deps=[notify])
    def last() -> pa.Table:
        return t(i=2)

    group = AtomicGroup("nightly", [["b", "a"], ["b", "last"]])
    with pytest.raises(ConfigurationError, match="b/notify is downstream of b/a and upstream of b/last"):
        project.definitions([a_of(), notify, last], groups=[group])


def test_consumers_of_an_output_that_was_not_made_are_skipped(project: Project) -> None:
    makes = [True]

    @asset(key_prefix="b", metadata=OVERWRITE, output_required=False)
    def maybe() -> Any:
        if makes[0]:
            yield Output(t(i=1))

    @asset(key_prefix="b", metadata=APPEND, ins={"maybe": AssetIn(["b", "maybe"])})
    def copy(maybe: pa.Table) -> pa.Table:
        return maybe

    definitions = project.definitions([maybe, copy])
    assert made(project.run(definitions)) == ["b/maybe", "b/copy"]
    makes[0] = False
    result = project.run(definitions)
    assert (result.success, made(result), project.rows("b.copy")) == (True, [], [{"i": 1}])


def test_materializations_say_what_those_of_ordinary_assets_say(project: Project) -> None:
    policy = BackfillPolicy.single_run()

    @asset(key_prefix="b", metadata={"partition_expr": "day"}, partitions_def=DAYS, backfill_policy=policy)
    def days(context: AssetExecutionContext) -> pa.Table:
        for key in context.partition_keys:
            context.add_asset_metadata({"mine": key}, partition_key=key)
        return pa.table({"day": pa.array(context.partition_keys).cast(pa.timestamp("us")).cast(pa.date32())})

    @asset(key_prefix="b", metadata=OVERWRITE)
    def tagged() -> Output[pa.Table]:
        return Output(t(i=1), data_version=DataVersion("mine"), tags={"k": "v"})

    @asset(key_prefix="b", deps=[tagged], metadata=OVERWRITE)
    def log() -> MaterializeResult[Any]:
        return MaterializeResult(metadata={"x": 1})

    result = project.run(project.definitions([days, tagged, log]), tags=span("2026-01-02", "2026-01-03"))
    assert result.success, failure(result)
    events = [one.materialization for one in result.get_asset_materialization_events()]
    by_name = {(one.asset_key.path[-1], one.partition): one for one in events}
    assert {key[1]: one.metadata["mine"].value for key, one in by_name.items() if key[0] == "days"} == {
        "2026-01-02": "2026-01-02",
        "2026-01-03": "2026-01-03",
    }
    assert (by_name["tagged", None].tags or {})["k"] == "v"
    assert (by_name["tagged", None].tags or {})["dagster/data_version"] == "mine"
    assert by_name["log", None].metadata["x"].value == 1


def test_members_know_the_history_of_assets(project: Project) -> None:
    @asset(key_prefix="b", metadata=APPEND)
    def high(context: AssetExecutionContext) -> MaterializeResult[pa.Table]:
        event = context.instance.get_latest_materialization_event(context.asset_key)
        last = event.asset_materialization.metadata["high"].value if event and event.asset_materialization else 0
        return MaterializeResult(value=t(i=last + 1), metadata={"high": last + 1})

    definitions = project.definitions([high])
    for _ in range(3):
        assert project.run(definitions).success
    assert project.rows("b.high") == [{"i": 1}, {"i": 2}, {"i": 3}]


def test_run_config_reaches_the_asset_and_its_output(project: Project) -> None:
    class Kind(enum.Enum):
        A = "a"
        B = "b"

    class Options(Config):
        kind: Kind = Kind.A

    @asset(key_prefix="b", metadata=OVERWRITE)
    def configured(config: Options) -> pa.Table:
        return t(kind=config.kind.value)

    def config(**step: Any) -> dict[str, Any]:
        return {"ops": {"nightly": {"ops": {"b__configured": step}}}}

    definitions = project.definitions([configured])
    assert project.run(definitions).success
    result = project.run(
        definitions,
        config=config(config={"kind": "B"}, outputs={"b__configured": {"write_mode": "append"}}),
    )
    assert result.success, failure(result)
    assert project.rows("b.configured") == [{"kind": "a"}, {"kind": "b"}]


def test_a_run_of_checks_only_reads_what_is_published(project: Project) -> None:
    listed = [a_of()]

    @asset_check(asset=listed[0], blocking=True)
    def fine(a: pa.Table) -> AssetCheckResult:
        return AssetCheckResult(passed=a.num_rows == 1)

    jobs = [define_asset_job("checks", selection=AssetSelection.checks_for_assets(listed[0]))]
    definitions = project.definitions(listed, asset_checks=[fine], jobs=jobs)
    assert project.run(definitions).success
    result = project.run(definitions, "checks")
    assert result.success, failure(result)
    assert [(one.check_name, one.passed) for one in result.get_asset_check_evaluations()] == [("fine", True)]
    assert made(result) == []


def test_a_check_of_an_attempt_that_is_retried_is_reported_once(project: Project) -> None:
    attempts: list[int] = []

    @asset(
        key_prefix="b",
        metadata=OVERWRITE,
        check_specs=[AssetCheckSpec("ok", asset=["b", "checked"])],
        retry_policy=RetryPolicy(max_retries=2),
    )
    def checked() -> Any:
        attempts.append(1)
        yield AssetCheckResult(passed=len(attempts) > 1, check_name="ok")
        if len(attempts) == 1:
            raise ValueError("flaky")
        yield Output(t(i=7))

    result = project.run(project.definitions([checked]))
    assert result.success, failure(result)
    assert [one.passed for one in result.get_asset_check_evaluations()] == [True]


def test_a_check_of_assets_inside_and_outside_runs_after_the_publication(project: Project) -> None:
    @asset(key_prefix="b", metadata=OVERWRITE)
    def outside() -> pa.Table:
        return t(i=2)

    inside = a_of()

    @multi_asset_check(specs=[AssetCheckSpec("seen", asset=inside.key), AssetCheckSpec("seen", asset=outside.key)])
    def both() -> Any:
        for key in (inside.key, outside.key):
            yield AssetCheckResult(passed=True, asset_key=key, check_name="seen")

    definitions = project.definitions([inside, outside], groups=[AtomicGroup("nightly", [inside])], asset_checks=[both])
    result = project.run(definitions)
    assert result.success, failure(result)
    assert len(result.get_asset_check_evaluations()) == 2
