"""A table belongs to one asset of one project: no other asset writes to it, unless it takes the table over."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from dagster import (
    AssetExecutionContext,
    AssetKey,
    AssetOut,
    AssetsDefinition,
    AssetSpec,
    DagsterInstance,
    DataVersion,
    Definitions,
    EnvVar,
    ExecuteInProcessResult,
    MaterializeResult,
    Output,
    asset,
    execute_job,
    graph_asset,
    graph_multi_asset,
    materialize,
    multi_asset,
    observable_source_asset,
    op,
)
from dagster._core.definitions.reconstruct import ReconstructableRepository
from pyspark.sql.pandas.types import from_arrow_schema
from tests.catalogs import SideLake
from tests.engines import Engine
from tests.runs import QUIET

from floe_core.errors import ConfigurationError
from floe_core.identifiers import TableIdentifier
from floe_dagster import IcebergIOManager, LakeResource, create_definitions, io_manager
from floe_dagster.assets import options
from floe_iceberg import IcebergTableManager, Lake
from floe_spark.writing import commits

pytestmark = pytest.mark.filterwarnings("ignore:.*is currently in (beta|preview)")

NUMBERS = pa.schema([("id", pa.int64())])


@pytest.fixture
def x_y(namespace: str) -> TableIdentifier:
    return TableIdentifier(namespace=(namespace,), name="x_y")


def numbers(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids)}, schema=NUMBERS)


def writing(key: list[str], value: Any, *, mode: str = "append", **arguments: Any) -> AssetsDefinition:
    """An asset that returns this value, or what this function returns."""
    metadata = {"write_mode": mode, **arguments.pop("metadata", {})}

    def compute() -> Any:
        return value() if callable(value) else value

    made: AssetsDefinition = asset(key=key, metadata=metadata, **arguments)(compute)
    return made


def execute(
    lake: Lake, instance: DagsterInstance, *assets: AssetsDefinition, config: Any = None, **arguments: Any
) -> ExecuteInProcessResult:
    """Materialize assets in Definitions of the user's own."""
    alone = Definitions(assets=list(assets), resources={"io_manager": IcebergIOManager(lake=lake)})
    job = alone.resolve_implicit_global_asset_job_def()
    return job.execute_in_process(instance=instance, run_config={**QUIET, **(config or {})}, **arguments)


def project(lake: Lake, name: str) -> Lake:
    """Another project on the same catalog."""
    return Lake(lake.artifacts.model_copy(update={"name": name}))


def ids(lake: Lake, table: TableIdentifier, **options: Any) -> list[int]:
    return sorted(lake.tables.scan(table, **options).to_arrow()["id"].to_pylist())


def owner(lake: Lake, table: TableIdentifier) -> tuple[str | None, str | None]:
    found = lake.tables.load_table(table).properties
    return found.get("floe.asset"), found.get("floe.project")


def spark_frame(lake: Lake, data: pa.Table) -> Callable[[], Any]:
    return lambda: lake.spark.createDataFrame(data.to_pylist(), from_arrow_schema(data.schema))


@pytest.fixture
def frame(engine: Engine) -> Iterator[Callable[[pa.Table], Any]]:
    """What an asset returns so that this engine writes it."""
    lake = engine.lake
    yield (lambda data: spark_frame(lake, data)) if engine.name == "spark" else lambda data: data
    if engine.name == "spark" and isinstance(lake, SideLake):
        lake.step_aside()


def test_two_assets_with_one_table_are_refused_before_anything_is_written(
    lake: Lake, instance: DagsterInstance, x_y: TableIdentifier
) -> None:
    ns = x_y.namespace[0]
    both = writing([ns, "x", "y"], numbers(1)), writing([ns, "x_y"], numbers(2))
    with pytest.raises(ConfigurationError, match=rf"{ns}/x/y and {ns}/x_y .*'{ns}.x_y'"):
        execute(lake, instance, *both)
    assert not lake.tables.table_exists(x_y)


