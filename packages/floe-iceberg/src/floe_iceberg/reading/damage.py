"""Detect damaged files before Java reads them. The patches in `_pyiceberg/damaged_files.py` report them."""

from __future__ import annotations

from pyiceberg.io import FileIO
from pyiceberg.table.snapshots import Snapshot

__all__ = ["check_listed"]


def check_listed(snapshot: Snapshot | None, io: FileIO) -> None:
    """Read the manifest list before Java does: Java takes a list without entries for an empty table."""
    if snapshot is not None:
        snapshot.manifests(io)
