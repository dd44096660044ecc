"""What `floe move` would do: the tables whose folder moved, and whether their paths can be rewritten."""

from __future__ import annotations

import shlex
import sqlite3
from dataclasses import dataclass, field

from pyiceberg.table import Table

from floe_core.errors import FloeError
from floe_core.formatting import counted
from floe_iceberg._pyiceberg.sql_catalog import holds_views
from floe_iceberg.catalog_rows import table_rows
from floe_iceberg.errors import translated
from floe_iceberg.files.former_folders import local_address
from floe_iceberg.maintenance.leases import holder_of
from floe_iceberg.manager import IcebergTableManager
from floe_iceberg.relocation.catalog_update import namespace_addresses, view_rows
from floe_iceberg.relocation.contents import FilesElsewhere, file_size
from floe_iceberg.relocation.discovery import EmbeddedLake, embedded_lake, why_not_embedded
from floe_iceberg.relocation.moved_table import MovedTable, load_moved
from floe_iceberg.relocation.originals import original_tables
from floe_iceberg.relocation.paths import MovedPaths
from floe_iceberg.snapshots.timestamps import now_ms

__all__ = ["MovePlan", "NamespaceMove", "Refusal", "TableMove", "plan_moves"]

_NAMED = 10  # problems listed per table


@dataclass(frozen=True)
class TableMove:
    """A table whose paths can be rewritten."""

    table: str
    recorded: str  # the address of its metadata file
    old_folder: str
    snapshots: int
    files: int  # data and delete files, which are not copied
    written: int  # files that are written again
    bytes: int
    outside: int  # referenced files that did not move


@dataclass(frozen=True)
class Refusal:
    """A table whose paths are not rewritten, and the reasons."""

    table: str
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class NamespaceMove:
    """A property of a namespace that names the old folder."""

    namespace: str
    key: str
    old: str
    new: str


@dataclass(frozen=True)
class MovePlan:
    """What would be rewritten, and what would not."""

    warehouse: str = ""
    moves: tuple[TableMove, ...] = ()
    refused: tuple[Refusal, ...] = ()
    namespaces: tuple[NamespaceMove, ...] = ()
    in_place: int = 0
    elsewhere: dict[str, str] = field(default_factory=dict)  # tables in other folders, which stay as they are
    others: dict[str, int] = field(default_factory=dict)  # moved tables of other catalogs in the database
    not_embedded: str | None = None  # why nothing here can be rewritten

    @property
    def old_folders(self) -> tuple[str, ...]:
        """The folders that the warehouse was when the tables were recorded."""
        return tuple(sorted({move.old_folder for move in self.moves}))


def plan_moves(tables: IcebergTableManager, *, copy: bool = False) -> MovePlan:
    """Find the tables of a lake whose folder moved, and check every file that they reference. Nothing is changed.

    Args:
        tables: The open tables of the project.
        copy: This lake is a copy, and the original stays in use. Otherwise a lake whose original exists is refused.

    Example:
        >>> from floe_iceberg.relocation import plan_moves
        >>> _ = tables.write_data("bronze.orders", pa.table({"id": [1]}), mode="append")
        >>> plan = plan_moves(tables)
        >>> plan.moves, plan.in_place
        ((), 1)
    """
    reason = why_not_embedded(tables)
    if reason is not None:
        return MovePlan(not_embedded=reason)
    with translated("move", tables.catalog_name, namespace=True):
        return _Planning(embedded_lake(tables), copy).plan()