def test_two_managers_of_one_lake_are_told_apart_by_their_tables_only(
    lake: Lake, instance: DagsterInstance, x_y: TableIdentifier
) -> None:
    """Assets of two IO managers share a table if both managers put it at the same place."""
    ns = x_y.namespace[0]
    both = [writing([ns, "x", "y"], numbers(1)), writing(["x_y"], numbers(2), io_manager_key="second")]
    for there, is_refused in (("elsewhere", False), (ns, True)):
        second = IcebergIOManager(lake=lake, default_namespace=f"{ns}.{there}" if there != ns else ns)
        resources = {"io_manager": IcebergIOManager(lake=lake), "second": second}
        job = Definitions(assets=both, resources=resources).resolve_implicit_global_asset_job_def()
        if is_refused:
            with pytest.raises(ConfigurationError, match="would both be stored"):
                job.execute_in_process(instance=instance, run_config=QUIET)
        else:
            assert job.execute_in_process(instance=instance, run_config=QUIET).success
            lake.tables.drop_table(TableIdentifier.from_string(f"{ns}.elsewhere.x_y"))
    assert ids(lake, x_y) == [1]


def test_create_definitions_distinguishes_equal_tables_of_two_lakes(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = lake.artifacts.root
    both = [
        writing(["s", "x"], numbers(1)),
        writing(["copy", "x"], numbers(2), metadata={"floe/namespace": "s"}, io_manager_key="second"),
    ]

    def define(second: LakeResource) -> None:
        create_definitions(both, project=root, resources={"second": IcebergIOManager(lake=second)})

    define(LakeResource(project=str(tmp_path)))
    define(LakeResource(project=str(root), environment="other"))
    monkeypatch.setenv("SECOND_LAKE", str(root))
    for same in (str(root / "folder" / ".."), EnvVar("SECOND_LAKE")):
        with pytest.raises(ConfigurationError, match=r"would both be stored in table 's\.x'"):
            define(LakeResource(project=same, environment=lake.artifacts.environment))


def test_the_options_of_the_other_assets_are_read_once_per_run(
    lake: Lake, instance: DagsterInstance, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, read = options.output_options, []

    def reading(metadata: Any, name: str, *rest: Any, **named: Any) -> Any:
        read.append(name)
        return real(metadata, name, *rest, **named)

    monkeypatch.setattr(io_manager, "output_options", reading)
    assets = [writing([namespace, f"t{number}"], numbers(number)) for number in range(8)]
    for _ in range(2):
        read.clear()
        execute(lake, instance, *assets)
        assert len(read) == 2 * len(assets)  # each when it is written, and each for the first of them


def test_assets_that_store_nothing_in_the_table_do_not_count(
    lake: Lake, instance: DagsterInstance, x_y: TableIdentifier
) -> None:
    ns = x_y.namespace[0]

    @asset(key=[ns, "x", "y"])
    def nothing() -> None: ...

    @observable_source_asset(key=[ns, "X_y"])
    def observed() -> DataVersion:
        return DataVersion("1")

    external = AssetSpec([ns, "X_Y"])
    resources = {"io_manager": IcebergIOManager(lake=lake)}
    everything = Definitions(
        assets=[writing([ns, "x_y"], numbers(1)), nothing, observed, external], resources=resources
    )
    job = everything.resolve_implicit_global_asset_job_def()
    assert job.execute_in_process(instance=instance, run_config=QUIET).success
    assert ids(lake, x_y) == [1]


def several(ns: str, *, as_graph: bool) -> AssetsDefinition:
    """Two assets of one definition, of which a run may select one."""
    outs = {
        name: AssetOut(key=[ns, name], metadata={"write_mode": "append"}, is_required=as_graph) for name in ("x_y", "z")
    }

    @op
    def rows() -> pa.Table:
        return numbers(1)

    @graph_multi_asset(outs=outs, can_subset=True)
    def of_a_graph() -> dict[str, Any]:
        return {"x_y": rows(), "z": rows.alias("others")()}

    @multi_asset(outs=outs, can_subset=True)
    def of_an_op(context: AssetExecutionContext) -> Iterator[Output[pa.Table]]:
        for name in outs:
            if AssetKey([ns, name]) in context.selected_asset_keys:
                yield Output(numbers(1), name)

    return of_a_graph if as_graph else of_an_op


@pytest.mark.parametrize("as_graph", [False, True], ids=["multi_asset", "graph_multi_asset"])
def test_a_run_may_select_some_assets_of_a_definition(
    lake: Lake, instance: DagsterInstance, x_y: TableIdentifier, as_graph: bool
) -> None:
    ns = x_y.namespace[0]
    both, selected = several(ns, as_graph=as_graph), [AssetKey([ns, "x_y"])]
    execute(lake, instance, both, asset_selection=selected)
    resources = {"io_manager": IcebergIOManager(lake=lake)}
    assert materialize([both], selection=selected, instance=instance, resources=resources, run_config=QUIET).success
    assert ids(lake, x_y) == [1, 1]
    assert not lake.tables.table_exists(TableIdentifier(namespace=(ns,), name="z"))
    execute(lake, instance, both)
    with pytest.raises(ConfigurationError, match=f"{ns}/X_Y and {ns}/x_y would both be stored"):
        execute(lake, instance, both, writing([ns, "X_Y"], numbers(2)))


def test_the_refusal_says_what_an_asset_that_stores_nothing_has_to_do(lake: Lake) -> None:
    def bare():  # type: ignore[no-untyped-def]
        return MaterializeResult()

    def with_result() -> MaterializeResult[None]:
        return MaterializeResult()

    def with_none() -> None: ...

    for compute in (bare, with_result, with_none):
        both = [asset(key=["s", "x", "y"])(compute), writing(["s", "x_y"], numbers(1))]
        if compute is bare:
            with pytest.raises(ConfigurationError, match=r"stores nothing, .* -> None or -> MaterializeResult\[None\]"):
                create_definitions(both, project=lake.artifacts.root)
        else:
            create_definitions(both, project=lake.artifacts.root)


@pytest.mark.every_catalog
def test_a_second_asset_is_refused_by_the_owner_in_the_table(
    engine: Engine, instance: DagsterInstance, x_y: TableIdentifier, frame: Callable[[pa.Table], Any]
) -> None:
    ns = x_y.namespace[0]
    execute(engine.lake, instance, writing([ns, "x", "y"], frame(numbers(1))))
    assert owner(engine.lake, x_y) == (f"{ns}/x/y", "tests")
    before = engine.lake.tables.load_table(x_y).metadata_location
    for mode in ("append", "overwrite"):
        second = writing([ns, "x_y"], frame(numbers(2)), mode=mode)
        with pytest.raises(ConfigurationError, match="take_over") as caught:
            execute(engine.lake, instance, second)
        assert f"'{x_y}' belongs to asset {ns}/x/y of project tests" in str(caught.value)
    after = engine.lake.tables.load_table(x_y)
    assert (after.metadata_location, ids(engine.lake, x_y)) == (before, [1])


def test_the_same_asset_of_a_second_project_is_refused(
    engine: Engine, instance: DagsterInstance, x_y: TableIdentifier, frame: Callable[[pa.Table], Any]
) -> None:
    key = [*x_y.namespace, "x_y"]
    execute(project(engine.lake, "shop"), instance, writing(key, numbers(1)))
    with pytest.raises(ConfigurationError, match=f"belongs to asset {'/'.join(key)} of project shop"):
        execute(engine.lake, instance, writing(key, frame(numbers(2))))
    assert ids(engine.lake, x_y) == [1]


@pytest.mark.parametrize("how", ["run", "metadata", "resource"])
def test_an_asset_takes_a_table_over_if_it_says_so(
    lake: Lake, instance: DagsterInstance, x_y: TableIdentifier, how: str
) -> None:
    ns = x_y.namespace[0]
    first, second = writing([ns, "x", "y"], numbers(1)), writing([ns, "x_y"], numbers(2))
    execute(lake, instance, first)
    metadata = {"floe/take_over": True} if how == "metadata" else {}
    said = writing([ns, "x_y"], numbers(2), metadata=metadata)
    config = {"ops": {f"{ns}__x_y": {"outputs": {"result": {"take_over": True}}}}} if how == "run" else {}
    manager = IcebergIOManager(lake=lake, take_over=how == "resource")
    job = Definitions(assets=[said], resources={"io_manager": manager}).resolve_implicit_global_asset_job_def()
    assert job.execute_in_process(instance=instance, run_config={**QUIET, **config}).success
    assert owner(lake, x_y) == (f"{ns}/x_y", "tests")
    execute(lake, instance, second)  # it is the owner now
    with pytest.raises(ConfigurationError, match=f"belongs to asset {ns}/x_y of project tests"):
        execute(lake, instance, first)
    assert ids(lake, x_y) == [1, 2, 2]


def test_the_refusal_says_how_to_take_the_table_over_and_that_works(
    lake: Lake, instance: DagsterInstance, x_y: TableIdentifier
) -> None:
    ns = x_y.namespace[0]
    execute(lake, instance, writing([ns, "x", "y"], numbers(1)))

    @op
    def rows() -> pa.Table:
        return numbers(2)

    @graph_asset(key=[ns, "x_y"], metadata={"write_mode": "append"})
    def x_y_again() -> pa.Table:
        return rows()

    with pytest.raises(ConfigurationError) as caught:
        execute(lake, instance, x_y_again)
    words = str(caught.value)
    assert words.index('metadata={"floe/take_over": True}') < words.index(
        "run config"
    )  # `floe run` takes no run config
    config = yaml.safe_load(words[words.index("{ops:") : words.rindex("}}") + 2])
    execute(lake, instance, x_y_again, config=config)
    assert (ids(lake, x_y), owner(lake, x_y)[0]) == ([1, 2], f"{ns}/x_y")


@pytest.mark.every_catalog
def test_a_table_of_nobody_is_adopted_in_the_commit_of_the_write(
    engine: Engine, instance: DagsterInstance, x_y: TableIdentifier, frame: Callable[[pa.Table], Any]
) -> None:
    engine.lake.tables.write_data(x_y, numbers(1), mode="append")
    assert owner(engine.lake, x_y) == (None, None)
    one = writing([*x_y.namespace, "x_y"], frame(numbers(2)))
    counts = []
    for _ in range(2):
        log = len(engine.lake.tables.load_table(x_y).metadata.metadata_log)
        execute(engine.lake, instance, one)
        counts.append(len(engine.lake.tables.load_table(x_y).metadata.metadata_log) - log)
    assert counts[0] == counts[1]  # the first one needed no commit more than the second
    assert (owner(engine.lake, x_y), ids(engine.lake, x_y)) == (("/".join(one.key.path), "tests"), [1, 2, 2])


def test_an_empty_table_of_nobody_is_adopted(
    engine: Engine, instance: DagsterInstance, x_y: TableIdentifier, frame: Callable[[pa.Table], Any]
) -> None:
    engine.lake.tables.create_table(x_y, NUMBERS)
    execute(engine.lake, instance, writing([*x_y.namespace, "x_y"], frame(numbers(1))))
    assert (owner(engine.lake, x_y)[1], ids(engine.lake, x_y)) == ("tests", [1])


def test_whoever_is_no_asset_may_write_to_the_table_of_an_asset(
    lake: Lake, instance: DagsterInstance, x_y: TableIdentifier
) -> None:
    one = writing([*x_y.namespace, "x_y"], numbers(1))
    execute(lake, instance, one)
    lake.tables.write_data(x_y, numbers(2), mode="append")
    lake.write(spark_frame(lake, numbers(3))(), x_y, mode="append")
    execute(lake, instance, one)
    assert (ids(lake, x_y), owner(lake, x_y)[1]) == ([1, 1, 2, 3], "tests")


def test_a_renamed_table_stays_with_its_asset(lake: Lake, instance: DagsterInstance, x_y: TableIdentifier) -> None:
    key = [*x_y.namespace, "x_y"]
    execute(lake, instance, writing(key, numbers(1)))
    moved = TableIdentifier(namespace=x_y.namespace, name="moved")
    lake.tables.rename_table(x_y, moved)
    execute(lake, instance, writing(key, numbers(2), metadata={"floe/table": "moved"}))
    assert ids(lake, moved) == [1, 2]


def test_a_branch_belongs_to_the_owner_of_its_table(
    lake: Lake, instance: DagsterInstance, x_y: TableIdentifier
) -> None:
    ns = x_y.namespace[0]
    execute(lake, instance, writing([ns, "x_y"], numbers(1)))
    lake.tables.create_branch(x_y, "audit")
    to_branch = {"floe/branch": "audit"}
    execute(lake, instance, writing([ns, "x_y"], numbers(2), metadata=to_branch))
    with pytest.raises(ConfigurationError, match="belongs to"):
        execute(lake, instance, writing([ns, "x", "y"], numbers(3), metadata=to_branch))
    assert ids(lake, x_y, ref="audit") == [1, 2]


@pytest.mark.parametrize("exists", [False, True], ids=["first write", "adoption"])
def test_of_two_projects_at_once_the_later_one_is_refused(
    lake: Lake, instance: DagsterInstance, x_y: TableIdentifier, exists: bool
) -> None:
    """The other project commits while the rows of this one are being staged."""
    key = [*x_y.namespace, "x_y"]
    if exists:
        lake.tables.write_data(x_y, numbers(0), mode="append")

    def batches() -> Iterator[pa.RecordBatch]:
        with DagsterInstance.ephemeral() as another:
            execute(project(lake, "shop"), another, writing(key, numbers(1)))
        yield from numbers(2).to_batches()

    with pytest.raises(ConfigurationError, match="of project shop"):
        execute(lake, instance, writing(key, lambda: pa.RecordBatchReader.from_batches(NUMBERS, batches())))
    assert ids(lake, x_y) == ([0, 1] if exists else [1])
    assert owner(lake, x_y)[1] == "shop"


@pytest.mark.parametrize("state", ["no table", "no owner"])
def test_of_two_projects_at_once_sparks_later_write_is_refused(
    lake: Lake, instance: DagsterInstance, x_y: TableIdentifier, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    """The other project commits just before Spark does."""
    key = [*x_y.namespace, "x_y"]
    if state == "no owner":
        lake.tables.write_data(x_y, numbers(0), mode="append")
    real: Any = commits._send
    sent: list[object] = []

    def send(act: Any, branch: str | None) -> None:
        if not sent:
            sent.append(branch)
            with DagsterInstance.ephemeral() as another:
                execute(project(lake, "shop"), another, writing(key, numbers(1)))
        real(act, branch)

    monkeypatch.setattr(commits, "_send", send)
    with pytest.raises(ConfigurationError, match="of project shop"):
        execute(lake, instance, writing(key, spark_frame(lake, numbers(2))))
    assert ids(lake, x_y) == ([0, 1] if state == "no owner" else [1])


def test_a_manager_without_a_project_is_told_apart_by_the_asset(
    lake: Lake, instance: DagsterInstance, x_y: TableIdentifier
) -> None:
    ns, bare = x_y.namespace[0], IcebergTableManager(lake.tables.catalog_plugin, lake.tables.storage_plugin)
    manager = IcebergIOManager(table_manager=bare, default_write_mode="append")

    def alone(*assets: AssetsDefinition) -> None:
        job = Definitions(assets=assets, resources={"io_manager": manager}).resolve_implicit_global_asset_job_def()
        job.execute_in_process(instance=instance, run_config=QUIET)

    alone(writing([ns, "x_y"], numbers(1)))
    assert owner(lake, x_y) == (f"{ns}/x_y", None)
    execute(lake, instance, writing([ns, "x_y"], numbers(2)))
    assert owner(lake, x_y) == (f"{ns}/x_y", "tests")
    alone(writing([ns, "x_y"], numbers(3)))
    with pytest.raises(ConfigurationError, match=f"belongs to asset {ns}/x_y of project tests"):
        alone(writing([ns, "x", "y"], numbers(4)))
    alone(writing([ns, "x", "y"], numbers(4), metadata={"floe/take_over": True}))
    assert owner(lake, x_y) == (f"{ns}/x/y", "")
    assert ids(lake, x_y) == [1, 2, 3, 4]


LOCATION = """
import pyarrow as pa
from dagster import Definitions, asset, define_asset_job, in_process_executor
from floe_dagster import IcebergIOManager, LakeResource

@asset(key=["{ns}", "x", "y"], metadata={{"write_mode": "append"}})
def first() -> pa.Table:
    return pa.table({{"id": [1]}})

@asset(key=["{ns}", "x_y"], metadata={{"write_mode": "append"}})
def second() -> pa.Table:
    return pa.table({{"id": [2]}})

defs = Definitions(
    assets=[first, second],
    jobs=[define_asset_job("only", selection=[first.key])],
    resources={{"io_manager": IcebergIOManager(lake=LakeResource(project="{root}"))}},
    executor=in_process_executor,
)
"""


def test_a_run_of_one_asset_sees_the_others_of_its_code_location(
    lake: Lake, instance: DagsterInstance, x_y: TableIdentifier, tmp_path: Path
) -> None:
    ns = x_y.namespace[0]
    (tmp_path / "location.py").write_text(LOCATION.format(ns=ns, root=lake.artifacts.root), encoding="utf-8")
    location = ReconstructableRepository.for_file(str(tmp_path / "location.py"), "defs")
    job = location.get_reconstructable_job("only")
    with pytest.raises(ConfigurationError, match=rf"{ns}/x/y and {ns}/x_y would both be stored"):
        execute_job(job, instance=instance, run_config=QUIET, raise_on_error=True)
    assert not lake.tables.table_exists(x_y)
