"""Which rows of the catalog were recorded when the warehouse was in another folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog

from floe_core.errors import FloeStorageError
from floe_iceberg.catalogs.sql import SqlCatalogPlugin
from floe_iceberg.catalogs.sqlite import SqliteFile
from floe_iceberg.files.former_folders import former_folder, is_below, local_address, old_folder
from floe_iceberg.manager import IcebergTableManager
from floe_iceberg.relocation.contents import file_size
from floe_iceberg.relocation.metadata_files import read_document
from floe_iceberg.relocation.paths import MovedFolder, MovedPaths
from floe_iceberg.storage.local import LocalStoragePlugin

__all__ = ["EmbeddedLake", "embedded_lake", "why_not_embedded"]


@dataclass(frozen=True)
class EmbeddedLake:
    """A lake of local files whose catalog is an SQLite file: all that `floe move` rewrites."""

    catalog: SqlCatalog
    database: Path
    warehouse: str
    project: str | None

    def paths_of(self, old: str) -> MovedPaths:
        """The mapping of addresses, given the folder that the warehouse was."""
        warehouse = MovedFolder(old, self.warehouse)
        before = warehouse.shared_parent().path_before(self.project) if self.project is not None else None
        project = MovedFolder(before, self.project) if before and self.project is not None else None
        return MovedPaths(warehouse, project)

    def moved_from(self, recorded: str) -> str | None:
        """The folder that the warehouse was when the metadata file of a table was recorded; None if it is in place.

        A table that was registered after the move has a new metadata address, and its old location.

        Raises:
            FloeStorageError: The metadata file is neither at its address nor in the warehouse.

        Args:
            recorded: The address of the metadata file, as the catalog has it.
        """
        path = local_address(recorded)
        if path is None:
            return None
        if file_size(recorded) is not None and self.is_here(recorded):
            location = str(read_document(path)["location"])
            return self._old_warehouse(partial(former_folder, location, [recorded]))
        old = self._old_warehouse(partial(old_folder, recorded))
        if old is None and file_size(recorded) is None:
            raise FloeStorageError(
                f"missing: {recorded}, and no file of that name is below {self.warehouse}; restore it, or drop the "
                f"table with: floe tables drop"
            )
        return old

    def own_version(self, recorded: str) -> str | None:
        """The newest metadata file here of a table whose metadata file is in the original; None if it has none here.

        It has one if it was committed to before this copy got paths of its own: such a commit goes to the original.

        Args:
            recorded: The address of the metadata file elsewhere, as the catalog has it.
        """
        path = local_address(recorded)
        log = read_document(path).get("metadata-log") or () if path is not None else ()
        for address in (str(entry["metadata-file"]) for entry in reversed(log)):
            old = None if self.is_here(address) else self._old_warehouse(partial(old_folder, address))
            paths = self.paths_of(old) if old is not None else None
            if paths is not None and paths.is_in_old_project(recorded):
                return paths.new(address)
        return None

    def is_here(self, address: str) -> bool:
        """Does an address lie in the warehouse or in the project?"""
        path = local_address(address)
        folders = [self.warehouse, *([self.project] if self.project is not None else [])]
        return path is not None and any(is_below(path, folder) for folder in folders)

    def _old_warehouse(self, find: Callable[[str], str | None]) -> str | None:
        """The old folder that is found for the warehouse; or for the project, with which the warehouse moved."""
        old = find(self.warehouse)
        if old is not None or self.project is None or not is_below(self.warehouse, self.project):
            return old
        before = find(self.project)
        return f"{before}{self.warehouse[len(self.project) :]}" if before is not None else None


def why_not_embedded(tables: IcebergTableManager) -> str | None:
    """Why the paths of this lake are not rewritten, and what to do instead; None for an embedded lake."""
    kind = tables.catalog_plugin.metadata.name
    if not isinstance(tables.storage_plugin, LocalStoragePlugin):
        return (
            f"the tables are in the storage {tables.storage_plugin.metadata.name!r}, which does not move with a "
            f"folder. To move them to another place, copy them with Spark's procedure rewrite_table_path, and register "
            f"the copies with: floe tables register"
        )
    if not isinstance(tables.catalog_plugin, SqlCatalogPlugin):
        return (
            f"the {kind} catalog is a server, which has the locations of the tables and shares them with other "
            f"clients. Move the files back to where the catalog expects them, or copy the tables with Spark's "
            f"procedure rewrite_table_path and register the copies with: floe tables register"
        )
    if not isinstance(tables.catalog_plugin.database, SqliteFile):
        return (
            "the catalog is in PostgreSQL, where other machines use the same locations. Move the files back to where "
            "the catalog expects them, or copy the tables with Spark's procedure rewrite_table_path and register the "
            "copies with: floe tables register"
        )
    return None


def embedded_lake(tables: IcebergTableManager) -> EmbeddedLake:
    """The lake of open tables; FloeStorageError if it is not an embedded one."""
    plugin, storage = tables.catalog_plugin, tables.storage_plugin
    reason = why_not_embedded(tables)
    if (
        reason is not None
        or not isinstance(plugin, SqlCatalogPlugin)
        or not isinstance(storage, LocalStoragePlugin)
        or not isinstance(database := plugin.database, SqliteFile)
    ):
        raise FloeStorageError(reason or "this is not an embedded lake")
    root = str(tables.artifacts.root.resolve()) if tables.artifacts is not None else None
    return EmbeddedLake(plugin.connect(), database.path, str(storage.path), root)
