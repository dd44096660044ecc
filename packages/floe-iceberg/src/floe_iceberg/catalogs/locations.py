"""The location of a new table: never one that holds the metadata of another table."""

from __future__ import annotations

import re
import uuid

from pyarrow.fs import FileSelector, FileType
from pyiceberg.io.pyarrow import PyArrowFileIO

from floe_core.errors import ConfigurationError, FloeStorageError
from floe_core.identifiers import TableIdentifier
from floe_core.plugins import FileIO

__all__ = ["LOCATION", "PLACED", "check_location", "fresh_location", "is_location_of", "is_taken", "taken"]

# The property that asks Spark SQL for a location; never stored as a property.
LOCATION = "location"
# Set on tables that were created outside of the warehouse on request: such a table was not moved there.
PLACED = "floe.location"

# The suffix that Iceberg itself appends if a catalog asks for unique locations.
_SUFFIX = r"-[0-9a-f]{32}"


def check_location(location: object) -> str:
    """A location as Iceberg stores it; refuses anything but a full address."""
    if not isinstance(location, str) or not re.match(r"[a-z][a-z0-9+.-]*:/|/", location, re.IGNORECASE):
        raise ConfigurationError(f"location is {location!r}; write a full address such as s3://bucket/bronze/orders")
    return location.rstrip("/")


def is_taken(io: FileIO, location: str) -> bool:
    """Does the location hold metadata: of a table in another catalog, or of one that was dropped or renamed?

    True also if the location cannot be listed. One listing, not recursive.
    """
    if not isinstance(io, PyArrowFileIO):
        return True
    scheme, netloc, path = PyArrowFileIO.parse_location(f"{location}/metadata")
    try:
        entries = io.fs_by_scheme(scheme, netloc).get_file_info(FileSelector(path, allow_not_found=True))
    except OSError:  # a store may allow writing but not listing
        return True
    return any(entry.type is FileType.File for entry in entries)


def fresh_location(location: str) -> str:
    """The location with a unique suffix, which no table uses."""
    return f"{location}-{uuid.uuid4().hex}"


def taken(location: str, identifier: TableIdentifier) -> FloeStorageError:
    """The error for a requested location that is taken."""
    return FloeStorageError(
        f"'{identifier}' was not created: {location} holds the metadata of another table, or cannot be listed. "
        f"Choose another location"
    )


def is_location_of(location: str, identifier: TableIdentifier) -> bool:
    """Does it end like the locations that Floe and Spark choose for a table of this name?"""
    place = "/".join((*identifier.namespace, identifier.name))
    return re.search(rf"/{re.escape(place)}({_SUFFIX})?$", location) is not None
