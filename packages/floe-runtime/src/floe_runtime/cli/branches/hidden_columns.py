"""The columns of each table that are never shown, as the assets of the project declare them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from floe_core.config import CompiledArtifacts

__all__ = ["hidden_columns"]


def hidden_columns(artifacts: CompiledArtifacts) -> Mapping[str, frozenset[str]] | None:
    """The names in lower case, by the name of the table; None if the definitions of the project cannot be loaded."""
    from floe_core.errors import FloeError

    try:
        from floe_dagster.maintenance import stored_assets
        from floe_runtime.runs.pipeline import load_definitions

        definitions = load_definitions(artifacts)
    except (FloeError, ModuleNotFoundError):
        return None if _has_definitions(artifacts) else {}
    assets = definitions.resolve_asset_graph().assets_defs
    found: dict[str, frozenset[str]] = {}
    for stored in stored_assets(assets, artifacts, definitions.resources or {}):
        name = stored.table.full_name
        found[name] = found.get(name, frozenset()) | stored.hidden
    return found


def _has_definitions(artifacts: CompiledArtifacts) -> bool:
    """Whether the module exists in the folder of the project; a lake without assets has none."""
    module = Path(artifacts.root, *artifacts.pipeline.definitions.split("."))
    return module.is_dir() or module.with_name(f"{module.name}.py").is_file()
