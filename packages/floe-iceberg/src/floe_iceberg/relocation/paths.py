"""The addresses in a folder that moved: where the file of a recorded address is now."""

from __future__ import annotations

import os
from dataclasses import dataclass

from floe_iceberg.files.containment import local_path
from floe_iceberg.files.former_folders import is_below, local_address

__all__ = ["MovedFolder", "MovedPaths"]


@dataclass(frozen=True)
class MovedFolder:
    """A folder that moved, as normal absolute paths."""

    old: str
    new: str

    def path_now(self, path: str) -> str | None:
        """Where a path in the old folder is now; None for a path elsewhere."""
        return f"{self.new}{path[len(self.old) :]}" if is_below(path, self.old) else None

    def path_before(self, path: str) -> str | None:
        """Where a path in the new folder was; None for a path elsewhere."""
        return f"{self.old}{path[len(self.new) :]}" if is_below(path, self.new) else None

    def shared_parent(self) -> MovedFolder:
        """The outermost folders with the same names below them: a project whose warehouse kept its place in it."""
        old, new = self.old.split("/"), self.new.split("/")
        while len(old) > 1 and len(new) > 1 and old[-1] == new[-1]:
            old, new = old[:-1], new[:-1]
        return MovedFolder("/".join(old), "/".join(new))


class MovedPaths:
    """Maps recorded addresses to those of the same files now.

    Every file below the old warehouse moved. Other files of the old project moved if they exist in the project; all
    other addresses stay as they are.

    Args:
        warehouse: The warehouse.
        project: The project, if it moved with the warehouse.
    """

    def __init__(self, warehouse: MovedFolder, project: MovedFolder | None = None) -> None:
        self.warehouse = warehouse
        self.project = project

    def new(self, address: str) -> str:
        """The address now, with the scheme as it was written."""
        local, path = local_path(address), local_address(address)
        if local is None or path is None or self._is_new(path):
            return address
        moved = self.warehouse.path_now(path)
        if moved is None and self.project is not None:
            candidate = self.project.path_now(path)
            moved = candidate if candidate is not None and os.path.lexists(candidate) else None
        return address if moved is None else f"{address[: len(address) - len(local)]}{moved}"

    def _is_new(self, path: str) -> bool:
        """Does a path lie in the new warehouse? Either folder may have moved into the other one."""
        old, new = self.warehouse.old, self.warehouse.new
        return is_below(path, new) and not (is_below(old, new) and is_below(path, old))

    def is_old(self, address: str) -> bool:
        return self.new(address) != address

    def is_in_old_project(self, address: str) -> bool:
        """Does an address lie in the old folders, whether or not its file moved?"""
        path = local_address(address)
        folders = [self.warehouse, *([self.project] if self.project is not None else [])]
        return path is not None and any(
            is_below(path, folder.old) and not is_below(path, folder.new) for folder in folders
        )
