"""Rewriting the paths of one table, and of namespaces: what the catalog names is either old or new."""

from __future__ import annotations

from floe_core.errors import ConcurrencyConflictError, FloeStorageError
from floe_core.observability import operation
from floe_iceberg.errors import translated
from floe_iceberg.manager import IcebergTableManager
from floe_iceberg.relocation.catalog_update import point_to, set_namespace_address
from floe_iceberg.relocation.discovery import embedded_lake
from floe_iceberg.relocation.moved_table import load_moved
from floe_iceberg.relocation.plan import NamespaceMove, TableMove
from floe_iceberg.relocation.rewrite import TableRewrite
from floe_iceberg.relocation.verification import verify

__all__ = ["move_namespace", "move_table"]


def move_table(tables: IcebergTableManager, move: TableMove, *, copy: bool = False) -> str:
    """Rewrite the paths of a table, verify the result, and let the catalog name it. Returns the new metadata address.

    New files are written beside the old ones, which are neither changed nor deleted: maintenance removes them later, as
    orphans. If it is interrupted before the catalog names the new metadata, the table is as it was.

    Raises:
        ConcurrencyConflictError: Another process changed the table.
        FloeStorageError: Files are missing, or cannot be rewritten.

    Args:
        tables: The open tables of the project.
        move: The table, as planned.
        copy: As for the plan.

    Example:
        >>> from floe_iceberg.relocation import move_table, plan_moves
        >>> [move_table(tables, move) for move in plan_moves(tables).moves]
        []
    """
    lake = embedded_lake(tables)
    name = tuple(move.table.split("."))
    with operation("iceberg.move_table", table=move.table) as span, translated("move", move.table):
        table = load_moved(move.recorded, lake.paths_of(move.old_folder))
        problems = list(table.problems(is_copy=copy))
        if problems:
            raise FloeStorageError(f"the paths of '{move.table}' were not rewritten: {problems[0]}")
        rewrite = TableRewrite(table.document, table.paths)
        try:
            address, previous = rewrite.write(table.contents, move.recorded)
            verify(move.table, address, old=table.metadata, before=table.contents, paths=table.paths)
        except BaseException:
            rewrite.discard()
            raise
        try:
            point_to(lake.catalog, name, old=move.recorded, new=address, previous=previous)
        except ConcurrencyConflictError:  # after any other error, the catalog may name the new files
            rewrite.discard()
            raise
        span.set(files=len(rewrite.written), metadata=address)
    return address


def move_namespace(tables: IcebergTableManager, move: NamespaceMove) -> None:
    """Rewrite a property of a namespace that names the old folder, such as the location of its new tables.

    Args:
        tables: The open tables of the project.
        move: The property, as planned.

    Example:
        >>> from floe_iceberg.relocation import move_namespace, plan_moves
        >>> [move_namespace(tables, move) for move in plan_moves(tables).namespaces]
        []
    """
    with translated("move", move.namespace, namespace=True):
        catalog = embedded_lake(tables).catalog
        if not set_namespace_address(catalog, move.namespace, move.key, old=move.old, new=move.new):
            raise ConcurrencyConflictError(
                f"property {move.key!r} of namespace {move.namespace!r} was changed by another process: run floe move "
                f"again"
            )
