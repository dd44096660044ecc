"""The orchestrator of a project is a plugin: it finds the pipeline in the user's module."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import pytest
from dagster import Definitions

from floe_core.compiler import compile_project
from floe_core.config.artifacts import CompiledArtifacts
from floe_core.errors import ConfigurationError, PluginError
from floe_core.plugins import discovery
from floe_core.plugins.discovery import PluginRegistry, PluginType, create_orchestrator_plugin, registry
from floe_dagster.orchestrator import DagsterOrchestratorPlugin
from floe_runtime.runs.pipeline import open_pipeline

CALLS: list[str] = []


class RecordingOrchestrator(DagsterOrchestratorPlugin):
    """Writes down what is asked of it."""

    def startup(self) -> None:
        CALLS.append("startup")

    def definitions_in(self, module: ModuleType) -> Definitions:
        CALLS.append(f"definitions in {module.__name__}")
        return super().definitions_in(module)

    def shutdown(self) -> None:
        CALLS.append("shutdown")


@pytest.fixture
def artifacts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CompiledArtifacts:
    (tmp_path / "floe.yaml").write_text("name: shop\npipeline: {definitions: its_pipeline}\n", encoding="utf-8")
    (tmp_path / "its_pipeline.py").write_text("import dagster\ndefs = dagster.Definitions()\n", encoding="utf-8")
    monkeypatch.delitem(sys.modules, "its_pipeline", raising=False)
    return compile_project(tmp_path).artifacts


def test_dagster_is_the_built_in_orchestrator(artifacts: CompiledArtifacts) -> None:
    assert registry.names(PluginType.ORCHESTRATOR) == ["dagster"]
    assert isinstance(create_orchestrator_plugin(artifacts), DagsterOrchestratorPlugin)


def test_a_pipeline_is_opened_by_its_orchestrator(
    artifacts: CompiledArtifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = EntryPoint("dagster", f"{__name__}:RecordingOrchestrator", "floe.orchestrators")
    monkeypatch.setattr(discovery, "registry", PluginRegistry(lambda _: [point]))
    CALLS.clear()
    with open_pipeline(artifacts) as pipeline:
        assert pipeline.definitions is sys.modules["its_pipeline"].defs
        assert CALLS == ["startup", "definitions in its_pipeline"]
    assert CALLS[2:] == ["shutdown"]


def test_an_orchestrator_that_is_not_installed_is_an_error_that_names_its_package(
    artifacts: CompiledArtifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "registry", PluginRegistry(lambda _: []))
    with (
        pytest.raises(PluginError, match=r"no orchestrator plugin 'dagster' .* the package floe-dagster"),
        open_pipeline(artifacts),
    ):
        pass


@pytest.mark.parametrize("count", [0, 2])
def test_a_module_must_hold_one_pipeline(artifacts: CompiledArtifacts, count: int) -> None:
    module = ModuleType("shop")
    for number in range(count):
        setattr(module, f"defs{number}", Definitions())
    with pytest.raises(ConfigurationError, match=rf"module shop must hold one Definitions object \(found {count}\)"):
        create_orchestrator_plugin(artifacts).definitions_in(module)


def test_assets_that_do_not_fit_together_are_one_line(artifacts: CompiledArtifacts) -> None:
    (artifacts.root / "its_pipeline.py").write_text(
        "from dagster import AssetIn, Definitions, asset\n\n\n"
        "@asset(key_prefix='bronze')\ndef orders(): ...\n\n\n"
        "@asset(ins={'orders': AssetIn(['bronze', 'order'])})\ndef daily(orders): ...\n\n\n"
        "defs = Definitions(assets=[orders, daily])\n",
        encoding="utf-8",
    )
    said = r"module its_pipeline .* Input asset bronze/order .* bronze/orders$"
    with pytest.raises(ConfigurationError, match=said), open_pipeline(artifacts):
        pass
