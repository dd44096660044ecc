"""When a table began: an older file is not its own, whatever its name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone

from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from floe_core.errors import FloeError
from floe_core.identifiers import TableIdentifier
from floe_iceberg.files.containment import canonical, is_inside
from floe_iceberg.files.listing import list_files
from floe_iceberg.files.ownership import metadata_folders
from floe_iceberg.files.writer_files import is_metadata_name

__all__ = ["CREATED", "Beginning", "beginning", "is_witness", "record_of_beginning"]

# In milliseconds since 1970: set by Floe on the tables that it creates, and with the first lease on others.
CREATED = "floe.created-ms"
_BEGAN = "floe.began-ms"
# At most this many metadata files are read to find one of the table's own.
_READ = 10
_LATEST_MS = 253_402_300_799_000  # the end of the calendar: a property can have any value
_MOMENT = re.compile(r"[0-9]{1,15}", re.ASCII)
_FIRST = re.compile(r"(0+-|v[01]\.).*", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class Beginning:
    """When a table began, and the metadata file that shows it, if nothing permanent does."""

    moment: datetime
    witness: str | None = None


def beginning(table: Table, files: Mapping[str, datetime]) -> Beginning:
    """The earliest of the table's property, its history, and its own metadata files in the store.

    The store is searched because the history is truncated after some versions.

    Args:
        files: The files below the table's location, each with its last modification.
    """
    metadata = table.metadata
    created = _created_ms(metadata)
    known = [entry.timestamp_ms for entry in metadata.metadata_log]
    known += [snapshot.timestamp_ms for snapshot in metadata.snapshots]
    first_ms = min(known, default=metadata.last_updated_ms)
    first_ms = min(max(first_ms, 0), _LATEST_MS, *(() if created is None else (created,)))
    first = datetime.fromtimestamp(first_ms / 1000, timezone.utc)
    folders = metadata_folders(metadata)
    earliest = sorted(
        (modified, path)
        for path, modified in files.items()
        if (created is None or modified < first)
        and is_metadata_name(path.rpartition("/")[2])
        and any(is_inside(path, folder) for folder in folders)
    )
    for modified, path in earliest[:_READ]:
        if _uuid_in(table, path) == metadata.table_uuid:
            return Beginning(min(first, modified), path)
    return Beginning(first)


def record_of_beginning(table: Table, identifier: TableIdentifier) -> dict[str, str]:
    """The property that records when the table began, for a table without it; empty if the store cannot be listed.

    Tables that other engines created have none, and the files that show it are deleted over time.
    """
    if _created_ms(table.metadata) is not None:
        return {}
    files: dict[str, datetime] = {}
    try:
        for folder in metadata_folders(table.metadata):
            place = canonical(folder)
            for path, file in list_files(table, identifier, folder).items():
                files[f"{folder.rstrip('/')}/{path[len(place) :].lstrip('/')}"] = file.modified
    except (FloeError, OSError):  # the step that needs it reports the error
        return {}
    return {_BEGAN: str(max(0, int(beginning(table, files).moment.timestamp() * 1000)))}


def is_witness(path: str, metadata: TableMetadata) -> bool:
    """Is it the first metadata file of a table without a record of when it began?"""
    return _created_ms(metadata) is None and _FIRST.fullmatch(path.rpartition("/")[2]) is not None


def _created_ms(metadata: TableMetadata) -> int | None:
    recorded = (metadata.properties.get(name, "") for name in (CREATED, _BEGAN))
    return next((min(int(moment), _LATEST_MS) for moment in recorded if _MOMENT.fullmatch(moment)), None)


def _uuid_in(table: Table, address: str) -> object:
    try:
        return FromInputFile.table_metadata(table.io.new_input(address)).table_uuid
    except Exception:  # noqa: BLE001 - a file that cannot be read shows nothing about the table
        return None
