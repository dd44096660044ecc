"""The policy enforcer of a project is found wherever its definitions are."""

from __future__ import annotations

from pathlib import Path

import pytest

from floe_core.compiler import compile_project
from floe_core.errors import ConfigurationError
from floe_runtime.enforcement import policy_enforcer

ENFORCED = """
from floe_dagster import create_definitions


class Legal:
    def get_snapshot_retention(self, table, asked, **rules):
        return asked


defs = create_definitions([], enforcer=Legal())
"""


def project_of(root: Path, definitions: str) -> Path:
    root.mkdir()
    root.joinpath("floe.yaml").write_text(f"name: shop\npipeline: {{definitions: {definitions}}}\n", encoding="utf-8")
    return root


def test_the_enforcer_of_an_installed_package_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site" / "shop_pipeline"
    package.mkdir(parents=True)
    package.joinpath("__init__.py").touch()
    root = project_of(tmp_path / "shop", "shop_pipeline.definitions")
    package.joinpath("definitions.py").write_text(ENFORCED, encoding="utf-8")
    monkeypatch.syspath_prepend(package.parent)
    artifacts = compile_project(root).artifacts
    artifacts.write()
    assert type(policy_enforcer(artifacts)).__name__ == "Legal"


def test_a_project_without_definitions_has_no_enforcer(tmp_path: Path) -> None:
    for number, name in enumerate(("nowhere_to_be_found", "nowhere_to_be_found.definitions")):
        assert policy_enforcer(compile_project(project_of(tmp_path / str(number), name)).artifacts) is None


def test_a_package_that_cannot_be_imported_is_an_error(tmp_path: Path) -> None:
    root = project_of(tmp_path / "shop", "its_broken_package.definitions")
    root.joinpath("its_broken_package").mkdir()
    root.joinpath("its_broken_package", "__init__.py").write_text("import nowhere_to_be_found", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"importing its_broken_package\.definitions failed"):
        policy_enforcer(compile_project(root).artifacts)
