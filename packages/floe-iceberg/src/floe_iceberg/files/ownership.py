"""Which files belong to a table, so that Floe may delete them; and for every other file, the reason why not."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Protocol, runtime_checkable

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from floe_core.maintenance import KeptFile
from floe_iceberg.files.containment import file_keys, is_inside, is_same, local_path, real_path
from floe_iceberg.files.writer_files import has_file_type, is_metadata_name, is_statistics_name, is_writer_name

__all__ = ["Belongings", "Homes", "is_metadata_file", "metadata_folders", "owned_location"]

_DATA_PATHS = ("write.data.path", "write.object-storage.path", "write.folder-storage.path")
_METADATA_PATH = "write.metadata.path"
# The credentials that a catalog server vends for a store, by the schemes of the store.
_STORE_KEYS = {
    "s3": ("s3.secret-access-key",),
    "g": ("gcs.oauth2.token",),
    "abfs": ("adls.sas-token",),
    "wasb": ("adls.sas-token",),
}
# PyIceberg truncates an address at these characters, and would delete another file; at ; in the last part only.
_CUT_OFF = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:.*([?#]|;[^/]*\Z)", re.DOTALL)


@runtime_checkable
class _Vended(Protocol):
    """A FileIO that uses credentials which a catalog server vended."""

    vended: Mapping[str, object]


@dataclass(frozen=True)
class Homes:
    """Where the tables of a project lie: below its warehouse, and at or below the locations that floe.yaml declares."""

    warehouse: str
    owned: tuple[str, ...] = ()

    def problem(self, table: Table) -> str:
        """Why Floe may delete nothing at the table's location; empty if it may."""
        location = table.location()
        vended = isinstance(table.io, _Vended) and _is_opened_by(location, table.io.vended)
        return "" if vended and not _CUT_OFF.match(location) else self.problem_at(location)

    def problem_at(self, location: str) -> str:
        """The same for a location that is accessed with the project's own credentials."""
        if _CUT_OFF.match(location):
            return f"the table's location {location} has a character (? # ;) that engines read differently"
        if self._has(location):
            return ""
        if is_same(location, self.warehouse):
            return f"the table's location is the warehouse itself, {self.warehouse}, where all other tables lie"
        return (
            f"the table's location {location} is neither below the warehouse {self.warehouse} nor declared in "
            f"tables.owned_locations of floe.yaml"
        )

    def _has(self, location: str) -> bool:
        if is_inside(location, self.warehouse) and _is_really_inside(location, self.warehouse):
            return True
        return any(
            is_same(location, place) or (is_inside(location, place) and _is_really_inside(location, place))
            for place in self.owned
        )


def _is_opened_by(location: str, vended: Mapping[str, object]) -> bool:
    """Does the server vend the credentials for these files? They grant no access that the server lacks itself.

    Never on this machine's disk, nor where the project's own credentials would be used.
    """
    keys = next((keys for scheme, keys in _STORE_KEYS.items() if location.lower().startswith(scheme)), ())
    return any(name.startswith(key) for name in vended for key in keys)


def owned_location(declared: str, root: Path) -> str:
    """A location of tables.owned_locations as an address; a relative one starts from the project."""
    return declared if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", declared) else str(root.resolve() / declared)


def metadata_folders(metadata: TableMetadata) -> tuple[str, ...]:
    """The folders of the table's metadata that are below its own location."""
    configured = metadata.properties.get(_METADATA_PATH)
    own = f"{metadata.location.rstrip('/')}/metadata"
    return (own, configured) if configured and is_inside(configured, metadata.location) else (own,)


