"""What an asset, a resource and a run can say about how a table is written."""

from typing import Any

import pyarrow as pa
import pytest
from dagster import (
    AssetIn,
    AssetOut,
    AssetsDefinition,
    DagsterInstance,
    Definitions,
    MetadataValue,
    StaticPartitionsDefinition,
    TableColumn,
    TableSchema,
    asset,
    multi_asset,
)
from tests.runs import metadata_of, rows_of, run, run_alone

from floe_core.config.artifacts import CompiledArtifacts
from floe_core.errors import ConfigurationError, FloeStorageError, PartitionMismatchError, SchemaEvolutionError
from floe_core.identifiers import TableIdentifier
from floe_dagster import IcebergIOManager, create_definitions
from floe_iceberg import IcebergTableManager

pytestmark = pytest.mark.filterwarnings("ignore:.*is currently in (beta|preview)")


@pytest.fixture
def events(namespace: str) -> TableIdentifier:
    return TableIdentifier(namespace=(namespace,), name="events")


def writing(namespace: str, value: Any, name: str = "events", **arguments: Any) -> AssetsDefinition:
    """An asset that returns this value, or what this function returns."""

    def compute() -> Any:
        return value() if callable(value) else value

    made: AssetsDefinition = asset(name=name, key_prefix=namespace, **arguments)(compute)
    return made


def numbers(*ids: int, note: str = "v1") -> pa.Table:
    return pa.table({"id": list(ids), "note": [note] * len(ids)})


def ids(tables: IcebergTableManager, table: TableIdentifier, **options: Any) -> list[int]:
    return sorted(row["id"] for row in rows_of(tables, str(table), **options))


def output(namespace: str, **said: Any) -> dict[str, Any]:
    """The configuration of one run."""
    return {"ops": {f"{namespace}__events": {"outputs": {"result": said}}}}


@pytest.mark.parametrize(("mode", "left"), [("append", [1, 1, 2, 2]), ("overwrite", [1, 2])])
@pytest.mark.parametrize("key", ["write_mode", "floe/write_mode"])
def test_the_mode_is_what_the_metadata_says(
    project: CompiledArtifacts,
    tables: IcebergTableManager,
    instance: DagsterInstance,
    events: TableIdentifier,
    key: str,
    mode: str,
    left: list[int],
) -> None:
    for _ in range(2):
        done = run([writing(events.namespace[0], numbers(1, 2), metadata={key: mode})], project, instance)
    assert ids(tables, events) == left
    assert metadata_of(done, "events")["floe/write_mode"] == mode


def test_an_upsert_changes_the_rows_whose_keys_it_brings(
    project: CompiledArtifacts, tables: IcebergTableManager, instance: DagsterInstance, events: TableIdentifier
) -> None:
    said = {"write_mode": "upsert", "upsert_keys": ["id"]}
    for new in (numbers(1, 2), numbers(2, 3, note="v2")):
        run([writing(events.namespace[0], new, metadata=said)], project, instance)
    assert {row["id"]: row["note"] for row in rows_of(tables, str(events))} == {1: "v1", 2: "v2", 3: "v2"}


def test_an_upsert_of_a_partition_takes_no_rows_of_another(
    project: CompiledArtifacts, tables: IcebergTableManager, instance: DagsterInstance, events: TableIdentifier
) -> None:
    said = {"write_mode": "upsert", "upsert_keys": "note", "partition_expr": "NOTE"}
    notes = StaticPartitionsDefinition(["v1", "v2"])
    one = writing(events.namespace[0], numbers(1, note="v1"), metadata=said, partitions_def=notes)
    run([one], project, instance, partition_key="v1")
    with pytest.raises(PartitionMismatchError, match="1 row lies outside the slice"):
        run([one], project, instance, partition_key="v2")
    by_id = writing(events.namespace[0], numbers(1), metadata=said | {"upsert_keys": ["id"]}, partitions_def=notes)
    with pytest.raises(ConfigurationError, match="would move rows here from other partitions; add NOTE to upsert_keys"):
        run([by_id], project, instance, partition_key="v1")
    assert ids(tables, events) == [1]


def test_a_partition_column_that_the_table_does_not_have_is_refused(
    project: CompiledArtifacts, tables: IcebergTableManager, instance: DagsterInstance, events: TableIdentifier
) -> None:
    notes = StaticPartitionsDefinition(["v1"])
    old = {"partition_expr": "note"}
    run(
        [writing(events.namespace[0], numbers(1), metadata=old, partitions_def=notes)],
        project,
        instance,
        partition_key="v1",
    )
    renamed = numbers(1).rename_columns(["id", "remark"])
    new = writing(events.namespace[0], renamed, metadata={"partition_expr": "remark"}, partitions_def=notes)
    with pytest.raises(ConfigurationError, match="has rows and no column 'remark'"):
        run([new], project, instance, partition_key="v1")
    assert rows_of(tables, str(events)) == [{"id": 1, "note": "v1"}]


