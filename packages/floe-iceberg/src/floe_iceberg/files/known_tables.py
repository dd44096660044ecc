"""The tables of a catalog as last loaded, their locations, and their files outside of these.

How stale that may be:

- With a catalog database, each query reads all rows. A table is loaded again if its row has changed.
- With a catalog server, the names and each table take a request, so a response is valid for five minutes: for a plan,
  counted from the end of the scan of all tables, which can take longer than that.
- Before a deletion the server lists the names again, and each table was loaded at most five minutes before the query
  began. This protects a file that a new table has just taken over, and one that an existing table took over earlier. A
  file that an existing table takes over within these minutes can be deleted: do not raise the limit.
- What was read of a table is valid for all callers as long as its metadata is the same file. What could not be read is
  read again by the next query.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier

from floe_core.errors import FloeStorageError
from floe_iceberg.catalog_rows import RowName, load_previous, load_row, table_rows
from floe_iceberg.files.containment import file_key, file_keys, may_overlap
from floe_iceberg.files.known_files import PATHS, KnownFiles, advice, read_files
from floe_iceberg.files.reachable import present_files
from floe_iceberg.files.unreadable import is_hidden, is_lasting

__all__ = ["KnownTables", "Place", "ReadTable", "Unreadable", "is_below"]

_VALID_SECONDS = 300.0
# Tables are held until their files are read, up to this many snapshots in all: some have many megabytes of metadata.
_HELD_SNAPSHOTS = 20_000


@dataclass(frozen=True)
class Place:
    """One table and its location."""

    name: RowName
    uuid: UUID | None
    location: str
    paths: frozenset[str]

    def __str__(self) -> str:
        return str(self.name)


@dataclass(frozen=True)
class Unreadable:
    """A table that cannot be loaded, and its location if the catalog has it."""

    reason: Exception
    place: Place | None

    @property
    def is_permanent(self) -> bool:
        """Is the reason permanent? Then the entry in the catalog is all that can be known."""
        return is_lasting(self.reason)

    def may_share(self, table: Table) -> bool:
        """Could it share files with this table, according to the catalog?

        A table that this user may not load is not checked; an overlap that the catalog shows counts all the same.
        """
        if self.place is None:
            return not is_hidden(self.reason)
        if not self.is_permanent or self.place.uuid == table.metadata.table_uuid:
            return True
        return any(may_overlap(path, table.location()) for path in (self.place.location, *self.place.paths))


def _place_of(name: RowName, table: Table) -> Place:
    paths = frozenset(table.properties[key] for key in PATHS if key in table.properties)
    return Place(name, table.metadata.table_uuid, table.location(), paths)


@dataclass(frozen=True)
class ReadTable:
    """What was read through one metadata file of a table.

    Args:
        version: The address of the metadata file.
        strays: The keys of the files that do not lie below the table's location; None until they are read.
    """

    version: str
    place: Place
    strays: set[str] | None = None


@dataclass
class _LoadedTable:
    """A table as it was loaded.

    Args:
        version: The address of its metadata.
        at: When it was loaded, by the monotonic clock.
        table: The table itself, until its files are read.
        strays: See `ReadTable`.
        strays_until: Until when they are valid if they are incomplete.
    """

    version: str
    at: float
    result: Place | Unreadable
    table: Table | None = None
    strays: set[str] | None = None
    strays_until: float = math.inf


class KnownTables:
    """All tables, including those that other tools created and those of other catalogs in the same database.

    Args:
        names: Lists them, given the namespaces of the tables in question.
        read: What was read of them before; what is read now is added. Threads may share it.
    """

    def __init__(
        self,
        catalog: Catalog,
        names: Callable[[Collection[Identifier]], Iterable[Identifier]],
        read: dict[RowName, ReadTable],
    ) -> None:
        self._catalog = catalog
        self._list = names
        self._read = read
        self._near: set[Identifier] = set()
        self._names: set[RowName] = set()
        self._refreshed_at = -math.inf
        self._seen: dict[RowName, _LoadedTable] = {}
        self._held = 0

    def tables(self, own: RowName, *, deleting: bool) -> tuple[list[Place], dict[RowName, Unreadable]]:
        """The tables that can be loaded, and those that cannot, with the reason.

        Args:
            own: The table in question.
            deleting: Files are deleted based on the result.
        """
        versions = table_rows(self._catalog) if isinstance(self._catalog, SqlCatalog) else None
        if versions is None:
            self._refresh_from_server(own, deleting=deleting)
        else:
            self._forget_except(versions)
            for name, version in versions.items():
                if name not in self._seen or self._seen[name].version != version:
                    self._refresh(name, version)
        results = {name: seen.result for name, seen in self._seen.items()}
        unreadable = {name: result for name, result in results.items() if isinstance(result, Unreadable)}
        for name, failed in unreadable.items():
            if versions is not None or not is_hidden(failed.reason):  # the next query loads it again
                del self._seen[name]
        return [result for result in results.values() if isinstance(result, Place)], unreadable

    def _refresh_from_server(self, own: RowName, *, deleting: bool) -> None:
        now = time.monotonic()
        is_stale = deleting or now - self._refreshed_at > _VALID_SECONDS
        namespace = own.name[:-1]
        if is_stale or (own not in self._names and namespace not in self._near):
            self._near.add(namespace)
            self._names = {RowName(tuple(name)) for name in self._list(self._near)}
        self._forget_except(self._names)
        for name in self._names:
            if name not in self._seen or (is_stale and now - self._seen[name].at > _VALID_SECONDS):
                self._refresh(name, None)
        if is_stale:  # counted from the end: a long scan must not be stale as soon as it ends
            self._refreshed_at = time.monotonic()

    def _forget_except(self, names: Collection[RowName]) -> None:
        for name in [name for name in self._seen if name not in names]:
            self._release(self._seen.pop(name))
        for name in [name for name in list(self._read) if name not in names]:
            self._read.pop(name, None)

    def _refresh(self, name: RowName, version: str | None) -> None:
        """Load a table, unless it was read before and its row in the database is unchanged."""
        at, before = time.monotonic(), self._seen.pop(name, None)
        if before is not None:
            self._release(before)
        read = self._read.get(name)
        if read is not None and read.version == version:
            self._seen[name] = _LoadedTable(read.version, at, read.place, strays=read.strays)
            return
        loaded = self._loaded(name)
        if loaded is None:
            return
        if isinstance(loaded, Exception):
            self._seen[name] = _LoadedTable(
                version or "", at, Unreadable(loaded, self._place_in_catalog(name, version))
            )
            return
        place = _place_of(name, loaded)
        seen = self._seen[name] = _LoadedTable(version or loaded.metadata_location, at, place)
        if read is not None and read.version == seen.version and read.place == place:
            seen.strays = read.strays
        else:
            self._read[name] = ReadTable(seen.version, place)
        if seen.strays is None and before is not None and before.version == seen.version:
            seen.strays, seen.strays_until = before.strays, before.strays_until
        if seen.strays is None and self._held + len(loaded.metadata.snapshots) <= _HELD_SNAPSHOTS:
            seen.table = loaded
            self._held += len(loaded.metadata.snapshots)

    def _release(self, seen: _LoadedTable) -> Table | None:
        table, seen.table = seen.table, None
        self._held -= 0 if table is None else len(table.metadata.snapshots)
        return table

    def _load(self, name: RowName) -> Table:
        if isinstance(self._catalog, SqlCatalog):
            return load_row(self._catalog, name)
        return self._catalog.load_table(name.name)

    def _loaded(self, name: RowName) -> Table | Exception | None:
        try:
            return self._load(name)
        except NoSuchTableError:
            return None
        except FileNotFoundError as exc:
            # A row of another catalog whose metadata is gone references no file; one of the project's own is an error.
            return exc if name.catalog is None else None
        except Exception as exc:  # noqa: BLE001 - whatever the error: the table's files are unknown
            return exc

    def _place_in_catalog(self, name: RowName, version: str | None) -> Place | None:
        """The location of a table that cannot be loaded: by its previous metadata, or its metadata's folder."""
        if not isinstance(self._catalog, SqlCatalog):
            return None
        with suppress(Exception):
            return _place_of(name, load_previous(self._catalog, name))
        folder, _, _ = (version or "").rpartition("/metadata/")
        return Place(name, None, folder, frozenset()) if folder else None

    def strays(self, place: Place) -> set[str]:
        """The keys of the files of a table that do not lie below its own location."""
        seen = self._seen[place.name]
        if seen.strays is None or time.monotonic() > seen.strays_until:
            location, files = file_key(place.location), self._files(place, self._release(seen))
            seen.strays = {key for key in file_keys(files.paths) if not is_below(key, location)}
            seen.strays_until = math.inf if files.complete else time.monotonic() + _VALID_SECONDS
            if files.complete:
                self._read[place.name] = ReadTable(seen.version, place, seen.strays)
        return seen.strays

    def files(self, place: Place) -> KnownFiles:
        """The files of a table as it is now."""
        return self._files(place, None)

    def _files(self, place: Place, loaded: Table | None) -> KnownFiles:
        first = [] if loaded is None else [loaded]

        def load() -> Table:
            return first.pop() if first else self._load(place.name)

        try:
            return read_files(load, allow_incomplete=place.name.catalog is None)
        except NoSuchTableError:
            return KnownFiles(set(), complete=True)
        except Exception as exc:
            raise FloeStorageError(
                f"the files of '{place}' are unknown, and must not be taken for orphans: {exc}. Nothing was deleted; "
                f"{advice(exc, place)}"
            ) from exc

    def refuse_unknown(self, name: RowName, failed: Unreadable) -> None:
        """Refuse a table whose files are unknown: the failure is transient, or its earlier metadata is unavailable."""
        has_previous = isinstance(self._catalog, SqlCatalog) and failed.is_permanent
        if not has_previous and not is_hidden(failed.reason):
            raise FloeStorageError(
                f"the files of '{name}' are unknown, because it cannot be loaded, and must not be deleted as those of "
                f"another table: {failed.reason}. Nothing was deleted; {advice(failed.reason, name)}"
            )

    def files_before(self, name: RowName) -> set[str]:
        """The keys of the files that an unreadable table had before its last commit, as far as they are known."""
        if not isinstance(self._catalog, SqlCatalog):
            return set()
        try:
            return set(file_keys(present_files(load_previous(self._catalog, name), skip_unreadable=True)))
        except NoSuchTableError:
            return set()
        except Exception as exc:
            if is_lasting(exc):
                return set()
            raise FloeStorageError(
                f"the files of '{name}' are unknown, and must not be taken for orphans: {exc}. Nothing was deleted; "
                f"run it again"
            ) from exc


def is_below(key: str, folder: str) -> bool:
    """Compares keys of `file_key`, which cover every reading of an address."""
    return key == folder or key.startswith(f"{folder.rstrip('/')}/")
