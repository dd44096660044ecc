"""Expiry of a table that has files of others: its metadata forgets them, and only its own files are deleted."""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.table import Table
from pyiceberg.table.update import (
    RemovePartitionStatisticsUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    TableUpdate,
)

from floe_core.identifiers import TableIdentifier
from floe_core.maintenance import KeptFile
from floe_iceberg.belongings import Belongings, Homes
from floe_iceberg.leases import LEASE
from floe_iceberg.neighbours import Neighbours
from floe_iceberg.purge import undeleted
from floe_iceberg.reachable import FileKind, files_by_kind
from floe_iceberg.refs import commit_refs
from floe_iceberg.retention import Expiring

__all__ = ["delete_own", "expire_metadata", "foreign_files"]


def foreign_files(
    table: Table,
    identifier: TableIdentifier,
    homes: Homes,
    neighbours: Neighbours,
    known: dict[str, tuple[str, ...]],
) -> tuple[KeptFile, ...] | None:
    """The files that the table leads to and that are not certainly its own, whichever snapshots lead to them.

    Another engine may expire meanwhile what was to stay. None if all files of the table are its own: then no snapshot
    that goes can take a file of others with it.

    Args:
        known: The files of manifests that were read before; see `present_files`.
    """
    files = _without_metadata(files_by_kind(table, known=known))
    kept = Belongings(table, homes, neighbours.references(identifier, files)).kept(files)
    return kept or None


def expire_metadata(table: Table, going: Expiring) -> None:
    """Forget the snapshots and refs, and delete no file. A conflict if a ref was moved since the table was loaded."""
    refs: dict[str, int | None] = {
        name: ref.snapshot_id for name, ref in table.metadata.refs.items() if not name.startswith(LEASE)
    }
    counted = (one.snapshot_id for one in table.metadata.partition_statistics)
    updates: list[TableUpdate] = [RemoveSnapshotRefUpdate(ref_name=name) for name in sorted(going.refs)]
    updates += [RemovePartitionStatisticsUpdate(snapshot_id=one) for one in counted if one in going.snapshots]
    if going.snapshots:
        updates.append(RemoveSnapshotsUpdate(snapshot_ids=sorted(going.snapshots)))
    commit_refs(table, refs, updates)


def delete_own(
    before: Table, after: Table, foreign: tuple[KeptFile, ...], known: dict[str, tuple[str, ...]]
) -> tuple[dict[str, FileKind], tuple[KeptFile, ...]]:
    """Delete what the table led to before and does not now, except `foreign`: what is gone, and what is left of it."""
    still = files_by_kind(after, known=known)
    kept = {one.path for one in foreign}
    leaving = _without_metadata(files_by_kind(before, known=known))
    own = {path: kind for path, kind in leaving.items() if path not in still and path not in kept}
    failed = undeleted(after.io, own)
    left = [KeptFile(path=path, reason=f"it could not be deleted: {why}") for path, why in failed.items()]
    spared = [one for one in foreign if one.path not in still]
    return {path: kind for path, kind in own.items() if path not in failed}, (*spared, *left)


def _without_metadata(files: Mapping[str, FileKind]) -> dict[str, FileKind]:
    """Expiry deletes no metadata files: the next commits do, or the removal of orphans."""
    return {path: kind for path, kind in files.items() if kind is not FileKind.METADATA}
