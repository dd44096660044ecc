"""Orphans: files that a writer of the table left and nothing leads to; and the files beside them that are not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from pyiceberg.table import Table

from floe_core.identifiers import TableIdentifier
from floe_core.maintenance import KeptFile
from floe_iceberg.beginnings import beginning
from floe_iceberg.belongings import Belongings, Homes, metadata_folders
from floe_iceberg.containment import canonical, file_keys
from floe_iceberg.listing import Listed, is_hidden, list_files, location_of
from floe_iceberg.neighbours import Neighbours
from floe_iceberg.reachable import present_files
from floe_iceberg.writer_files import is_metadata_name

__all__ = ["Orphans", "find_orphans"]


@dataclass(frozen=True)
class Orphans:
    """Files below a table's location, by their canonical paths, and those that nothing leads to and stay."""

    found: Mapping[str, Listed]
    kept: tuple[KeptFile, ...]
    location: str

    def address(self, path: str) -> str:
        """The address of a file as the table would write it."""
        return _address(self.location, path)


def find_orphans(
    table: Table,
    identifier: TableIdentifier,
    homes: Homes,
    *,
    older_than: datetime,
    neighbours: Neighbours | None = None,
) -> Orphans:
    """The files below the table's location that nothing leads to, last changed before a moment.

    Args:
        neighbours: The other tables, to ask whether they use such a file; without them that is not known.
    """
    listed = list_files(table, identifier)
    location = table.location()
    old = {path: one for path, one in listed.items() if one.modified < older_than}
    if not old:
        return Orphans({}, (), location)
    needed = file_keys(present_files(table)).keys()
    addresses = {_address(location, path): path for path in old}
    used = {addresses[one] for key, group in file_keys(addresses).items() if key in needed for one in group}
    loose = {path: one for path, one in old.items() if path not in used}
    reasons = _reasons(table, homes, listed, loose)
    found = {path: one for path, one in loose.items() if not reasons[path]}
    if neighbours is not None:
        asked = [_address(location, path) for path in found]
        for address, name in neighbours.references(identifier, asked).items():
            reasons[addresses[address]] = f"'{name}' uses it"
            del found[addresses[address]]
    kept = tuple(KeptFile(path=path, reason=reason) for path, reason in sorted(reasons.items()) if reason)
    return Orphans(found, kept, location)


def _address(location: str, path: str) -> str:
    """The address of a listed file, written as the table's location is."""
    folder = canonical(location)
    return f"{location.rstrip('/')}/{path[len(folder) :].lstrip('/')}"


def _reasons(table: Table, homes: Homes, listed: Mapping[str, Listed], loose: Mapping[str, Listed]) -> dict[str, str]:
    """For each file why it is not removed; empty if it is an orphan."""
    problem = homes.problem(table)
    if problem or not loose:
        return dict.fromkeys(loose, problem)
    location, place = table.location(), location_of(table)
    belongings = Belongings(table, homes)
    began = beginning(table, {_address(location, path): one.modified for path, one in listed.items()})
    fields = {field.name for spec in table.metadata.partition_specs for field in spec.fields}
    others = _folders_of_others(table, listed)

    def reason(path: str, one: Listed) -> str:
        address = _address(location, path)
        if is_hidden(path, place, fields):
            return "it is hidden, and Iceberg leaves hidden files alone"
        if address == began.witness:
            return "it is the table's first metadata that is left, and shows when the table began"
        if one.modified < began.moment:
            return f"it is older than the table, which began at {began.moment:%Y-%m-%d %H:%M:%S} UTC"
        if any(path.startswith(f"{folder}/") for folder in others):
            return "it lies in a folder with the metadata of another table"
        return belongings.orphan_reason(address)

    return {path: reason(path, one) for path, one in loose.items()}


def _folders_of_others(table: Table, listed: Mapping[str, Listed]) -> set[str]:
    """The folders below the location that are those of other tables: they have a metadata folder of their own."""
    own = {canonical(one) for one in metadata_folders(table.metadata)}
    folders = {path.rpartition("/")[0] for path in listed if is_metadata_name(path.rpartition("/")[2])}
    return {folder.rpartition("/")[0] for folder in folders - own if folder.endswith("/metadata")}
