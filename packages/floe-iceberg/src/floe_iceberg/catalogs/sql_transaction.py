"""One transaction of the catalog database that changes several tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import StagedTable, Table
from pyiceberg.typedef import Identifier
from sqlalchemy import update
from sqlalchemy.orm import Session

from floe_iceberg.catalogs.table_changes import TableChange

if TYPE_CHECKING:
    from floe_iceberg.catalogs.storage_catalog import StorageCatalog

__all__ = ["commit_rows"]


@dataclass(frozen=True)
class _Row:
    """The row of a table: its metadata file before the transaction, and the metadata of a new one."""

    name: Identifier
    before: Table
    after: StagedTable | None  # None if the table is only read

    @property
    def order(self) -> tuple[str, str]:
        return Catalog.namespace_to_string(self.name[:-1]), self.name[-1]


def commit_rows(catalog: StorageCatalog, changes: Sequence[TableChange]) -> None:
    """Write the metadata files of all tables, then point their rows to them in one transaction of the database."""
    now = catalog.load_tables([change.table.name() for change in changes], [change.table for change in changes])
    current = {table.name(): table for table in now}
    rows = sorted((_staged(catalog, change, current) for change in changes), key=lambda row: row.order)
    written: list[StagedTable] = []
    try:
        for row in rows:
            if row.after is not None:
                written.append(row.after)
                catalog.write_metadata(row.after)
        session = Session(catalog.engine)
    except BaseException:
        _delete(written)
        raise
    with session:
        try:
            # In the order of their names: two transactions that lock the same rows wait for each other, and do not
            # deadlock.
            for row in rows:
                _move(session, catalog, row)
        except BaseException:
            session.rollback()
            _delete(written)
            raise
        session.commit()  # if this fails the outcome is unknown: the files stay
    for row in rows:
        if row.after is not None:
            catalog.delete_old_metadata(
                row.before.io, row.before.metadata, row.after.metadata, newest=row.after.metadata_location
            )


def _staged(catalog: StorageCatalog, change: TableChange, tables: Mapping[Identifier, Table]) -> _Row:
    name = change.table.name()
    if name not in tables:
        raise CommitFailedException(f"Table was dropped: {'.'.join(name)}")
    table = tables[name]
    staged = catalog.stage_update(table, name, change.requirements, change.updates)
    return _Row(name, table, staged if change.updates else None)


def _move(session: Session, catalog: StorageCatalog, row: _Row) -> None:
    """Point the row to its new metadata file. The row of a table that is only read is locked until the commit."""
    namespace, name = row.order
    location = row.before.metadata_location
    moved = update(IcebergTables).where(
        IcebergTables.catalog_name == catalog.name,
        IcebergTables.table_namespace == namespace,
        IcebergTables.table_name == name,
        IcebergTables.metadata_location == location,
    )
    values = (
        {"metadata_location": location}
        if row.after is None
        else {"metadata_location": row.after.metadata_location, "previous_metadata_location": location}
    )
    if session.connection().execute(moved.values(**values)).rowcount < 1:
        raise CommitFailedException(f"Table has been updated by another process: {namespace}.{name}")


def _delete(written: Sequence[StagedTable]) -> None:
    for staged in written:
        with suppress(Exception):  # a file that remains is an orphan, which maintenance removes
            staged.io.delete(staged.metadata_location)
