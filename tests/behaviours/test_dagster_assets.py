"""Dagster assets as tables: the right table, the right partition, once, and described truly."""

import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from dagster import (
    AssetExecutionContext,
    AssetIn,
    AssetsDefinition,
    AssetSpec,
    BackfillPolicy,
    DagsterInstance,
    DailyPartitionsDefinition,
    Definitions,
    ExecuteInProcessResult,
    Out,
    ReexecutionOptions,
    TimeWindowPartitionMapping,
    asset,
    define_asset_job,
    execute_job,
    in_process_executor,
    job,
    op,
    reconstructable,
)
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from floe_core.config.artifacts import CompiledArtifacts
from floe_core.errors import ConfigurationError, PartitionMismatchError
from floe_core.identifiers import TableIdentifier
from floe_dagster import LakeResource, create_definitions
from floe_iceberg import Lake

pytestmark = pytest.mark.filterwarnings("ignore:.*is currently in (beta|preview)")

DAYS = DailyPartitionsDefinition("2026-01-01", end_date="2026-01-08")
BERLIN = DailyPartitionsDefinition("2026-03-27", end_date="2026-04-01", timezone="Europe/Berlin")
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


def hourly_rows(context: AssetExecutionContext, lake: LakeResource, note: str = "v1") -> DataFrame:
    """One row for each hour of the partitions being written."""
    window = context.partition_time_window
    start, end = int(window.start.timestamp()), int(window.end.timestamp())
    at = F.timestamp_seconds(F.lit(start) + F.col("id") * 3600)
    return lake.spark.range((end - start) // 3600).select(at.alias("at"), F.lit(note).alias("note"))


def bronze(namespace: str, days: Any = DAYS, **changes: Any) -> AssetsDefinition:
    arguments = {
        "key_prefix": namespace,
        "partitions_def": days,
        "backfill_policy": BackfillPolicy.single_run(),
        "metadata": {"partition_expr": "at"},
        **changes,
    }

    def events(context: AssetExecutionContext, lake: LakeResource) -> DataFrame:
        return hourly_rows(context, lake)

    built: AssetsDefinition = asset(name="events", **arguments)(events)
    return built


def definitions(assets: Iterable[Any], project: CompiledArtifacts) -> Definitions:
    return create_definitions(list(assets), project=project.root)


def materialize(
    assets: Iterable[Any], project: CompiledArtifacts, instance: DagsterInstance, **arguments: Any
) -> ExecuteInProcessResult:
    everything = definitions(assets, project).resolve_implicit_global_asset_job_def()
    return everything.execute_in_process(instance=instance, run_config=QUIET, **arguments)


def span(first: str, last: str) -> dict[str, str]:
    return {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}


def test_a_range_of_days_is_one_snapshot_and_one_day_again_touches_only_itself(
    lake: Lake, project: CompiledArtifacts, instance: DagsterInstance, namespace: str
) -> None:
    events = bronze(namespace)
    materialize([events], project, instance, tags=span("2026-01-01", "2026-01-07"))
    table = lake.tables.load_table(next(iter(lake.tables.list_tables(_namespace(namespace)))))
    assert len(table.snapshots()) == 1
    before = {task.file.file_path for task in table.scan().plan_files()}

    materialize([events], project, instance, partition_key="2026-01-03")
    after = {task.file.file_path for task in table.refresh().scan().plan_files()}
    assert (len(before - after), len(after - before), len(before & after)) == (1, 1, 6)
    assert lake.read(f"{namespace}.events").count() == 7 * 24


def test_materializing_a_partition_twice_gives_the_same_rows(
    lake: Lake, project: CompiledArtifacts, instance: DagsterInstance, namespace: str
) -> None:
    for _ in range(2):
        materialize([bronze(namespace)], project, instance, partition_key="2026-01-03")
    assert lake.read(f"{namespace}.events").count() == 24


def test_a_downstream_asset_gets_its_own_day_and_a_summary_gets_every_day(
    lake: Lake, project: CompiledArtifacts, instance: DagsterInstance, namespace: str
) -> None:
    upstream = {"events": AssetIn([namespace, "events"])}

    @asset(key_prefix=namespace, partitions_def=DAYS, metadata={"partition_expr": "at"}, ins=upstream)
    def counted(events: DataFrame) -> DataFrame:
        return events.groupBy().agg(F.min("at").alias("at"), F.count("*").alias("rows"))

    @asset(key_prefix=namespace, metadata={"write_mode": "overwrite"}, ins=upstream)
    def summary(events: DataFrame) -> DataFrame:
        return events.groupBy().agg(F.count("*").alias("rows"))

    assets = [bronze(namespace), counted, summary]
    for day in ("2026-01-02", "2026-01-05"):
        materialize(assets, project, instance, partition_key=day)
    assert sorted(row.rows for row in lake.read(f"{namespace}.counted").collect()) == [24, 24]
    assert [row.rows for row in lake.read(f"{namespace}.summary").collect()] == [48]


def test_days_of_another_zone_are_exact_across_the_change_to_summer_time(
    lake: Lake, project: CompiledArtifacts, instance: DagsterInstance, namespace: str
) -> None:
    events = bronze(namespace, BERLIN)
    materialize([events], project, instance, tags=span("2026-03-27", "2026-03-31"))
    assert lake.read(f"{namespace}.events").count() == 5 * 24 - 1
    materialize([events], project, instance, partition_key="2026-03-29")
    assert lake.read(f"{namespace}.events").count() == 5 * 24 - 1
    table = lake.tables.load_table(next(iter(lake.tables.list_tables(_namespace(namespace)))))
    assert table.snapshots()[-1].summary["deleted-records"] == "23"  # type: ignore[index]  # a snapshot has a summary


def test_an_unpartitioned_asset_appends_or_replaces_as_it_says(
    lake: Lake, project: CompiledArtifacts, instance: DagsterInstance, namespace: str
) -> None:
    @asset(key_prefix=namespace, metadata={"write_mode": "append"})
    def grows(lake: LakeResource) -> DataFrame:
        return lake.spark.range(3)

    @asset(key_prefix=namespace, metadata={"write_mode": "overwrite"})
    def stays(lake: LakeResource) -> DataFrame:
        return lake.spark.range(3)

    for _ in range(2):
        materialize([grows, stays], project, instance)
    assert lake.read(f"{namespace}.grows").count() == 6
    assert lake.read(f"{namespace}.stays").count() == 3


def test_the_materialization_says_what_was_written(
    lake: Lake, project: CompiledArtifacts, instance: DagsterInstance, namespace: str
) -> None:
    result = materialize([bronze(namespace)], project, instance, partition_key="2026-01-03")
    (event,) = result.get_asset_materialization_events()
    metadata: dict[str, Any] = {key: value.value for key, value in event.materialization.metadata.items()}
    (snapshot,) = lake.tables.list_snapshots(lake.tables.list_tables(_namespace(namespace))[0])
    assert metadata["dagster/table_name"] == f"{namespace}.events"
    assert metadata["dagster/partition_row_count"] == 24
    assert metadata["dagster/uri"].endswith(f"/{namespace}/events")
    assert [column.name for column in metadata["dagster/column_schema"].columns] == ["at", "note"]
    assert metadata["floe/snapshot_id"] == str(snapshot.snapshot_id)
    assert metadata["floe/write_mode"] == "overwrite"
    assert metadata["floe/schema_evolved"] is False
    assert snapshot.summary["floe.run-id"] == result.run_id
    assert snapshot.summary["floe.asset"] == f"{namespace}/events"
    assert snapshot.summary["floe.partition"] == "2026-01-03"


def test_a_new_column_is_reported_as_evolution(
    project: CompiledArtifacts, instance: DagsterInstance, namespace: str
) -> None:
    columns = ["a"]

    @asset(key_prefix=namespace, metadata={"write_mode": "append"})
    def growing(lake: LakeResource) -> DataFrame:
        return lake.spark.range(1).select(*(F.lit(1).alias(name) for name in columns))

    materialize([growing], project, instance)
    columns.append("b")
    (event,) = materialize([growing], project, instance).get_asset_materialization_events()
    assert event.materialization.metadata["floe/schema_evolved"].value is True
    assert event.materialization.metadata["floe/schema_change"].value == "+b int"


def test_rows_of_another_day_fail_the_step_and_nothing_is_written(
    lake: Lake, project: CompiledArtifacts, instance: DagsterInstance, namespace: str
) -> None:
    @asset(key_prefix=namespace, partitions_def=DAYS, metadata={"partition_expr": "at"})
    def stray(context: AssetExecutionContext, lake: LakeResource) -> DataFrame:
        return hourly_rows(context, lake).withColumn("at", F.col("at") + F.expr("INTERVAL 5 HOURS"))

    with pytest.raises(PartitionMismatchError, match="5 rows lie outside"):
        materialize([stray], project, instance, partition_key="2026-01-03")
    assert lake.tables.list_tables(_namespace(namespace)) == []


@pytest.mark.parametrize(
    ("changes", "days", "reason"),
    [
        ({"metadata": {}}, DAYS, "does not name the column"),
        (
            {"metadata": {"partition_expr": "at", "write_mode": "replace"}},
            DAYS,
            "'replace' is not one of append, overwrite",
        ),
        ({"metadata": {"partition_expr": {"day": "at"}}}, DAYS, "does not name the column"),
    ],
)
def test_an_asset_that_does_not_say_where_its_partitions_lie_is_refused(
    project: CompiledArtifacts, instance: DagsterInstance, namespace: str, changes: Any, days: Any, reason: str
) -> None:
    def compute(lake: LakeResource) -> DataFrame:
        return lake.spark.range(0).withColumn("at", F.lit(None).cast("timestamp"))

    arguments = {"key_prefix": namespace, "partitions_def": days, "metadata": {"partition_expr": "at"}, **changes}
    odd: AssetsDefinition = asset(name="odd", **arguments)(compute)
    with pytest.raises(ConfigurationError, match=reason):
        materialize([odd], project, instance, partition_key="2026-01-03")


@pytest.mark.parametrize("value", [None, 3, [1]])
def test_a_value_that_is_no_frame_is_refused(
    project: CompiledArtifacts, instance: DagsterInstance, namespace: str, value: Any
) -> None:
    @asset(key_prefix=namespace, metadata={"write_mode": "append"})
    def odd() -> Any:
        return value

    with pytest.raises(
        ConfigurationError,
        match=f"returned {type(value).__name__.removesuffix('Type')}, which is no table; return one of pyspark",
    ):
        materialize([odd], project, instance)


def test_two_assets_on_one_table_are_refused_naming_both(project: CompiledArtifacts) -> None:
    @asset(key=["gold", "metrics", "daily"], metadata={"write_mode": "append"})
    def one() -> Any: ...

    @asset(key=["gold", "Metrics_daily"], metadata={"write_mode": "append"})
    def two() -> Any: ...

    with pytest.raises(ConfigurationError, match=r"gold/metrics/daily and gold/Metrics_daily .* 'gold.Metrics_daily'"):
        definitions([one, two], project)


def test_an_unsaid_write_mode_is_warned_about_when_definitions_load(project: CompiledArtifacts) -> None:
    @asset
    def orders() -> Any: ...

    with pytest.warns(UserWarning, match=r"orders sets no write_mode.*'public.orders'"):
        definitions([orders], project)


def test_metadata_that_looks_like_an_option_is_warned_about_when_definitions_load(project: CompiledArtifacts) -> None:
    @asset(metadata={"write_mod": "overwrite", "write_mode": "append", "owner": "sales"})
    def orders() -> Any: ...

    with pytest.warns(UserWarning, match="'write_mod', which Floe does not read; did you mean 'write_mode'") as warned:
        definitions([orders], project)
    assert len(warned) == 1


def test_a_key_that_is_no_table_name_is_refused_when_definitions_load(project: CompiledArtifacts) -> None:
    @asset(key=["bronze", "x" * 200], metadata={"write_mode": "append"})
    def long() -> Any: ...

    with pytest.raises(ConfigurationError, match="at most 128"):
        definitions([long], project)


def test_definitions_without_a_contract_name_the_command(tmp_path: Any) -> None:
    with pytest.raises(ConfigurationError, match="floe init"):
        create_definitions([], project=tmp_path)
    (tmp_path / "floe.yaml").write_text("name: shop\n")
    with pytest.raises(ConfigurationError, match="floe compile"):
        create_definitions([], project=tmp_path)


def test_a_contract_older_than_floe_yaml_is_warned_about(tmp_path: Any) -> None:
    from floe_core.compiler import compile_project

    (tmp_path / "floe.yaml").write_text("name: shop\n")
    compile_project(tmp_path).artifacts.write()
    (tmp_path / "floe.yaml").write_text("name: other\n")
    with pytest.warns(UserWarning, match="floe compile"):
        create_definitions([], project=tmp_path)


def _namespace(name: str) -> Any:
    from floe_core.identifiers import Namespace

    return Namespace.from_string(name)


def test_days_that_begin_at_six_are_exact(
    lake: Lake, project: CompiledArtifacts, instance: DagsterInstance, namespace: str
) -> None:
    shifted = DailyPartitionsDefinition("2026-01-01", end_date="2026-01-05", hour_offset=6)
    for _ in range(2):
        materialize([bronze(namespace, shifted)], project, instance, tags=span("2026-01-01", "2026-01-03"))
    assert lake.read(f"{namespace}.events").count() == 3 * 24


def test_the_day_before_the_first_day_is_empty(
    lake: Lake, project: CompiledArtifacts, instance: DagsterInstance, namespace: str
) -> None:
    yesterday = AssetIn(
        [namespace, "events"], partition_mapping=TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)
    )

    @asset(key_prefix=namespace, partitions_def=DAYS, metadata={"partition_expr": "at"}, ins={"events": yesterday})
    def shifted(events: DataFrame) -> DataFrame:
        return events.withColumn("at", F.col("at") + F.expr("INTERVAL 1 DAY"))

    for day in ("2026-01-01", "2026-01-02"):
        materialize([bronze(namespace), shifted], project, instance, partition_key=day)
    assert lake.read(f"{namespace}.shifted").count() == 24