class _Planning:
    def __init__(self, lake: EmbeddedLake, copy: bool) -> None:
        self._lake = lake
        self._copy = copy
        self._originals: dict[str, str | None] = {}
        self._moves: list[TableMove] = []
        self._refused: list[Refusal] = []
        self._elsewhere: dict[str, str] = {}
        self._others: dict[str, int] = {}
        self._in_place = 0
        self._old: set[str] = set()

    def plan(self) -> MovePlan:
        for row, recorded in sorted(table_rows(self._lake.catalog).items(), key=lambda item: str(item[0])):
            if row.catalog is None:
                self._examine(".".join(row.name), recorded)
            elif file_size(recorded) is None and self._was_moved(recorded):
                self._others[row.catalog] = self._others.get(row.catalog, 0) + 1
        self._refuse_those_in_the_original()
        self._refuse_views()
        return MovePlan(
            self._lake.warehouse,
            tuple(self._moves),
            tuple(self._refused),
            tuple(self._namespaces()),
            self._in_place,
            self._elsewhere,
            self._others,
        )

    def _was_moved(self, recorded: str) -> bool:
        try:
            return self._lake.moved_from(recorded) is not None
        except (FloeError, OSError):  # its file is gone, or damaged
            return False

    def _examine(self, name: str, recorded: str) -> None:
        try:
            old = self._lake.moved_from(recorded)
            if old is None:
                if self._lake.is_here(recorded):
                    self._in_place += 1
                elif (own := self._own_version(recorded)) is not None:
                    self._refused.append(Refusal(name, (_way_back(name, recorded, own),)))
                else:
                    self._elsewhere[name] = recorded
                return
            self._old.add(old)
            self._plan_table(name, load_moved(recorded, self._lake.paths_of(old)))
        except (FloeError, OSError, ValueError) as exc:  # damaged metadata: the other tables can be moved
            self._refused.append(Refusal(name, (str(exc),)))

    def _own_version(self, recorded: str) -> str | None:
        try:
            return self._lake.own_version(recorded)
        except (FloeError, OSError):  # a table of another lake, which may be damaged
            return None

    def _refuse_those_in_the_original(self) -> None:
        """Refuse tables in the folder that others move from: commits to them would go there."""
        originals = [self._lake.paths_of(old) for old in sorted(self._old)]
        for name, recorded in list(self._elsewhere.items()):
            if any(paths.is_in_old_project(recorded) for paths in originals):
                self._refused.append(Refusal(name, (_way_back(name, self._elsewhere.pop(name), None),)))

    def _plan_table(self, name: str, table: MovedTable) -> None:
        old = table.paths.warehouse.old
        reasons = [reason for reason in (self._original(old), self._lease(table)) if reason is not None]
        problems = list(table.problems(is_copy=self._copy))
        reasons += problems[:_NAMED]
        if len(problems) > _NAMED:
            reasons.append(f"and {counted(len(problems) - _NAMED, 'more problem')} of its files")
        if table.contents.problems:
            reasons.append("restore the files, or drop the table with floe tables drop; then run floe move again")
        if reasons:
            self._refused.append(Refusal(name, tuple(reasons)))
            return
        written = table.written_again()
        self._moves.append(
            TableMove(
                table=name,
                recorded=table.recorded,
                old_folder=old,
                snapshots=len(table.metadata.snapshots),
                files=len(table.contents.files),
                written=len(written),
                bytes=sum(file_size(address) or 0 for address in written),
                outside=len(table.outside()),
            )
        )

    def _original(self, old: str) -> str | None:
        """Why a copy is refused: a table of both lakes would otherwise seem to be one that moved."""
        if self._copy:
            return None
        if old not in self._originals:
            self._originals[old] = self._why_copy(self._lake.paths_of(old))
        return self._originals[old]

    def _why_copy(self, paths: MovedPaths) -> str | None:
        consent = "To give the copy paths of its own, so that both can be used, say --copy"
        try:
            names = original_tables(self._lake.database, self._lake.catalog.name, paths.warehouse)
        except (sqlite3.Error, OSError) as exc:
            return (
                f"the original lake at {paths.warehouse.old} exists, but its catalog cannot be read ({exc}). {consent}"
            )
        if not names:
            return None
        return (
            f"this is a copy: the original at {paths.warehouse.old} exists, and its catalog has the tables. {consent}"
        )

    def _lease(self, table: MovedTable) -> str | None:
        io = FilesElsewhere(table.paths.new)
        holder = holder_of(Table(("",), table.metadata, table.recorded, io, self._lake.catalog))
        if holder is None or holder.until_ms <= now_ms():
            return None
        return f"being maintained by {holder.name} until {holder.until.isoformat(timespec='seconds')}: wait until then"

    def _refuse_views(self) -> None:
        for name, recorded in view_rows(self._lake.catalog).items() if holds_views(self._lake.catalog) else ():
            if self._was_moved(recorded):
                self._refused.append(
                    Refusal(name, ("a view, which Floe does not rewrite: create it again with Spark",))
                )

    def _namespaces(self) -> list[NamespaceMove]:
        mappings = [self._lake.paths_of(old) for old in sorted(self._old)]
        return [
            NamespaceMove(namespace, key, value, paths.new(value))
            for namespace, key, value in namespace_addresses(self._lake.catalog)
            for paths in mappings
            if paths.is_old(value)
        ]


def _way_back(name: str, recorded: str, own: str | None) -> str:
    """How to go on with a table that the catalog of a copy has in the original."""
    problem = f"its metadata file {recorded} is in the original of this lake, and not here"
    if own is None:
        return f"{problem}. To take it out of this catalog, run: floe tables drop {name}"
    file = shlex.quote(local_address(own) or own)
    return (
        f"{problem}: it was changed there before this lake had paths of its own. To go on from the newest version "
        f"here, run: floe tables drop {name}; floe tables register {name} {file}; and floe move again"
    )
