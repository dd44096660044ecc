"""Checks of a rewritten table before the catalog names its new metadata."""

from __future__ import annotations

from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.serializers import FromInputFile
from pyiceberg.table.metadata import TableMetadata

from floe_core.errors import FloeStorageError
from floe_iceberg.relocation.contents import Contents, contents_of
from floe_iceberg.relocation.paths import MovedPaths

__all__ = ["verify"]


def verify(table: str, address: str, *, old: TableMetadata, before: Contents, paths: MovedPaths) -> None:
    """Read the new metadata from the files; FloeStorageError unless it is complete and equal to the old.

    Args:
        table: The table, for messages.
        address: The new metadata file.
        old: The metadata before.
        before: What it referenced.
        paths: Where its files are now.
    """
    metadata = FromInputFile.table_metadata(PyArrowFileIO().new_input(address))
    after = contents_of(metadata, lambda recorded: recorded)
    problems = list(after.problems)
    problems += [f"snapshot {snapshot} has other rows" for snapshot in _differing(before, after)]
    addresses = (metadata.location, *after.addresses(), *(entry.metadata_file for entry in metadata.metadata_log))
    problems += [f"{left} is an old address" for left in addresses if paths.is_old(left)]
    if _history(metadata) != _history(old):
        problems.append("its snapshots and refs differ")
    if problems:
        raise FloeStorageError(
            f"the rewritten metadata of '{table}' is not equal to the old ({problems[0]}), so nothing was changed. "
            f"This is a defect of Floe: move the lake back to where it was, and report it"
        )


def _differing(before: Contents, after: Contents) -> list[int]:
    return sorted(
        snapshot
        for snapshot in before.rows.keys() | after.rows.keys()
        if before.rows.get(snapshot) != after.rows.get(snapshot)
    )


def _history(metadata: TableMetadata) -> object:
    snapshots = [(snapshot.snapshot_id, snapshot.parent_snapshot_id) for snapshot in metadata.snapshots]
    return metadata.table_uuid, metadata.current_snapshot_id, snapshots, metadata.refs, metadata.snapshot_log
