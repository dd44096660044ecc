"""The files under a table's location, as the store has them."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timezone

from pyarrow.fs import FileSelector, FileType
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from floe_core.errors import ConfigurationError, FloeStorageError
from floe_core.identifiers import TableIdentifier
from floe_iceberg.errors import translated

__all__ = ["Listed", "canonical", "canonical_set", "is_below", "is_hidden", "list_files", "location_of", "refuse_links"]


_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?://([^/]*))?(.*)", re.DOTALL)
# Where tables of Hadoop catalogs say which of their metadata files is the newest.
_HINT = "version-hint.text"


@dataclass(frozen=True)
class Listed:
    """One file."""

    size: int
    modified: datetime


def canonical(path: str) -> str:
    """The same text for the same file, however an engine writes its address.

    That is: file:/a, file:///a and file:///x/..//a; s3 and s3a. In a store for objects `//` is part of a name. No part
    of a path is cut off, as PyIceberg does after `#` and `?`: files may be called so.
    """
    address = _ADDRESS.fullmatch(path)
    if address is None:
        return _normal(os.path.join(os.getcwd(), path))  # noqa: PTH109, PTH118 - text, links are not followed
    scheme, host, rest = address.groups(default="")
    if scheme.lower() == "file":
        return _normal(rest)
    return (rest if scheme in ("hdfs", "viewfs") else f"{host}{rest}").rstrip("/")


def _normal(path: str) -> str:
    return "/" + os.path.normpath(path).strip("/")


def location_of(table: Table) -> str:
    return canonical(table.location())


def is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def list_files(table: Table, identifier: TableIdentifier) -> dict[str, Listed]:
    """Every file below the table's location, by its canonical path.

    Without the checksums that Hadoop keeps beside local files, as `.name.crc`: they come and go with the file.
    """
    if not isinstance(table.io, PyArrowFileIO):
        raise ConfigurationError(
            f"the files of '{identifier}' are reached by {type(table.io).__name__}, which cannot list them, and Floe "
            f"deletes nothing that it cannot count: use a storage plugin with a PyArrowFileIO"
        )
    scheme, netloc, path = PyArrowFileIO.parse_location(table.location())
    with translated("list_files", identifier):
        found = table.io.fs_by_scheme(scheme, netloc).get_file_info(
            FileSelector(path, allow_not_found=True, recursive=True)
        )
    return {
        (_normal(one.path) if scheme == "file" else one.path): Listed(
            one.size or 0, one.mtime or datetime.now(timezone.utc)
        )
        for one in found
        if one.type is FileType.File and not (one.base_name.startswith(".") and one.base_name.endswith(".crc"))
    }


def refuse_links(table: Table, identifier: TableIdentifier, paths: Iterable[str]) -> None:
    """What a link below the location leads to lies elsewhere, and is not the table's to delete."""
    if PyArrowFileIO.parse_location(table.location())[0] != "file":
        return
    location = location_of(table)
    real = os.path.realpath(location)
    for path in paths:
        if os.path.realpath(path) != real + path[len(location) :]:
            raise FloeStorageError(
                f"{path} below the location of '{identifier}' is reached through a link, so it may be somebody else's "
                f"file; nothing was deleted. Remove the link first"
            )


def is_hidden(path: str, location: str, fields: Collection[str]) -> bool:
    """Is it one of the files that Iceberg leaves alone, whoever they belong to?

    A folder of a partition is none, whatever its field is called.
    """
    *folders, name = path[len(location) :].strip("/").split("/")
    hidden = [part for part in folders if part[:1] in (".", "_") and part.partition("=")[0] not in fields]
    return bool(hidden) or name[:1] in (".", "_") or name == _HINT


def canonical_set(paths: Iterable[str]) -> set[str]:
    return {canonical(one) for one in paths}