@dataclass(frozen=True)
class Belongings:
    """Decides which files are the table's own.

    Args:
        referenced: Files that other tables reference, each with the name of one of them.
    """

    table: Table
    homes: Homes
    referenced: Mapping[str, str] = field(default_factory=dict)

    def kept(self, files: Iterable[str]) -> tuple[KeptFile, ...]:
        """The files that must not be deleted, with the reason.

        A file that is kept under one address is kept under all addresses that the table has for it.
        """
        problem = self.homes.problem(self.table)
        reasons = {path: problem or self.reason(path) for path in sorted(files)}
        kept = {path: reason for path, reason in reasons.items() if reason}
        if kept and len(kept) < len(reasons):
            for paths in file_keys(reasons).values():
                first = next((path for path in paths if path in kept), None)
                kept |= {} if first is None else {path: kept.get(path) or kept[first] for path in paths}
        return tuple(KeptFile(path=path, reason=reason) for path, reason in sorted(kept.items()))

    def reason(self, path: str) -> str:
        """Why a file that the table's metadata names is not deleted; empty if it is the table's own."""
        location, name = self.table.location(), path.rpartition("/")[2]
        if path in self.referenced:
            return f"'{self.referenced[path]}' uses it too"
        if _CUT_OFF.match(path):
            return "its address has a character (? # ;) that engines read differently"
        inside = is_inside(path, location)
        if not inside and not self._is_declared(path, name):
            return f"it lies outside of the table's location {location}, or its address can be read in two ways"
        if inside and not _is_really_inside(path, location, self._resolved):
            return "it is reached through a link"
        if not has_file_type(name) or (path in self._statistics and not is_statistics_name(name)):
            return "its name is not one that Iceberg gives to files of a table"
        if name.endswith((".json", ".gz")) and not any(is_inside(path, folder) for folder in self.metadata_folders()):
            return "it is named like a metadata file, but lies outside of the table's metadata folder"
        return ""

    def _is_declared(self, path: str, name: str) -> bool:
        """Is it a writer's file in a location that floe.yaml declares, as for a table with write.data.path?"""
        declared = any(
            is_inside(path, place) and _is_really_inside(path, place, self._resolved) for place in self.homes.owned
        )
        return declared and is_writer_name(name, in_metadata=False)

    def orphan_reason(self, path: str) -> str:
        """Why an unreferenced file below the location is not taken for an orphan; empty if it is one."""
        name = path.rpartition("/")[2]
        in_metadata = any(is_inside(path, folder) for folder in self.metadata_folders())
        if not in_metadata and not any(is_inside(path, folder) for folder in self._data_folders()):
            return "it lies outside of the table's data and metadata folders"
        if not is_writer_name(name, in_metadata=in_metadata):
            return "no Iceberg writer gives such a name"
        if path in self.referenced:
            return f"'{self.referenced[path]}' uses it"
        return "" if _is_really_inside(path, self.table.location(), self._resolved) else "it is reached through a link"

    def metadata_folders(self) -> tuple[str, ...]:
        return metadata_folders(self.table.metadata)

    @cached_property
    def _resolved(self) -> dict[str, str]:
        """Folders with links followed; each is resolved once."""
        return {}

    def _data_folders(self) -> tuple[str, ...]:
        location = self.table.location()
        configured = (self.table.properties.get(key) for key in _DATA_PATHS)
        inside = (folder for folder in configured if folder and is_inside(folder, location))
        return (f"{location.rstrip('/')}/data", *inside)

    @cached_property
    def _statistics(self) -> set[str]:
        metadata = self.table.metadata
        return {file.statistics_path for file in (*metadata.statistics, *metadata.partition_statistics)}


def is_metadata_file(path: str, metadata: TableMetadata) -> bool:
    """Is it certainly one of the table's own metadata files, by its folder and name?"""
    within = any(is_inside(path, folder) for folder in metadata_folders(metadata))
    # From the location on: the metadata folder itself may be a link.
    return (
        within
        and _is_really_inside(path, metadata.location)
        and not _CUT_OFF.match(path)
        and is_metadata_name(path.rpartition("/")[2])
    )


def _is_really_inside(path: str, folder: str, resolved: dict[str, str] | None = None) -> bool:
    """On a local disk: does no link below the folder redirect the path? Other stores have no links.

    Args:
        resolved: Folders that were resolved before; those that are resolved now are added.
    """
    here, place = local_path(path), local_path(folder)
    if here is None or place is None:
        return True
    folders = {} if resolved is None else resolved
    if place not in folders:
        folders[place] = os.path.realpath(place)
    below = os.path.relpath(os.path.normpath(here), os.path.normpath(place))
    return real_path(here, folders) == os.path.normpath(os.path.join(folders[place], below))  # noqa: PTH118
