"""Does a file lie below a folder? Everything that deletes files decides it here.

An address can be read in several ways: literally or with its percent-encoding decoded, with or without regard to case,
with `..` resolved as text or by the file system. `is_inside` is true only where all readings agree, `may_overlap` and
`file_key` cover every reading that is possible. Deletion relies on the first, protection on the others.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote

__all__ = [
    "canonical",
    "canonical_set",
    "file_key",
    "file_keys",
    "is_inside",
    "is_same",
    "local_path",
    "may_be_below",
    "may_overlap",
    "real_path",
]

_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?://([^/]*))?(.*)", re.DOTALL)
# Schemes by which engines reach the same store.
_EQUIVALENT = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs", "wasbs": "wasb"}
_WITH_FOLDERS = ("file", "hdfs", "viewfs")
_UNREADABLE = re.compile(r"[\x00\\]")


@dataclass(frozen=True)
class _Address:
    """The parts of one address. `doubtful`: two engines could resolve it to different files."""

    store: str
    host: str
    parts: tuple[str, ...]
    doubtful: bool


def is_inside(path: str, folder: str) -> bool:
    """Is it certain that the path lies below the folder? The folder itself does not.

    Never for a path with `..` (a link before it leads elsewhere), for a name with `//`, `.` or `..` in an object store
    (some engines normalise it, others do not), or where case or percent-encoding make the difference. Below the folder
    encoded names may contain anything but `..`, as partition values do: `url=https%3A%2F%2Fexample.com`. Links are
    not followed here: see `local_path`.
    """
    (place, decoded), file = _folder(folder), _parsed(path, False)
    if not _is_prefix(place, file) or decoded.doubtful or _is_root(decoded):
        return False
    below = unquote("/".join(file.parts[len(place.parts) :]))
    pieces = set(re.split(r"[/\\]", below))
    return "\x00" not in below and ".." not in pieces and not pieces <= {"", "."}


@lru_cache(maxsize=1024)
def _folder(folder: str) -> tuple[_Address, _Address]:
    """A folder that many files are compared with: literal and decoded."""
    return _parsed(folder, False), _parsed(folder, True)


def is_same(location: str, other: str) -> bool:
    """Is it certain that both are the same location?"""
    return all(_is_equal(_parsed(location, decoded), _parsed(other, decoded)) for decoded in (False, True))


def may_overlap(location: str, other: str) -> bool:
    """Could the locations be the same, or one lie below the other, in any reading?"""
    return may_be_below(location, other) or may_be_below(other, location)


def may_be_below(path: str, folder: str) -> bool:
    """Could a path be the folder or lie below it, in any reading?"""
    key, place = file_key(path), file_key(folder)
    below = key == place or key.startswith(f"{place.rstrip('/')}/")
    return below and not _is_apart_by_case(path, folder)


def _is_apart_by_case(path: str, folder: str) -> bool:
    """Are these two folders on disk whose names differ only in case?"""
    here, there = local_path(path), local_path(folder)
    if here is None or there is None or "\x00" in here or "\x00" in there:
        return False
    place = os.path.realpath(there)
    above = "/".join(os.path.realpath(here).split("/")[: len(place.split("/"))])
    if above == place or above.casefold() != place.casefold() or "%" in place:
        return False
    try:
        return not Path(above).samefile(place)
    except OSError:  # one of them does not exist
        return False


def file_key(path: str) -> str:
    """One key for all addresses that could name the same file: links are followed, encoding is ignored.

    So is case, except in object stores, where names that differ in case are different files.
    """
    return _key(path, {})


def file_keys(paths: Iterable[str]) -> dict[str, list[str]]:
    """Addresses by their `file_key`; a folder is resolved once."""
    folders: dict[str, str] = {}
    by_key: dict[str, list[str]] = {}
    for path in paths:
        by_key.setdefault(_key(path, folders), []).append(path)
    return by_key


def _key(path: str, folders: dict[str, str]) -> str:
    local = local_path(path)
    text = canonical(path) if local is None else real_path(local, folders)
    rooted = text.startswith("/")
    parts = os.path.normpath(unquote(text)).strip("/")
    key = ("/" if rooted else "") + unicodedata.normalize("NFC", parts)
    return key if local is None else key.casefold()


def local_path(path: str) -> str | None:
    """The path on this machine's disk, not normalised; None for an address of another store."""
    address = _ADDRESS.fullmatch(path)
    if address is None:
        return path
    scheme, _, rest = address.groups(default="")
    return rest if scheme.lower() == "file" else None


