"""The lake of a project, whatever way leads to it."""

from pathlib import Path

import pytest
from dagster import ConfigurableResource, InitResourceContext, build_resources

from floe_core.compiler import compile_project
from floe_dagster import IcebergIOManager, LakeResource


def test_the_current_folder_is_the_one_that_is_current_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "floe.yaml").write_text(f"name: {name}\n")
        compile_project(tmp_path / name).artifacts.write()
        monkeypatch.chdir(tmp_path / name)
        assert LakeResource(project=".").lake.artifacts.name == name
    assert LakeResource(project=".").lake is LakeResource(project=str(tmp_path / "two")).lake


HEARD: list[str] = []


class _Heard(ConfigurableResource):  # type: ignore[type-arg]
    def setup_for_execution(self, context: InitResourceContext) -> None:
        del context
        HEARD.append(f"{type(self).__name__} set up")

    def teardown_after_execution(self, context: InitResourceContext) -> None:
        del context
        HEARD.append(f"{type(self).__name__} torn down")


class OwnLake(_Heard, LakeResource): ...


class OwnManager(_Heard, IcebergIOManager): ...


def test_a_subclass_is_set_up_and_torn_down_by_dagster(tmp_path: Path) -> None:
    HEARD.clear()
    lake = OwnLake(project=str(tmp_path))
    with build_resources({"lake": lake, "io_manager": OwnManager(lake=LakeResource(project=str(tmp_path)))}) as made:
        assert isinstance(made.lake, OwnLake)
        assert isinstance(made.io_manager, OwnManager)
        assert sorted(HEARD) == ["OwnLake set up", "OwnManager set up"]
    assert sorted(HEARD[2:]) == ["OwnLake torn down", "OwnManager torn down"]