def test_what_is_written_to_a_branch_is_read_from_there(
    project: CompiledArtifacts, tables: IcebergTableManager, instance: DagsterInstance, namespace: str
) -> None:
    up = TableIdentifier(namespace=(namespace,), name="up")
    tables.write_data(up, numbers(1), mode="append")
    tables.create_branch(up, "dev")
    seen: list[Any] = []

    def look(up: pa.Table) -> None:
        seen.append(up["id"].to_pylist())

    ins = {"up": AssetIn([namespace, "up"])}
    down = asset(name="down", key_prefix=namespace, ins=ins)(look)
    said = {"write_mode": "overwrite", "floe/branch": "dev"}
    run([writing(namespace, numbers(2), "up", metadata=said), down], project, instance)
    plain = writing(namespace, numbers(3), "up", metadata={"write_mode": "overwrite"})
    run_alone([plain, down], project, instance, manager={"branch": "dev"})
    assert seen == [[2], [3]]
    assert ids(tables, up) == [1]


def test_a_branch_gets_the_rows_and_main_does_not(
    project: CompiledArtifacts, tables: IcebergTableManager, instance: DagsterInstance, events: TableIdentifier
) -> None:
    run([writing(events.namespace[0], numbers(1), metadata={"write_mode": "append"})], project, instance)
    tables.create_branch(events, "audit")
    said = {"write_mode": "append", "floe/branch": "audit"}
    run([writing(events.namespace[0], numbers(2), metadata=said)], project, instance)
    assert ids(tables, events) == [1]
    assert ids(tables, events, ref="audit") == [1, 2]
    plain = writing(events.namespace[0], numbers(3), metadata={"write_mode": "append"})
    run([plain], project, instance, config=output(events.namespace[0], branch="audit"))
    run_alone([plain], project, instance, manager={"branch": "audit"})
    assert ids(tables, events, ref="audit") == [1, 2, 3, 3]


def test_table_properties_are_merged_from_the_resource_and_the_asset(
    project: CompiledArtifacts, tables: IcebergTableManager, instance: DagsterInstance, events: TableIdentifier
) -> None:
    said = {"write_mode": "append", "floe/table_properties": {"owner": "asset", "b": "asset"}}
    one = writing(events.namespace[0], numbers(1), metadata=said)
    manager = {"table_properties": {"owner": "resource", "a": "resource"}}
    run_alone(
        [one], project, instance, manager=manager, config=output(events.namespace[0], table_properties={"b": "run"})
    )
    found = tables.load_table(events).properties
    assert (found["owner"], found["a"]) == ("resource", "resource")  # the run said all of them anew
    assert found["b"] == "run"


@pytest.mark.parametrize("how", ["metadata", "resource", "run"])
def test_evolution_can_be_switched_off(
    project: CompiledArtifacts,
    tables: IcebergTableManager,
    instance: DagsterInstance,
    events: TableIdentifier,
    how: str,
) -> None:
    namespace = events.namespace[0]
    run([writing(namespace, numbers(1), metadata={"write_mode": "append"})], project, instance)
    wider = numbers(2).append_column("more", pa.array(["x"]))
    metadata = {"write_mode": "append"} | ({"floe/schema_evolution_enabled": False} if how == "metadata" else {})
    manager = {"schema_evolution_enabled": how != "resource"}
    config = output(namespace, schema_evolution_enabled=False) if how == "run" else None
    wide = writing(namespace, wider, metadata=metadata)
    with pytest.raises(SchemaEvolutionError, match="more"):
        run_alone([wide], project, instance, manager=manager, config=config)
    assert ids(tables, events) == [1]
    again = output(namespace, schema_evolution_enabled=True)
    done = run_alone([wide], project, instance, manager=manager, config=again)
    assert metadata_of(done, "events")["floe/schema_change"] == "+more string"


def test_the_commit_strategy_merges_manifests(
    project: CompiledArtifacts, tables: IcebergTableManager, instance: DagsterInstance, events: TableIdentifier
) -> None:
    properties = {"commit.manifest.min-count-to-merge": "2"}
    for strategy in ("fast_append", "fast_append", "merge"):
        said = {"write_mode": "append", "floe/commit_strategy": strategy, "floe/table_properties": properties}
        run([writing(events.namespace[0], numbers(1), metadata=said)], project, instance)
        manifests = tables.inspect(events).manifests().num_rows
    assert manifests == 1


