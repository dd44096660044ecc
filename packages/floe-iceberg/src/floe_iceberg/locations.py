"""Where a new table goes: never where the metadata of another one is."""

from __future__ import annotations

import re
import uuid

from pyarrow.fs import FileSelector, FileType
from pyiceberg.io.pyarrow import PyArrowFileIO

from floe_core.errors import ConfigurationError, FloeStorageError
from floe_core.identifiers import TableIdentifier
from floe_core.ports import FileIO

__all__ = ["LOCATION", "PLACED", "check_location", "fresh_location", "is_location_of", "is_taken", "taken"]

# The property by which Spark SQL is asked for a location; never kept as a property.
LOCATION = "location"
# A property of tables outside of the warehouse whose creator asked for that: such a table was not moved.
PLACED = "floe.location"

# As Iceberg itself writes it where a catalog asks for unique locations.
_SUFFIX = r"-[0-9a-f]{32}"


def check_location(location: object) -> str:
    """A location as Iceberg keeps it; refuses what is not a full address."""
    if not isinstance(location, str) or not re.match(r"[a-z][a-z0-9+.-]*:/|/", location, re.IGNORECASE):
        raise ConfigurationError(f"location is {location!r}; write a full address such as s3://bucket/bronze/orders")
    return location.rstrip("/")


def is_taken(io: FileIO, location: str) -> bool:
    """Does the location hold metadata? It may be of a table in another catalog, or of one that was dropped or renamed.

    True also where that cannot be listed. One listing, not recursive.
    """
    if not isinstance(io, PyArrowFileIO):
        return True
    scheme, netloc, path = PyArrowFileIO.parse_location(f"{location}/metadata")
    try:
        found = io.fs_by_scheme(scheme, netloc).get_file_info(FileSelector(path, allow_not_found=True))
    except OSError:  # a store may allow to write and not to list
        return True
    return any(one.type is FileType.File for one in found)


def fresh_location(location: str) -> str:
    """One beside it that no table has."""
    return f"{location}-{uuid.uuid4().hex}"


def taken(location: str, identifier: TableIdentifier) -> FloeStorageError:
    """The refusal of a location that the caller asked for."""
    return FloeStorageError(
        f"'{identifier}' was not created: {location} holds the metadata of another table, or cannot be listed. "
        f"Choose another location"
    )


def is_location_of(location: str, identifier: TableIdentifier) -> bool:
    """Does it end as the locations do that Floe and Spark give to a table of this name?"""
    place = "/".join((*identifier.namespace, identifier.name))
    return re.search(rf"/{re.escape(place)}({_SUFFIX})?$", location) is not None
