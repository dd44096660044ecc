"""The calls of the first design documents: each runs as written there, or its refusal names what to write instead."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest
from dagster import (
    AssetsDefinition,
    DagsterInstance,
    Definitions,
    asset,
    build_input_context,
    build_output_context,
)
from pyiceberg.expressions import EqualTo

from floe_core.config.artifacts import CompiledArtifacts
from floe_core.config.spec import PluginSettings
from floe_core.errors import ConfigurationError, PluginError
from floe_core.identifiers import TableIdentifier
from floe_core.models import CommitStrategy, WriteMode
from floe_dagster import IcebergIOManager, create_definitions
from floe_iceberg import IcebergTableManager

pytestmark = pytest.mark.filterwarnings("ignore:.*is currently in (beta|preview)")

ROWS = pa.table({"id": [1, 2], "name": ["a", "b"]})
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "sketches.md"


def test_the_page_of_differences_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec("\n".join(blocks), names)
    assert names["older_than_days"] == 30


def test_a_new_table_has_the_sketched_properties(tables: IcebergTableManager, table: TableIdentifier) -> None:
    sketched = {
        "write.target-file-size-bytes": "134217728",
        "write.parquet.row-group-size-bytes": "134217728",
        "history.expire.max-snapshot-age-ms": "604800000",
        "history.expire.min-snapshots-to-keep": "10",
        "commit.manifest-merge.enabled": "true",
    }
    tables.write_data(table, ROWS, "append")
    assert sketched.items() <= tables.load_table(table).properties.items()


def test_a_value_survives_the_way_through_contexts_that_know_the_asset_alone(
    tables: IcebergTableManager, namespace: str
) -> None:
    io_manager = IcebergIOManager(table_manager=tables)
    key = [namespace, "customers"]
    with build_output_context(asset_key=key) as storing:
        io_manager.handle_output(storing, ROWS)
    with build_input_context(asset_key=key) as loading:
        assert io_manager.load_input(loading).equals(ROWS)


@pytest.mark.parametrize("argument", ["catalog_uri", "warehouse", "client_id", "token"])
def test_an_address_given_to_the_io_manager_itself_names_what_takes_it(argument: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        IcebergIOManager(**{argument: "https://polaris.example/api/catalog"})  # type: ignore[arg-type]  # no such one
    assert f"IcebergIOManager.from_config(IcebergIOManagerConfig({argument}=" in str(caught.value)


def test_mode_and_commit_strategy_may_follow_the_data(tables: IcebergTableManager, table: TableIdentifier) -> None:
    for _ in range(3):
        properties = {"commit.manifest.min-count-to-merge": "2"}
        tables.write_data(table, ROWS, WriteMode.APPEND, CommitStrategy.MERGE, properties=properties)
    assert len(tables.inspect(table).manifests()) == 1


def test_pyiceberg_calls_on_a_table_of_the_manager_run_as_sketched(
    tables: IcebergTableManager, table: TableIdentifier
) -> None:
    tables.write_data(table, ROWS, "append")
    loaded = tables.load_table(table)
    loaded.append(ROWS, snapshot_properties={"pipeline_run_id": "run-12345"})
    loaded.overwrite(ROWS.slice(0, 1), overwrite_filter=EqualTo("id", 1))  # type: ignore[call-arg]  # its own decorator
    with loaded.update_schema() as update:
        update.rename_column("name", "full_name")
    loaded.manage_snapshots().create_tag(loaded.snapshots()[0].snapshot_id, "v1.0.0").commit()
    assert sorted(tables.scan(table).to_arrow()["id"].to_pylist()) == [1, 2, 2]
    assert tables.scan(table, ref="v1.0.0").to_arrow().column_names == ["id", "name"]
    loaded.manage_snapshots().rollback_to_snapshot(loaded.snapshots()[0].snapshot_id).commit()
    assert tables.scan(table).count() == 2


def customers(namespace: str) -> AssetsDefinition:
    @asset(key=[namespace, "customers_silver"], io_manager_key="iceberg_io_manager")
    def customers_silver() -> pa.Table:
        return ROWS

    return customers_silver


def test_definitions_with_a_table_manager_alone_store_an_asset(
    tables: IcebergTableManager, namespace: str, instance: DagsterInstance
) -> None:
    manager = IcebergIOManager(table_manager=tables, default_write_mode=WriteMode.APPEND)
    defs = Definitions(assets=[customers(namespace)], resources={"iceberg_io_manager": manager})
    done = defs.resolve_implicit_global_asset_job_def().execute_in_process(instance=instance)
    assert done.success
    assert tables.scan(TableIdentifier(namespace=(namespace,), name="customers_silver")).count() == 2


def test_definitions_load_without_the_storage_plugin_and_a_run_names_it(
    tmp_path: Path, namespace: str, instance: DagsterInstance
) -> None:
    storage = PluginSettings.model_validate({"type": "gcs", "bucket": "lake"})
    CompiledArtifacts(name="shop", storage=storage, source_sha256="").at(tmp_path).write()

    @asset(key_prefix=namespace, metadata={"write_mode": "append"})
    def customers() -> pa.Table:
        return ROWS

    defs = create_definitions([customers], project=tmp_path)
    job = defs.resolve_implicit_global_asset_job_def()
    with pytest.raises(PluginError, match=r"no storage plugin 'gcs' is installed.*install the package that brings it"):
        job.execute_in_process(instance=instance)
