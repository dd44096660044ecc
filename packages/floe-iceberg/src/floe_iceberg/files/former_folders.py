"""The folder that a table was recorded in, if it is not the one that its files are in now."""

from __future__ import annotations

import os
from collections.abc import Sequence

from floe_iceberg.files.containment import canonical, local_path

__all__ = ["former_folder", "is_below", "local_address", "old_folder", "old_folder_of_location"]


def former_folder(location: str, metadata: Sequence[str], folder: str) -> str | None:
    """What `folder` was called when a table was recorded; None for a table of this folder, or of another one.

    A table of another folder has no metadata file in this one. A folder that was moved or copied has the file that its
    catalog names, or, after a commit to the original, an earlier one.

    Args:
        location: The location of the table.
        metadata: The addresses of its metadata files, the newest first.
        folder: The normal path of the warehouse, or of the project.
    """
    place, newest = local_address(location), local_address(metadata[0])
    if place is None or newest is None or is_below(place, folder):
        return None
    if is_below(newest, folder):
        found = [old_folder_of_location(location, newest, folder)]
    else:
        found = [old_folder(address, folder) for address in metadata]
    return next((old for old in found if old not in (None, folder)), None)


def local_address(address: str) -> str | None:
    """The normal path of a file on this machine; None for anything else, such as an ordinary property value."""
    local = local_path(address)
    if local is None or not local.startswith("/") or "\x00" in local:
        return None
    return canonical(address)


def is_below(path: str, folder: str) -> bool:
    """Is a normal path the folder, or below it?"""
    return path == folder or path.startswith(f"{folder}/")


def old_folder(address: str, folder: str) -> str | None:
    """What `folder` was called when the address of a file was recorded; None if it does not hold that file.

    The file is found by the end of its address, at least its name and two folders: the names of metadata files are
    unique.
    """
    path = local_address(address)
    parts = path.strip("/").split("/") if path is not None else []
    for count in range(1, len(parts) - 2):
        if os.path.isfile("/".join((folder, *parts[count:]))):  # noqa: PTH113 - text, as the other addresses
            return "/" + "/".join(parts[:count])
    return None


def old_folder_of_location(location: str, metadata: str, folder: str) -> str | None:
    """The same, for the location of a table whose metadata file is at the path `metadata` below `folder`."""
    path = local_address(location)
    parts = path.strip("/").split("/") if path is not None else []
    for count in range(1, len(parts)):
        if is_below(metadata, "/".join((folder, *parts[count:]))):
            return "/" + "/".join(parts[:count])
    return None