def canonical(path: str) -> str:
    """One form for all the ways in which engines write the address of the same file.

    Such as file:/a, file:///a and file:///x/..//a; s3 and s3a. In an object store `//` is part of a name. No part of a
    path is cut off, as PyIceberg does after `#` and `?`: file names may contain them.
    """
    address = _ADDRESS.fullmatch(path)
    if address is None:
        return _normal(os.path.join(os.getcwd(), path))  # noqa: PTH109, PTH118 - text, links are not followed
    scheme, host, rest = address.groups(default="")
    if scheme.lower() == "file":
        return _normal(rest)
    return (rest if scheme in ("hdfs", "viewfs") else f"{host}{rest}").rstrip("/")


def canonical_set(paths: Iterable[str]) -> set[str]:
    return {canonical(path) for path in paths}


def _normal(path: str) -> str:
    return "/" + os.path.normpath(path).strip("/")


def real_path(path: str, folders: dict[str, str]) -> str:
    """The path with links followed; `folders` caches resolved folders."""
    folder, name = os.path.split(path.rstrip("/"))
    if "\x00" in path:  # no file system allows it
        return path
    if os.path.islink(path) or name in ("", ".", ".."):  # noqa: PTH114 - many files, and text
        return os.path.realpath(path)
    return os.path.join(_real_folder(folder, folders), name)  # noqa: PTH118 - text


def _real_folder(folder: str, folders: dict[str, str]) -> str:
    """Like `os.path.realpath`, which checks every parent of every folder: here each is checked once."""
    if folder not in folders:
        parent, name = os.path.split(folder)
        if name in ("", ".", "..") or os.path.islink(folder):  # noqa: PTH114 - many folders, and text
            folders[folder] = os.path.realpath(folder)
        else:
            folders[folder] = os.path.join(_real_folder(parent, folders), name)  # noqa: PTH118 - text
    return folders[folder]


def _parsed(path: str, decoded: bool) -> _Address:
    address = _ADDRESS.fullmatch(path)
    scheme, host, rest = ("file", "", path) if address is None else address.groups(default="")
    scheme = scheme.lower()
    store = _EQUIVALENT.get(scheme, scheme)
    text = unquote(rest) if decoded else rest
    pieces = text.strip("/").split("/")
    local = store == "file"
    if local and host.lower() == "localhost":
        host = ""
    empty_or_dot = any(piece in ("", ".") for piece in pieces) and text.strip("/") != ""
    doubtful = (
        ".." in pieces
        or _UNREADABLE.search(text) is not None
        or (store in _WITH_FOLDERS and not text.startswith("/"))
        or (local and host != "")
        or (store not in _WITH_FOLDERS and (empty_or_dot or not host or text.startswith("//")))
    )
    return _Address(store, host, tuple(piece for piece in pieces if piece not in ("", ".")), doubtful)


def _is_prefix(folder: _Address, path: _Address) -> bool:
    if folder.doubtful or path.doubtful or (folder.store, folder.host) != (path.store, path.host):
        return False
    if _is_root(folder):
        return False
    count = len(folder.parts)
    return len(path.parts) > count and path.parts[:count] == folder.parts


def _is_root(folder: _Address) -> bool:
    """The root of a file system contains everything, so it cannot be the folder of a table."""
    return not folder.parts and folder.store in _WITH_FOLDERS


def _is_equal(address: _Address, other: _Address) -> bool:
    return not address.doubtful and not other.doubtful and address == other
