"""Which table an asset is stored in."""

from __future__ import annotations

from collections.abc import Sequence

from floe_core.errors import ConfigurationError
from floe_core.identifiers import TableIdentifier
from floe_dagster.options import InputOptions, OutputOptions

__all__ = ["table_of"]


def table_of(key: Sequence[str], options: OutputOptions | InputOptions, default_namespace: str) -> TableIdentifier:
    """The table of an asset key, or the one its metadata names."""
    if options.namespace is None and options.table is None:
        return TableIdentifier.from_asset_key(list(key), default_namespace)
    asset = "/".join(key)
    if options.table is not None and "." in options.table:
        raise ConfigurationError(
            f"asset {asset}: floe/table {options.table!r} has a dot; say the levels above as floe/namespace"
        )
    namespace, name = options.namespace, options.table
    if namespace is None or name is None:
        by_key = TableIdentifier.from_asset_key(list(key), default_namespace)
        namespace, name = namespace or ".".join(by_key.namespace), name or by_key.name
    try:
        return TableIdentifier.from_string(f"{namespace}.{name}")
    except ConfigurationError as exc:
        raise ConfigurationError(f"asset {asset}: {exc}") from None
