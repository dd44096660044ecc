"""The checks that floe.yaml declares of tables, as checks of the assets that are stored in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from dagster import AssetCheckKey, AssetChecksDefinition, AssetsDefinition, AssetSpec

from floe_core.config import CompiledArtifacts, check_name
from floe_core.errors import ConfigurationError
from floe_core.identifiers import TableIdentifier
from floe_dagster.checks.definitions import checks_step

__all__ = ["checks_in_floe_yaml"]


class _Stored(Protocol):
    @property
    def spec(self) -> AssetSpec: ...

    @property
    def table(self) -> TableIdentifier: ...


def checks_in_floe_yaml(
    artifacts: CompiledArtifacts,
    assets: Sequence[Any],
    stored: Iterable[_Stored],
    others: Mapping[str, Any],
) -> list[AssetChecksDefinition]:
    """The checks of the assets that are stored in tables of which floe.yaml declares some.

    Args:
        artifacts: The compiled project.
        assets: The assets of the project.
        stored: Those that are stored in tables.
        others: The other arguments of the definitions, with the checks that they have already.
    """
    if not artifacts.checks:
        return []
    declared = {table.lower(): checks for table, checks in artifacts.checks.items()}
    definitions = [one for one in assets if isinstance(one, AssetsDefinition)]
    taken = {key for one in (*definitions, *(others.get("asset_checks") or ())) for key in _check_keys(one)}
    found = []
    for asset in stored:
        checks = declared.get(asset.table.full_name.lower(), ())
        key = asset.spec.key
        for name in (check_name(check) for check in checks):
            if AssetCheckKey(key, name) in taken:
                raise ConfigurationError(
                    f"asset {key.to_user_string()} has a check called {name} in the definitions and another one in "
                    f"floe.yaml (checks.{asset.table}); give one of them another name"
                )
        if checks:
            definition = next(one for one in definitions if key in one.keys)
            found.append(checks_step(key, definition.get_io_manager_key_for_asset_key(key), checks))
    return found


def _check_keys(definition: Any) -> Iterable[AssetCheckKey]:
    return definition.check_keys if isinstance(definition, AssetsDefinition) else ()
