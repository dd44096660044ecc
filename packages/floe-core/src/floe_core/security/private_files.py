"""Modes in `.floe`: folders 0700; the contract, databases and logs 0600, whatever the umask. No-op on Windows."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

__all__ = ["STATE_FOLDER", "create_private", "make_folder", "narrow"]

STATE_FOLDER = ".floe"
_SHARED = stat.S_IRWXG | stat.S_IRWXO


def make_folder(folder: Path) -> None:
    """Create a folder and its parents; only the user can access `.floe` and folders below it."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=0o700 if STATE_FOLDER in path.parts else 0o777, exist_ok=True)
    if not folder.is_dir():
        folder.mkdir()  # raises: a file is in its place


def create_private(path: Path) -> None:
    """Create an empty file that only its owner can read; an existing file is not changed."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def narrow(root: Path) -> None:
    """Remove the permissions of other users on this user's files in a project's `.floe`; tables keep theirs."""
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
    with suppress(OSError):  # a read-only disk, or deleted since
        status = path.lstat()
        regular = stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode)
        if regular and status.st_uid == os.geteuid() and status.st_mode & _SHARED:
            path.chmod(stat.S_IMODE(status.st_mode) & ~_SHARED)
