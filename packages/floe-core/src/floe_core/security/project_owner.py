"""Refuse projects of other users, because Floe executes their code; git does the same for repositories."""

from __future__ import annotations

import os
from pathlib import Path

from floe_core.errors import ConfigurationError
from floe_core.security.private_files import STATE_FOLDER

__all__ = ["SAFE_PROJECTS", "refuse_foreign_project"]

SAFE_PROJECTS = "FLOE_SAFE_PROJECTS"
_STICKY_FOR_ALL = 0o1002


def refuse_foreign_project(root: Path, spec: str) -> None:
    """ConfigurationError if the folder, its floe.yaml or its `.floe` belongs to another user. No-op on Windows."""
    if os.name != "posix" or root in _safe_projects():
        return
    # In a folder like /tmp the owner of floe.yaml decides: others cannot replace that file there.
    folder = [] if root.stat().st_mode & _STICKY_FOR_ALL == _STICKY_FOR_ALL else [root]
    for path in (*folder, root / spec, root / STATE_FOLDER):
        if _is_foreign(path):
            raise ConfigurationError(
                f"{path} belongs to another user, and Floe would execute the code of the project as you; if you trust "
                f"it, set {SAFE_PROJECTS}={root}"
            )


def _safe_projects() -> set[Path]:
    """The folders that the environment variable lists; folders below them are not included."""
    return {
        Path(folder).resolve()
        for folder in os.environ.get(SAFE_PROJECTS, "").split(os.pathsep)
        if Path(folder).is_absolute()
    }


def _is_foreign(path: Path) -> bool:
    try:
        return path.lstat().st_uid not in _users()
    except FileNotFoundError:
        return False


def _users() -> set[int]:
    """This user, and root, which can run code as this user anyway; for root also the user who called sudo."""
    user = os.geteuid()
    caller = os.environ.get("SUDO_UID", "")
    return {user, 0, int(caller)} if user == 0 and caller.isdecimal() else {user, 0}