def test_a_commit_strategy_is_for_appends(
    project: CompiledArtifacts, tables: IcebergTableManager, instance: DagsterInstance, events: TableIdentifier
) -> None:
    namespace = events.namespace[0]
    overwrites = {"write_mode": "overwrite", "floe/commit_strategy": "merge"}
    with pytest.raises(ConfigurationError, match="commit_strategy is for appends; mode is overwrite"):
        run([writing(namespace, numbers(1), metadata=overwrites)], project, instance)
    # A run that chooses another mode leaves out what was meant for the usual one.
    appends = writing(namespace, numbers(1), metadata={"write_mode": "append", "floe/commit_strategy": "merge"})
    run([appends], project, instance, config=output(namespace, write_mode="overwrite"))
    assert ids(tables, events) == [1]


def test_nothing_replaces_everything_only_if_that_is_said(
    project: CompiledArtifacts, tables: IcebergTableManager, instance: DagsterInstance, events: TableIdentifier
) -> None:
    namespace, said = events.namespace[0], {"write_mode": "overwrite"}
    run([writing(namespace, numbers(1), metadata=said)], project, instance)
    empty = writing(namespace, numbers(), metadata=said)
    with pytest.raises(FloeStorageError, match="allow_empty"):
        run([empty], project, instance)
    assert ids(tables, events) == [1]
    run([empty], project, instance, config=output(namespace, allow_empty=True))
    assert ids(tables, events) == []


def test_a_run_may_choose_another_mode_for_once(
    project: CompiledArtifacts, tables: IcebergTableManager, instance: DagsterInstance, events: TableIdentifier
) -> None:
    namespace, keyed = events.namespace[0], {"write_mode": "upsert", "upsert_keys": ["id"]}
    one = writing(namespace, numbers(1), metadata=keyed)
    run([one], project, instance)
    run([one], project, instance, config=output(namespace, write_mode="append"))
    assert ids(tables, events) == [1, 1]
    run([one], project, instance, config=output(namespace, write_mode="overwrite"))
    assert ids(tables, events) == [1]


def test_the_resource_says_what_assets_do_not(
    project: CompiledArtifacts, tables: IcebergTableManager, instance: DagsterInstance, namespace: str
) -> None:
    one = asset(name="plain")(lambda: numbers(1))
    manager = {"default_write_mode": "overwrite", "default_namespace": namespace}
    for _ in range(2):
        run_alone([one], project, instance, manager=manager)
    assert ids(tables, TableIdentifier(namespace=(namespace,), name="plain")) == [1]
    with pytest.raises(
        ConfigurationError, match="default_write_mode is 'replace'; it must be one of append, overwrite"
    ):
        run_alone([one], project, instance, manager={"default_write_mode": "replace", "default_namespace": namespace})


def test_namespace_and_table_can_be_named(
    project: CompiledArtifacts, tables: IcebergTableManager, instance: DagsterInstance, namespace: str
) -> None:
    said = {"write_mode": "overwrite", "floe/namespace": f"{namespace}.deep", "floe/table": "named"}

    @asset(key=["any", "where"], metadata=said)
    def where() -> pa.Table:
        return numbers(7)

    @asset(key_prefix=namespace, metadata={"write_mode": "overwrite"}, ins={"where": AssetIn(["any", "where"])})
    def reader(where: pa.Table) -> pa.Table:
        return where

    run([where, reader], project, instance)
    assert [row["id"] for row in rows_of(tables, f"{namespace}.deep.named")] == [7]
    assert [row["id"] for row in rows_of(tables, f"{namespace}.reader")] == [7]


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a misspelt option": (
        {"floe/write_mod": "append"},
        r"'floe/write_mod' is no option of Floe; did you mean 'floe/write_mode'",
    ),
    "an option of nothing": ({"floe/zzz": 1}, "there are allow_empty, audit, branch"),
    "an option of inputs": ({"floe/columns": ["a"]}, r"is an option of an input \(AssetIn"),
    "an unknown mode": ({"write_mode": "replace"}, "'replace' is not one of append, overwrite, upsert"),
    "an unknown strategy": ({"floe/commit_strategy": "slow"}, "'slow' is not one of fast_append, merge"),
    "a number for a flag": ({"allow_empty": 7}, "allow_empty 7: "),
    "two that differ": ({"write_mode": "append", "floe/write_mode": "overwrite"}, "contradict each other"),
    "a table with a dot": ({"floe/table": "a.b"}, "has a dot; say the levels above as floe/namespace"),
    "a table with a slash": ({"floe/table": "a/b"}, "'a/b' is not a valid name"),
    "a preview of thousands": ({"floe/preview_rows": 5000}, "preview_rows 5000: this must be 100 or less"),
    "properties that are no texts": ({"floe/table_properties": {"a": 1}}, "table_properties 1"),
}


