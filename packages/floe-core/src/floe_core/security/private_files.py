"""`.floe` is its owner's: folders 0700, the contract, databases and logs 0600, whatever the umask. No-op on Windows."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

__all__ = ["STATE_FOLDER", "create_private", "make_folder", "narrow"]

STATE_FOLDER = ".floe"
_SHARED = stat.S_IRWXG | stat.S_IRWXO


def make_folder(folder: Path) -> None:
    """Create a folder and those above it; `.floe` and what is below it are the user's own."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    for one in reversed(missing):
        one.mkdir(mode=0o700 if STATE_FOLDER in one.parts else 0o777, exist_ok=True)
    if not folder.is_dir():
        folder.mkdir()  # raises as it should for a file in its place


def create_private(path: Path) -> None:
    """Create an empty file that only its owner reads; one that exists is left as it is."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def narrow(root: Path) -> None:
    """Take the rights of others away from `.floe` of a project, where it is this user's; tables keep theirs."""
    if os.name != "posix":
        return
    state = root / STATE_FOLDER
    _narrow(state)
    for folder, below, files in os.walk(state):
        if Path(folder) == state and "warehouse" in below:
            below.remove("warehouse")
        for name in (*below, *files):
            _narrow(Path(folder, name))


def _narrow(path: Path) -> None:
    with suppress(OSError):  # a read-only disk, or gone by now
        found = path.lstat()
        regular = stat.S_ISDIR(found.st_mode) or stat.S_ISREG(found.st_mode)
        if regular and found.st_uid == os.geteuid() and found.st_mode & _SHARED:
            path.chmod(stat.S_IMODE(found.st_mode) & ~_SHARED)
