"""Every option that somebody writes is honoured or refused: none is ignored."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from dagster import (
    AssetExecutionContext,
    AssetIn,
    AssetsDefinition,
    DagsterInstance,
    DagsterInvalidConfigError,
    MaterializeResult,
    MetadataValue,
    Output,
    StaticPartitionsDefinition,
    TableColumn,
    TableSchema,
    asset,
)
from pydantic import Field
from tests.runs import metadata_of, rows_of, run, run_alone

from floe_core.config.artifacts import CompiledArtifacts
from floe_core.errors import ConfigurationError
from floe_core.identifiers import TableIdentifier
from floe_dagster import (
    IcebergIOManager,
    IcebergIOManagerConfig,
    LakeResource,
    MaintenanceOptions,
    create_definitions,
)
from floe_dagster.assets.options import RunOptions
from floe_iceberg import IcebergTableManager

pytestmark = pytest.mark.filterwarnings("ignore:.*is currently in (beta|preview)")

UPSERT = {"write_mode": "upsert", "upsert_options": {"join_cols": ["id"]}}


def numbers(*ids: int, note: str = "v1") -> pa.Table:
    return pa.table({"id": list(ids), "note": [note] * len(ids)})


def ids(tables: IcebergTableManager, name: str) -> list[int]:
    return sorted(row["id"] for row in rows_of(tables, name))


def writing(namespace: str, compute: Callable[..., Any], **arguments: Any) -> AssetsDefinition:
    made: AssetsDefinition = asset(name="events", key_prefix=namespace, **arguments)(compute)
    return made


@pytest.mark.parametrize(
    ("kind", "said", "near"),
    [
        (IcebergIOManager, {"write_mode": "overwrite"}, "default_write_mode"),
        (IcebergIOManager, {"namespace": "bronze"}, "default_namespace"),
        (IcebergIOManager, {"lakes": None}, "lake"),
        (LakeResource, {"project": ".", "environmnt": "prod"}, "environment"),
        (MaintenanceOptions, {"namespace": ["bronze"]}, "namespaces"),
        (RunOptions, {"write_mod": "append"}, "write_mode"),
        (IcebergIOManagerConfig, {"catalog_uri": "x", "warehouse": "w", "write_moode": "append"}, "write_mode"),
    ],
)
def test_an_argument_that_nothing_reads_is_refused_with_the_nearest_one(
    kind: type[Any], said: dict[str, Any], near: str
) -> None:
    wrong = next(name for name in said if name not in kind.model_fields)
    with pytest.raises(ConfigurationError, match=f"{kind.__name__} has no '{wrong}'; did you mean '{near}'?"):
        kind(**said)


@pytest.mark.parametrize("kind", [IcebergIOManager, LakeResource])
def test_what_is_configured_at_launch_is_checked_too(kind: type[Any]) -> None:
    with pytest.raises(ConfigurationError, match="has no 'zzz'; there are "):
        kind.configure_at_launch(zzz=1)


class Labelled(IcebergIOManager):
    """A manager of a user's own, with a field that is given by another name."""

    label_: str = Field(default="none", alias="label")


def test_the_aliases_of_fields_are_known_names(project: CompiledArtifacts) -> None:
    lake = LakeResource(project=str(project.root))
    wrong: dict[str, Any] = {"labl": "mine"}
    assert Labelled(lake=lake, label="mine").label_ == "mine"
    assert Labelled.configure_at_launch(label="mine") is not None
    with pytest.raises(ConfigurationError, match="Labelled has no 'labl'; did you mean 'label'"):
        Labelled(lake=lake, **wrong)


def test_an_argument_of_create_definitions_that_nothing_reads_is_refused(project: CompiledArtifacts) -> None:
    with pytest.raises(ConfigurationError, match="create_definitions has no 'job'; did you mean 'jobs'"):
        create_definitions([], project=project.root, job=[])


def test_the_configuration_of_a_run_takes_no_other_names(
    project: CompiledArtifacts, instance: DagsterInstance, namespace: str
) -> None:
    one = writing(namespace, lambda: numbers(1), metadata={"write_mode": "append"})
    config = {"ops": {f"{namespace}__events": {"outputs": {"result": {"write_mod": "overwrite"}}}}}
    with pytest.raises(DagsterInvalidConfigError, match="write_mod"):
        run([one], project, instance, config=config)


# What assets say that were written for dagster-iceberg.


