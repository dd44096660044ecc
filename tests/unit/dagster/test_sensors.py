"""Sensors that notice commits of other writers, and not those of the runs of this instance."""

from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster import AssetSpec, DagsterInstance, asset, build_sensor_context, define_asset_job
from tests.runs import QUIET

from floe_core.compiler import compile_project
from floe_core.errors import ConfigurationError
from floe_dagster import LakeResource, create_definitions, create_table_sensor
from floe_iceberg import Lake

pytestmark = pytest.mark.filterwarnings("ignore:.*is currently in (beta|preview)")

ROW = pa.table({"id": [1]})


class Project:
    def __init__(self, root: Path) -> None:
        (root / "floe.yaml").write_text("name: shop\n", encoding="utf-8")
        artifacts = compile_project(root).artifacts
        artifacts.write()
        self.root, self.lake, self.instance = root, Lake(artifacts), DagsterInstance.ephemeral()
        self.cursor: str | None = None

    def write(self, table: str = "bronze.orders", **options: Any) -> None:
        self.lake.tables.write_data(table, ROW, **{"mode": "append", **options})

    def tick(self, sensor: Any) -> Any:
        resources = {"lake": LakeResource(project=str(self.root))}
        with build_sensor_context(instance=self.instance, cursor=self.cursor, resources=resources) as context:
            result = sensor(context)
        self.cursor = result.cursor
        return result


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def observed(result: Any) -> list[tuple[str, Any]]:
    return [
        (event.asset_key.to_user_string(), event.metadata["floe/rows_added"].value) for event in result.asset_events
    ]


def test_commits_of_others_are_observed_once(project: Project) -> None:
    watch = create_table_sensor("watch", [AssetSpec(["bronze", "orders"]), "bronze/stores"])
    assert observed(project.tick(watch)) == [], "neither table exists"
    project.write()
    assert observed(project.tick(watch)) == [], "the first look at a table remembers where it is"
    project.write()
    project.write()
    project.write("bronze.stores")
    result = project.tick(watch)
    assert observed(result) == [("bronze/orders", 1), ("bronze/orders", 1)]
    assert result.asset_events[0].metadata["floe/table"].value == "bronze.orders"
    assert observed(project.tick(watch)) == []
    project.write("bronze.stores")
    assert observed(project.tick(watch)) == [("bronze/stores", 1)]


def test_runs_of_this_instance_do_not_trigger_themselves_and_those_of_another_do(project: Project) -> None:
    @asset(key_prefix="bronze", metadata={"write_mode": "append"})
    def orders() -> pa.Table:
        return ROW

    watch = create_table_sensor("watch", [orders])
    job = create_definitions([orders], project=project.root).resolve_implicit_global_asset_job_def()
    job.execute_in_process(instance=project.instance, run_config=QUIET)
    project.tick(watch)
    job.execute_in_process(instance=project.instance, run_config=QUIET)
    assert observed(project.tick(watch)) == []
    with DagsterInstance.ephemeral() as other:
        job.execute_in_process(instance=other, run_config=QUIET)
    assert observed(project.tick(watch)) == [("bronze/orders", 1)]


def test_a_job_is_requested_once_for_the_commits_of_a_tick(project: Project) -> None:
    @asset(key_prefix="silver", metadata={"write_mode": "overwrite"})
    def orders() -> pa.Table:
        return ROW

    job = define_asset_job("refresh", selection=[orders])
    watch = create_table_sensor("watch", ["bronze/orders"], job=job, tables={"bronze/orders": "landing.orders"})
    definitions = create_definitions([orders], project=project.root, jobs=[job], sensors=[watch])
    assert definitions.resolve_sensor_def("watch") is not None
    project.write("landing.orders")
    assert project.tick(watch).run_requests == []
    project.write("landing.orders")
    project.write("landing.orders")
    (request,) = project.tick(watch).run_requests
    assert request.tags["floe/commits"] == "2"
    assert project.tick(watch).run_requests == []


def test_many_commits_and_a_rollback_are_reported_briefly(project: Project) -> None:
    watch = create_table_sensor("watch", ["bronze/orders"])
    project.write()
    project.tick(watch)
    for _ in range(25):
        project.write()
    events = project.tick(watch).asset_events
    assert len(events) == 21
    assert "5 commits of other writers" in events[0].description
    oldest = min(project.lake.tables.list_snapshots("bronze.orders"), key=lambda one: one.timestamp_ms)
    project.lake.tables.rollback_to_snapshot("bronze.orders", oldest.snapshot_id)
    rolled = project.tick(watch)
    assert [event.description for event in rolled.asset_events] == ["main of 'bronze.orders' was rolled back"]


def test_a_sensor_without_assets_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no assets to watch"):
        create_table_sensor("watch", [])
    assert isinstance(create_table_sensor("watch", [dg.AssetKey("x")]), dg.SensorDefinition)
