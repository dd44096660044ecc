"""Orphans: files that a writer of the table left and nothing references; and other unreferenced files, which stay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from pyiceberg.table import Table

from floe_core.identifiers import TableIdentifier
from floe_core.maintenance import KeptFile
from floe_iceberg.files.containment import canonical, file_keys
from floe_iceberg.files.listing import Listed, is_hidden, list_files, location_of
from floe_iceberg.files.other_tables import Neighbours
from floe_iceberg.files.ownership import Belongings, Homes, metadata_folders
from floe_iceberg.files.reachable import present_files
from floe_iceberg.files.table_age import beginning
from floe_iceberg.files.writer_files import is_metadata_name

__all__ = ["Orphans", "find_orphans"]


@dataclass(frozen=True)
class Orphans:
    """The orphans below a table's location, by canonical path, and the unreferenced files that are kept."""

    found: Mapping[str, Listed]
    kept: tuple[KeptFile, ...]
    location: str

    def address(self, path: str) -> str:
        """The address of a file as the table would write it."""
        return _address(self.location, path)

    def unused(self, neighbours: Neighbours, identifier: TableIdentifier, *, planning: bool = False) -> Orphans:
        """The same without files that other tables use."""
        addresses = {self.address(path): path for path in self.found}
        references = neighbours.references(identifier, addresses, planning=planning)
        used = {addresses[address]: name for address, name in references.items()}
        found = {path: file for path, file in self.found.items() if path not in used}
        kept = [*self.kept, *(KeptFile(path=path, reason=f"'{name}' uses it") for path, name in used.items())]
        return Orphans(found, tuple(sorted(kept, key=lambda file: file.path)), self.location)


def find_orphans(
    table: Table,
    identifier: TableIdentifier,
    homes: Homes,
    *,
    older_than: datetime,
    neighbours: Neighbours | None = None,
) -> Orphans:
    """The unreferenced files below the table's location that were last modified before `older_than`.

    Args:
        neighbours: The other tables, to check whether they use such a file; without them that is not checked.
    """
    listed = list_files(table, identifier)
    location = table.location()
    old = {path: file for path, file in listed.items() if file.modified < older_than}
    if not old:
        return Orphans({}, (), location)
    needed = file_keys(present_files(table)).keys()
    addresses = {_address(location, path): path for path in old}
    used = {addresses[address] for key, group in file_keys(addresses).items() if key in needed for address in group}
    unreferenced = {path: file for path, file in old.items() if path not in used}
    reasons = _reasons(table, homes, listed, unreferenced)
    found = {path: file for path, file in unreferenced.items() if not reasons[path]}
    kept = tuple(KeptFile(path=path, reason=reason) for path, reason in sorted(reasons.items()) if reason)
    orphans = Orphans(found, kept, location)
    return orphans if neighbours is None else orphans.unused(neighbours, identifier)


def _address(location: str, path: str) -> str:
    """The address of a listed file, written as the table's location is."""
    folder = canonical(location)
    return f"{location.rstrip('/')}/{path[len(folder) :].lstrip('/')}"


def _reasons(
    table: Table, homes: Homes, listed: Mapping[str, Listed], unreferenced: Mapping[str, Listed]
) -> dict[str, str]:
    """For each file, why it is not removed; empty if it is an orphan."""
    problem = homes.problem(table)
    if problem or not unreferenced:
        return dict.fromkeys(unreferenced, problem)
    location, place = table.location(), location_of(table)
    belongings = Belongings(table, homes)
    began = beginning(table, {_address(location, path): file.modified for path, file in listed.items()})
    fields = {field.name for spec in table.metadata.partition_specs for field in spec.fields}
    others = _folders_of_others(table, listed)

    def reason(path: str, file: Listed) -> str:
        address = _address(location, path)
        if is_hidden(path, place, fields):
            return "it is hidden, and Iceberg leaves hidden files alone"
        if address == began.witness:
            return "it is the table's oldest metadata file, which shows when the table began"
        if file.modified < began.moment:
            return f"it is older than the table, which began at {began.moment:%Y-%m-%d %H:%M:%S} UTC"
        if any(path.startswith(f"{folder}/") for folder in others):
            return "it lies in a folder with the metadata of another table"
        return belongings.orphan_reason(address)

    return {path: reason(path, file) for path, file in unreferenced.items()}


def _folders_of_others(table: Table, listed: Mapping[str, Listed]) -> set[str]:
    """The folders of other tables below the location: those with a metadata folder of their own."""
    own = {canonical(folder) for folder in metadata_folders(table.metadata)}
    folders = {path.rpartition("/")[0] for path in listed if is_metadata_name(path.rpartition("/")[2])}
    return {folder.rpartition("/")[0] for folder in folders - own if folder.endswith("/metadata")}
