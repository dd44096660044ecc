"""The checks of a project that move rows to quarantine tables, as the specs of its checks carry them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dagster import AssetCheckSpec, AssetKey, AssetsDefinition, AssetSpec

from floe_core.config import TableCheck, quarantine_of, refuse_shared_quarantines
from floe_core.errors import ConfigurationError
from floe_core.identifiers import TableIdentifier
from floe_dagster.runs.quarantine import MOVING

__all__ = ["QUARANTINE", "carrying", "moving_checks", "refuse_tables_of_assets"]

# The metadata of a check of Floe that moves rows: the check.
QUARANTINE = "floe/quarantine"


def moving_checks(specs: Iterable[AssetCheckSpec]) -> dict[AssetKey, tuple[TableCheck, ...]]:
    """The checks that move rows, by their asset."""
    found: dict[AssetKey, list[TableCheck]] = {}
    for spec in specs:
        text = spec.metadata.get(QUARANTINE)
        if text is not None:
            found.setdefault(spec.asset_key, []).append(TableCheck.model_validate_json(text))
    return {key: tuple(checks) for key, checks in found.items()}


def carrying(assets: Iterable[Any], moving: Mapping[AssetKey, Sequence[TableCheck]]) -> list[Any]:
    """The definitions, whose assets carry the checks that move their rows: on a branch of the lake, nothing else does.

    Args:
        assets: The definitions.
        moving: The checks that move rows.
    """

    def with_checks(spec: AssetSpec) -> AssetSpec:
        checks = moving.get(spec.key)
        if not checks:
            return spec
        return spec.merge_attributes(metadata={MOVING: json.dumps([one.model_dump_json() for one in checks])})

    return [one.map_asset_specs(with_checks) if isinstance(one, AssetsDefinition) else one for one in assets]


def refuse_tables_of_assets(
    moving: Mapping[AssetKey, Sequence[TableCheck]], stored: Mapping[AssetKey, TableIdentifier]
) -> None:
    """Refuse quarantine tables that take rows of two assets, or that are the table of an asset.

    Args:
        moving: The checks that move rows.
        stored: The tables of the assets of one lake.
    """
    checks = {stored[key]: given for key, given in moving.items() if key in stored}
    refuse_shared_quarantines(checks)
    owners = {table.full_name.lower(): key for key, table in stored.items()}
    for table, given in checks.items():
        target = quarantine_of(given, table)
        owner = owners.get(target.full_name.lower()) if target is not None else None
        if owner is not None:
            raise ConfigurationError(
                f"rows of '{table}' would be moved to '{target}', which is the table of asset "
                f"{owner.to_user_string()}; name another table in quarantine"
            )
