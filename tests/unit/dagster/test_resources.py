"""The lake of a project, whatever way leads to it."""

from pathlib import Path

import pytest

from floe_core.compiler import compile_project
from floe_dagster import LakeResource


def test_the_current_folder_is_the_one_that_is_current_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "floe.yaml").write_text(f"name: {name}\n")
        compile_project(tmp_path / name).artifacts.write()
        monkeypatch.chdir(tmp_path / name)
        assert LakeResource(project=".").lake.artifacts.name == name
    assert LakeResource(project=".").lake is LakeResource(project=str(tmp_path / "two")).lake