def test_a_partitioned_asset_is_not_written_without_a_partition(
    lake: Lake, project: CompiledArtifacts, instance: DagsterInstance, namespace: str
) -> None:
    @asset(key_prefix=namespace, partitions_def=DAYS, metadata={"partition_expr": "at"})
    def events(lake: LakeResource) -> DataFrame:
        return lake.spark.sql("SELECT TIMESTAMP '2026-01-03 05:00:00' AS at")

    materialize([events], project, instance, partition_key="2026-01-03")
    with pytest.raises(ConfigurationError, match="names no partition"):
        materialize([events], project, instance)
    assert lake.read(f"{namespace}.events").count() == 1


def test_an_asset_that_reads_its_own_yesterday_can_start(
    lake: Lake, project: CompiledArtifacts, instance: DagsterInstance, namespace: str
) -> None:
    yesterday = AssetIn(
        [namespace, "sums"], partition_mapping=TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)
    )

    @asset(key_prefix=namespace, partitions_def=DAYS, metadata={"partition_expr": "at"}, ins={"before": yesterday})
    def sums(context: AssetExecutionContext, before: DataFrame) -> DataFrame:
        start = F.lit(context.partition_key).cast("timestamp")
        total = before.agg(F.max("total")).collect()[0][0] if before.columns else 0
        return before.sparkSession.range(1).select(start.alias("at"), F.lit((total or 0) + 1).alias("total"))

    for day in ("2026-01-01", "2026-01-02", "2026-01-03"):
        materialize([sums], project, instance, partition_key=day)
    assert sorted(row.total for row in lake.read(f"{namespace}.sums").collect()) == [1, 2, 3]


