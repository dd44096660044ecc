"""Orchestrator plugin `dagster`: runs the pipeline of a project."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import ModuleType
from typing import ClassVar

from dagster import DagsterInvalidDefinitionError, Definitions

from floe_core import __version__
from floe_core.config import PipelineConfig
from floe_core.errors import ConfigurationError
from floe_core.plugins import FLOE_API_VERSION, OrchestratorPlugin, PluginMetadata

__all__ = ["DagsterOrchestratorPlugin"]

_KEY = re.compile(r'"?(\["[^\]]*"\])"?')  # as Dagster writes one: ["bronze", "orders"]


class DagsterOrchestratorPlugin(OrchestratorPlugin):
    """Dagster. Users make its definitions with `create_definitions`."""

    metadata: ClassVar[PluginMetadata] = PluginMetadata(
        name="dagster", version=__version__, floe_api_version=FLOE_API_VERSION, description="Dagster definitions"
    )

    def __init__(self, config: PipelineConfig, *, root: Path) -> None:
        del config, root  # the caller imports the module

    @classmethod
    def get_config_schema(cls) -> type[PipelineConfig]:
        return PipelineConfig

    def definitions_in(self, module: ModuleType) -> Definitions:
        found = [value for value in vars(module).values() if isinstance(value, Definitions)]
        if len(found) != 1:
            raise ConfigurationError(
                f"module {module.__name__} must hold one Definitions object (found {len(found)}): "
                f"defs = create_definitions([...])"
            )
        try:
            found[0].resolve_asset_graph()
        except DagsterInvalidDefinitionError as exc:  # such as an input that no asset makes
            raise ConfigurationError(
                f"the assets of module {module.__name__} do not fit together: {_readable(str(exc))}"
            ) from exc
        return found[0]


def _readable(message: str) -> str:
    """On one line, with the keys of assets as Floe writes them: bronze/orders."""
    return _KEY.sub(lambda key: "/".join(json.loads(key[1])), " ".join(message.split()))
