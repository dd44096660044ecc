"""When a table began: a file that is older is not its own, whatever it is called."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone

from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from floe_iceberg.belongings import metadata_folders
from floe_iceberg.containment import is_inside
from floe_iceberg.writer_files import is_metadata_name

__all__ = ["CREATED", "Beginning", "beginning", "is_witness"]

# Set by Floe on the tables that it creates, in milliseconds since 1970.
CREATED = "floe.created-ms"
# Earlier metadata files are read to learn whose they are, at most so many.
_READ = 10
_LATEST_MS = 253_402_300_799_000  # the end of the calendar: a table may say anything
_MOMENT = re.compile(r"[0-9]{1,15}", re.ASCII)
_FIRST = re.compile(r"(0+-|v[01]\.).*", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class Beginning:
    """When a table began, and the metadata file that shows it, where nothing else does for good."""

    moment: datetime
    witness: str | None = None


def beginning(table: Table, files: Mapping[str, datetime]) -> Beginning:
    """By what the table says of itself, its history, and its earliest metadata file in the store.

    History is cut off after some versions, so the store is asked too: a metadata file there that is the table's own.

    Args:
        files: The files below the table's location, and when each was last changed.
    """
    metadata = table.metadata
    created = _created_ms(metadata)
    known = [one.timestamp_ms for one in metadata.metadata_log] + [one.timestamp_ms for one in metadata.snapshots]
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


def is_witness(path: str, metadata: TableMetadata) -> bool:
    """Is it the first metadata file of a table that does not say when it began?"""
    return _created_ms(metadata) is None and _FIRST.fullmatch(path.rpartition("/")[2]) is not None


def _created_ms(metadata: TableMetadata) -> int | None:
    said = metadata.properties.get(CREATED, "")
    return min(int(said), _LATEST_MS) if _MOMENT.fullmatch(said) else None


def _uuid_in(table: Table, address: str) -> object:
    try:
        return FromInputFile.table_metadata(table.io.new_input(address)).table_uuid
    except Exception:  # noqa: BLE001 - a file that cannot be read says nothing about the table
        return None