def test_the_column_of_an_upstream_may_be_named_by_the_input(
    lake: Lake, project: CompiledArtifacts, instance: DagsterInstance, namespace: str
) -> None:
    materialize([bronze(namespace)], project, instance, tags=span("2026-01-01", "2026-01-02"))
    external = AssetSpec([namespace, "events"], partitions_def=DAYS)
    named = {"events": AssetIn([namespace, "events"], metadata={"partition_expr": "at"})}

    @asset(key_prefix=namespace, partitions_def=DAYS, metadata={"partition_expr": "at"}, ins=named)
    def copied(events: DataFrame) -> DataFrame:
        return events

    materialize([external, copied], project, instance, partition_key="2026-01-02")
    assert lake.read(f"{namespace}.copied").count() == 24


def test_an_output_that_is_no_asset_is_told_what_to_do(project: CompiledArtifacts, instance: DagsterInstance) -> None:
    def build(**out: Any) -> Any:
        @op(out=Out(**out))
        def number() -> int:
            return 1

        @op
        def use(number: int) -> None:
            assert number == 1

        @job
        def plain() -> None:
            use(number())

        return create_definitions([], project=project.root, jobs=[plain]).resolve_job_def("plain")

    with pytest.raises(ConfigurationError, match="is no asset, so it has no table"):
        build().execute_in_process(instance=instance)
    assert build(io_manager_key="mem_io_manager").execute_in_process(instance=instance).success


