"""Paths that engines cannot use, and messages for a local disk that cannot be written."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from floe_core.errors import ConfigurationError, FloeStorageError

__all__ = ["disk_problem", "usable_path", "writing"]

_PROBLEMS = {
    errno.ENOSPC: "no space left on the disk: free some, then run it again",
    errno.EDQUOT: "the disk quota is used up: free some space, then run it again",
    errno.EROFS: "the file system is read-only: mount it for writing, or copy the project to another place",
    errno.EACCES: "this user may not write there: allow it, or run as the owner of the folder",
    errno.EPERM: "this user may not write there: allow it, or run as the owner of the folder",
}


def usable_path(path: Path) -> Path:
    """The absolute path; refuses characters that the engines read as parts of an address."""
    resolved = path.resolve()
    if set("#%?") & set(str(resolved)):
        raise ConfigurationError(
            f"the path {resolved} contains one of # % ?, which Iceberg does not support; choose another"
        )
    return resolved


def disk_problem(exc: BaseException) -> str | None:
    """Why the disk refused a write, and the next step; None if the failure has another cause."""
    if not isinstance(exc, OSError) or exc.errno not in _PROBLEMS:
        return None
    where = f"{exc.filename}: " if exc.filename else ""
    return f"{where}{_PROBLEMS[exc.errno]} ({os.strerror(exc.errno)})"


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a disk's refusal into a FloeStorageError that names the file."""
    try:
        yield
    except OSError as exc:
        problem = disk_problem(exc)
        if problem is None:
            raise
        named = problem if exc.filename else f"{path}: {problem}"
        raise FloeStorageError(f"cannot write {named}") from exc
