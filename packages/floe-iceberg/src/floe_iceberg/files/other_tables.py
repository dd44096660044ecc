"""The other tables of a catalog: whether files that are to be deleted belong to one of them too."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier

from floe_core.errors import FloeStorageError
from floe_core.identifiers import TableIdentifier
from floe_iceberg.catalog_rows import RowName
from floe_iceberg.files.containment import file_key, file_keys, may_be_below
from floe_iceberg.files.known_files import advice
from floe_iceberg.files.known_tables import KnownTables, Place, ReadTable, Unreadable, is_below
from floe_iceberg.files.unreadable import is_missing

__all__ = ["Neighbours"]


class Neighbours:
    """Checks against the other tables; `known_tables` documents how stale their results may be.

    `references` is the last check before files are deleted; it sees tables that were created since the others.

    Args:
        names: Lists all tables, given the namespaces of the tables in question.
        read: What was read of them before; what is read now is added.
    """

    def __init__(
        self,
        catalog: Catalog,
        names: Callable[[Collection[Identifier]], Iterable[Identifier]],
        read: dict[RowName, ReadTable] | None = None,
    ) -> None:
        self._tables = KnownTables(catalog, names, {} if read is None else read)

    def refuse_same(self, table: Table, identifier: TableIdentifier) -> None:
        """Refuse a table that is registered twice: both names share the same files.

        A table whose files are gone, or that this user may not see, is not taken for its twin.
        """
        others, unreadable = self._others(identifier)
        for name, failed in unreadable.items():
            if name.catalog is None and not is_missing(failed.reason) and failed.may_share(table):
                raise FloeStorageError(
                    f"it is unknown whether '{name}' is the same table as '{identifier}', because it cannot be "
                    f"loaded: {failed.reason}. Nothing was deleted; {advice(failed.reason, name)}"
                )
        for other in others:
            if other.uuid == table.metadata.table_uuid:
                raise FloeStorageError(
                    f"'{other}' is the same table as '{identifier}': a file that one of the two no longer needs may be "
                    f"in use by the other. Nothing was deleted; drop one of the names without purge first"
                )

    def refuse_used(self, identifier: TableIdentifier, files: Callable[[], Iterable[str]]) -> None:
        """Refuse files that a table of another catalog in the database uses too, such as one added to both."""
        others = [place for place in self._others(identifier)[0] if place.name.catalog is not None]
        paths = file_keys(files()) if others else {}
        for other in others:
            for key in self._shared(other, paths):
                raise FloeStorageError(
                    f"{paths[key][0]} of '{identifier}' belongs to '{other}' too, in the same database; nothing was "
                    f"deleted. Rewrite the files of one of the two tables first, or drop '{identifier}' without purge"
                )

    def refuse_unreadable(self, identifier: TableIdentifier) -> None:
        """Refuse while a table of another catalog cannot be loaded: it may use files of this one."""
        for name, failed in self._others(identifier)[1].items():
            if name.catalog is not None:
                raise FloeStorageError(
                    f"'{name}' in the same database cannot be loaded, so it is not known whether it uses files of "
                    f"'{identifier}': {failed.reason}. Nothing was deleted; give Floe access to that table, or "
                    f"drop its row from the catalog that owns it"
                )

    def refuse_below(self, table: Table, identifier: TableIdentifier) -> None:
        """Refuse a location with files of another table in or below it: they would look like orphans."""
        others, unreadable = self._others(identifier)
        for name, failed in unreadable.items():
            if name.catalog is not None or failed.may_share(table):
                raise FloeStorageError(
                    f"'{name}' cannot be loaded, and its files must not be taken for orphans of '{identifier}': "
                    f"{type(failed.reason).__name__}: {failed.reason}. Nothing was deleted; "
                    f"{advice(failed.reason, name)}"
                )
        for other in others:
            if any(may_be_below(path, table.location()) for path in (other.location, *other.paths)):
                raise FloeStorageError(
                    f"files of '{other}' lie in or below the location of '{identifier}', where they would look like "
                    f"orphans; nothing was deleted. Give one of the tables another location"
                )

    def references(
        self, identifier: TableIdentifier, files: Iterable[str], *, planning: bool = False
    ) -> dict[str, str]:
        """The files that another table references too, each with the name of that table.

        A table that this user may not load is not checked. A damaged table is checked by its previous metadata, if the
        catalog is a database. Any other table that cannot be loaded is an error.

        Args:
            planning: No file is deleted based on the result.
        """
        paths = file_keys(files)
        if not paths:
            return {}
        others, unreadable = self._others(identifier, deleting=not planning)
        users = {key: str(other) for other in others for key in self._shared(other, paths)}
        for name, failed in unreadable.items():
            self._tables.refuse_unknown(name, failed)
            users |= {key: str(name) for key in self._tables.files_before(name) & paths.keys()}
        return {path: name for key, name in users.items() for path in paths[key]}

    def refuse_unknown(self, identifier: TableIdentifier) -> None:
        """Raise the errors that `references` would raise for any file."""
        others, unreadable = self._others(identifier)
        for name, failed in unreadable.items():
            self._tables.refuse_unknown(name, failed)
            self._tables.files_before(name)
        for other in others:
            self._tables.strays(other)

    def _shared(self, other: Place, keys: Mapping[str, list[str]]) -> set[str]:
        """The keys of files that are also in the metadata of another table."""
        location = file_key(other.location)
        inside = {key for key in keys if is_below(key, location)}
        if not inside:
            return self._tables.strays(other) & keys.keys()
        files = self._tables.files(other)
        # The files of a manifest that cannot be read are unknown: any file there may be one of them.
        return (set(file_keys(files.paths)) & keys.keys()) | (set() if files.complete else inside)

    def _others(
        self, identifier: TableIdentifier, *, deleting: bool = False
    ) -> tuple[list[Place], dict[RowName, Unreadable]]:
        own = RowName((*identifier.namespace, identifier.name))
        places, unreadable = self._tables.tables(own, deleting=deleting)
        return [place for place in places if place.name != own], unreadable