def test_schema_and_table_say_where_the_table_is(
    project: CompiledArtifacts, tables: IcebergTableManager, instance: DagsterInstance, namespace: str
) -> None:
    place = {"schema": f"{namespace}.deep", "table": "named"}
    seen: list[list[int]] = []

    @asset(key=["any", "where"], metadata={"write_mode": "overwrite", **place})
    def where() -> pa.Table:
        return numbers(7)

    @asset(key_prefix=namespace, ins={"where": AssetIn(["any", "where"])})
    def by_asset(where: pa.Table) -> None:
        seen.append(where["id"].to_pylist())

    @asset(key_prefix=namespace, ins={"events": AssetIn([namespace, "events"], metadata=place)})
    def by_input(events: pa.Table) -> None:
        seen.append(events["id"].to_pylist())

    run([where, by_asset], project, instance)
    run([writing(namespace, lambda: numbers(8), metadata={"write_mode": "append"}), by_input], project, instance)
    assert ids(tables, f"{namespace}.deep.named") == [7]
    assert seen == [[7], [7]]


def test_columns_that_are_described_as_schema_are_no_namespace(
    project: CompiledArtifacts, tables: IcebergTableManager, instance: DagsterInstance, namespace: str
) -> None:
    described = TableSchema([TableColumn("id")])
    for value in (described, MetadataValue.table_schema(described), {"id": "long"}, MetadataValue.md("| id |")):
        said = {"write_mode": "overwrite", "schema": value, "table": value}
        run([writing(namespace, lambda: numbers(1), metadata=said)], project, instance)
    assert ids(tables, f"{namespace}.events") == [1]


def test_upsert_options_are_keys(
    project: CompiledArtifacts, tables: IcebergTableManager, instance: DagsterInstance, namespace: str
) -> None:
    flags = {"when_matched_update_all": True, "when_not_matched_insert_all": True}
    said = {"write_mode": "upsert", "upsert_options": {"join_cols": ["id"], **flags}}
    arriving = [numbers(2, 3, note="v2"), numbers(1, 2)]
    for _ in range(2):
        run([writing(namespace, lambda: arriving.pop(), metadata=said)], project, instance)
    assert {row["id"]: row["note"] for row in rows_of(tables, f"{namespace}.events")} == {1: "v1", 2: "v2", 3: "v2"}


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "properties": ({"table_properties": {"a": "b"}}, "'table_properties' .* say 'floe/table_properties'"),
    "schema mode": ({"schema_update_mode": "update"}, "'schema_update_mode' .* 'floe/schema_evolution_enabled'"),
    "partition mode": (
        {"partition_spec_update_mode": "error"},
        "'partition_spec_update_mode' .* 'floe/evolve_partitions'",
    ),
    "prefix": ({"partition_field_name_prefix": "part"}, "'partition_field_name_prefix' .* create_table"),
    "only inserts": (
        {"write_mode": "upsert", "upsert_options": {"join_cols": ["id"], "when_matched_update_all": False}},
        "upsert_options: when_matched_update_all=False",
    ),
    "no keys": ({"write_mode": "upsert", "upsert_options": {"keys": ["id"]}}, "upsert_options: 'keys' .* join_cols"),
    "two keys": ({**UPSERT, "upsert_keys": ["note"]}, "contradict each other"),
    "two places": ({"schema": "a", "floe/namespace": "b"}, "'schema' and 'floe/namespace' contradict each other"),
    "columns as text": (
        {"schema": "id int, note string"},
        "'schema' .* 'id int, note string' .* dagster/column_schema",
    ),
    "a table as text": (
        {"table": "orders of today"},
        "'table' names the table, .* 'orders of today' is not a valid name",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_means_something_else_here_is_refused_with_what_to_say(project: CompiledArtifacts, case: str) -> None:
    metadata, words = REFUSED[case]
    with pytest.raises(ConfigurationError, match=words) as caught:
        create_definitions([writing("bronze", lambda: None, metadata=metadata)], project=project.root)
    assert "asset bronze/events" in str(caught.value)


# What an asset says while it runs.


def added(context: AssetExecutionContext, said: dict[str, Any]) -> pa.Table:
    context.add_output_metadata(said)
    return numbers(1)


SAYING: dict[str, Callable[[dict[str, Any]], Callable[..., Any]]] = {
    "context": lambda said: lambda context: added(context, said),
    "Output": lambda said: lambda: Output(numbers(1), metadata=said),
    "MaterializeResult": lambda said: lambda: MaterializeResult(value=numbers(1), metadata=said),
}


@pytest.mark.parametrize("how", SAYING)
@pytest.mark.parametrize("key", ["write_mode", "floe/write_mode"])
def test_the_mode_that_an_asset_says_while_it_runs_goes_over_that_of_its_metadata(
    project: CompiledArtifacts,
    tables: IcebergTableManager,
    instance: DagsterInstance,
    namespace: str,
    key: str,
    how: str,
) -> None:
    one = writing(namespace, SAYING[how]({key: "append"}), metadata={"write_mode": "overwrite"})
    for _ in range(2):
        done = run([one], project, instance)
    assert ids(tables, f"{namespace}.events") == [1, 1]
    assert metadata_of(done, "events")["floe/write_mode"] == "append"
    for_once = {"ops": {f"{namespace}__events": {"outputs": {"result": {"write_mode": "overwrite"}}}}}
    run([one], project, instance, config=for_once)  # the configuration of a run goes over both
    assert ids(tables, f"{namespace}.events") == [1]


def test_upsert_keys_can_be_said_and_dropped_while_it_runs(
    project: CompiledArtifacts, tables: IcebergTableManager, instance: DagsterInstance, namespace: str
) -> None:
    for key, value in (
        ("upsert_options", {"join_cols": ["id"]}),
        ("upsert_keys", ["id"]),
        ("floe/upsert_keys", ["id"]),
    ):
        said = {"write_mode": "upsert", key: value}
        run([writing(namespace, SAYING["context"](said), metadata={"write_mode": "append"})], project, instance)
    assert ids(tables, f"{namespace}.events") == [1]
    run([writing(namespace, SAYING["context"]({"write_mode": "append"}), metadata=UPSERT)], project, instance)
    assert ids(tables, f"{namespace}.events") == [1, 1]


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"write_mode": "replace"}, "write_mode 'replace' is not one of append, overwrite, upsert"),
        ({"floe/write_mod": "append"}, "did you mean 'floe/write_mode'"),
        ({"floe/table": "other"}, "'floe/table' .* the metadata of the asset itself"),
        ({"floe/namespace": "other"}, "'floe/namespace' .* the metadata of the asset itself"),
        ({"floe/branch": "audit"}, "'floe/branch' .* the metadata of the asset itself"),
        ({"partition_expr": "id"}, "'partition_expr' .* the metadata of the asset itself"),
    ],
)
def test_what_cannot_be_said_while_it_runs_is_refused(
    project: CompiledArtifacts,
    tables: IcebergTableManager,
    instance: DagsterInstance,
    namespace: str,
    said: dict[str, Any],
    words: str,
) -> None:
    one = writing(namespace, SAYING["context"](said), metadata={"write_mode": "append"})
    with pytest.raises(ConfigurationError, match=words):
        run([one], project, instance)
    assert not tables.table_exists(TableIdentifier(namespace=(namespace,), name="events"))


