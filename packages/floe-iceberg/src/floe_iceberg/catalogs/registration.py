"""Checks on the metadata file of a table that is to be registered."""

from __future__ import annotations

import re
from urllib.parse import urlparse

from pyiceberg.serializers import FromInputFile

from floe_core.errors import DamagedFileError, FloeStorageError
from floe_core.identifiers import TableIdentifier
from floe_core.plugins import FileIO
from floe_core.security import redact

__all__ = ["check_address", "check_metadata_file", "refusal", "shown"]


def check_address(location: object, identifier: TableIdentifier) -> None:
    """Refuse anything but a full address."""
    if not isinstance(location, str):
        raise refusal(location, identifier, f"is a {type(location).__name__}")
    if not urlparse(location).scheme and not location.startswith("/"):
        raise refusal(location, identifier, "is not a full address")


def check_metadata_file(io: FileIO, location: str, identifier: TableIdentifier) -> None:
    """Refuse a file that is not table metadata: the catalog would accept any path and fail at the first read."""
    try:
        FromInputFile.table_metadata(io.new_input(location))
    except FileNotFoundError as exc:
        raise refusal(location, identifier, "does not exist") from exc
    except PermissionError:
        raise
    except DamagedFileError as exc:
        raise refusal(location, identifier, "is not the metadata of an Iceberg table") from exc
    except (OSError, ValueError) as exc:
        raise refusal(location, identifier, f"cannot be read: {shown(exc)}") from exc


def shown(location: object) -> str:
    """An address for messages, without passwords."""
    return re.sub(r"//[^/@\s]*@", "//***@", redact(str(location)))


def refusal(location: object, identifier: TableIdentifier, reason: str) -> FloeStorageError:
    """The error for a metadata file that cannot be registered."""
    return FloeStorageError(
        f"'{identifier}' was not registered: {shown(location)!r} {reason}. Give the address of a table's newest "
        f"metadata file, such as file:///lake/bronze/orders/metadata/00003-….metadata.json"
    )
