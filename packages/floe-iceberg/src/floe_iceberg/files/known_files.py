"""The known files of one table: its manifests may be damaged, missing or inaccessible."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pyiceberg.table import Table
from tenacity import Retrying, stop_after_attempt

from floe_iceberg.files.reachable import present_files
from floe_iceberg.files.unreadable import is_hidden, is_lasting

__all__ = ["PATHS", "KnownFiles", "advice", "read_files", "sends_files_elsewhere"]

# Properties that place files of a table outside of its location.
PATHS = ("write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path")
# Set when existing files, which have no field ids, are added to a table in place.
_NAME_MAPPING = "schema.name-mapping.default"
_ATTEMPTS = 3


def sends_files_elsewhere(properties: Iterable[str]) -> bool:
    return any(key in PATHS for key in properties)


def _may_have_strays(properties: Iterable[str]) -> bool:
    """Do the properties show that files of the table may lie outside of its location?"""
    return _NAME_MAPPING in properties or sends_files_elsewhere(properties)


@dataclass(frozen=True)
class KnownFiles:
    """The files of a table; incomplete if some of its manifests cannot be read."""

    paths: set[str]
    complete: bool


def read_files(load: Callable[[], Table], *, allow_incomplete: bool) -> KnownFiles:
    """The files of the table that `load` loads; a failure is retried, because a snapshot may expire while it is read.

    A table whose manifests this user may not read is left out, like one that this user may not load. The files of
    damaged and missing manifests are left out if all files of the table must lie in its location; otherwise such a
    manifest is an error.

    Args:
        allow_incomplete: If false, every manifest that cannot be read is an error.
    """
    table: Table | None = None
    try:
        for attempt in Retrying(stop=stop_after_attempt(_ATTEMPTS), reraise=True):
            with attempt:
                table = load()
                paths = present_files(table)
    except Exception as exc:
        if allow_incomplete and is_hidden(exc):
            return KnownFiles(set(), complete=False)
        if not allow_incomplete or not is_lasting(exc) or table is None or _may_have_strays(table.properties):
            raise
        return KnownFiles(present_files(table, skip_unreadable=True), complete=False)
    return KnownFiles(paths, complete=True)


def advice(reason: BaseException, name: object) -> str:
    """The next step for a table that cannot be read."""
    if is_hidden(reason):
        return f"give this user access to '{name}', or drop it first"
    return f"repair or drop '{name}' first" if is_lasting(reason) else f"run it again once '{name}' can be loaded"
