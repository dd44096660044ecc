"""The other tables of a catalog: before files are deleted, whether they are somebody else's too."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import ForbiddenError, NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier
from tenacity import Retrying, stop_after_attempt

from floe_core.errors import DamagedFileError, FloeStorageError, PermissionDeniedError
from floe_core.identifiers import TableIdentifier
from floe_iceberg.catalog_rows import RowName, load_previous, load_row, table_rows
from floe_iceberg.containment import file_key, file_keys, may_be_below, may_overlap
from floe_iceberg.reachable import present_files

__all__ = ["Neighbours", "sends_files_elsewhere"]

# Properties that send the files of a table elsewhere.
_PATHS = ("write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path")
_ATTEMPTS = 3
_LOOKED_AT_FOR_SECONDS = 300.0


# Set by whoever adds files to a table that lie where they are: they have no field ids.
_ADDED = "schema.name-mapping.default"


def sends_files_elsewhere(properties: Iterable[str]) -> bool:
    return any(key in _PATHS for key in properties)


def _may_have_strays(properties: Iterable[str]) -> bool:
    """Does a table say that it has files that may lie outside of its own location?"""
    return _ADDED in properties or sends_files_elsewhere(properties)


@dataclass(frozen=True)
class _Place:
    """One table, and where it is."""

    name: RowName
    uuid: UUID | None
    location: str
    paths: frozenset[str]

    def __str__(self) -> str:
        return str(self.name)


_HIDDEN = (ForbiddenError, PermissionDeniedError, PermissionError)


@dataclass(frozen=True)
class _Unreadable:
    """A table that cannot be loaded, and where the catalog says it is, if it does."""

    reason: Exception
    place: _Place | None

    @property
    def stays(self) -> bool:
        """Is the reason one that a moment later is the same? Then what the catalog knows is all there is."""
        return isinstance(self.reason, (DamagedFileError, FileNotFoundError, *_HIDDEN))

    @property
    def advice(self) -> str:
        return "repair or drop '{name}' first" if self.stays else "run it again once '{name}' can be loaded"

    def may_share(self, table: Table) -> bool:
        """Could it have files of this table, as far as the catalog can tell?"""
        if not self.stays or self.place is None or self.place.uuid == table.metadata.table_uuid:
            return True
        return any(may_overlap(one, table.location()) for one in (self.place.location, *self.place.paths))


def _place_of(name: RowName, table: Table) -> _Place:
    paths = frozenset(table.properties[key] for key in _PATHS if key in table.properties)
    return _Place(name, table.metadata.table_uuid, table.location(), paths)


@dataclass(frozen=True)
class _Files:
    """The files of a table; not all of them if some of its manifests are damaged."""

    paths: set[str]
    complete: bool


def _read(table: Table, *, skip_damaged: bool) -> _Files:
    """What a damaged manifest leads to is left out, if all that the table has must lie in its location."""
    try:
        return _Files(present_files(table), complete=True)
    except DamagedFileError:
        if not skip_damaged or _may_have_strays(table.properties):
            raise
        return _Files(present_files(table, skip_damaged=True), complete=False)


class Neighbours:
    """All tables, whatever their names: those that other tools made included, and those of other catalogs in the same
    database.

    Whoever asks is told of the tables that are there now. One that was looked at before is not looked at again as long
    as its row in a catalog database is the same, or for some minutes where a server keeps the tables.

    `names` lists them.
    """

    def __init__(self, catalog: Catalog, names: Callable[[], Iterable[Identifier]]) -> None:
        self._catalog = catalog
        self._names = names
        self._looks = 0
        self._looked_at: float | None = None
        self._places: dict[RowName, tuple[str, _Place]] = {}
        self._outside: dict[RowName, tuple[str, set[str]]] = {}

    def _look(self) -> tuple[list[_Place], dict[RowName, _Unreadable]]:
        """The tables, and those that cannot be loaded with the reason."""
        versions = self._versions()
        self._places = {name: known for name, known in self._places.items() if versions.get(name) == known[0]}
        unreadable: dict[RowName, _Unreadable] = {}
        for name, version in versions.items():
            if name in self._places:
                continue
            found = self._place(name)
            if isinstance(found, _Place):
                self._places[name] = version, found
            elif found is not None:
                unreadable[name] = _Unreadable(found, self._place_in_catalog(name, version))
        if self._looked_at is None:  # a look that takes long must not be over as soon as it ends
            self._looked_at = time.monotonic()
        return [place for _, place in self._places.values()], unreadable

    def _versions(self) -> dict[RowName, str]:
        """The tables that there are, each with a text that is another one when the table has changed."""
        if not isinstance(self._catalog, SqlCatalog):
            if self._looked_at is None or time.monotonic() - self._looked_at > _LOOKED_AT_FOR_SECONDS:
                self._looks, self._looked_at = self._looks + 1, None
            return {RowName(name): str(self._looks) for name in self._names()}
        return table_rows(self._catalog)

    def _load(self, name: RowName) -> Table:
        if isinstance(self._catalog, SqlCatalog):
            return load_row(self._catalog, name)
        return self._catalog.load_table(name.name)

    def _place(self, name: RowName) -> _Place | Exception | None:
        try:
            table = self._load(name)
        except NoSuchTableError:
            return None
        except FileNotFoundError as exc:
            # The row of another catalog whose metadata is gone leads to no file; of the project's own it is a fault.
            return exc if name.catalog is None else None
        except Exception as exc:  # noqa: BLE001 - whatever it is: where its files are is not known
            return exc
        return _place_of(name, table)

    def _place_in_catalog(self, name: RowName, version: str) -> _Place | None:
        """Where a table is that cannot be loaded: by its metadata before the last commit, or its metadata's folder."""
        if not isinstance(self._catalog, SqlCatalog):
            return None
        with suppress(Exception):
            return _place_of(name, load_previous(self._catalog, name))
        folder, _, _ = version.rpartition("/metadata/")
        return _Place(name, None, folder, frozenset()) if folder else None

    def refuse_same(self, table: Table, identifier: TableIdentifier) -> None:
        """A table can be registered twice; then the files of one name are those of the other.

        One whose files are gone, or that this user may not see, is not taken for its twin.
        """
        others, unreadable = self._others(identifier)
        for name, one in unreadable.items():
            hidden = name.catalog is not None or isinstance(one.reason, ForbiddenError | PermissionDeniedError)
            if not hidden and not isinstance(one.reason, FileNotFoundError) and one.may_share(table):
                raise FloeStorageError(
                    f"it is unknown whether '{name}' is the same table as '{identifier}', because it cannot be "
                    f"loaded: {one.reason}. Nothing was deleted; {one.advice.format(name=name)}"
                )
        for other in others:
            if other.uuid == table.metadata.table_uuid:
                raise FloeStorageError(
                    f"'{other}' is the same table as '{identifier}': what one of the two does not need any more the "
                    f"other may. Nothing was deleted; drop one of the names without purge first"
                )

    def refuse_used(self, identifier: TableIdentifier, files: Callable[[], Iterable[str]]) -> None:
        """A file may be part of a table of another catalog in the database, as one that was added to both."""
        others = [one for one in self._others(identifier)[0] if one.name.catalog is not None]
        paths = file_keys(files()) if others else {}
        for other in others:
            for key in self._shared(other, paths):
                raise FloeStorageError(
                    f"{paths[key][0]} of '{identifier}' belongs to '{other}' too, in the same database; nothing was "
                    f"deleted. Rewrite the files of one of the two tables first, or drop '{identifier}' without purge"
                )

    def refuse_unreadable(self, identifier: TableIdentifier) -> None:
        """Refuse while a table of another catalog cannot be loaded: it may use files of this one."""
        for name, one in self._others(identifier)[1].items():
            if name.catalog is not None:
                raise FloeStorageError(
                    f"'{name}' in the same database cannot be loaded, so it is not known whether it uses files of "
                    f"'{identifier}': {one.reason}. Nothing was deleted; give Floe access to that table, or "
                    f"drop its row from the catalog that owns it"
                )

    def refuse_below(self, table: Table, identifier: TableIdentifier) -> None:
        """Files of another table below this one's location would look like orphans."""
        others, unreadable = self._others(identifier)
        for name, one in unreadable.items():
            if name.catalog is not None or one.may_share(table):
                raise FloeStorageError(
                    f"'{name}' cannot be loaded, and its files must not be taken for orphans of '{identifier}': "
                    f"{type(one.reason).__name__}: {one.reason}. Nothing was deleted; "
                    f"{one.advice.format(name=name)}"
                )
        for other in others:
            if any(may_be_below(one, table.location()) for one in (other.location, *other.paths)):
                raise FloeStorageError(
                    f"files of '{other}' lie in or below the location of '{identifier}', where they would look like "
                    f"orphans; nothing was deleted. Give one of the tables another location"
                )

    def references(self, identifier: TableIdentifier, files: Iterable[str]) -> dict[str, str]:
        """Which of these files another table has in its metadata, although it lies elsewhere; each with its name.

        A table that this user may not load is not asked, and one that is damaged only about what it had before, where a
        database keeps the tables. Any other that cannot be loaded is an error.
        """
        paths = file_keys(files)
        if not paths:
            return {}
        others, unreadable = self._others(identifier)
        found = {key: str(other) for other in others for key in self._shared(other, paths)}
        for name, one in unreadable.items():
            self._refuse_unknown(name, one)
            found |= {key: str(name) for key in self._known_before(name) & paths.keys()}
        return {path: name for key, name in found.items() for path in paths[key]}

    def _refuse_unknown(self, name: RowName, one: _Unreadable) -> None:
        """What a table has is unknown if it cannot be loaded for a moment, or if a server does not say what it had."""
        says_before = isinstance(self._catalog, SqlCatalog) and one.stays
        if not says_before and not isinstance(one.reason, _HIDDEN):
            raise FloeStorageError(
                f"the files of '{name}' are unknown, because it cannot be loaded, and must not be deleted as those of "
                f"another table: {one.reason}. Nothing was deleted; {one.advice.format(name=name)}"
            )

    def _shared(self, other: _Place, keys: Mapping[str, list[str]]) -> set[str]:
        """The keys of files that are also in the metadata of another table."""
        location = file_key(other.location)
        inside = {key for key in keys if _is_below(key, location)}
        if not inside:
            return self._strays(other) & keys.keys()
        found = self._files(other)
        # What a damaged manifest leads to is unknown: it may be any file there.
        return (set(file_keys(found.paths)) & keys.keys()) | (set() if found.complete else inside)

    def _known_before(self, name: RowName) -> set[str]:
        """The files that a table that cannot be loaded had before its last commit, as far as they are not damaged."""
        if not isinstance(self._catalog, SqlCatalog):
            return set()
        try:
            return set(file_keys(present_files(load_previous(self._catalog, name), skip_damaged=True)))
        except (NoSuchTableError, FileNotFoundError, DamagedFileError, *_HIDDEN):
            return set()
        except Exception as exc:
            raise FloeStorageError(
                f"the files of '{name}' are unknown, and must not be taken for orphans: {exc}. Nothing was deleted; "
                f"run it again"
            ) from exc

    def _strays(self, place: _Place) -> set[str]:
        """The keys of the files of a table that do not lie below its own location."""
        version = self._places[place.name][0]
        known = self._outside.get(place.name)
        if known is None or known[0] != version:
            location, found = file_key(place.location), self._files(place)
            known = version, {key for key in file_keys(found.paths) if not _is_below(key, location)}
            self._outside[place.name] = known
        return known[1]

    def _files(self, place: _Place) -> _Files:
        try:
            # Somebody may expire what is being read; then it is gone from the next look.
            for attempt in Retrying(stop=stop_after_attempt(_ATTEMPTS), reraise=True):
                with attempt:
                    found = _read(self._load(place.name), skip_damaged=place.name.catalog is None)
        except NoSuchTableError:
            return _Files(set(), complete=True)
        except Exception as exc:
            raise FloeStorageError(
                f"the files of '{place}' are unknown, and must not be taken for orphans: {exc}. Nothing was deleted; "
                f"repair or drop '{place}' first"
            ) from exc
        return found

    def _others(self, identifier: TableIdentifier) -> tuple[list[_Place], dict[RowName, _Unreadable]]:
        places, unreadable = self._look()
        own = RowName((*identifier.namespace, identifier.name))
        return [one for one in places if one.name != own], unreadable


def _is_below(key: str, folder: str) -> bool:
    """By `file_key`, so in any reading of the two addresses."""
    return key == folder or key.startswith(f"{folder.rstrip('/')}/")
