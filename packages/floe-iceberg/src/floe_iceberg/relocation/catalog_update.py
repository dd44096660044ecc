"""Conditional updates of the rows of the catalog database."""

from __future__ import annotations

from pyiceberg.catalog.sql import IcebergNamespaceProperties, IcebergTables, SqlCatalog
from pyiceberg.typedef import Identifier
from sqlalchemy import CursorResult, Update, select, update
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from floe_core.errors import CommitStateUnknownError, ConcurrencyConflictError

__all__ = ["namespace_addresses", "point_to", "set_namespace_address", "view_rows"]


def point_to(catalog: SqlCatalog, name: Identifier, *, old: str, new: str, previous: str | None) -> None:
    """Let the row of a table name another metadata file, if it still names the one that was read.

    Raises:
        ConcurrencyConflictError: It names another file: nothing was changed.
        CommitStateUnknownError: The update failed, and the row cannot be read.

    Args:
        catalog: The catalog.
        name: The table.
        old: The metadata file that was read.
        new: The new metadata file.
        previous: The version before it.
    """
    row = (
        IcebergTables.catalog_name == catalog.name,
        IcebergTables.table_namespace == ".".join(name[:-1]),
        IcebergTables.table_name == name[-1],
    )
    change = update(IcebergTables).where(*row, IcebergTables.metadata_location == old)
    try:
        changed = _execute(catalog, change.values(metadata_location=new, previous_metadata_location=previous))
    except SQLAlchemyError as exc:
        try:
            with Session(catalog.engine) as session:
                changed = session.scalar(select(IcebergTables.metadata_location).where(*row)) == new
        except SQLAlchemyError:
            raise CommitStateUnknownError(
                f"the catalog did not confirm the new metadata of '{'.'.join(name)}', and its row cannot be read; no "
                f"file was deleted. Run floe move again: it goes on from what the catalog names"
            ) from exc
        if not changed:
            raise
    if not changed:
        raise ConcurrencyConflictError(
            f"'{'.'.join(name)}' was changed by another process while its paths were rewritten; nothing was changed. "
            f"End that process, and run floe move again"
        )


def _execute(catalog: SqlCatalog, change: Update) -> bool:
    with Session(catalog.engine) as session:
        result = session.execute(change)
        session.commit()
        return isinstance(result, CursorResult) and result.rowcount == 1


def namespace_addresses(catalog: SqlCatalog) -> list[tuple[str, str, str]]:
    """All properties of namespaces: namespace, key and value."""
    rows = select(
        IcebergNamespaceProperties.namespace,
        IcebergNamespaceProperties.property_key,
        IcebergNamespaceProperties.property_value,
    ).where(IcebergNamespaceProperties.catalog_name == catalog.name)
    with Session(catalog.engine) as session:
        return [(namespace, key, value) for namespace, key, value in session.execute(rows)]


def set_namespace_address(catalog: SqlCatalog, namespace: str, key: str, *, old: str, new: str) -> bool:
    """Set a property of a namespace, if it still has the value that was read; returns whether it had."""
    own = IcebergNamespaceProperties
    change = update(own).where(
        own.catalog_name == catalog.name,
        own.namespace == namespace,
        own.property_key == key,
        own.property_value == old,
    )
    return _execute(catalog, change.values(property_value=new))


def view_rows(catalog: SqlCatalog) -> dict[str, str]:
    """The views of the catalog, each with its metadata file."""
    rows = select(IcebergTables.table_namespace, IcebergTables.table_name, IcebergTables.metadata_location).where(
        IcebergTables.catalog_name == catalog.name, IcebergTables.iceberg_type == "VIEW"
    )
    with Session(catalog.engine) as session:
        return {f"{namespace}.{name}": location or "" for namespace, name, location in session.execute(rows)}
