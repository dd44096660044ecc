"""The folders of run histories: one for each environment and catalog, and one for each branch of the lake."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from floe_core.config import CATALOG_NAME, MAIN, CompiledArtifacts
from floe_core.security import create_private, make_folder

__all__ = ["begin_home", "home_of", "open_home", "remove_home"]

# Separates the name of a branch in the name of a folder: no name has it.
_AT = "@"
# The file that says which branch of a name it is.
_CREATED = "branch.txt"
# The file in which Dagster's storage keeps what is known of assets. Runs and their logs are in others.
_INDEX = Path("history", "runs", "index.db")


def home_of(artifacts: CompiledArtifacts) -> tuple[Path, str]:
    """The folder of a run history, and the identity of its catalog."""
    name = "dagster" if artifacts.environment is None else f"dagster.{artifacts.environment}"
    catalog = artifacts.catalog.model_dump(mode="json", include={"type", "uri", "name", "warehouse", "realm"})
    if catalog.get("name") == CATALOG_NAME:  # older files do not have the name
        del catalog["name"]
    identity = json.dumps(catalog, sort_keys=True)
    home = artifacts.root / ".floe" / name
    mark = home / "catalog.json"
    if mark.is_file() and mark.read_text(encoding="utf-8") != identity:
        home = home.with_name(f"{name}-{hashlib.sha256(identity.encode()).hexdigest()[:8]}")
    if artifacts.lake_branch is not None:
        home = home.with_name(f"{home.name}{_AT}{artifacts.lake_branch}")
    return home, identity


def open_home(artifacts: CompiledArtifacts) -> Path:
    """The folder of a run history; it is created if it does not exist.

    That of a branch begins with what main's history knows of assets: the branch has their rows.
    """
    home, identity = home_of(artifacts)
    is_new = not home.is_dir()
    make_folder(home)
    (home / "catalog.json").write_text(identity, encoding="utf-8")
    if is_new and artifacts.lake_branch is not None:
        _begin_with(home_of(artifacts.on_branch(MAIN))[0] / _INDEX, home / _INDEX)
    return home


def begin_home(artifacts: CompiledArtifacts, created_ms: int) -> None:
    """Create the folder of a branch, in place of that of an earlier branch of the same name.

    Maintenance, and other machines, discard a branch without its history.

    Args:
        artifacts: The project, at the branch.
        created_ms: When the branch was created.
    """
    mark = home_of(artifacts)[0] / _CREATED
    if mark.parent.is_dir() and (not mark.is_file() or mark.read_text(encoding="utf-8") != str(created_ms)):
        remove_home(artifacts)
    open_home(artifacts)
    mark.write_text(str(created_ms), encoding="utf-8")


def remove_home(artifacts: CompiledArtifacts) -> None:
    """Remove the run history of a branch, which is gone."""
    if artifacts.lake_branch is not None:
        shutil.rmtree(home_of(artifacts)[0], ignore_errors=True)


def _begin_with(source: Path, target: Path) -> None:
    """Copy a database that another process may be writing to."""
    if not source.is_file():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    create_private(target)
    with closing(sqlite3.connect(source)) as before, closing(sqlite3.connect(target)) as copy:
        before.backup(copy)
