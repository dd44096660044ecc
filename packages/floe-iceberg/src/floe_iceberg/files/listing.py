"""The files under a table's location, as the store has them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timezone

from pyarrow.fs import FileSelector, FileType
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from floe_core.errors import ConfigurationError
from floe_core.identifiers import TableIdentifier
from floe_iceberg.errors import translated
from floe_iceberg.files.containment import canonical

__all__ = ["Listed", "is_hidden", "list_files", "location_of"]

# The file in which Hadoop catalogs record the newest metadata file of a table.
_HINT = "version-hint.text"


@dataclass(frozen=True)
class Listed:
    """Size and last modification of a file."""

    size: int
    modified: datetime


def location_of(table: Table) -> str:
    return canonical(table.location())


def list_files(table: Table, identifier: TableIdentifier, folder: str | None = None) -> dict[str, Listed]:
    """Every file below the table's location, or below another folder of it, by its canonical path.

    Without the checksums that Hadoop keeps beside local files, as `.name.crc`: it deletes them with the file.
    """
    if not isinstance(table.io, PyArrowFileIO):
        raise ConfigurationError(
            f"the files of '{identifier}' are accessed through {type(table.io).__name__}, which cannot list them, and "
            f"Floe deletes nothing that it cannot list: use a storage plugin with a PyArrowFileIO"
        )
    scheme, netloc, path = PyArrowFileIO.parse_location(folder or table.location())
    with translated("list_files", identifier):
        entries = table.io.fs_by_scheme(scheme, netloc).get_file_info(
            FileSelector(path, allow_not_found=True, recursive=True)
        )
    return {
        (canonical(entry.path) if scheme == "file" else entry.path): Listed(
            entry.size or 0, entry.mtime or datetime.now(timezone.utc)
        )
        for entry in entries
        if entry.type is FileType.File and not (entry.base_name.startswith(".") and entry.base_name.endswith(".crc"))
    }


def is_hidden(path: str, location: str, fields: Collection[str]) -> bool:
    """Is it a hidden file, which Iceberg leaves alone no matter whose it is?

    A partition folder is not hidden, whatever the name of its field.
    """
    *folders, name = path[len(location) :].strip("/").split("/")
    hidden = [part for part in folders if part[:1] in (".", "_") and part.partition("=")[0] not in fields]
    return bool(hidden) or name[:1] in (".", "_") or name == _HINT