@pytest.mark.parametrize("case", WRONG)
def test_metadata_that_cannot_be_meant_is_refused_when_definitions_load(project: CompiledArtifacts, case: str) -> None:
    metadata, words = WRONG[case]
    with pytest.raises(ConfigurationError, match=words) as caught:
        create_definitions([writing("bronze", None, metadata=metadata)], project=project.root)
    assert "asset bronze/events" in str(caught.value)


def test_metadata_of_ones_own_is_nobodys_business(
    project: CompiledArtifacts, tables: IcebergTableManager, instance: DagsterInstance, events: TableIdentifier
) -> None:
    said = {
        "write_mode": "append",
        "branch": "Berlin",
        "table": MetadataValue.md("round"),
        "columns": 3,
        "owner": MetadataValue.text("me"),
    }
    run([writing(events.namespace[0], numbers(1), metadata=said)], project, instance)
    assert ids(tables, events) == [1]


def test_two_assets_that_name_one_table_are_refused(project: CompiledArtifacts) -> None:
    named = {"write_mode": "append", "floe/namespace": "bronze", "floe/table": "EVENTS"}
    with pytest.raises(ConfigurationError, match=r"bronze/events and silver/other would both .* 'bronze.EVENTS'"):
        create_definitions(
            [
                writing("bronze", None, metadata={"write_mode": "append"}),
                writing("silver", None, "other", metadata=named),
            ],
            project=project.root,
        )


def test_assets_that_are_stored_elsewhere_or_not_at_all_are_not_asked_for_a_mode(
    project: CompiledArtifacts, recwarn: pytest.WarningsRecorder
) -> None:
    @asset(io_manager_key="mem_io_manager")
    def elsewhere() -> int:
        return 1

    @asset
    def nothing() -> None: ...

    @multi_asset(
        outs={"a": AssetOut(metadata={"write_mode": "append"}), "b": AssetOut(io_manager_key="mem_io_manager")}
    )
    def several() -> tuple[Any, Any]:
        return 1, 2

    create_definitions([elsewhere, nothing, several], project=project.root)
    assert [str(one.message) for one in recwarn if "write_mode" in str(one.message)] == []


def test_the_preview_shows_rows_and_hides_what_is_sensitive(
    project: CompiledArtifacts, instance: DagsterInstance, namespace: str
) -> None:
    table = pa.table(
        {"id": [1, 2], "email": ["a@x", "b@x"], "Phone": ["1", "2"], "note": ["a|b", "<i>\nline" + "x" * 99]}
    )
    declared = TableSchema([TableColumn("phone", tags={"sensitive": ""}, description="to call"), TableColumn("id")])
    said = {"write_mode": "overwrite", "floe/sensitive_columns": ["EMAIL"], "dagster/column_schema": declared}
    shown = metadata_of(run([writing(namespace, table, metadata=said)], project, instance), "events")
    assert shown["floe/preview"].splitlines()[:3] == ["| id | note |", "| --- | --- |", "| 1 | a\\|b |"]
    assert shown["floe/preview"].splitlines()[3].startswith("| 2 | &lt;i> linexxx")
    assert "a@x" not in str(shown)
    phone = next(one for one in shown["dagster/column_schema"].columns if one.name == "Phone")
    assert (phone.type, phone.description, dict(phone.tags)) == ("string", "to call", {"sensitive": ""})
    for hidden in ({"floe/preview_rows": 0}, {"floe/sensitive_columns": [f"{one}.part" for one in table.column_names]}):
        again = metadata_of(run([writing(namespace, table, metadata=said | hidden)], project, instance), "events")
        assert "floe/preview" not in again


def test_the_manager_works_alone_with_tables_that_somebody_opened(
    project: CompiledArtifacts, tables: IcebergTableManager, instance: DagsterInstance, namespace: str
) -> None:
    manager = IcebergIOManager(table_manager=tables, default_write_mode="overwrite")
    definitions = Definitions(
        assets=[writing(namespace, numbers(4), io_manager_key="iceberg_io_manager")],
        resources={"iceberg_io_manager": manager},
    )
    assert definitions.resolve_implicit_global_asset_job_def().execute_in_process(instance=instance).success
    assert [row["id"] for row in rows_of(tables, f"{namespace}.events")] == [4]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "needs one of lake=LakeResource"),
        ({"table_manager": 3}, "table_manager is a int, not an IcebergTableManager"),
        ({"lake": "x"}, "lake is a str; give a LakeResource"),
    ],
)
def test_a_manager_without_tables_says_what_it_needs(
    instance: DagsterInstance, namespace: str, given: dict[str, Any], words: str
) -> None:
    definitions = Definitions(
        assets=[writing(namespace, numbers(4))], resources={"io_manager": IcebergIOManager(**given)}
    )
    with pytest.raises(ConfigurationError, match=words):
        definitions.resolve_implicit_global_asset_job_def().execute_in_process(instance=instance)
