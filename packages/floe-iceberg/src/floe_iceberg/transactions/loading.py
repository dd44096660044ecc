"""Load several tables: each as it is now, or all as they were at one moment."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier

from floe_core.errors import ConcurrencyConflictError, NamespaceNotFoundError, TableNotFoundError
from floe_core.identifiers import TableIdentifier
from floe_iceberg.backoff import ATTEMPTS, delay
from floe_iceberg.catalogs.storage_catalog import StorageCatalog
from floe_iceberg.errors import translated

__all__ = ["load_at_once", "load_each"]

_REQUESTS_AT_ONCE = 8


def load_each(catalog: Catalog, names: Sequence[TableIdentifier]) -> dict[TableIdentifier, Table | None]:
    """Each table as it is now; None for one that does not exist. Several requests to a server run at once."""
    if isinstance(catalog, StorageCatalog):
        with translated("load_table", ", ".join(map(str, names))):
            found = {table.name(): table for table in catalog.load_tables([_levels(name) for name in names])}
        return {name: found.get(_levels(name)) for name in names}

    def load(name: TableIdentifier) -> Table | None:
        try:
            with translated("load_table", name):
                return catalog.load_table(_levels(name))
        except (TableNotFoundError, NamespaceNotFoundError):
            return None

    if len(names) < 2:
        return {name: load(name) for name in names}
    with ThreadPoolExecutor(min(len(names), _REQUESTS_AT_ONCE), thread_name_prefix="floe-load") as pool:
        return dict(zip(names, pool.map(load, names), strict=True))


def load_at_once(
    catalog: Catalog, names: Sequence[TableIdentifier], known: Mapping[TableIdentifier, Table | None] | None = None
) -> dict[TableIdentifier, Table | None]:
    """All tables as they were at one moment; None for one that did not exist.

    One statement of a catalog database reads them all. From a server they are loaded until two passes agree: metadata
    files are not used twice, so nothing changed between the end of the first pass and the beginning of the second.

    Args:
        catalog: The catalog.
        names: The tables.
        known: The tables as the caller has just loaded them, one after the other.
    """
    if isinstance(catalog, StorageCatalog):
        with translated("load_table", ", ".join(map(str, names))):
            parsed = [table for table in (known or {}).values() if table is not None]
            found = {table.name(): table for table in catalog.load_tables([_levels(name) for name in names], parsed)}
        return {name: found.get(_levels(name)) for name in names}
    before = dict(known) if known is not None else load_each(catalog, names)
    if len(names) < 2:
        return before
    for number in range(1, ATTEMPTS + 1):
        now = load_each(catalog, names)
        if _state(before, names) == _state(now, names):
            return now
        before = now
        time.sleep(delay(number) / 10)
    listed = ", ".join(f"'{name}'" for name in names)
    raise ConcurrencyConflictError(
        f"other writers changed {listed} faster than they could be read together: "
        f"read them again, or read each at a snapshot"
    )


def _state(tables: Mapping[TableIdentifier, Table | None], names: Sequence[TableIdentifier]) -> list[str | None]:
    return [None if (table := tables[name]) is None else table.metadata_location for name in names]


def _levels(name: TableIdentifier) -> Identifier:
    return (*name.namespace, name.name)
