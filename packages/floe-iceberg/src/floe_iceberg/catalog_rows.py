"""The rows of a catalog database. Several catalogs may share it, each with a name of its own."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from pyiceberg.catalog.sql import ICEBERG_TABLE_TYPE, IcebergTables, SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier
from sqlalchemy import ColumnElement, func, or_, select, true, tuple_
from sqlalchemy.exc import OperationalError, ProgrammingError
from sqlalchemy.orm import InstrumentedAttribute, Session

from floe_iceberg._pyiceberg.sql_catalog import file_io_of

__all__ = [
    "RowName",
    "load_previous",
    "load_row",
    "newest_locations",
    "previous_locations",
    "table_rows",
    "tables_by_catalog",
]


@dataclass(frozen=True)
class RowName:
    """The name of a table and, for a table of another catalog, the name of that catalog."""

    name: Identifier
    catalog: str | None = None

    def __str__(self) -> str:
        return ".".join(self.name) + (f" (catalog {self.catalog})" if self.catalog is not None else "")


def table_rows(catalog: SqlCatalog) -> dict[RowName, str]:
    """The tables of all catalogs in the database, each with the location of its newest metadata file."""
    rows = select(
        IcebergTables.catalog_name,
        IcebergTables.table_namespace,
        IcebergTables.table_name,
        IcebergTables.metadata_location,
    )
    with Session(catalog.engine) as session:
        found = session.execute(rows.where(_is_table(session)))
        return {
            RowName((*namespace.split("."), name), None if owner == catalog.name else owner): metadata or ""
            for owner, namespace, name, metadata in found
        }


def newest_locations(catalog: SqlCatalog, names: Collection[Identifier]) -> dict[Identifier, str]:
    """The newest metadata files of these tables of the catalog, all at one moment: by one statement."""
    key = tuple_(IcebergTables.table_namespace, IcebergTables.table_name)
    rows = select(IcebergTables.table_namespace, IcebergTables.table_name, IcebergTables.metadata_location).where(
        IcebergTables.catalog_name == catalog.name, key.in_([(".".join(levels), name) for *levels, name in names])
    )
    with Session(catalog.engine) as session:
        found = session.execute(rows.where(_is_table(session)))
        return {(*namespace.split("."), name): metadata or "" for namespace, name, metadata in found}


def previous_locations(catalog: SqlCatalog) -> set[str]:
    """The metadata files that rows of the database name as the version before their newest one."""
    with Session(catalog.engine) as session:
        found = session.scalars(select(IcebergTables.previous_metadata_location))
        return {location for location in found if location}


def tables_by_catalog(catalog: SqlCatalog) -> dict[str, int]:
    """How many tables each catalog in the database has."""
    counts = select(IcebergTables.catalog_name, func.count()).group_by(IcebergTables.catalog_name)
    with Session(catalog.engine) as session:
        return {row[0]: row[1] for row in session.execute(counts.where(_is_table(session)))}


def _is_table(session: Session) -> ColumnElement[bool]:
    """Views are rows too, in a database with the column `iceberg_type`; Spark adds it where it is missing."""
    kind = IcebergTables.iceberg_type
    try:
        session.execute(select(kind).limit(0))
    except (OperationalError, ProgrammingError):
        session.rollback()
        return true()
    return or_(kind.is_(None), kind == ICEBERG_TABLE_TYPE)


def load_row(catalog: SqlCatalog, row: RowName) -> Table:
    """A table of any catalog in the database, as it is now."""
    if row.catalog is None:
        return catalog.load_table(row.name)
    return _load(catalog, row, IcebergTables.metadata_location)


def load_previous(catalog: SqlCatalog, row: RowName) -> Table:
    """The table as it was before its last commit, for one whose newest metadata cannot be read."""
    return _load(catalog, row, IcebergTables.previous_metadata_location)


def _load(catalog: SqlCatalog, row: RowName, column: InstrumentedAttribute[str | None]) -> Table:
    *namespace, name = row.name
    query = select(column).where(
        IcebergTables.catalog_name == (row.catalog or catalog.name),
        IcebergTables.table_namespace == ".".join(namespace),
        IcebergTables.table_name == name,
    )
    with Session(catalog.engine) as session:
        location = session.scalar(query)
    if not location:
        raise NoSuchTableError(str(row))
    io = file_io_of(catalog, location)
    metadata = FromInputFile.table_metadata(io.new_input(location))
    return Table(row.name, metadata, location, io, catalog)