def test_what_an_asset_reports_about_itself_is_no_option(
    project: CompiledArtifacts, tables: IcebergTableManager, instance: DagsterInstance, namespace: str
) -> None:
    said = {"schema": "id: long, note: string", "table": "round", "table_properties": {"a": 1}, "columns": 2, "rows": 1}
    done = run([writing(namespace, SAYING["context"](said), metadata={"write_mode": "append"})], project, instance)
    assert ids(tables, f"{namespace}.events") == [1]
    assert metadata_of(done, "events")["table"] == "round"


@pytest.mark.parametrize("where", ["run", "asset"])
def test_an_option_in_tags_is_refused(
    project: CompiledArtifacts, instance: DagsterInstance, namespace: str, where: str
) -> None:
    tags = {"floe/write_mode": "overwrite"}
    one = writing(
        namespace, lambda: numbers(1), metadata={"write_mode": "append"}, tags=tags if where == "asset" else {}
    )
    with pytest.raises(ConfigurationError, match="tag 'floe/write_mode' is not read"):
        run([one], project, instance, tags=tags if where == "run" else {})


def test_a_partitioned_asset_appends_if_it_says_so_while_it_runs(
    project: CompiledArtifacts, tables: IcebergTableManager, instance: DagsterInstance, namespace: str
) -> None:
    parts = StaticPartitionsDefinition(["v1", "v2"])

    def compute(context: AssetExecutionContext) -> Output[pa.Table]:
        return Output(numbers(1, note=context.partition_key), metadata={"write_mode": "append"})

    one = writing(namespace, compute, partitions_def=parts, metadata={"partition_expr": "note"})
    for _ in range(2):
        run([one], project, instance, partition_key="v1")
    assert ids(tables, f"{namespace}.events") == [1, 1]


def test_a_manager_alone_refuses_the_same(
    project: CompiledArtifacts, instance: DagsterInstance, namespace: str
) -> None:
    one = writing(namespace, lambda: numbers(1), metadata={"write_mode": "append", "table_properties": {"a": "b"}})
    with pytest.raises(ConfigurationError, match="floe/table_properties"):
        run_alone([one], project, instance, manager={})
