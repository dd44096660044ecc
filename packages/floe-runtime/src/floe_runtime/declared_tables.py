"""What the assets of a project declare of the columns of their tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from floe_core.config import CompiledArtifacts

__all__ = ["DeclaredTable", "declared_tables"]


@dataclass(frozen=True)
class DeclaredTable:
    """What the assets of a table declare.

    Attributes:
        hidden: The columns whose values are never shown, in lower case.
        keys: The key columns of upserts; empty if there are none.
    """

    hidden: frozenset[str] = frozenset()
    keys: tuple[str, ...] = ()


def declared_tables(artifacts: CompiledArtifacts) -> Mapping[str, DeclaredTable] | None:
    """What is declared, by the name of the table; None if the definitions of the project cannot be loaded."""
    from floe_core.errors import FloeError

    try:
        from floe_dagster.maintenance import stored_assets
        from floe_runtime.runs.pipeline import load_definitions

        definitions = load_definitions(artifacts)
    except (FloeError, ModuleNotFoundError):
        return None if _has_definitions(artifacts) else {}
    assets = definitions.resolve_asset_graph().assets_defs
    found: dict[str, DeclaredTable] = {}
    for stored in stored_assets(assets, artifacts, definitions.resources or {}):
        name = stored.table.full_name
        known = found.get(name, DeclaredTable())
        keys = known.keys or tuple(stored.options.upsert_keys)
        found[name] = DeclaredTable(known.hidden | stored.hidden, keys)
    return found


def _has_definitions(artifacts: CompiledArtifacts) -> bool:
    """Whether the module exists in the folder of the project; a lake without assets has none."""
    module = Path(artifacts.root, *artifacts.pipeline.definitions.split("."))
    return module.is_dir() or module.with_name(f"{module.name}.py").is_file()
