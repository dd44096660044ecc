"""Which table an asset is stored in."""

from __future__ import annotations

from collections.abc import Sequence

from floe_core.errors import ConfigurationError
from floe_core.identifiers import TableIdentifier
from floe_dagster.options import InputOptions, OutputOptions

__all__ = ["table_of"]


def table_of(key: Sequence[str], options: OutputOptions | InputOptions, default_namespace: str) -> TableIdentifier:
    """The table of an asset key, or the one its metadata names."""
    if options.table is not None and "." in options.table:
        raise ConfigurationError(
            f"asset {'/'.join(key)}: floe/table {options.table!r} has a dot; say the levels above as floe/namespace"
        )
    if options.namespace is not None and options.table is not None:
        return TableIdentifier.from_string(f"{options.namespace}.{options.table}")
    by_key = TableIdentifier.from_asset_key(list(key), default_namespace)
    namespace = options.namespace or ".".join(by_key.namespace)
    return TableIdentifier.from_string(f"{namespace}.{options.table or by_key.name}")