_FAILING: set[str] = set()
# Dagster keeps the first job it builds from a function, so these tests share two tables and look at what is added.
_RETRIES = f"retries_{uuid.uuid4().hex[:8]}"


def retried_job() -> Any:
    """For `reconstructable`: two appends, each of which fails while `_FAILING` names it."""
    import os
    from pathlib import Path

    @asset(key_prefix=_RETRIES, metadata={"write_mode": "append"})
    def first(lake: LakeResource) -> DataFrame:
        if "first" in _FAILING:
            raise RuntimeError("not yet")
        return lake.spark.range(3)

    @asset(key_prefix=_RETRIES, metadata={"write_mode": "append"}, ins={"first": AssetIn([_RETRIES, "first"])})
    def second(first: DataFrame) -> DataFrame:
        if "second" in _FAILING:
            raise RuntimeError("not yet")
        return first

    everything = define_asset_job("everything", executor_def=in_process_executor)
    built = create_definitions([first, second], project=Path(os.environ["FLOE_TEST_PROJECT"]), jobs=[everything])
    return built.resolve_job_def("everything")


@pytest.fixture
def attempt(project: CompiledArtifacts, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[Callable[..., str]]:
    """Run the job, failing where told, as a new run or as a child of another; returns the run's id."""
    monkeypatch.setenv("FLOE_TEST_PROJECT", str(project.root))
    with DagsterInstance.local_temp(str(tmp_path)) as instance:

        def run(failing: str = "", parent: str | None = None, retry: str | None = None) -> str:
            _FAILING.clear()
            _FAILING.update(failing.split())
            options = ReexecutionOptions(parent_run_id=parent) if parent else None
            tags = {retry: "true"} if retry else None
            done = execute_job(
                reconstructable(retried_job),
                instance,
                raise_on_error=False,
                run_config=QUIET,
                reexecution_options=options,
                tags=tags,
            )
            assert done.success is not bool(failing)
            return done.run_id

        yield run


@pytest.fixture
def appended(lake: Lake) -> Callable[[], int]:
    """How many times the first asset was appended since the test began: three rows each time."""
    identifier = TableIdentifier(namespace=(_RETRIES,), name="first")
    before = lake.read(identifier).count() if lake.tables.table_exists(identifier) else 0
    return lambda: (lake.read(identifier).count() - before) // 3


@pytest.mark.parametrize("tag", ["dagster/retry_number", "dagster/is_resume_retry", "dagster/is_asset_resume_retry"])
def test_a_retry_does_not_append_again_and_a_new_run_does(
    attempt: Callable[..., str], appended: Callable[[], int], tag: str
) -> None:
    failed = attempt("second")
    attempt(parent=failed, retry=tag)
    assert appended() == 1
    attempt(parent=failed)
    assert appended() == 2


def test_a_retry_of_a_deliberate_run_goes_on_with_that_run_and_no_other(
    attempt: Callable[..., str], appended: Callable[[], int]
) -> None:
    original = attempt("second")
    deliberate = attempt("first", parent=original)
    attempt(parent=deliberate, retry="dagster/retry_number")
    assert appended() == 2


def test_a_retry_of_a_retry_still_appends_once(attempt: Callable[..., str], appended: Callable[[], int]) -> None:
    original = attempt("first")
    deliberate = attempt("second", parent=original)
    again = attempt("second", parent=deliberate, retry="dagster/retry_number")
    attempt(parent=again, retry="dagster/retry_number")
    assert appended() == 1


def test_a_run_after_one_that_succeeded_is_a_new_one_though_it_inherits_the_tag(
    attempt: Callable[..., str], appended: Callable[[], int]
) -> None:
    retried = attempt(parent=attempt("second"), retry="dagster/is_asset_resume_retry")
    assert appended() == 1
    attempt(parent=retried, retry="dagster/is_asset_resume_retry")
    assert appended() == 2
