"""The tables of a query, found in the catalog: all as they were at one moment."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pyiceberg.schema import Schema
from pyiceberg.table import Table

from floe_core.errors import ConfigurationError, FloeError, TableNotFoundError
from floe_core.identifiers import TableIdentifier
from floe_core.models import StorageErrorDetail
from floe_iceberg.query.parsing import ParsedQuery, TableUse
from floe_iceberg.query.text import problem
from floe_iceberg.query.time_travel import TimeTravel
from floe_iceberg.reading import scan
from floe_iceberg.snapshots import find_snapshot, moment_of

__all__ = ["FoundTable", "Tables", "find_tables"]

# What Iceberg's Spark catalog offers below the name of a table.
_METADATA_TABLES = {
    *("snapshots", "history", "files", "data_files", "delete_files", "manifests", "partitions", "refs", "entries"),
    *("metadata_log_entries", "all_data_files", "all_delete_files", "all_files", "all_manifests", "all_entries"),
    *("position_deletes", "changes"),
}


class Tables(Protocol):
    """The part of an IcebergTableManager that a query needs."""

    @property
    def catalog_name(self) -> str: ...

    def find_table(self, identifier: TableIdentifier) -> Table | None: ...

    def load_at_once(
        self, identifiers: Collection[TableIdentifier], *, known: Mapping[TableIdentifier, Table]
    ) -> Mapping[TableIdentifier, Table]: ...

    def similar_tables(self, name: str) -> list[str]: ...

    def as_shown(self, table: Table, identifier: TableIdentifier) -> Table: ...


@dataclass(frozen=True)
class FoundTable:
    """A table as a query reads it: `snapshot_id` is set for time travel only."""

    identifier: TableIdentifier
    table: Table
    snapshot_id: int | None

    @property
    def key(self) -> tuple[str, int | None]:
        return str(self.identifier), self.snapshot_id

    @property
    def schema(self) -> Schema:
        """The columns: the current ones, or those of the snapshot."""
        return scan(self.table, self.identifier, snapshot_id=self.snapshot_id, traced=False).projection()

    @property
    def read_snapshot_id(self) -> int | None:
        """The snapshot that is read; None if the table has none yet."""
        if self.snapshot_id is not None:
            return self.snapshot_id
        head = self.table.current_snapshot()
        return None if head is None else head.snapshot_id


def find_tables(tables: Tables, query: ParsedQuery, *, metadata_tables: bool = False) -> list[FoundTable]:
    """The table of each occurrence in the query, in their order.

    Args:
        metadata_tables: Whether the engine has tables such as `bronze.orders.snapshots`; the result has their parents.
    """
    loaded: dict[TableIdentifier, Table] = {}
    named: list[tuple[TableUse, TableIdentifier]] = []
    for use in query.tables:
        identifier, is_metadata = _identifier(tables, query, use, loaded)
        if is_metadata and not metadata_tables:
            raise problem(
                query.text,
                use.start,
                f"{use.name!r} is a metadata table, which only Spark has: --engine spark. Without it: floe tables "
                f"history, files and partitions",
            )
        named.append((use, identifier))
    together = tables.load_at_once(list(loaded), known=loaded) if len(loaded) > 1 else loaded
    found = []
    for use, identifier in named:
        table = together[identifier] if use.travel is not None else tables.as_shown(together[identifier], identifier)
        snapshot_id = None if use.travel is None else _snapshot_id(query.text, table, identifier, use.travel)
        found.append(FoundTable(identifier, table, snapshot_id))
    return found


def _identifier(
    tables: Tables, query: ParsedQuery, use: TableUse, loaded: dict[TableIdentifier, Table]
) -> tuple[TableIdentifier, bool]:
    """The table that a name means, loaded; and whether the name means a metadata table of it."""
    parts = use.parts
    if len(parts) == 1:
        near = _similar(tables, use.name)
        hint = f"; did you mean {' or '.join(near)}?" if near else f": write it as namespace.{use.name}"
        raise problem(query.text, use.start, f"table {use.name!r} has no namespace{hint}")
    within = len(parts) > 2 and parts[0] == tables.catalog_name
    for names in (parts[1:], parts) if within else (parts,):
        identifier = _named(query, use, names)
        if identifier in loaded or _load(tables, identifier, loaded):
            return identifier, False
    parent = parts[1:-1] if within else parts[:-1]
    if parts[-1] in _METADATA_TABLES and len(parent) > 1:
        identifier = _named(query, use, parent)
        if identifier in loaded or _load(tables, identifier, loaded):
            return identifier, True
    raise _not_found(tables, query, use)


def _named(query: ParsedQuery, use: TableUse, names: Sequence[str]) -> TableIdentifier:
    try:
        return TableIdentifier.from_string(".".join(names))
    except ConfigurationError as exc:
        raise problem(query.text, use.start, str(exc)) from exc


def _load(tables: Tables, identifier: TableIdentifier, loaded: dict[TableIdentifier, Table]) -> bool:
    table = tables.find_table(identifier)
    if table is not None:
        loaded[identifier] = table
    return table is not None


def _not_found(tables: Tables, query: ParsedQuery, use: TableUse) -> TableNotFoundError:
    near = _similar(tables, use.name)
    hint = f"did you mean {' or '.join(near)}?" if near else "list what is there with: floe tables list"
    message = str(problem(query.text, use.start, f"table {use.name!r} not found in the catalog; {hint}"))
    detail = StorageErrorDetail(
        error_type="TableNotFoundError", operation="sql", table=use.name, message=message, retryable=False
    )
    return TableNotFoundError(message, detail=detail)


def _similar(tables: Tables, name: str) -> list[str]:
    try:
        return tables.similar_tables(name)
    except FloeError:  # the catalog lets this user load tables, but not list them
        return []


def _snapshot_id(text: str, table: Table, identifier: TableIdentifier, travel: TimeTravel) -> int:
    try:
        revision = moment_of(str(travel.value)) if travel.by_time else travel.value
        return find_snapshot(table, identifier, revision).snapshot_id
    except ConfigurationError as exc:
        raise problem(text, travel.start, str(exc)) from exc
