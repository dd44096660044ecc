"""The IO manager as one resource of a Dagster project that knows nothing else of Floe."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from dagster import (
    AssetIn,
    DagsterInstance,
    Definitions,
    EnvVar,
    FilesystemIOManager,
    asset,
    in_process_executor,
)
from tests.catalogs import new_namespace
from tests.runs import QUIET
from tests.servers.seaweedfs import BUCKET, SeaweedFS

from floe_core.config.artifacts import CompiledArtifacts
from floe_core.config.spec import S3StorageConfig
from floe_core.errors import ConfigurationError
from floe_core.identifiers import Namespace
from floe_dagster import IcebergIOManager, IcebergIOManagerConfig, LakeResource
from floe_iceberg import IcebergTableManager

pytestmark = pytest.mark.filterwarnings("ignore:.*is currently in (beta|preview)")


def foreign(manager: IcebergIOManager, namespace: str, folder: Path, seen: list[Any]) -> Definitions:
    """Somebody's own layout: other keys for resources, another default IO manager, an executor of their choice."""

    @asset(key_prefix=["raw"])
    def number() -> int:
        return 3

    said = {"write_mode": "overwrite"}

    @asset(
        key=[namespace, "rows"], io_manager_key="warehouse", metadata=said, ins={"number": AssetIn(["raw", "number"])}
    )
    def rows(number: int) -> pa.Table:
        return pa.table({"id": list(range(number))})

    @asset(ins={"rows": AssetIn([namespace, "rows"])})
    def total(rows: pa.Table) -> int:
        seen.append(rows.to_pylist())
        return int(sum(rows["id"].to_pylist()))

    return Definitions(
        assets=[number, rows, total],
        resources={"io_manager": FilesystemIOManager(base_dir=str(folder)), "warehouse": manager},
        executor=in_process_executor,
    )


def execute(definitions: Definitions, instance: DagsterInstance) -> Any:
    job = definitions.resolve_implicit_global_asset_job_def()
    return job.execute_in_process(instance=instance, run_config=QUIET)


def test_a_foreign_project_has_one_resource_more(
    project: CompiledArtifacts,
    instance: DagsterInstance,
    namespace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FLOE_TEST_PLACE", str(project.root))
    seen: list[Any] = []
    manager = IcebergIOManager(lake=LakeResource(project=EnvVar("FLOE_TEST_PLACE")))
    done = execute(foreign(manager, namespace, tmp_path, seen), instance)
    assert done.output_for_node("total") == 3
    assert seen == [[{"id": 0}, {"id": 1}, {"id": 2}]]
    tables = IcebergTableManager.open(project)
    assert [str(one) for one in tables.list_tables(Namespace.from_string(namespace))] == [f"{namespace}.rows"]


def test_a_project_without_floe_yaml_names_its_catalog(
    server: SeaweedFS, instance: DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOE_TEST_SECRET", server.secret)
    config = IcebergIOManagerConfig(
        catalog_type="rest",
        catalog_uri=server.catalog_uri,
        warehouse=f"s3://{BUCKET}",
        client_id=server.key,
        client_secret="${env:FLOE_TEST_SECRET}",
        storage=S3StorageConfig(bucket=BUCKET, endpoint=server.s3_endpoint, path_style_access=True),
    )
    assert server.secret not in repr(config)
    seen: list[Any] = []
    manager = IcebergIOManager.from_config(config, tmp_path)
    done = execute(foreign(manager, new_namespace(), tmp_path, seen), instance)
    assert done.output_for_node("total") == 3
    assert seen == [[{"id": 0}, {"id": 1}, {"id": 2}]]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"catalog_uri": "localhost:8181", "auth": "none"}, "write an address that starts with https://"),
        ({"client_secret": "x", "token": "y", "client_id": "me"}, "credentials and token are mutually exclusive"),
        ({"client_secret": "x"}, "client_id"),
        ({}, "no way to authenticate: give client_id and client_secret, or token, or say auth='none'"),
        ({"client_id": "me"}, "no way to authenticate: give client_id and client_secret"),
        ({"auth": "none", "token": "y"}, "auth: none contradicts"),
    ],
)
def test_a_configuration_that_cannot_be_meant_is_refused_without_its_secrets(
    changed: dict[str, Any], words: str
) -> None:
    config = IcebergIOManagerConfig(**{"catalog_uri": "http://127.0.0.1:1", "warehouse": "w", **changed})
    with pytest.raises(ConfigurationError, match=words):
        config.artifacts()


def test_a_catalog_that_asks_for_nothing_is_named_as_such() -> None:
    config = IcebergIOManagerConfig(catalog_uri="http://127.0.0.1:1", warehouse="w", auth="none")
    assert config.artifacts().catalog.model_dump()["auth"] == "none"


def test_the_defaults_are_those_of_the_requirements() -> None:
    config = IcebergIOManagerConfig(
        catalog_uri="https://polaris.example/api/catalog", warehouse="shop", token="${env:T}"
    )
    assert (config.default_namespace, config.schema_evolution_enabled, config.column_projection_enabled) == (
        "public",
        True,
        True,
    )
    assert config.scope == "PRINCIPAL_ROLE:ALL"
    artifacts = config.artifacts()
    assert artifacts.catalog.type == "polaris"
    assert artifacts.tables.default_namespace == "public"
