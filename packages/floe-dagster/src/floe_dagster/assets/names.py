"""Which assets are stored, and in which table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dagster import AssetKey, AssetsDefinition

from floe_core.errors import ConfigurationError
from floe_core.identifiers import TableIdentifier
from floe_dagster.assets.options import InputOptions, OutputOptions

__all__ = ["Naming", "is_stored", "table_of"]


def is_stored(definition: AssetsDefinition, key: AssetKey) -> bool:
    """Whether the asset returns a value to store. One annotated with None, or only observed, does not."""
    if not definition.is_materializable:
        return False
    output = definition.get_output_name_for_asset_key(key)
    return not definition.node_def.output_def_named(output).dagster_type.is_nothing


@dataclass(frozen=True)
class Naming:
    """How asset keys become names of tables."""

    default_namespace: str
    ignore_key_prefix: bool = False

    def table(self, key: Sequence[str]) -> TableIdentifier:
        return TableIdentifier.from_asset_key(list(key), self.default_namespace, ignore_prefix=self.ignore_key_prefix)


def table_of(key: Sequence[str], options: OutputOptions | InputOptions, naming: Naming) -> TableIdentifier:
    """The table of an asset key, or the one its metadata names."""
    if options.namespace is None and options.table is None:
        return naming.table(key)
    asset = "/".join(key)
    if options.table is not None and "." in options.table:
        raise ConfigurationError(
            f"asset {asset}: floe/table {options.table!r} has a dot; say the levels above as floe/namespace"
        )
    namespace, name = options.namespace, options.table
    if namespace is None or name is None:
        by_key = naming.table(key)
        namespace, name = namespace or ".".join(by_key.namespace), name or by_key.name
    try:
        return TableIdentifier.from_string(f"{namespace}.{name}")
    except ConfigurationError as exc:
        raise ConfigurationError(f"asset {asset}: {exc}") from None
